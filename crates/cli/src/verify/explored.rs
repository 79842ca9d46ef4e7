// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verification of an object without packets: explores the program and compares the targets on the cases it finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::{Datapath, Snapshot};
use flowloom_exec::{ExecError, KernelEngine};
use flowloom_isa::Program;
use flowloom_verify::explore::{Case, ExploreOptions, Explored, explore_with_progress};
use flowloom_verify::{Arrival, CompareOptions, Undefined, mutated};
use flowloom_vm::{Interpreter, fib};
use serde_json::{Value, json};

use super::{Comparison, case, compare_and_shrink, not_own, nothing_compared, target};
use crate::args::VerifyArgs;
use crate::failure::{Failure, with_causes};
use crate::output::{counted, grouped, print, print_json, print_note, progress};
use crate::run::read_routes;
use flowloom_session::engines::{Engine, EngineName, EngineOptions, kernel_error};
use flowloom_session::{Loaded, SessionError};

/// Number of random mutations of each case's packets.
const MUTATIONS: u64 = 12;
const GAPS_SHOWN: usize = 20;

/// Result of comparing a target on all cases.
#[derive(Default)]
struct Compared {
    /// Cores of the target.
    cores: u32,
    /// Number of packets that both engines ran.
    packets: u64,
    /// Number of those that took the slow path of the target.
    slow: u64,
    /// Number of cases whose constants make the target reject the program, and the last reason.
    left_out: usize,
    reason: String,
    parted: Option<Disagreement>,
}

struct Disagreement {
    seed: u64,
    /// State before the packets, with the read-only data sections that the case sets.
    state: Snapshot,
    /// Shrunk packets that still show the disagreement.
    packets: Vec<Arrival>,
    disagreement: String,
}

enum CaseResult {
    Equal { packets: u64, slow: u64 },
    Skipped { reason: String },
    Disagreement(Box<Disagreement>),
}

/// The interpreter and a target, reused across cases: creating large maps in the kernel takes longer than running all
/// packets.
struct Engines {
    target: EngineName,
    /// Cores that were asked for.
    workers: Option<u32>,
    /// Cores that it runs on, and why it is one if more were asked for.
    cores: u32,
    why_one: Option<String>,
    /// Kernel engine that was loaded before the first case.
    spare: Option<KernelEngine>,
    pair: Option<Pair>,
    /// Reason why the target rejected the last program.
    refused: String,
}

/// Both engines with the same program. Data outside the state, such as ring buffer offsets, is the same in both.
struct Pair {
    /// Read-only data of the program.
    constants: BTreeMap<String, Vec<u8>>,
    interp: Interpreter,
    target: Target,
}

enum Target {
    Kernel(Box<KernelEngine>),
    Other(Box<dyn Engine>),
}

impl Target {
    fn datapath(&mut self) -> &mut dyn Datapath {
        match self {
            Target::Kernel(kernel) => kernel.as_mut(),
            Target::Other(engine) => engine.as_mut(),
        }
    }
}

impl Engines {
    /// Returns the engines with the program of a case; `None` if the target rejects it.
    fn load(
        &mut self,
        program: &Program,
        case: &Case,
        routes: Option<&fib::Table>,
    ) -> Result<Option<&mut Pair>, Failure> {
        let is_same = self.pair.as_ref().is_some_and(|pair| pair.constants == case.constants);
        if !is_same {
            let program = case.program(program);
            let interp = Interpreter::new(Arc::new(program.clone())).map_err(|e| Failure::input(&e))?;
            let mut interp = flowloom_proofcheck::checked(interp);
            if let Some(routes) = routes {
                interp = interp.with_routes(routes.clone());
            }
            let target = if self.target == EngineName::KERNEL {
                self.load_kernel(&program, routes)?.map(|kernel| Target::Kernel(Box::new(kernel)))
            } else {
                self.load_other(program, routes)?.map(Target::Other)
            };
            let Some(target) = target else { return Ok(None) };
            self.pair = Some(Pair { constants: case.constants.clone(), interp, target });
        }
        Ok(self.pair.as_mut())
    }

    fn load_kernel(&mut self, program: &Program, routes: Option<&fib::Table>) -> Result<Option<KernelEngine>, Failure> {
        let before = match self.pair.take().map(|pair| pair.target) {
            Some(Target::Kernel(kernel)) => Some(*kernel),
            _ => self.spare.take(),
        };
        let loaded = match before {
            Some(before) => before.load_instead(program),
            None => KernelEngine::load(program),
        };
        match loaded {
            // With other constants the verifier walks other paths; a rejected program never runs.
            Err(ExecError::Refused(refused)) => {
                self.refused = refused.reason;
                Ok(None)
            }
            loaded => {
                let kernel = loaded.map_err(|e| kernel_error(&e))?;
                match routes {
                    None => Ok(Some(kernel)),
                    Some(routes) => {
                        kernel.with_routes(routes).map(Some).map_err(|e| Failure::Environment(with_causes(&e)))
                    }
                }
            }
        }
    }

    fn load_other(
        &mut self,
        program: Program,
        routes: Option<&fib::Table>,
    ) -> Result<Option<Box<dyn Engine>>, Failure> {
        let options = EngineOptions { routes: routes.cloned(), ..EngineOptions::default() };
        match target::load(self.target, &Loaded::of_program(program), &options, self.workers) {
            Err(SessionError::Refused(reason)) => {
                self.refused = reason;
                Ok(None)
            }
            loaded => {
                let loaded = loaded?;
                (self.cores, self.why_one) = (loaded.cores, loaded.why_one);
                Ok(Some(loaded.started.engine))
            }
        }
    }
}

/// Explores a program and compares the targets with the interpreter on the cases found.
pub(super) fn verify(
    args: &VerifyArgs,
    program: &Arc<Program>,
    targets: &[(EngineName, Option<String>)],
) -> Result<(), Failure> {
    let routes = read_routes(&args.routes)?;
    // Load first: a program that an engine rejects need not be explored.
    Interpreter::new(Arc::clone(program)).map_err(|e| Failure::input(&e))?;
    let reference = Loaded::of_program(program.as_ref().clone());
    let named = targets
        .iter()
        .filter(|(name, _)| *name != EngineName::MACHINE && !target::is_reference(*name, &reference, args.workers));
    let mut engines = Vec::new();
    for (name, unavailable) in named.clone() {
        let target = name.as_str();
        if let Some(reason) = unavailable {
            if named.clone().count() == 1 {
                return Err(Failure::Environment(format!(
                    "target `{target}` cannot run here, and there is no other: {reason}"
                )));
            }
            print_note(&format!("target `{target}` is skipped: {reason}"));
            continue;
        }
        match engines_of(*name, program, routes.as_ref(), args.workers) {
            Ok(loaded) => {
                loaded.why_one.iter().for_each(|note| print_note(note));
                if !target::is_reference_after_all(*name, &reference, loaded.cores) {
                    engines.push(loaded);
                }
            }
            Err(Failure::Found(reason)) if name.kind().is_partial && named.clone().count() > 1 => {
                print_note(&format!("target `{target}` is skipped: {reason}"));
            }
            Err(failure) => {
                if let (true, Failure::Found(reason)) = (args.json, &failure) {
                    let target = json!({"target": target, "agrees": null, "packets_compared": 0, "refused": reason});
                    print_json(&json!({"function": program.name, "targets": [target]}))?;
                }
                return Err(failure);
            }
        }
    }
    if engines.is_empty() {
        return Err(Failure::Environment("no target can run here: nothing was compared".to_owned()));
    }
    let explored = explored(args, program, routes.as_ref())?;
    let mut compared = Vec::new();
    for engines in engines {
        let target = engines.target;
        compared.push((target, compare(program, &explored, routes.as_ref(), engines)?));
    }
    let parted = compared.iter().find_map(|(_, compared)| compared.parted.as_ref());
    let files = match (&args.write, parted) {
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
    match parted {
        Some(_) => Err(Failure::Finding),
        None if compared.iter().all(|(_, compared)| compared.packets == compared.slow) => Err(nothing_compared()),
        None => Ok(()),
    }
}

/// Engines of a target; an error if it rejects the program.
fn engines_of(
    target: EngineName,
    program: &Program,
    routes: Option<&fib::Table>,
    workers: Option<u32>,
) -> Result<Engines, Failure> {
    let (cores, why_one) = (1, None);
    let mut engines = Engines { target, workers, cores, why_one, spare: None, pair: None, refused: String::new() };
    if target == EngineName::KERNEL {
        engines.why_one =
            workers.filter(|workers| *workers > 1).map(|n| format!("--workers {n}: target `kernel` runs on one core"));
        engines.spare = Some(KernelEngine::load(program).map_err(|e| kernel_error(&e))?);
    } else if engines.load_other(program.clone(), routes)?.is_none() {
        return Err(Failure::Found(engines.refused));
    }
    Ok(engines)
}

fn explored(args: &VerifyArgs, program: &Arc<Program>, routes: Option<&fib::Table>) -> Result<Explored, Failure> {
    let options =
        ExploreOptions { seed: args.input.seed, tries: args.packets, routes: routes.cloned(), ..Default::default() };
    let bar = progress("exploring the program", Some(args.packets));
    let explored = explore_with_progress(program, &options, &mut |so_far| {
        bar.set_position(so_far.tries);
        let share = 100 * so_far.reached / so_far.slots.max(1);
        bar.set_message(format!("exploring the program, {share}% of it reached,"));
    });
    bar.finish_and_clear();
    explored.map_err(|e| Failure::input(&e))
}

/// Runs all cases, starting with those on which the interpreter aborted, up to the first disagreement.
fn compare(
    program: &Program,
    explored: &Explored,
    routes: Option<&fib::Table>,
    mut engines: Engines,
) -> Result<Compared, Failure> {
    let stopped = explored.faults.iter().map(|(what, stopped)| (&stopped.case, Some(what)));
    let cases: Vec<_> = stopped.chain(explored.cases.iter().map(|case| (case, None))).collect();
    let mut compared = Compared { cores: engines.cores, ..Compared::default() };
    let bar = progress(&format!("comparing {}", engines.target.as_str()), Some(cases.len() as u64));
    for (case, stopped) in cases {
        match side_by_side(program, case, stopped, routes, &mut engines, &bar)? {
            CaseResult::Equal { packets, slow } => {
                compared.packets += packets;
                compared.slow += slow;
            }
            CaseResult::Skipped { reason } => {
                compared.left_out += 1;
                compared.reason = reason;
            }
            CaseResult::Disagreement(parted) => {
                compared.parted = Some(*parted);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(compared)
}

/// Runs a case and mutations of it on both engines, from its state. `stopped` is the interpreter's fault on it.
fn side_by_side(
    program: &Program,
    case: &Case,
    stopped: Option<&String>,
    routes: Option<&fib::Table>,
    engines: &mut Engines,
    bar: &indicatif::ProgressBar,
) -> Result<CaseResult, Failure> {
    let state = case::state(program, case);
    let Some(pair) = engines.load(program, case, routes)? else {
        return Ok(CaseResult::Skipped { reason: engines.refused.clone() });
    };
    let mut packets = case.packets.clone();
    if stopped.is_none() {
        packets.extend((0..MUTATIONS).flat_map(|round| mutated(case.packets.clone(), case.seed ^ round)));
    }
    let options =
        CompareOptions { seed: case.seed, state: case.state.clone(), is_foreign: true, ..CompareOptions::default() };
    let mut comparison = compare_and_shrink(&mut pair.interp, pair.target.datapath(), &packets, &options, bar)?;
    if comparison.report.disagreement.is_some() {
        let undefined = Undefined::of(&case.program(program));
        if !undefined.causes().is_empty() {
            let options = CompareOptions { undefined, ..options };
            comparison = compare_and_shrink(&mut pair.interp, pair.target.datapath(), &packets, &options, bar)?;
        }
    }
    let Comparison { report, shrunk, .. } = comparison;
    let (packets, report) = shrunk.map_or((packets, report), |shrunk| (shrunk.packets, shrunk.report));
    let disagreement = match (report.disagreement, stopped) {
        (None, None) => {
            return Ok(CaseResult::Equal { packets: report.packets_compared, slow: report.packets_slow });
        }
        (None, Some(what)) => format!("the interpreter stopped while the program was explored: {what}\n"),
        (Some(found), _) => found.to_string(),
    };
    Ok(CaseResult::Disagreement(Box::new(Disagreement { seed: case.seed, state, packets, disagreement })))
}

/// One line about all runs whose state did not fit, with the most frequent reason; JSON has each.
fn restore_errors(restore_errors: &BTreeMap<String, u64>) -> String {
    // The first of equally frequent reasons.
    let Some((what, most)) = restore_errors.iter().rev().max_by_key(|(_, times)| **times) else { return String::new() };
    let all: u64 = restore_errors.values().sum();
    let others = match restore_errors.len() - 1 {
        0 => String::new(),
        1 => format!(" ({}; 1 more reason, see --json)", counted(*most as usize, "run")),
        others => format!(" ({}; {others} more reasons, see --json)", counted(*most as usize, "run")),
    };
    format!("skipped: {} whose state did not fit: {what}{others}\n", counted(all as usize, "run"))
}

fn as_text(program: &Program, explored: &Explored, all: &[(EngineName, Compared)]) -> String {
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
    text.push_str(&restore_errors(&explored.restore_errors));
    for (at, what) in Undefined::of(program).causes() {
        let place = super::place(program, *at);
        text.push_str(&format!("kernel-dependent contents, ignored in the comparison: {what}{place}\n"));
    }
    for (target, compared) in all {
        let name = match compared.cores {
            cores @ 2.. => &format!("{} on {cores} cores", target.as_str()),
            _ => target.as_str(),
        };
        let refuser =
            if *target == EngineName::KERNEL { "the verifier refuses".to_owned() } else { format!("{name} refuses") };
        if compared.left_out > 0 {
            let cases = counted(compared.left_out, "case");
            let reason = &compared.reason;
            text.push_str(&format!("skipped: {cases} with constants for which {refuser} the program: {reason}\n"));
        }
        match &compared.parted {
            None if compared.packets == 0 => text.push_str(&format!("{name}: not compared with `interp`\n")),
            None if compared.packets == compared.slow => text.push_str(&not_own(name, compared.packets)),
            None => {
                let packets = counted(compared.packets as usize, "packet");
                let slow = match compared.slow {
                    0 => String::new(),
                    slow => format!(", {} of them on the slow path, on which the host runs them", grouped(slow)),
                };
                text.push_str(&format!("{name}: equal to `interp` on {packets}{slow}\n"));
            }
            Some(Disagreement { seed, state, packets, disagreement }) => {
                let packets = counted(packets.len(), "packet");
                text.push_str(&format!("{name}: DIFFERS from `interp` on {packets}:\n{disagreement}\n"));
                text.push_str(&format!("seed {seed}, state before them: {}\n", state.to_json()));
            }
        }
    }
    text
}

fn as_json(program: &Program, explored: &Explored, all: &[(EngineName, Compared)]) -> Result<Value, Failure> {
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
    let restore_errors: Vec<Value> =
        explored.restore_errors.iter().map(|(what, n)| json!({"what": what, "runs": n})).collect();
    let target = |(target, compared): &(EngineName, Compared)| {
        let parted = compared.parted.as_ref();
        let case = parted.map(|parted| case::as_json(&parted.state, parted.seed, &parted.packets)).transpose()?;
        let agrees = (parted.is_some() || compared.packets > compared.slow).then_some(parted.is_none());
        Ok(json!({
            "target": target.as_str(),
            "workers": compared.cores,
            "agrees": agrees,
            "packets_compared": compared.packets,
            "packets_slow": compared.slow,
            "cases_left_out": compared.left_out,
            "disagreement": parted.map(|parted| &parted.disagreement),
            "shrunk_packets": parted.map(|parted| parted.packets.len()),
            "case": case,
        }))
    };
    let targets: Vec<Value> = all.iter().map(target).collect::<Result<_, Failure>>()?;
    Ok(json!({
        "function": program.name,
        "tries": explored.tries,
        "cases": explored.cases.len(),
        "slots": slots,
        "slots_reached": reached,
        "not_reached": gaps,
        "faults": faults,
        "misfits": restore_errors,
        "targets": targets,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_did_not_fit_are_one_line() {
        let of = |all: &[(&str, u64)]| restore_errors(&all.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect());
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("a", 1)]), "skipped: 1 run whose state did not fit: a\n");
        let several = "skipped: 1 006 runs whose state did not fit: b (1 000 runs; 2 more reasons, see --json)\n";
        assert_eq!(of(&[("a", 5), ("b", 1000), ("c", 1)]), several);
    }
}
