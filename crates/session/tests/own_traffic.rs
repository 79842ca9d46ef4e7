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
    pub(crate) pipeline: Box<dyn Engine>,
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
    if let Err(reason) = loaded.pipeline(&Options::default()) {
        return Start::Without(with_causes(&reason));
    }
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
    Start::Subject(Box::new(Subject { function, name, machine, interp, pipeline, options }))
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

/// The functions of the normal test. Their plans have, in this order: a timer for each source and a slice of several
/// stages; counters and rewritten headers; a state machine with timers; a global register; keys of both directions.
const QUICK: [&str; 5] = ["policer", "big_flow", "port_knocking", "paxos_coordinator", "udp_firewall"];
const QUICK_PACKETS: usize = 10_000;

#[test]
fn functions_on_their_own_traffic_are_equal_to_the_interpreter() {
    let seed = flowloom_testkit::Rng::from_env(1).next_u64();
    for name in QUICK {
        let started = std::time::Instant::now();
        let function = shipped::function(name, &[]);
        let variant = Variant { function, params: String::new() };
        let mut subject = match start("functions_on_their_own_traffic_are_equal_to_the_interpreter", &variant) {
            Start::Subject(subject) => subject,
            Start::Without(reason) => panic!("{name}: {reason}"),
            Start::Skipped => return,
        };
        let packets = shipped::made(&variant.function, seed, QUICK_PACKETS);
        let loaded = started.elapsed();
        let report = subject.compare(&packets, None).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(report.packets_compared + report.packets_refused(), QUICK_PACKETS as u64, "{name}");
        println!(
            "{name}: {} packets, loaded in {loaded:.1?}, {:.1?} in all",
            report.packets_compared,
            started.elapsed()
        );
    }
}
