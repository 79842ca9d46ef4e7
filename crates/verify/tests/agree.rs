// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Engines agree on functions, on packets generated for them.
#![allow(clippy::panic)]

use crate::common;

use std::sync::Arc;

use common::random::Reach;
use common::{engines, random, shipped};
use flowloom_context::locks::CELL_BYTES;
use flowloom_efsm::{Coverage, Machine, layout};
use flowloom_engine::{Choices, Datapath};
use flowloom_lower::{LowerOptions, lower};
use flowloom_verify::{Hit, Hits, Reached, Stimulus, StimulusOptions, StorageClass, Timer, compare};
use flowloom_vm::Interpreter;

/// Number of packets per random function.
const PACKETS: usize = 120;

#[test]
fn two_readings_of_the_semantics_agree() {
    // The stimulus implements the semantics independently; its predictions match the reference machine.
    let seed = random::seed(1);
    let mut hits = Hits::default();
    for number in 0..random::count(400) {
        let function = random::function(Reach::Software, seed, number);
        let mut machine = Machine::new(Arc::clone(&function));
        let options = StimulusOptions { sweep_ns: None, ..StimulusOptions::of(&function) };
        let mut stimulus = Stimulus::new(Arc::clone(&function), number, options);
        for i in 0..PACKETS {
            let (arrival, predicted) = stimulus.next_predicted();
            let mut outcome =
                machine.process(&arrival.packet(), &Choices::seeded(arrival.time_ns, 0, i as u64)).expect("runs");
            // The stimulus predicts no logs; `random_functions_agree` compares them between engines.
            outcome.events.clear();
            machine.check_invariants();
            assert_eq!(outcome, predicted, "function {number}, packet {i}: {arrival:?}\n{}", function.source.text);
        }
        hits.add(stimulus.hits());
    }
    let rare = [
        Hit::Evicted,
        Hit::Rejected,
        Hit::Full(false),
        Hit::Full(true),
        Hit::OneOf(false),
        Hit::OneOf(true),
        Hit::SameField(false),
        Hit::Variable(StorageClass::Register, 128, false),
        Hit::Variable(StorageClass::Metadata, 128, false),
        Hit::Step("clone"),
        Hit::Step("push"),
        Hit::Step("pop"),
        Hit::Step("encap"),
        Hit::Step("emit"),
        Hit::Terminal("flood"),
        Hit::TimerExpired(Timer::Hard),
    ];
    let missed: Vec<String> = rare.into_iter().filter(|&hit| hits.get(hit) < 20).map(|hit| hit.to_string()).collect();
    assert!(missed.is_empty(), "hardly reached: {missed:?}\n{}", hits.render(&rare));
}

#[test]
fn random_functions_agree() {
    let seed = random::seed(2);
    let kernel = random::is_kernel_there("random_functions_agree");
    let tally = random::run(seed, 0..random::count(60), PACKETS, kernel);
    assert!(tally.disagreements.is_empty(), "{}", tally.disagreements.join("\n"));
    assert!(tally.counts.in_rows * 5 >= tally.counts.packets * 2, "{:?}", tally.counts);
}

#[test]
fn models_agree() {
    let kernel = random::is_kernel_there("models_agree");
    for function in [common::knock(), common::big_flow(100), common::many_things()] {
        let packets = shipped::made(&function, 1, 10_000);
        for (name, report) in random::compare_all(&function, &packets, kernel) {
            let report = report.unwrap_or_else(|error| panic!("{} on {name}: {error}", function.name));
            if let Some(disagreement) = report.disagreement {
                panic!("{} on {name}: {disagreement}", function.name);
            }
        }
    }
}

#[test]
fn shipped_functions_agree_in_every_row() {
    // Short form of `evidence_coverage`: traces until each row, timer and default was reached in some state.
    let kernel = random::is_kernel_there("shipped_functions_agree_in_every_row");
    let seed = random::seed(6);
    for shipped in shipped::shipped() {
        let mut reached = Reached::new(&shipped.variants[0].function);
        let mut missing = Vec::new();
        let mut subjects: Vec<_> =
            shipped.variants.iter().map(|variant| (variant, shipped::Subject::new(variant, kernel))).collect();
        for round in 0..40 {
            for (variant, subject) in &mut subjects {
                // What one round leaves open, a longer one reaches.
                let packets = shipped::made(&variant.function, seed + round, 2000 << (2 * round.min(2)));
                subject.verify(&packets, &mut reached);
            }
            missing = shipped.gaps(&reached, 1);
            // Some states take many packets to reach: the long form covers a row in each of its states.
            let hit: Vec<_> = reached.points().into_iter().filter(|point| point.hits > 0).collect();
            missing
                .retain(|point| !hit.iter().any(|other| (&other.element, other.what) == (&point.element, point.what)));
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "not reached in {}: {missing:#?}", shipped.name);
    }
}

#[test]
fn counters_are_the_coverage_and_locks_are_released() {
    let (seed, mut with_locks) = (random::seed(4), 0);
    let shipped = shipped::shipped().into_iter().flat_map(|shipped| shipped.variants);
    let mut functions: Vec<_> = shipped.map(|variant| variant.function).collect();
    functions.extend((0..random::count(40)).map(|number| random::function(Reach::Software, seed, number)));
    for function in functions {
        let packets = Stimulus::new(Arc::clone(&function), 9, StimulusOptions::of(&function)).take_packets(300);
        // Attached programs lock their contexts instead.
        for attached in [false, true] {
            let Ok(program) =
                lower(&function, &LowerOptions { counters: !attached, attached, ..LowerOptions::default() })
            else {
                continue;
            };
            let options = engines::options(&function, &program);
            let has_locks = program.maps.iter().any(|map| map.name == layout::LOCKS_MAP);
            let mut machine = Machine::new(Arc::clone(&function));
            let mut interpreter = Interpreter::new(Arc::new(program)).expect("a program of ours").with_strict_stack();
            let report = compare(&mut machine, &mut interpreter, &packets, &options).expect("engines run");
            assert!(report.agrees(), "{}: {:?}\n{}", function.name, report.disagreement, function.source.text);
            let left = interpreter.snapshot().expect("has maps");
            let counted = Coverage::from_snapshot(&function, &left);
            let expected = (!attached).then(|| machine.coverage());
            assert_eq!(counted, expected, "{}\n{}", function.name, function.source.text);
            let locks = left.maps.get(layout::LOCKS_MAP);
            assert_eq!(locks.is_some_and(|map| !map.is_empty()), has_locks, "{}", function.name);
            with_locks += usize::from(has_locks);
            let cells = locks.into_iter().flat_map(|map| map.values());
            let held =
                cells.flat_map(|cells| cells.chunks(CELL_BYTES as usize)).filter(|cell| cell[..8] != [0; 8]).count();
            assert_eq!(held, 0, "locks held at the end: {}\n{}", function.name, function.source.text);
        }
    }
    assert!(with_locks > 0, "no program has locks");
}
