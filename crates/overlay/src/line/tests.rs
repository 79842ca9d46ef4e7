// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of a machine at line rate, and its model: one step a cycle.

use proptest::prelude::*;

use super::*;
use crate::scheduler::model::Model;

const SCHEDULER: SchedulerParameters =
    SchedulerParameters { queues: 1, queue_depth: 20, hold_cycles: 5, hash_bits: 16 };

/// The machine of the paper on a line whose packets follow each other word by word.
const PAPER: LineTest = LineTest {
    clock_khz: 156_250,
    line_mbps: 40_000,
    overhead_bytes: 0,
    unit_bytes: 32,
    word_bytes: 32,
    fifo_words: 512,
    hazards: Hazards::Schedule(SCHEDULER),
};

/// A packet in the model.
struct Stored {
    complete: u64,
    words: u64,
    words_read: u64,
    hash: u16,
}

/// The words of the module's description, cycle by cycle, for a scheduler.
fn by_cycles(test: &LineTest, scheduler: SchedulerParameters, packets: &[(u32, u16)]) -> LineReport {
    let (mut report, mut model) = (LineReport::default(), Model::new(scheduler));
    let mut fifo: VecDeque<Stored> = VecDeque::new();
    let (mut at, mut cycle) = (0, 0);
    let cycle_of = |bytes: u64| bytes * 8 * u64::from(test.clock_khz) / (u64::from(test.line_mbps) * 1000);
    loop {
        // A word read in a cycle is free in the next one, and a packet is free with its last word.
        while fifo.front().is_some_and(|first| first.words_read == first.words) {
            fifo.pop_front();
        }
        while at < packets.len() && cycle_of(report.line_bytes) == cycle {
            let (len_bytes, hash) = packets[at];
            let line_bytes = (len_bytes + test.overhead_bytes).div_ceil(test.unit_bytes) * test.unit_bytes;
            let stored_words: u64 = fifo.iter().map(|packet| packet.words).sum();
            let longest_words = u64::from(1514u32.div_ceil(test.word_bytes));
            if stored_words + longest_words <= u64::from(test.fifo_words) {
                let words = u64::from(len_bytes.div_ceil(test.word_bytes));
                let complete = cycle_of(report.line_bytes + u64::from(len_bytes)) + 1;
                fifo.push_back(Stored { complete, words, words_read: 0, hash });
            } else {
                report.dropped += 1;
            }
            report.packets += 1;
            report.line_bytes += u64::from(line_bytes);
            at += 1;
        }
        let mut first = fifo.front_mut().filter(|first| first.complete <= cycle);
        let is_header = |first: &&mut Stored| first.words_read + 1 == first.words.min(2);
        let offered = first.as_ref().filter(|first| is_header(first)).map(|first| (first.hash, first.complete));
        let (enters, granted) = model.cycle(cycle, offered);
        report.waits_cycles.extend(granted.map(|complete| (cycle - complete) as u32));
        if offered.is_some() && !enters {
            report.held_cycles += 1;
        } else if let Some(first) = &mut first {
            first.words_read += 1;
        }
        cycle += 1;
        if report.waits_cycles.len() as u64 == packets.len() as u64 - report.dropped && at == packets.len() {
            report.waits_cycles.sort_unstable();
            return report;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_machine_does_what_its_description_says(
        packets in prop::collection::vec((prop_oneof![Just(60u32), 1..200u32, Just(1514)], 0..3u16), 1..200),
        clock_khz in 60_000..200_000u32,
        (overhead_bytes, unit_bytes) in prop_oneof![Just((0, 32)), Just((24, 1)), Just((0, 1))],
        word_bytes in prop_oneof![Just(32u32), Just(64)],
        fifo_words in 48..200u32,
        queue_depth in 1..5u32,
        hold_cycles in 1..9u32,
    ) {
        let scheduler = SchedulerParameters { queue_depth, hold_cycles, ..SCHEDULER };
        let hazards = Hazards::Schedule(scheduler);
        let test = LineTest { clock_khz, overhead_bytes, unit_bytes, word_bytes, fifo_words, hazards, ..PAPER };
        prop_assert_eq!(test.run(packets.iter().copied()).unwrap(), by_cycles(&test, scheduler, &packets));
    }
}

fn same(len_bytes: u32, packets: u32) -> impl Iterator<Item = (u32, u16)> {
    (0..packets).map(move |number| (len_bytes, number as u16))
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 0.005
}

#[test]
fn the_data_path_sustains_the_line_from_156_mhz_on() {
    for len_bytes in [60, 64, 65, 576, 1514] {
        let report = PAPER.run(same(len_bytes, 200_000)).unwrap();
        assert_eq!((report.packets, report.dropped, report.held_cycles), (200_000, 0, 0), "{len_bytes} bytes");
        let slow = LineTest { clock_khz: 133_000, ..PAPER }.run(same(len_bytes, 200_000)).unwrap();
        assert!(is_near(slow.drop_rate(), 1.0 - 133.0 / 156.25), "{len_bytes} bytes: {}", slow.drop_rate());
    }
}

/// With check sequence, preamble and gap, 64 bytes take 2.625 cycles of the 2 that they need; 1514 bytes 48.06 of 48.
#[test]
fn gaps_relieve_short_packets() {
    let ethernet = LineTest { overhead_bytes: 24, unit_bytes: 1, clock_khz: 133_000, ..PAPER };
    assert_eq!(ethernet.run(same(60, 200_000)).unwrap().dropped, 0);
    assert!(is_near(ethernet.run(same(1514, 200_000)).unwrap().drop_rate(), 1.0 - 133.0 / 156.25 * 1538.0 / 1536.0));
}

#[test]
fn a_stall_costs_short_packets_three_cycles() {
    let stalled = LineTest { hazards: Hazards::Stall { hold_cycles: 5 }, ..PAPER };
    let report = stalled.run(same(60, 200_000)).unwrap();
    assert!(is_near(report.drop_rate(), 0.6), "{}", report.drop_rate());
    assert!(is_near(report.held_cycles as f64 / 3.0 / (200_000 - report.dropped) as f64, 1.0));
    assert_eq!(stalled.run(same(160, 200_000)).unwrap().dropped, 0, "five words cover the hold");
}

#[test]
fn a_scheduler_holds_one_flow_only() {
    let one_flow = PAPER.run((0..200_000).map(|_| (60, 7))).unwrap();
    assert!(is_near(one_flow.drop_rate(), 0.6), "{}", one_flow.drop_rate());
    let report = PAPER.run((0..200_000).map(|number| (60, (number % 3) as u16))).unwrap();
    assert_eq!((report.dropped, report.held_cycles), (0, 0), "three flows by turns need 5 of 6 cycles");
    assert_eq!(report.waits_cycles.len(), 200_000);
    assert!(report.wait_99_cycles() <= 3, "{}", report.wait_99_cycles());
}

#[test]
fn parameters_have_limits() {
    let refused = |test: LineTest| test.run(same(60, 1)).unwrap_err().to_string();
    assert_eq!(refused(LineTest { fifo_words: 47, ..PAPER }), "`fifo_words` is 47, a machine takes 48 to 16777216");
    for test in [
        LineTest { clock_khz: 0, ..PAPER },
        LineTest { line_mbps: 0, ..PAPER },
        LineTest { overhead_bytes: 1001, ..PAPER },
        LineTest { unit_bytes: 0, ..PAPER },
        LineTest { word_bytes: 0, ..PAPER },
        LineTest { hazards: Hazards::Stall { hold_cycles: 65 }, ..PAPER },
        LineTest { hazards: Hazards::Schedule(SchedulerParameters { queues: 0, ..SCHEDULER }), ..PAPER },
    ] {
        assert!(refused(test).contains("a machine takes"), "{test:?}");
    }
    assert!(PAPER.run(same(1515, 1)).unwrap_err().to_string().contains("`len_bytes` is 1515"));
}
