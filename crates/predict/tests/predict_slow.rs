// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cycle model against a literal simulation: random pipelines, random packets, everything that is counted.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "predict_slow/parts.rs"]
mod parts;
#[path = "predict_slow/slow.rs"]
mod slow;

mod predict_common;

use flowloom_plan::{Arbiter, MapTiming, Scheme, Timing};
use flowloom_predict::{Arrival, Pace, PredictError, PredictOptions, Report, predict};
use flowloom_testkit::Rng;
use flowloom_trace::Rate;
use parts::Found;
use predict_common::Listed;
use slow::Slow;

const PIPELINES: usize = 3000;
const PACKETS: usize = 150;

fn random_map(rng: &mut Rng, number: usize, stages: u32) -> MapTiming {
    let read_stage = rng.below(stages as usize) as u32;
    let write_stage = read_stage + rng.below((stages - read_stage).min(7) as usize) as u32;
    let least = write_stage - read_stage + 1;
    MapTiming {
        name: format!("map{number}"),
        scheme: Scheme::ALL[rng.below(8).min(3).max(usize::from(rng.chance(1, 2)) * 2)],
        read_stage,
        write_stage,
        hold_cycles: least + if rng.chance(1, 4) { rng.below(3) as u32 } else { 0 },
        queues: 1 + rng.below(4) as u32,
        queue_depth: 1 + rng.below(4) as u32,
        restart_stage: read_stage - rng.below((read_stage.min(3) + 1) as usize) as u32,
    }
}

fn random_timing(rng: &mut Rng) -> Timing {
    let stages = 1 + rng.below(16) as u32;
    let maps = (0..1 + rng.below(3)).map(|number| random_map(rng, number, stages)).collect();
    Timing {
        clock_mhz: 250.0,
        stages,
        latency_cycles: stages + 4 + rng.below(6) as u32,
        reload_cycles: rng.below(6) as u32,
        arbiter: if rng.chance(1, 2) { Arbiter::Oldest } else { Arbiter::Turns },
        maps,
    }
}

/// Packets of few flows, in bursts; some of them long, some of them growing or dropped.
fn random_packets(rng: &mut Rng, maps: usize) -> Vec<Arrival> {
    let flows = 1 + rng.below(8);
    let (long, grow, burst) = (rng.below(6), rng.below(6), 1 + rng.below(10));
    let mut time_ns = 1_000_000;
    let one = |rng: &mut Rng, time_ns: u64| {
        let len_bytes = if rng.chance(long, 10) { 60 + rng.below(1455) as u32 } else { 60 };
        let leaving_bytes = match rng.below(12) {
            0 => 0,
            1..=4 if grow == 5 => len_bytes + rng.below(9000) as u32,
            _ => len_bytes,
        };
        let flow = rng.below(flows) as u64;
        let keys =
            (0..maps).map(|_| if rng.chance(1, 6) { rng.below(4) as u64 } else { flow } * 0x5bd1_e995_7b93).collect();
        Arrival {
            time_ns,
            len_bytes,
            leaving_bytes,
            uses: rng.next_u64() | rng.next_u64(),
            writes: rng.next_u64() | rng.next_u64(),
            keys,
        }
    };
    let mut packets = Vec::new();
    for _ in 0..PACKETS {
        if !rng.chance(burst - 1, burst) {
            time_ns += rng.below(200) as u64;
        }
        packets.push(one(rng, time_ns));
    }
    packets
}

/// The cycles in which packets come, by their rate; without words.
fn cycles(pace: Pace, packets: &[Arrival]) -> Vec<Option<u64>> {
    let mut sum = 0u128;
    let mut comes = Vec::new();
    for packet in packets {
        comes.push(match pace {
            Pace::Full => None,
            Pace::Own => Some((packet.time_ns - packets[0].time_ns) / 4),
            Pace::At(Rate::Packets(packets)) => Some((sum * 250_000_000 / u128::from(packets)) as u64),
            Pace::At(Rate::Bits(bits)) => Some((sum * 250_000_000 / u128::from(bits)) as u64),
        });
        sum += match pace {
            Pace::At(Rate::Bits(_)) => u128::from(packet.len_bytes + 24) * 8,
            _ => 1,
        };
    }
    comes
}

fn found(report: &Report) -> Found {
    let of = |f: fn(&flowloom_predict::MapReport) -> u64| report.maps.iter().map(f).collect();
    Found {
        lost: report.packets_lost,
        dropped: report.packets_dropped,
        cycles: report.cycles,
        stalled: report.stalled_cycles,
        input_words: report.input_buffer_bytes / 64,
        output_words: report.output_buffer_bytes / 64,
        latencies: Vec::new(),
        flushes: of(|map| map.flushes),
        replayed: of(|map| map.replayed),
        overtakings: of(|map| map.overtakings),
        stalled_cycles: of(|map| map.stalled_cycles),
        longest: report.maps.iter().map(|map| map.longest_queues.clone()).collect(),
    }
}

#[test]
fn the_model_equals_the_literal_simulation() {
    let mut rng = Rng::from_env(1);
    let (mut compared, mut refused, mut lost, mut flushes, mut overtakings, mut stalls) = (0, 0, 0, 0, 0, 0);
    while compared < PIPELINES {
        let timing = random_timing(&mut rng);
        let packets = random_packets(&mut rng, timing.maps.len());
        let pace = match rng.below(4) {
            0 => Pace::Own,
            1 => Pace::Full,
            2 => Pace::At(Rate::Packets(1 + rng.next_u64() % 400_000_000)),
            _ => Pace::At(Rate::Bits(1_000_000_000 + rng.next_u64() % 300_000_000_000)),
        };
        let options =
            PredictOptions { input_buffer_bytes: 9600, output_buffer_bytes: 9664, ..PredictOptions::new(pace) };
        let report = match predict(&timing, &options, &mut Listed::new(packets.clone())) {
            Ok(report) => report,
            Err(PredictError::Region { .. } | PredictError::Repeated { .. } | PredictError::Map { .. }) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let comes = cycles(pace, &packets);
        let slow = Slow::new(&timing, options.input_buffer_bytes, options.output_buffer_bytes);
        let mut slow = slow.run(comes.into_iter().zip(packets).collect());
        let mut latencies = std::mem::take(&mut slow.latencies);
        latencies.sort_unstable();
        let own = found(&report);
        slow.longest.iter_mut().zip(&own.longest).for_each(|(slow, own)| slow.resize(own.len(), 0));
        assert_eq!(own, slow, "{timing:?} at {pace:?}, pipeline {compared}");
        let percentile = |permille: usize| latencies[(latencies.len() * permille).div_ceil(1000) - 1];
        let latency = &report.latency;
        let own_percentiles =
            [latency.p50_cycles, latency.p90_cycles, latency.p99_cycles, latency.p999_cycles, latency.max_cycles];
        for (own, permille) in own_percentiles.into_iter().zip([500, 900, 990, 999, 1000]) {
            let slow = percentile(permille);
            assert!(
                (slow..=slow + slow / 1000).contains(&own),
                "{permille}: {own}, not {slow}, in pipeline {compared}"
            );
        }
        compared += 1;
        lost += u64::from(own.lost > 0);
        flushes += u64::from(report.flushes > 0);
        overtakings += u64::from(report.overtakings > 0);
        stalls += u64::from(own.stalled_cycles.iter().any(|stalled_cycles| *stalled_cycles > 0));
    }
    eprintln!("{refused} refused; with loss {lost}, flushes {flushes}, overtakings {overtakings}, stalls {stalls}");
    // Everything happened in some of them.
    assert!([lost, flushes, overtakings, stalls].into_iter().all(|count| count > PIPELINES as u64 / 20));
}
