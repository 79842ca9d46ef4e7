//! An object without packets: it is explored, and what is found is run on interpreter and kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::Snapshot;
use flowloom_exec::{ExecError, KernelEngine, Reason};
use flowloom_isa::Program;
use flowloom_verify::explore::{Case, ExploreOptions, Explored, explore_telling};
use flowloom_verify::{Arrival, CompareOptions, Undefined, mutated};
use flowloom_vm::{Interpreter, fib};
use serde_json::{Value, json};

use super::{Judged, case, judge, nothing_compared};
use crate::args::{EngineName, VerifyArgs};
use crate::engines::kernel_failure;
use crate::failure::{Failure, with_causes};
use crate::output::{counted, print, print_json, progress};
use crate::run::read_routes;

/// Each case is run again with its packets changed at random so often.
const CHANGED: u64 = 12;
/// So many pieces that were not reached are printed.
const GAPS_SHOWN: usize = 20;

/// What came of running the cases on both engines.
#[derive(Default)]
struct Compared {
    /// Packets that both ran.
    packets: u64,
    /// Cases whose settings make a program that the kernel's verifier refuses, and the last reason.
    left_out: usize,
    reason: String,
    parted: Option<Parted>,
}

/// A case on which the engines part.
struct Parted {
    seed: u64,
    /// Before the packets, with the read-only data sections that the case sets.
    state: Snapshot,
    /// As few packets as still show it.
    packets: Vec<Arrival>,
    disagreement: String,
}

/// What came of one case.
enum Tried {
    Equal { packets: u64 },
    LeftOut { reason: String },
    Parted(Box<Parted>),
}

/// The engines, which go on from case to case: making large maps in the kernel takes longer than all packets.
struct Engines {
    /// One without a partner: as it is at first.
    kernel: Option<KernelEngine>,
    pair: Option<Pair>,
    /// Why the kernel's verifier refused the last program.
    refused: String,
}

/// Both engines with the same program. What is no state, such as the places in ring buffers, is the same on both.
struct Pair {
    /// The read-only data that the program was made with.
    constants: BTreeMap<String, Vec<u8>>,
    interp: Interpreter,
    kernel: KernelEngine,
}

impl Engines {
    /// The engines with the program of a case; `None` where the kernel's verifier refuses it.
    fn load(
        &mut self,
        program: &Program,
        case: &Case,
        routes: Option<&fib::Table>,
    ) -> Result<Option<&mut Pair>, Failure> {
        let is_same = self.pair.as_ref().is_some_and(|pair| pair.constants == case.constants);
        if !is_same {
            let before = self.pair.take().map(|pair| pair.kernel).or_else(|| self.kernel.take());
            let program = Arc::new(case.program(program));
            let loaded = match before {
                Some(before) => before.load_instead(&program),
                None => KernelEngine::load(&program),
            };
            let mut kernel = match loaded {
                // With other settings, the verifier sees other paths; what it refuses never runs.
                Err(ExecError::Refused(refused)) => {
                    self.refused = refused.reason;
                    return Ok(None);
                }
                loaded => loaded.map_err(|e| kernel_failure(&e))?,
            };
            let mut interp = Interpreter::new(program).map_err(|e| Failure::input(&e))?;
            if let Some(routes) = routes {
                kernel = kernel.with_routes(routes).map_err(|e| Failure::Environment(with_causes(&e)))?;
                interp = interp.with_routes(routes.clone());
            }
            self.pair = Some(Pair { constants: case.constants.clone(), interp, kernel });
        }
        Ok(self.pair.as_mut())
    }
}

pub(super) fn verify(
    args: &VerifyArgs,
    program: &Arc<Program>,
    targets: &[(EngineName, Option<Reason>)],
) -> Result<(), Failure> {
    if let Some((_, Some(reason))) = targets.iter().find(|(name, _)| *name == EngineName::Kernel) {
        return Err(Failure::Environment(format!("target `kernel` cannot run here, and there is no other: {reason}")));
    }
    let routes = read_routes(&args.routes)?;
    // Asked first: what either engine refuses need not be explored.
    Interpreter::new(Arc::clone(program)).map_err(|e| Failure::input(&e))?;
    let kernel = match KernelEngine::load(program) {
        Ok(kernel) => kernel,
        Err(error) => {
            let failure = kernel_failure(&error);
            if let (true, Failure::Found(reason)) = (args.json, &failure) {
                let target = json!({"target": "kernel", "agrees": null, "packets_compared": 0, "refused": reason});
                print_json(&json!({"function": program.name, "targets": [target]}))?;
            }
            return Err(failure);
        }
    };
    let explored = explored(args, program, routes.as_ref())?;
    let compared = compared(program, &explored, routes.as_ref(), kernel)?;
    let files = match (&args.write, &compared.parted) {
        (Some(path), Some(parted)) => {
            case::write(path, &parted.packets)?;
            Some((path, case::write_state(path, &parted.state)?, parted.seed))
        }
        _ => None,
    };
    if args.json {
        print_json(&as_json(program, &explored, &compared)?)?;
    } else {
        print(&as_text(program, &explored, &compared))?;
    }
    if let Some((path, state, seed)) = files {
        case::remark_written(args, path, Some(&state), seed);
    }
    match compared {
        Compared { parted: Some(_), .. } => Err(Failure::Finding),
        Compared { packets: 0, .. } => Err(nothing_compared()),
        _ => Ok(()),
    }
}

fn explored(args: &VerifyArgs, program: &Arc<Program>, routes: Option<&fib::Table>) -> Result<Explored, Failure> {
    let options =
        ExploreOptions { seed: args.input.seed, tries: args.packets, routes: routes.cloned(), ..Default::default() };
    let bar = progress("exploring the program", Some(args.packets));
    let explored = explore_telling(program, &options, &mut |so_far| {
        bar.set_position(so_far.tries);
        let share = 100 * so_far.reached / so_far.slots.max(1);
        bar.set_message(format!("exploring the program, {share}% of it reached,"));
    });
    bar.finish_and_clear();
    explored.map_err(|e| Failure::input(&e))
}

/// Runs all cases, those first in which the interpreter stopped, up to the first on which the engines part.
fn compared(
    program: &Program,
    explored: &Explored,
    routes: Option<&fib::Table>,
    kernel: KernelEngine,
) -> Result<Compared, Failure> {
    let mut engines = Engines { kernel: Some(kernel), pair: None, refused: String::new() };
    let stopped = explored.faults.iter().map(|(what, stopped)| (&stopped.case, Some(what)));
    let cases: Vec<_> = stopped.chain(explored.cases.iter().map(|case| (case, None))).collect();
    let mut compared = Compared::default();
    let bar = progress("comparing kernel", Some(cases.len() as u64));
    for (case, stopped) in cases {
        match side_by_side(program, case, stopped, routes, &mut engines, &bar)? {
            Tried::Equal { packets } => compared.packets += packets,
            Tried::LeftOut { reason } => {
                compared.left_out += 1;
                compared.reason = reason;
            }
            Tried::Parted(parted) => {
                compared.parted = Some(*parted);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(compared)
}

/// Runs a case and changes of it on both engines, from its state. `stopped` is what the interpreter has stopped with on it.
fn side_by_side(
    program: &Program,
    case: &Case,
    stopped: Option<&String>,
    routes: Option<&fib::Table>,
    engines: &mut Engines,
    bar: &indicatif::ProgressBar,
) -> Result<Tried, Failure> {
    let state = case::state(program, case);
    let Some(pair) = engines.load(program, case, routes)? else {
        return Ok(Tried::LeftOut { reason: engines.refused.clone() });
    };
    let mut packets = case.packets.clone();
    if stopped.is_none() {
        packets.extend((0..CHANGED).flat_map(|round| mutated(case.packets.clone(), case.seed ^ round)));
    }
    let options =
        CompareOptions { seed: case.seed, state: case.state.clone(), is_foreign: true, ..CompareOptions::default() };
    let mut judged = judge(&mut pair.interp, &mut pair.kernel, &packets, &options, bar)?;
    if judged.report.disagreement.is_some() {
        let undefined = Undefined::of(&case.program(program));
        if !undefined.causes().is_empty() {
            let options = CompareOptions { undefined, ..options };
            judged = judge(&mut pair.interp, &mut pair.kernel, &packets, &options, bar)?;
        }
    }
    let Judged { report, shrunk } = judged;
    let (packets, report) = shrunk.map_or((packets, report), |shrunk| (shrunk.packets, shrunk.report));
    let disagreement = match (report.disagreement, stopped) {
        (None, None) => return Ok(Tried::Equal { packets: report.packets_compared }),
        (None, Some(what)) => format!("the interpreter stopped while the program was explored: {what}\n"),
        (Some(found), _) => found.to_string(),
    };
    Ok(Tried::Parted(Box::new(Parted { seed: case.seed, state, packets, disagreement })))
}

/// One line for all runs whose state did not fit, with the reason of most of them; JSON has each.
fn misfits(misfits: &BTreeMap<String, u64>) -> String {
    // Of reasons that are as frequent, the first.
    let Some((what, most)) = misfits.iter().rev().max_by_key(|(_, times)| **times) else { return String::new() };
    let all: u64 = misfits.values().sum();
    let others = match misfits.len() - 1 {
        0 => String::new(),
        others => format!(" ({}; {} besides, see --json)", counted(*most as usize, "run"), counted(others, "reason")),
    };
    format!("left out: {} whose state did not fit: {what}{others}\n", counted(all as usize, "run"))
}

fn as_text(program: &Program, explored: &Explored, compared: &Compared) -> String {
    let (reached, slots) = explored.share();
    let mut text = format!(
        "{}: explored by {}; {} reach {reached} of {slots} slots ({:.0}%)\n",
        program.name,
        counted(explored.tries as usize, "run"),
        counted(explored.cases.len(), "case"),
        100.0 * reached as f64 / slots.max(1) as f64
    );
    for gap in explored.gaps.iter().take(GAPS_SHOWN) {
        let place = gap.line.as_ref().map_or(String::new(), |(file, line, _)| format!(" ({file}:{line})"));
        text.push_str(&format!("not reached: instructions {} to {}{place}: {}\n", gap.first, gap.last, gap.why));
    }
    if let Some(more) = explored.gaps.len().checked_sub(GAPS_SHOWN + 1) {
        text.push_str(&format!("and {} more\n", more + 1));
    }
    for (what, stopped) in &explored.faults {
        text.push_str(&format!("the interpreter stopped in {}: {what}\n", counted(stopped.times as usize, "run")));
    }
    text.push_str(&misfits(&explored.misfits));
    for (at, what) in Undefined::of(program).causes() {
        let place = super::place(program, *at);
        text.push_str(&format!("kernel-dependent contents, which say nothing of an engine: {what}{place}\n"));
    }
    if compared.left_out > 0 {
        let cases = counted(compared.left_out, "case");
        let reason = &compared.reason;
        text.push_str(&format!(
            "left out: {cases} with settings with which the verifier refuses the program: {reason}\n"
        ));
    }
    match &compared.parted {
        None if compared.packets == 0 => text.push_str("kernel: not compared with `interp`\n"),
        None => {
            let packets = counted(compared.packets as usize, "packet");
            text.push_str(&format!("kernel: equal to `interp` on {packets}\n"));
        }
        Some(Parted { seed, state, packets, disagreement }) => {
            let packets = counted(packets.len(), "packet");
            text.push_str(&format!("kernel: DIFFERS from `interp` on {packets}:\n{disagreement}\n"));
            text.push_str(&format!("seed {seed}, state before them: {}\n", state.to_json()));
        }
    }
    text
}

fn as_json(program: &Program, explored: &Explored, compared: &Compared) -> Result<Value, Failure> {
    let (reached, slots) = explored.share();
    let gaps: Vec<Value> = explored
        .gaps
        .iter()
        .map(|gap| {
            let line = gap.line.as_ref().map(|(file, line, text)| json!({"file": file, "line": line, "text": text}));
            json!({"first": gap.first, "last": gap.last, "line": line, "why": gap.why.to_string()})
        })
        .collect();
    let faults: Vec<Value> =
        explored.faults.iter().map(|(what, stopped)| json!({"what": what, "runs": stopped.times})).collect();
    let misfits: Vec<Value> = explored.misfits.iter().map(|(what, n)| json!({"what": what, "runs": n})).collect();
    let parted = compared.parted.as_ref();
    let case = parted.map(|parted| case::as_json(&parted.state, parted.seed, &parted.packets)).transpose()?;
    let agrees = (parted.is_some() || compared.packets > 0).then_some(parted.is_none());
    Ok(json!({
        "function": program.name,
        "tries": explored.tries,
        "cases": explored.cases.len(),
        "slots": slots,
        "slots_reached": reached,
        "not_reached": gaps,
        "faults": faults,
        "misfits": misfits,
        "targets": [{
            "target": "kernel",
            "agrees": agrees,
            "packets_compared": compared.packets,
            "cases_left_out": compared.left_out,
            "disagreement": parted.map(|parted| &parted.disagreement),
            "shrunk_packets": parted.map(|parted| parted.packets.len()),
            "case": case,
        }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_did_not_fit_are_one_line() {
        let of = |all: &[(&str, u64)]| misfits(&all.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect());
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("a", 1)]), "left out: 1 run whose state did not fit: a\n");
        let several = "left out: 1 006 runs whose state did not fit: b (1 000 runs; 2 reasons besides, see --json)\n";
        assert_eq!(of(&[("a", 5), ("b", 1000), ("c", 1)]), several);
    }
}
