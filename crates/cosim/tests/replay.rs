// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue whose words come again, against a queue in software; the control of packets that run alone, against the
//! order of steps that it promises.

use std::collections::VecDeque;

use flowloom_random::{Draw, SplitMix64};

use crate::common::{Bench, block, build, stated_latency};

const CYCLES: u32 = 6000;
const DEPTH: usize = 12;

/// Words leave in their order; after a rewind those that are not committed come again, before all others.
#[test]
fn words_come_again_until_they_are_committed() {
    let design = block("flow/fl_replay").parameter("Width", 32).parameter("Depth", DEPTH);
    let Some(model) = build("words_come_again_until_they_are_committed", &design) else { return };
    let mut bench = Bench::new(model, 1);
    let mut rng = SplitMix64::new(7);
    let (mut words, mut taken) = (VecDeque::new(), 0);
    let (mut commits, mut rewinds, mut most) = (0, 0, 0);
    bench.reset();
    for cycle in 0..CYCLES {
        let fills = words.len() < DEPTH && rng.chance(0.5);
        let ready = rng.chance(0.67);
        let rewind = taken > 0 && rng.chance(0.08);
        let commit = taken > 0 && !rewind && rng.chance(0.5);
        let word = rng.next_u64() & 0xffff_ffff;
        bench.set("in_valid_i", fills.into());
        bench.set("in_data_i", word);
        bench.set("out_ready_i", ready.into());
        bench.set("commit_i", commit.into());
        bench.set("rewind_i", rewind.into());
        bench.cycle();
        assert_eq!(bench.get("count_o") as usize, words.len(), "cycle {cycle}");
        assert_eq!(bench.get("out_valid_o") == 1, taken < words.len(), "cycle {cycle}");
        if taken < words.len() {
            assert_eq!(bench.get("out_data_o"), words[taken], "cycle {cycle}");
            taken += usize::from(ready);
        }
        if commit {
            words.pop_front();
            taken -= 1;
            commits += 1;
        }
        if rewind {
            taken = 0;
            rewinds += 1;
        }
        if fills {
            words.push_back(word);
        }
        most = most.max(words.len());
    }
    assert!(commits > 1000 && rewinds > 200 && most == DEPTH, "{commits} commits, {rewinds} rewinds, {most} words");
    assert_eq!(stated_latency("flow/fl_replay"), 1);
}

/// Steps of the control; of the second and the fourth one, an entry is read before it is written.
const STEPS: u32 = 5;
const WRITES: u64 = 0b01010;
const RUN_CYCLES: u32 = 9;

/// What the control does in a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Run { is_first: bool },
    Access { step: u64, writes: bool },
    Leave,
}

#[test]
fn steps_are_made_one_by_one() {
    let design = block("flow/fl_alone")
        .parameter("Steps", STEPS as usize)
        .parameter("Writes", format!("{STEPS}'d{WRITES}"))
        .parameter("Cycles", RUN_CYCLES as usize);
    let Some(model) = build("steps_are_made_one_by_one", &design) else { return };
    let mut bench = Bench::new(model, 1);
    let mut rng = SplitMix64::new(3);
    bench.reset();
    for packet in 0..200 {
        // The steps that the packet wants at first, and those that follow from the results of others.
        let all = 1 + rng.below((1 << STEPS) - 1);
        let late = rng.below(1 << STEPS) & all & (all - 1);
        let events = run_alone(&mut bench, &mut rng, all, late);
        let mut expected = vec![Event::Run { is_first: true }];
        let mut done = 0;
        loop {
            let wanted = if done == 0 { all & !late } else { all };
            let left = wanted & !done;
            if left == 0 {
                break;
            }
            let step = u64::from(left.trailing_zeros());
            expected.push(Event::Access { step, writes: false });
            if WRITES >> step & 1 == 1 {
                expected.push(Event::Access { step, writes: true });
            }
            done |= 1 << step;
            expected.push(Event::Run { is_first: false });
        }
        expected.push(Event::Leave);
        assert_eq!(events, expected, "packet {packet}: steps {all:05b}, of them later {late:05b}");
    }
}

/// Finds a packet, answers its accesses, and returns what the control does until others may go on.
fn run_alone(bench: &mut Bench, rng: &mut SplitMix64, all: u64, late: u64) -> Vec<Event> {
    let (mut events, mut awaited) = (Vec::new(), 0_u32);
    for cycle in 0..2000 {
        let ready = rng.chance(0.5);
        let done = bench.get("done_steps_o");
        bench.set("found_i", u64::from(cycle == 0));
        bench.set("wanted_i", if done == 0 { all & !late } else { all });
        bench.set("access_ready_i", ready.into());
        bench.set("answer_valid_i", u64::from(awaited == 1));
        bench.cycle();
        if cycle > 0 && bench.get("alone_o") == 0 {
            return events;
        }
        awaited = awaited.saturating_sub(1);
        if bench.get("run_o") == 1 {
            events.push(Event::Run { is_first: bench.get("first_o") == 1 });
        }
        if bench.get("leave_o") == 1 {
            events.push(Event::Leave);
        }
        if ready && bench.get("access_valid_o") == 1 {
            events.push(Event::Access { step: bench.get("step_o"), writes: bench.get("access_write_o") == 1 });
            awaited = 2 + rng.below(6) as u32;
        }
    }
    panic!("the packet does not leave: {events:?}");
}
