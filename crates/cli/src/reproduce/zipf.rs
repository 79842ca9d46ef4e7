// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows computed by formulas for Zipf-distributed flows, compared with a simulation of the same pipeline.

use std::path::Path;

use flowloom_plan::{MapTiming, Scheme, Timing};
use flowloom_predict::formula::{Norm, conflict, mean_distance, most_flush_cycles, throughput as mpps, zipf_flush};
use flowloom_predict::{Flows, Pace};
use serde_json::json;

use super::experiment::Row;
use super::measured::Measured;
use super::pipelines::{CLOCK_MHZ, by_blocks, of_paper, planned, run, timing_text};
use super::program::program;
use crate::failure::Failure;

/// Number of flows in the tables.
const FLOWS: u32 = 50_000;
/// Number of packets per simulation.
const PACKETS: u64 = 150_000;
/// Packet rate of 100 Gb/s with frames of 64 bytes.
const LINE_MPPS: f64 = 148.8;
/// Upper bound of the search for the longest flush, in cycles.
const MAX_CYCLES: u32 = 256;
/// Ratio of the clock rate to the line rate, cut to one digit. The paper's table follows from it.
const CUT_SHARE: f64 = 1.6;

/// Cuts a probability to whole percents, as the paper's tables do.
fn cut(probability: f64) -> f64 {
    (probability * 100.0).floor() / 100.0
}

/// Simulated throughput in Mpps if every packet reads and writes every map, each by its flow.
fn simulated(timing: &Timing) -> Result<f64, Failure> {
    let mut flows = Flows::zipf(FLOWS, 1.0, timing.maps.len(), PACKETS, 1);
    Ok(run(timing, Pace::Full, &mut flows)?.throughput_mpps)
}

/// Computes the row's value: throughput if the paper gives K, else the longest K.
pub(super) fn measure(row: &Row, functions: &Path) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    if let Some(window) = row.number("window") {
        match row.number("flush_cycles") {
            Some(cycles) => throughputs(&mut measured, cycles, window)?,
            None => longest(&mut measured, window)?,
        }
    }
    if row.program.is_some() {
        own(&mut measured, row, functions)?;
    }
    Ok(measured)
}

/// Flush probabilities: cut to percents, as printed, with the harmonic number, and of a conflict between a packet and
/// its successors.
fn probabilities(window: u32) -> [f64; 4] {
    let by_pairs = |norm| zipf_flush(FLOWS.into(), window, norm);
    let harmonic = by_pairs(Norm::Harmonic);
    [cut(harmonic), by_pairs(Norm::Logarithm), harmonic, conflict(FLOWS.into(), window)]
}

fn throughputs(measured: &mut Measured, cycles: u32, window: u32) -> Result<(), Failure> {
    let [cut, printed, harmonic, conflict] = probabilities(window);
    // A value above 1 is not a probability.
    if printed < 1.0 {
        let of = |flush| mpps(CLOCK_MHZ, flush, f64::from(cycles));
        measured.values.extend([
            ("cut_mpps", of(cut).floor()),
            ("printed_mpps", of(printed)),
            ("harmonic_mpps", of(harmonic)),
        ]);
    }
    measured.reasons.push_str(&format!(
        "  K {cycles}, L {window}: P_f {:.2}% as printed, {:.2}% with the harmonic number, {:.2}% of one packet and the next L - 1\n",
        100.0 * printed,
        100.0 * harmonic,
        100.0 * conflict
    ));
    let Some(timing) = of_paper("map", cycles, window) else {
        measured.reasons.push_str("  no simulation: a restart would begin after the read, as K is less than L\n");
        return Ok(());
    };
    let mean_cycles = f64::from(cycles) - mean_distance(FLOWS.into(), window) + 1.0;
    measured
        .values
        .extend([("conflict_mpps", mpps(CLOCK_MHZ, conflict, mean_cycles)), ("simulated_mpps", simulated(&timing)?)]);
    Ok(())
}

fn longest(measured: &mut Measured, window: u32) -> Result<(), Failure> {
    let [cut, printed, harmonic, conflict] = probabilities(window);
    let share = CLOCK_MHZ / LINE_MPPS;
    measured.values.extend([
        ("cut_percent", 100.0 * cut),
        ("printed_percent", 100.0 * printed),
        ("harmonic_percent", 100.0 * harmonic),
        ("conflict_percent", 100.0 * conflict),
        ("cut_most", most_flush_cycles(CUT_SHARE, cut).round()),
        ("printed_most", most_flush_cycles(share, printed).floor()),
        ("harmonic_most", most_flush_cycles(share, harmonic).floor()),
    ]);
    // Binary search: throughput falls with the length of a flush.
    let (mut least, mut beyond) = (window, MAX_CYCLES);
    while beyond - least > 1 {
        let middle = least.midpoint(beyond);
        let Some(timing) = of_paper("map", middle, window) else { break };
        if simulated(&timing)? >= LINE_MPPS { least = middle } else { beyond = middle }
    }
    measured.values.insert("simulated_most", least.into());
    measured.reasons.push_str(&format!("  simulated: {LINE_MPPS} Mpps pass with K = {least}, but not with {beyond}\n"));
    Ok(())
}

/// Our implementation of the function, laid out by blocks and as a dataflow.
fn own(measured: &mut Measured, row: &Row, functions: &Path) -> Result<(), Failure> {
    let loaded = program(row, functions)?;
    let (blocks, maps) = by_blocks(&loaded)?;
    let flushed = blocks.maps.iter().filter(|map| map.scheme == Scheme::Flush);
    // The most expensive map, by the formula.
    let cost = |map: &&MapTiming| conflict(FLOWS.into(), map.hold_cycles) * f64::from(blocks.flush_cycles(map));
    if let Some(map) = flushed.max_by(|a, b| cost(a).total_cmp(&cost(b))) {
        measured.values.extend([
            ("blocks_flush_cycles", f64::from(blocks.flush_cycles(map))),
            ("blocks_window", f64::from(map.hold_cycles)),
        ]);
    }
    measured.values.insert("blocks_mpps", simulated(&blocks)?);
    measured.reasons.push_str(&format!("  by blocks, {}\n", timing_text(&blocks)));
    for map in maps.iter().filter(|map| !map.repeats.is_empty()) {
        measured.reasons.push_str(&format!(
            "  a flush of {} writes a second time: {}\n",
            map.name,
            map.repeats.join(", ")
        ));
    }
    let plan = planned(&loaded, None)?;
    match &plan {
        Ok(plan) => {
            measured.values.insert("plan_mpps", simulated(plan)?);
            measured.reasons.push_str(&format!("  by dataflow, {}\n", timing_text(plan)));
        }
        Err(refusal) => measured.missing = Some(format!("no dataflow plan: {refusal}")),
    }
    let of = |timing: &Timing| {
        let maps = timing.maps.iter().map(|map| {
            let cycles = (map.scheme == Scheme::Flush).then(|| timing.flush_cycles(map));
            json!({
                "name": map.name, "hazard": map.scheme.as_str(), "hold_cycles": map.hold_cycles, "flush_cycles": cycles,
            })
        });
        json!({ "stages": timing.stages, "maps": maps.collect::<Vec<_>>() })
    };
    measured.parts = json!({ "blocks": of(&blocks), "dataflow": plan.ok().as_ref().map(of) });
    Ok(())
}
