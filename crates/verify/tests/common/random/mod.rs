// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs many random functions on all engines.

mod functions;
mod render;

pub use functions::{Reach, function};

use std::ops::Range;
use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_exec::KernelEngine;
use flowloom_lower::{LowerOptions, lower, unsupported_by_kernel};
use flowloom_testkit::skip;
use flowloom_verify::{Arrival, Hits, Report, ShrinkOptions, Stimulus, StimulusCounts, StimulusOptions, compare};

use super::engines::{self, PARSER};

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Seed of a test, from the environment or `default`; printed, so that a failure can be reproduced.
pub fn seed(default: u64) -> u64 {
    let seed = from_env("FLOWLOOM_SEED", default);
    eprintln!("seed {seed} (FLOWLOOM_SEED)");
    seed
}

/// Number of iterations of a test, from the environment or `default`.
pub fn count(default: u64) -> u64 {
    from_env("FLOWLOOM_COUNT", default)
}

/// Number of packets per trace, from the environment or `default`.
pub fn packets(default: u64) -> usize {
    from_env("FLOWLOOM_PACKETS", default) as usize
}

/// True if the kernel engine is available; prints `SKIP` where it is not.
pub fn is_kernel_there(test: &str) -> bool {
    let available = KernelEngine::available();
    if let Err(reason) = &available {
        skip(test, &format!("without the kernel: {reason}"));
    }
    available.is_ok()
}

/// Totals over many functions.
#[derive(Default)]
pub struct Tally {
    pub functions: u64,
    pub counts: StimulusCounts,
    pub hits: Hits,
    /// Packets compared, by engine.
    pub compared: std::collections::BTreeMap<String, u64>,
    pub refused: std::collections::BTreeMap<String, u64>,
    /// Number of functions that an engine refuses for their size, by engine.
    pub too_large: std::collections::BTreeMap<String, u64>,
    pub disagreements: Vec<String>,
}

/// True if an engine refused a function for its size, which is a documented limit.
pub fn is_too_large(error: &str) -> bool {
    ["bytes of stack, eBPF has 512", "a jump farther than", "and a jump reaches", "BPF program is too large"]
        .iter()
        .any(|size| error.contains(size))
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.functions += other.functions;
        self.counts.add(other.counts);
        self.hits.add(&other.hits);
        let counts = [
            (&mut self.compared, other.compared),
            (&mut self.refused, other.refused),
            (&mut self.too_large, other.too_large),
        ];
        for (sum, counts) in counts {
            counts.into_iter().for_each(|(name, count)| *sum.entry(name).or_default() += count);
        }
        self.disagreements.extend(other.disagreements);
    }
}

/// Compares every engine with the reference machine on `packets`. For an engine that does not take the function the
/// result is an error message.
pub fn compare_all(
    function: &Arc<Function>,
    packets: &[Arrival],
    kernel: bool,
) -> Vec<(&'static str, Result<Report, String>)> {
    let program = match lower(function, &LowerOptions { counters: false, ..LowerOptions::default() }) {
        Ok(program) => program,
        Err(error) => return vec![("lower", Err(error.to_string()))],
    };
    let options = engines::options(function, &program);
    let kernel = kernel && unsupported_by_kernel(function).is_empty();
    let mut reports = Vec::new();
    let parser = [(PARSER, engines::parser(function))];
    for (name, engine) in engines::all(function, &program, kernel).into_iter().chain(parser) {
        let mut machine = Machine::new(Arc::clone(function));
        let report = engine.and_then(|mut engine| {
            compare(&mut machine, engine.as_mut(), packets, &options).map_err(|error| error.to_string())
        });
        reports.push((name, report));
    }
    reports
}

/// Runs functions `numbers` of `seed` with `packets` packets each; stops after the third disagreement.
pub fn run(seed: u64, numbers: Range<u64>, packets: usize, kernel: bool) -> Tally {
    run_some(Reach::Software, |_| true, seed, numbers, packets, kernel)
}

pub fn changes_frame(function: &Function) -> bool {
    function.elements.iter().flat_map(|e| &e.rows).any(|row| row.actions.changes_frame())
}

/// Like [`run`], on the functions of a reach that `wanted` selects.
pub fn run_some(
    reach: Reach,
    wanted: impl Fn(&Function) -> bool,
    seed: u64,
    numbers: Range<u64>,
    packets: usize,
    kernel: bool,
) -> Tally {
    let mut tally = Tally::default();
    for number in numbers {
        let function = function(reach, seed, number);
        if !wanted(&function) {
            continue;
        }
        let mut stimulus = Stimulus::new(Arc::clone(&function), number, StimulusOptions::of(&function));
        let packets = stimulus.take_packets(packets);
        tally.functions += 1;
        tally.counts.add(stimulus.counts());
        tally.hits.add(stimulus.hits());
        for (name, report) in compare_all(&function, &packets, kernel) {
            match report {
                Ok(report) => {
                    *tally.compared.entry(name.to_owned()).or_default() += report.packets_compared;
                    *tally.refused.entry(name.to_owned()).or_default() += report.packets_refused();
                    if report.disagreement.is_some() {
                        tally.disagreements.push(smallest(&function, &packets, name, seed, number));
                    }
                }
                Err(error) if is_too_large(&error) => *tally.too_large.entry(name.to_owned()).or_default() += 1,
                Err(error) => {
                    let text = &function.source.text;
                    tally
                        .disagreements
                        .push(format!("{name} cannot run function {number} of seed {seed}: {error}\n{text}"));
                }
            }
        }
        if tally.disagreements.len() >= from_env("FLOWLOOM_STOP", 3) as usize {
            break;
        }
    }
    tally
}

/// Report of a disagreement, shrunk.
fn smallest(function: &Arc<Function>, packets: &[Arrival], name: &str, seed: u64, number: u64) -> String {
    let program = engines::program(function);
    let options = engines::options(function, &program);
    let parser = [(PARSER, engines::parser(function))];
    let targets = engines::all(function, &program, name == "kernel").into_iter().chain(parser);
    let Some((_, Ok(mut engine))) = targets.into_iter().find(|(n, _)| *n == name) else {
        return format!("{name} is gone");
    };
    let mut machine = Machine::new(Arc::clone(function));
    let smallest = engines::smallest(&mut machine, engine.as_mut(), packets, &options, &ShrinkOptions::default());
    format!("{name} differs on function {number} of seed {seed}\n{}{smallest}\n", function.source.text)
}
