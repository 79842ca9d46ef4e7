// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stimulus reaches its targets, and its predictions agree with the reference machine.

use crate::common;

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, Verdict};
use flowloom_verify::{CompareOptions, Reached, Stimulus, StimulusOptions, compare, sweep_period};

fn reach(function: &Arc<Function>, packets: usize, least: u64) -> (Stimulus, String, Vec<String>) {
    let mut stimulus = Stimulus::new(Arc::clone(function), 1, StimulusOptions::of(function));
    let packets = stimulus.take_packets(packets);
    // Use the sweep period that the stimulus assumes.
    let (mut machine, mut other) = (Machine::new(Arc::clone(function)), Machine::new(Arc::clone(function)));
    let options = CompareOptions { sweep_ns: sweep_period(function), ..CompareOptions::default() };
    assert!(compare(&mut machine, &mut other, &packets, &options).expect("the machine runs").agrees());
    let mut reached = Reached::new(function);
    reached.add(&machine.coverage());
    let gaps =
        reached.gaps(least).iter().map(|p| format!("{} {} {:?}: {}", p.element, p.what, p.state, p.hits)).collect();
    (stimulus, reached.render(), gaps)
}

#[test]
fn models_are_reached_everywhere() {
    for function in [common::knock(), common::big_flow(100), common::big_flow(2), common::many_things()] {
        let (stimulus, table, gaps) = reach(&function, 25_000, 50);
        assert!(gaps.is_empty(), "below 50 hits in {}: {gaps:?}\n{table}", function.name);
        let counts = stimulus.counts();
        assert!(counts.in_rows * 2 >= counts.packets, "{counts:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let make = |seed| {
        let function = common::knock();
        let options = StimulusOptions::of(&function);
        Stimulus::new(function, seed, options).take_packets(500)
    };
    assert_eq!(make(7), make(7));
    assert_ne!(make(7), make(8));
}

#[test]
fn most_frames_leave() {
    // A weak check that frames are well formed: big flow forwards everything that has a 5-tuple.
    let function = common::big_flow(3);
    let options = StimulusOptions::of(&function);
    let mut machine = Machine::new(Arc::clone(&function));
    let packets = Stimulus::new(function, 3, options).take_packets(2000);
    let forwarded = packets.iter().filter(|p| {
        let outcome = machine.process(&p.packet(), &Choices::seeded(p.time_ns, 0, 0)).expect("the machine runs");
        outcome.verdict == Verdict::Redirect
    });
    assert!(forwarded.count() > 1400);
}
