// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of a prediction.

use serde::Serialize;

use super::arrival::Arrivals;
use super::buffer::Buffer;
use super::formula::Formulas;
use super::known::Known;
use super::latency::Histogram;
use super::model::Model;
use super::options::{WIRE_OVERHEAD_BYTES, WORD_BYTES};
use flowloom_plan::Timing;

/// What a prediction is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Stages and holds of a plan or a file, with queues for flows.
    Plan,
    /// The rendered pipeline, cycle by cycle.
    Pipeline,
}

/// The behaviour of a pipeline on traffic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What the prediction is made of.
    pub model: ModelKind,
    /// The reason why it is not the rendered pipeline, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_reason: Option<String>,
    /// The clock in MHz.
    pub clock_mhz: f64,
    /// The packets that arrived.
    pub packets_in: u64,
    /// The packets that did not fit into the input buffer.
    pub packets_lost: u64,
    /// The packets that passed the pipeline, dropped by the program or not.
    pub packets_passed: u64,
    /// The packets that the program dropped.
    pub packets_dropped: u64,
    /// The cycles from the first word of the first packet to the last word of the last one, at the output.
    pub cycles: u64,
    /// The same in seconds.
    pub seconds: f64,
    /// The arrival rate.
    pub offered_mpps: f64,
    /// The rate of packets that passed, over `cycles`.
    pub throughput_mpps: f64,
    /// The same in bits on the wire at the input: with frame check sequence, preamble and gap.
    pub throughput_gbps: f64,
    /// The cycles in which a packet waited at the input because the pipeline could not take it.
    pub stalled_cycles: u64,
    /// The maximum fill of the input buffer in bytes, in whole words.
    pub input_buffer_bytes: u64,
    /// The maximum fill of the output buffer in bytes, in whole words.
    pub output_buffer_bytes: u64,
    /// The number of flushes.
    pub flushes: u64,
    /// The packets that were flushed.
    pub replayed: u64,
    /// The packets that left a scheduler before an earlier one.
    pub overtakings: u64,
    /// The latency from the arrival of a packet to its first word out.
    pub latency: Latency,
    /// How verdicts and departing lengths are determined.
    pub known_verdict: Known,
    /// The maps that packets write.
    pub maps: Vec<MapReport>,
    /// The papers' formulas, for traffic by Zipf's law.
    pub formulas: Vec<Formulas>,
}

/// Quantiles of the latency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub p50_cycles: u64,
    pub p90_cycles: u64,
    pub p99_cycles: u64,
    pub p999_cycles: u64,
    pub max_cycles: u64,
    pub p50_ns: f64,
    pub p90_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    pub max_ns: f64,
}

/// The behaviour of a map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MapReport {
    /// The name.
    pub name: String,
    /// How keys and writes are determined.
    pub known: Known,
    /// The scheme.
    pub scheme: &'static str,
    /// The hold in cycles.
    pub hold_cycles: u32,
    /// The number of flushes.
    pub flushes: u64,
    /// The number of flushes a second.
    pub flushes_per_s: f64,
    /// The packets that were flushed.
    pub replayed: u64,
    /// The mean cost of a flush in cycles.
    pub mean_flush_cycles: f64,
    /// The packets that left its scheduler before an earlier one.
    pub overtakings: u64,
    /// The cycles in which the stages before its queues or its elastic buffer stalled; in a rendered pipeline, those in
    /// which a packet waited for it.
    pub stalled_cycles: u64,
    /// In a rendered pipeline, the cycles in which a hash map had no room for new keys.
    pub room_cycles: u64,
    /// The maximum fill of each queue, the last one being that of packets that do not access the map; for an elastic
    /// buffer a single number, flushed packets included.
    pub longest_queues: Vec<u64>,
}

/// What a model has counted.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) packets_in: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_dropped: u64,
    pub(super) bytes_in: u64,
    pub(super) first_in: Option<u64>,
    pub(super) last_in: u64,
    pub(super) first_out: Option<u64>,
    /// The cycle after the last word.
    pub(super) last_out: u64,
    pub(super) stalled_cycles: u64,
    pub(super) longest_input_words: u64,
}

impl Measured {
    fn cycles(&self) -> u64 {
        self.first_out.map_or(0, |first| self.last_out - first)
    }

    fn seconds(&self, clock_mhz: f64) -> f64 {
        self.cycles() as f64 / (clock_mhz * 1e6)
    }
}

impl Latency {
    fn of(histogram: &Histogram, clock_mhz: f64) -> Latency {
        let ns = |cycles: u64| cycles as f64 * 1000.0 / clock_mhz;
        let [p50, p90, p99, p999] = [500, 900, 990, 999].map(|permille| histogram.permille(permille));
        Latency {
            p50_cycles: p50,
            p90_cycles: p90,
            p99_cycles: p99,
            p999_cycles: p999,
            max_cycles: histogram.most(),
            p50_ns: ns(p50),
            p90_ns: ns(p90),
            p99_ns: ns(p99),
            p999_ns: ns(p999),
            max_ns: ns(histogram.most()),
        }
    }
}

impl Report {
    pub(super) fn of(timing: &Timing, model: &Model, arrivals: &(impl Arrivals + ?Sized)) -> Report {
        let counts = &model.counts;
        let measured = Measured {
            packets_in: counts.packets_in,
            packets_lost: counts.packets_lost,
            packets_dropped: counts.packets_dropped,
            bytes_in: counts.bytes_in,
            first_in: counts.first_in,
            last_in: counts.last_in,
            first_out: counts.first_out,
            last_out: counts.last_out,
            stalled_cycles: model.input.stalled_cycles,
            longest_input_words: model.input.longest_words,
        };
        let seconds = measured.seconds(timing.clock_mhz);
        let maps: Vec<MapReport> =
            (0..timing.maps.len()).map(|map| MapReport::of(timing, model, map, arrivals.known(map), seconds)).collect();
        let report = Report::measured(timing.clock_mhz, &measured, &counts.latencies, maps);
        Report {
            output_buffer_bytes: counts.longest_output_words * u64::from(WORD_BYTES),
            known_verdict: arrivals.known_verdict(),
            ..report
        }
    }

    /// The report of what was measured.
    pub(super) fn measured(clock_mhz: f64, measured: &Measured, latencies: &Histogram, maps: Vec<MapReport>) -> Report {
        let cycles = measured.cycles();
        let offered_cycles = measured.first_in.map_or(0, |first| measured.last_in - first + 1);
        let rate = |number: f64, cycles: u64| if cycles == 0 { 0.0 } else { number * clock_mhz / cycles as f64 };
        let passed = measured.packets_in - measured.packets_lost;
        let bytes = measured.bytes_in + passed * u64::from(WIRE_OVERHEAD_BYTES);
        Report {
            model: ModelKind::Plan,
            model_reason: None,
            clock_mhz,
            packets_in: measured.packets_in,
            packets_lost: measured.packets_lost,
            packets_passed: passed,
            packets_dropped: measured.packets_dropped,
            cycles,
            seconds: measured.seconds(clock_mhz),
            offered_mpps: rate(measured.packets_in as f64, offered_cycles),
            throughput_mpps: rate(passed as f64, cycles),
            throughput_gbps: rate(bytes as f64 * 8.0, cycles) / 1000.0,
            stalled_cycles: measured.stalled_cycles,
            input_buffer_bytes: measured.longest_input_words * u64::from(WORD_BYTES),
            output_buffer_bytes: 0,
            flushes: maps.iter().map(|map| map.flushes).sum(),
            replayed: maps.iter().map(|map| map.replayed).sum(),
            overtakings: maps.iter().map(|map| map.overtakings).sum(),
            known_verdict: Known::Run,
            latency: Latency::of(latencies, clock_mhz),
            maps,
            formulas: Vec::new(),
        }
    }

    /// Adds the papers' formulas for flows by Zipf's law.
    #[must_use]
    pub fn with_formulas(mut self, timing: &Timing, flows: u64) -> Report {
        let flushed = timing.maps.iter().filter(|map| map.scheme == flowloom_plan::Scheme::Flush);
        self.formulas = flushed.map(|map| Formulas::of(timing, map, flows)).collect();
        self
    }
}

impl MapReport {
    fn of(timing: &Timing, model: &Model, number: usize, known: Known, seconds: f64) -> MapReport {
        let (map, counts) = (&timing.maps[number], &model.counts);
        let mut overtakings = 0;
        let mut longest_queues = Vec::new();
        let buffer = model.buffer_of(number);
        match buffer.and_then(|buffer| model.buffers.get(buffer)) {
            Some(Buffer::Scheduler(scheduler)) => {
                overtakings = scheduler.overtakings;
                longest_queues = scheduler.longest().map(u64::from).collect();
            }
            Some(Buffer::Elastic(buffer)) => longest_queues = vec![buffer.longest],
            None => {}
        }
        let flushes = counts.flushes[number];
        let each = |all: u64| if flushes == 0 { 0.0 } else { all as f64 / flushes as f64 };
        let before = buffer.and_then(|buffer| model.pipes.get(buffer));
        MapReport {
            name: map.name.clone(),
            known,
            scheme: map.scheme.as_str(),
            hold_cycles: map.hold_cycles,
            flushes,
            flushes_per_s: if seconds > 0.0 { flushes as f64 / seconds } else { 0.0 },
            replayed: counts.replayed[number],
            mean_flush_cycles: each(counts.flush_cycles[number]),
            overtakings,
            stalled_cycles: before.map_or(0, |pipe| pipe.stalled_cycles),
            room_cycles: 0,
            longest_queues,
        }
    }
}
