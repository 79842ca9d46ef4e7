// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on packets generated for them: the pipeline gives the interpreter's verdicts, bytes, ports and maps.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::Datapath;
use flowloom_plan::Options;
use flowloom_session::engines::{Engine, EngineName, EngineOptions, Started};
use flowloom_session::{Loaded, SessionError, with_causes};
use flowloom_testkit::skip;
use flowloom_verify::{Arrival, CompareOptions, Reached, Report, ShrinkOptions, compare, shrink, sweep_period};

use crate::verified::shipped::{self, Variant};

/// A function with its engines.
pub(crate) struct Subject {
    pub(crate) function: Arc<Function>,
    name: String,
    machine: Machine,
    interp: Box<dyn Engine>,
    pipeline: Box<dyn Engine>,
    /// The cycles from the start of a packet to that of the next one, at least.
    pub(crate) hold_cycles: u32,
    options: CompareOptions,
}

/// Whether a function can be compared.
pub(crate) enum Start {
    Subject(Box<Subject>),
    /// It has no pipeline, for this reason.
    Without(String),
    /// There is no simulation here; the reason is printed.
    Skipped,
}

/// Starts the engines of a function.
pub(crate) fn start(test: &str, variant: &Variant) -> Start {
    let function = Arc::clone(&variant.function);
    let loaded = Loaded::of_function(Arc::clone(&function));
    let hold_cycles = match loaded.pipeline(&Options::default()) {
        Ok(pipeline) => pipeline.core.hold_cycles,
        Err(reason) => return Start::Without(with_causes(&reason)),
    };
    let load = |name: EngineName| name.load(&loaded, &EngineOptions::default()).map(|Started { engine, .. }| engine);
    let pipeline = match load(EngineName::by_name("pipeline").unwrap()) {
        Ok(pipeline) => pipeline,
        Err(SessionError::Environment(reason)) => {
            skip(test, &reason);
            return Start::Skipped;
        }
        Err(error) => panic!("{}: {error}", function.name),
    };
    let interp = load(EngineName::INTERP).unwrap_or_else(|error| panic!("{}: {error}", function.name));
    let layouts = loaded.layouts();
    let options = CompareOptions { sweep_ns: sweep_period(&function), layouts, ..CompareOptions::default() };
    let (name, machine) = (format!("{} {}", function.name, variant.params), Machine::new(Arc::clone(&function)));
    Start::Subject(Box::new(Subject { function, name, machine, interp, pipeline, hold_cycles, options }))
}

impl Subject {
    /// Runs packets on interpreter and pipeline; the smallest trace on which they differ. Adds to the coverage what the
    /// reference machine, which is compared with the interpreter, reaches.
    pub(crate) fn compare(&mut self, packets: &[Arrival], reached: Option<&mut Reached<'_>>) -> Result<Report, String> {
        let report = agree(&self.name, self.interp.as_mut(), self.pipeline.as_mut(), packets, &self.options)?;
        if let Some(reached) = reached {
            agree(&self.name, &mut self.machine, self.interp.as_mut(), packets, &self.options)?;
            reached.add(&self.machine.coverage());
        }
        Ok(report)
    }
}

/// The report of a comparison without a disagreement, or the smallest trace with one.
fn agree(
    name: &str,
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    packets: &[Arrival],
    options: &CompareOptions,
) -> Result<Report, String> {
    let report = compare(reference, target, packets, options).map_err(|error| format!("{name}: {error}"))?;
    let Some(disagreement) = &report.disagreement else { return Ok(report) };
    let shrunk = match shrink(reference, target, packets, options, &ShrinkOptions::default(), &mut |_| ()) {
        Ok(Some(shrunk)) => {
            let line = |p: &Arrival| format!("{} ns, port {}: {:02x?}\n", p.time_ns, p.port, p.bytes);
            shrunk.packets.iter().map(line).collect()
        }
        Ok(None) => "no smaller trace shows it".to_owned(),
        Err(error) => format!("not shrunk: {error}"),
    };
    Err(format!("{name}, {} against {}: {disagreement}\n{shrunk}", target.name(), reference.name()))
}

/// The packets of a test. All functions run in the proof `function-pipelines`; classical programs are in `stream`.
const QUICK_PACKETS: usize = 10_000;

/// Runs a function on its own packets; prints the distance at which its packets start.
fn is_equal(test: &str, name: &str) {
    let seed = flowloom_testkit::Rng::from_env(1).next_u64();
    let variant = Variant { function: shipped::function(name, &[]), params: String::new() };
    let mut subject = match start(test, &variant) {
        Start::Subject(subject) => subject,
        Start::Without(reason) => panic!("{name}: {reason}"),
        Start::Skipped => return,
    };
    let packets = shipped::made(&variant.function, seed, QUICK_PACKETS);
    let report = subject.compare(&packets, None).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(report.packets_compared + report.packets_refused(), QUICK_PACKETS as u64, "{name}");
    assert!(report.packets_compared > QUICK_PACKETS as u64 * 9 / 10, "{name}: {} refused", report.packets_refused());
    println!("{name}: {} packets, {} cycles apart", report.packets_compared, subject.hold_cycles);
}

/// A timer for each source, a division of the time, globals that are only read.
#[test]
fn the_policer_is_equal_on_its_own_traffic() {
    is_equal("the_policer_is_equal_on_its_own_traffic", "policer");
}

/// A state machine with timers, whose entries are inserted and deleted.
#[test]
fn port_knocking_is_equal_on_its_own_traffic() {
    is_equal("port_knocking_is_equal_on_its_own_traffic", "port_knocking");
}
