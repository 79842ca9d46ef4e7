//! An object without packets: it is explored, and what is found is run on interpreter and kernel.

use std::path::Path;
use std::sync::Arc;

use flowloom_bpf::{Interpreter, Program, fib};
use flowloom_exec::{KernelEngine, Reason};
use flowloom_verify::explore::{Case, ExploreOptions, Explored, explore};
use flowloom_verify::{Arrival, CompareOptions, ShrinkOptions, compare, mutated, shrink};
use serde_json::{Value, json};

use super::write_trace;
use crate::args::{EngineName, VerifyArgs};
use crate::failure::{Failure, with_causes};
use crate::output::{grouped, print, print_json, progress};
use crate::run::read_routes;

/// Each case is run again with its packets changed at random so often.
const CHANGED: u64 = 12;
/// So many pieces that were not reached are printed.
const GAPS_SHOWN: usize = 20;

/// A case on which the engines part.
struct Parted {
    case: Case,
    /// As few packets as still show it.
    packets: Vec<Arrival>,
    disagreement: String,
}

pub(super) fn verify(
    args: &VerifyArgs,
    program: &Arc<Program>,
    targets: &[(EngineName, Option<Reason>)],
) -> Result<(), Failure> {
    let kernel = targets.iter().find(|(name, _)| *name == EngineName::Kernel);
    if let Some((_, Some(reason))) = kernel {
        return Err(Failure::Environment(format!("target `kernel` cannot run here, and there is no other: {reason}")));
    }
    let routes = read_routes(&args.routes)?;
    let bar = progress("exploring the program", None);
    let options =
        ExploreOptions { seed: args.input.seed, tries: args.packets, routes: routes.clone(), ..Default::default() };
    let explored = explore(program, &options);
    bar.finish_and_clear();
    let explored = explored.map_err(|e| Failure::input(&e))?;
    let bar = progress("comparing kernel", Some(explored.cases.len() as u64));
    let (mut packets, mut parted) = (0, None);
    for case in &explored.cases {
        match side_by_side(program, case, routes.as_ref())? {
            Ok(compared) => packets += compared,
            Err(found) => {
                parted = Some(found);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let (Some(path), Some(parted)) = (&args.write, &parted) {
        write_case(path, parted)?;
    }
    if args.json {
        print_json(&as_json(program, &explored, packets, parted.as_ref()))?;
    } else {
        print(&as_text(program, &explored, packets, parted.as_ref()))?;
    }
    if parted.is_some() { Err(Failure::Finding) } else { Ok(()) }
}

/// Runs a case and changes of it on both engines, from its state; how many packets were compared.
fn side_by_side(program: &Program, case: &Case, routes: Option<&fib::Table>) -> Result<Result<u64, Parted>, Failure> {
    let program = Arc::new(case.program(program));
    let mut kernel = KernelEngine::load(&program).map_err(|e| Failure::Input(with_causes(&e)))?;
    let mut interp = Interpreter::new(program).map_err(|e| Failure::input(&e))?;
    if let Some(routes) = routes {
        kernel = kernel.with_routes(routes).map_err(|e| Failure::Environment(with_causes(&e)))?;
        interp = interp.with_routes(routes.clone());
    }
    let mut packets = case.packets.clone();
    for round in 0..CHANGED {
        packets.extend(mutated(case.packets.clone(), case.seed ^ round));
    }
    let options = CompareOptions { seed: case.seed, state: case.state.clone(), ..CompareOptions::default() };
    let report = compare(&mut interp, &mut kernel, &packets, &options).map_err(|e| Failure::input(&e))?;
    if report.agrees() {
        return Ok(Ok(report.packets_compared));
    }
    let shrunk = shrink(&mut interp, &mut kernel, &packets, &options, &ShrinkOptions::default(), &mut |_| {})
        .map_err(|e| Failure::input(&e))?;
    let (packets, report) = shrunk.map_or((packets, report), |shrunk| (shrunk.packets, shrunk.report));
    let disagreement = report.disagreement.map(|found| found.to_string()).unwrap_or_default();
    Ok(Err(Parted { case: case.clone(), packets, disagreement }))
}

/// Writes the packets of a disagreement, and the state that they begin from beside them.
fn write_case(path: &Path, parted: &Parted) -> Result<(), Failure> {
    write_trace(path, parted.packets.iter().cloned())?;
    let state = path.with_extension("state.json");
    std::fs::write(&state, parted.case.state.to_json() + "\n").map_err(|e| Failure::file("written", &state, &e))
}

fn as_text(program: &Program, explored: &Explored, packets: u64, parted: Option<&Parted>) -> String {
    let (reached, slots) = explored.share();
    let mut text = format!(
        "{}: explored by {} runs; {} cases reach {reached} of {slots} slots ({:.0}%)\n",
        program.name,
        grouped(explored.tries),
        explored.cases.len(),
        100.0 * reached as f64 / slots.max(1) as f64
    );
    for gap in explored.gaps.iter().take(GAPS_SHOWN) {
        let place = gap.line.as_ref().map_or(String::new(), |(file, line, _)| format!(" ({file}:{line})"));
        text.push_str(&format!("not reached: instructions {} to {}{place}: {}\n", gap.first, gap.last, gap.why));
    }
    if let Some(more) = explored.gaps.len().checked_sub(GAPS_SHOWN + 1) {
        text.push_str(&format!("and {} more\n", more + 1));
    }
    match parted {
        None => text.push_str(&format!("kernel: equal to `interp` on {} packets\n", grouped(packets))),
        Some(Parted { case, packets, disagreement }) => {
            text.push_str(&format!("kernel: DIFFERS from `interp` on {} packets:\n{disagreement}\n", packets.len()));
            text.push_str(&format!("state before them: {}\n", case.state.to_json()));
        }
    }
    text
}

fn as_json(program: &Program, explored: &Explored, packets: u64, parted: Option<&Parted>) -> Value {
    let (reached, slots) = explored.share();
    let gaps: Vec<Value> = explored
        .gaps
        .iter()
        .map(|gap| {
            let line = gap.line.as_ref().map(|(file, line, text)| json!({"file": file, "line": line, "text": text}));
            json!({"first": gap.first, "last": gap.last, "line": line, "why": gap.why.to_string()})
        })
        .collect();
    json!({
        "function": program.name,
        "tries": explored.tries,
        "cases": explored.cases.len(),
        "slots": slots,
        "slots_reached": reached,
        "not_reached": gaps,
        "targets": [{
            "target": "kernel",
            "agrees": parted.is_none(),
            "packets_compared": packets,
            "disagreement": parted.map(|parted| &parted.disagreement),
            "shrunk_packets": parted.map(|parted| parted.packets.len()),
        }],
    })
}
