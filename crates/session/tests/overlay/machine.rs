// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of the FlowBlaze paper in simulation, as a whole: packets through its streams, its registers through
//! AXI4-Lite, against the reference machine.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_session::Loaded;
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_testkit::{Rng, skip};
use flowloom_verify::{Arrival, CompareOptions, compare, sweep_period};

use crate::verified::shipped;

/// The packets of a test.
const QUICK_PACKETS: usize = 10_000;
/// Sweeps during 10,000 packets.
const SWEEPS: u64 = 30;
/// Contexts of a table: as many as 64 rows of four places hold.
const SIZE: u32 = 240;

/// A shipped function with small tables.
fn small(name: &str) -> Arc<Function> {
    let mut function = (*shipped::function(name, &[])).clone();
    for stateful in function.elements.iter_mut().filter_map(|element| element.stateful.as_mut()) {
        stateful.size = stateful.size.min(SIZE);
    }
    Arc::new(function)
}

/// The period of sweeps with which a trace has [`SWEEPS`] for each 10,000 packets: simulated ones take long.
fn few_sweeps(function: &Function, packets: &[Arrival]) -> Option<u64> {
    let span_ns = packets.last()?.time_ns - packets.first()?.time_ns;
    let count = SWEEPS * packets.len().div_ceil(QUICK_PACKETS) as u64;
    sweep_period(function).map(|period| period.max(span_ns / count))
}

/// Compares the engine `overlay-rtl` with the reference machine on packets of a function; the number of packets.
pub(crate) fn run(test: &str, name: &str, count: usize) -> Option<usize> {
    let seed = Rng::from_env(1).next_u64();
    let loaded = Loaded::of_function(small(name));
    let engine = EngineName::by_name("overlay-rtl").unwrap();
    if let Err(reason) = (engine.kind().available)() {
        skip(test, &reason);
        return None;
    }
    let mut hardware = engine.load(&loaded, &EngineOptions::default()).unwrap().engine;
    let function = loaded.function().unwrap();
    let mut machine = Machine::new(Arc::clone(function));
    let packets = shipped::made(function, seed, count);
    let options = CompareOptions { sweep_ns: few_sweeps(function, &packets), ..CompareOptions::default() };
    let report = compare(&mut machine, &mut *hardware, &packets, &options).unwrap();
    if let Some(disagreement) = &report.disagreement {
        panic!("{name}: packet {:?} of {count}: {disagreement}", disagreement.position);
    }
    println!("{name}: {} packets, {} slow", report.packets_compared, report.packets_slow);
    Some(report.packets_compared as usize)
}

#[test]
fn the_machine_is_equal_to_the_reference() {
    for name in ["policer", "dynamic_nat", "paxos_acceptor"] {
        run("the_machine_is_equal_to_the_reference", name, QUICK_PACKETS);
    }
}
