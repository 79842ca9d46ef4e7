// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows measured by running generated traffic through a pipeline: flushes, loss, throughput.

use std::path::Path;
use std::sync::Arc;

use flowloom_ir::Dataflow;
use flowloom_isa::Program;
use flowloom_plan::{Scheme, Timing};
use flowloom_predict::{Arrival, Arrivals, Keyed, Pace, PredictError, Report};
use flowloom_trace::{Profile, Rate, Traffic, TrafficOptions};
use serde_json::{Value as Json, json};

use super::experiment::Row;
use super::measured::Measured;
use super::pipelines::{of_paper, planned, run, timing_text};
use super::program::program;
use crate::explain::no_plan;
use crate::failure::Failure;

const LINE: Pace = Pace::At(Rate::Bits(100_000_000_000));
/// Number of packets per row.
const PACKETS: u64 = 200_000;
/// Number of bytes generated per packet: the headers.
const SNAP_BYTES: u32 = 96;
/// Width of a pipeline word, in bytes.
const WORD_BYTES: u32 = 64;

/// Traffic in which all packets have the same key.
struct OneFlow<A>(A);

impl<A: Arrivals> Arrivals for OneFlow<A> {
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError> {
        let is_there = self.0.next(packet)?;
        (packet.uses, packet.writes) = (u64::MAX, u64::MAX);
        packet.keys.fill(0);
        Ok(is_there)
    }
}

/// Traffic options of all pipelines of a row.
fn options(profile: Profile) -> TrafficOptions {
    TrafficOptions { packets: Some(PACKETS), snap_bytes: Some(SNAP_BYTES), ..TrafficOptions::new(profile) }
}

/// Throughput in Mpps of one flow if each word of a packet, also after a restart, occupies its own stage: the next
/// packet hits the hazard only if this one has fewer than L words.
fn spread_mpps(timing: &Timing, profile: Profile) -> Result<f64, Failure> {
    let Some(map) = timing.maps.first() else { return Ok(timing.clock_mhz) };
    let mut traffic = Traffic::new(&options(profile)).map_err(|e| Failure::input(&e))?;
    let (mut packets, mut cycles) = (0, 0);
    while let Some(packet) = traffic.next_packet() {
        let words = packet.len_bytes.div_ceil(WORD_BYTES);
        packets += 1;
        cycles += u64::from(if words < map.hold_cycles { timing.flush_cycles(map) } else { words });
    }
    Ok(timing.clock_mhz * f64::from(packets) / cycles as f64)
}

/// A program and the traffic of a row.
struct Traced<'a> {
    row: &'a Row,
    program: Arc<Program>,
    dataflow: Arc<Dataflow>,
    profile: Profile,
}

impl Traced<'_> {
    fn run(&self, timing: &Timing) -> Result<Report, Failure> {
        let traffic = Traffic::new(&options(self.profile)).map_err(|e| Failure::input(&e))?;
        let keyed =
            Keyed::new(&self.program, &self.dataflow, timing, false, traffic).map_err(|e| Failure::input(&e))?;
        if self.row.one_flow { run(timing, LINE, &mut OneFlow(keyed)) } else { run(timing, LINE, &mut { keyed }) }
    }
}

/// Runs the traffic of a row through the paper's pipeline and through our own.
pub(super) fn measure(row: &Row, functions: &Path) -> Result<Measured, Failure> {
    let loaded = program(row, functions)?;
    let profile = row.profile()?;
    let map = row.map.as_deref().ok_or_else(|| row.lacks("map"))?;
    let given = row.number("flush_cycles").zip(row.number("window"));
    let printed =
        given.and_then(|(cycles, window)| of_paper(map, cycles, window)).ok_or_else(|| row.lacks("pipeline"))?;
    let mut plans = Vec::new();
    for scheme in [Scheme::Flush, Scheme::Schedule, Scheme::Atomic] {
        plans.push(planned(&loaded, Some((map, scheme)))?.map_err(|refusal| no_plan(&refusal, false))?);
    }
    let dataflow = loaded.dataflow().map_err(|e| Failure::input(&e))?;
    let traced = Traced { row, program: loaded.pipeline_program()?, dataflow, profile };
    let mut measured = Measured::default();
    let report = traced.run(&printed)?;
    measured.values.extend([
        ("lost", report.packets_lost as f64),
        ("flushes_per_s", report.maps.iter().map(|map| map.flushes_per_s).sum()),
        ("mpps", report.throughput_mpps),
    ]);
    if row.one_flow {
        measured.values.insert("spread_mpps", spread_mpps(&printed, profile)?);
    }
    let mut parts = vec![record_report(&mut measured, "the paper's pipeline", &printed, &report)];
    let names = ["plan_flush_lost", "plan_schedule_lost", "plan_atomic_lost"];
    for (name, timing) in names.into_iter().zip(plans) {
        let report = traced.run(&timing)?;
        measured.values.insert(name, report.packets_lost as f64);
        if name == "plan_flush_lost" {
            let flushes = report.maps.iter().map(|map| map.flushes_per_s).sum();
            measured.values.insert("plan_flushes_per_s", flushes);
        }
        parts.push(record_report(&mut measured, "our plan", &timing, &report));
    }
    measured.parts =
        json!({ "packets": PACKETS, "traffic": profile.name(), "one_flow": row.one_flow, "pipelines": parts });
    Ok(measured)
}

/// Adds a pipeline's report to `measured` as text, and returns it as JSON.
fn record_report(measured: &mut Measured, what: &str, timing: &Timing, report: &Report) -> Json {
    measured.reasons.push_str(&format!(
        "  {what}, {}: {:.1} of {:.1} Mpps, {} flushes, {} stall cycles, at most {} bytes buffered, {} of {} packets lost\n",
        timing_text(timing),
        report.throughput_mpps,
        report.offered_mpps,
        report.flushes,
        report.stalled_cycles,
        report.input_buffer_bytes,
        report.packets_lost,
        report.packets_in
    ));
    json!({
        "pipeline": what, "stages": timing.stages, "hazards": timing_text(timing), "offered_mpps": report.offered_mpps,
        "throughput_mpps": report.throughput_mpps, "flushes": report.flushes, "packets_lost": report.packets_lost,
        "stalled_cycles": report.stalled_cycles, "input_buffer_bytes": report.input_buffer_bytes,
    })
}
