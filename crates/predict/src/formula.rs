// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' formulas of the cost of flushes, to compare with the simulation.
//!
//! L is the window in cycles within which two packets of a flow conflict, because the later one would read before the
//! write of the earlier one: `hold_cycles`. K is the cost of a flush: [`Timing::flush_cycles`]. T is the throughput
//! without flushes.
//!
//! The formula for Zipf's law counts the *pairs* of packets in a window of L and charges every packet with all of them,
//! though each pair is met L - 1 times as the window slides by a packet: it is right for L = 2 and too high beyond.
//! [`conflict`] asks of one packet whether one of the L - 1 packets after it has its flow.

use serde::Serialize;

use flowloom_plan::{MapTiming, Timing};

/// The normalisation of Zipf's law, which divides 1/i.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// The logarithm of the number of flows, as printed.
    Logarithm,
    /// The harmonic number, which the logarithm approximates.
    Harmonic,
}

/// The probabilities of flows whose popularity is proportional to 1/rank.
fn zipf(flows: u64, norm: Norm) -> impl Iterator<Item = f64> {
    let all = match norm {
        Norm::Logarithm => (flows as f64).ln(),
        Norm::Harmonic => (1..=flows).rev().map(|rank| 1.0 / rank as f64).sum(),
    };
    (1..=flows).map(move |rank| 1.0 / (rank as f64 * all))
}

/// The probability of a flush with flows by Zipf's law: pairs in a window of L.
///
/// # Source
/// [eHDL A.1], after equation 1. It divides by the logarithm; tables 3 and 4 come out with the harmonic number, the
/// probabilities truncated to whole percents.
pub fn zipf_flush(flows: u64, window: u32, norm: Norm) -> f64 {
    let window = f64::from(window);
    let pairs = window * (window - 1.0) / 2.0;
    zipf(flows, norm).map(|p| pairs * p * p * (1.0 - p).max(0.0).powf(window - 2.0)).sum()
}

/// The probability that one of the L - 1 packets after a packet has its flow, with flows by Zipf's law.
pub fn conflict(flows: u64, window: u32) -> f64 {
    let behind = f64::from(window.saturating_sub(1));
    zipf(flows, Norm::Harmonic).map(|p| p * (1.0 - (1.0 - p).powf(behind))).sum()
}

/// The mean distance in packets from a writer to the next packet of its flow, over all flushes, with flows by Zipf's
/// law.
pub fn mean_distance(flows: u64, window: u32) -> f64 {
    let (mut all, mut far) = (0.0, 0.0);
    for p in zipf(flows, Norm::Harmonic) {
        let mut weight = p * p;
        for distance in 1..window {
            all += weight;
            far += weight * f64::from(distance);
            weight *= 1.0 - p;
        }
    }
    if all > 0.0 { far / all } else { 1.0 }
}

/// The throughput if a packet takes K cycles with this probability, and one otherwise.
///
/// # Source
/// [eHDL A.1], equation 2
pub fn throughput(most: f64, flush: f64, flush_cycles: f64) -> f64 {
    most / ((1.0 - flush) + flush_cycles * flush)
}

/// The greatest cost of a flush in cycles that leaves a share of the throughput: T / T_p is `share`.
///
/// # Source
/// [eHDL A.1], equation 3. Table 4 comes out with T / T_p, 250 / 148.8, truncated to 1.6, as its probabilities are to
/// percents.
pub fn most_flush_cycles(share: f64, flush: f64) -> f64 {
    (share - (1.0 - flush)) / flush
}

/// The formulas for a flushed map under Zipf's law, in Mpps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Formulas {
    /// The name of the map.
    pub map: String,
    /// The number of flows.
    pub flows: u64,
    /// K.
    pub flush_cycles: u32,
    /// L.
    pub window: u32,
    /// The formula as printed.
    pub printed_mpps: f64,
    /// The same with the harmonic number.
    pub harmonic_mpps: f64,
    /// By [`conflict`], each flush at its mean cost: K minus the distance of the packet that restarts, and at least the
    /// cycle of this packet.
    pub conflict_mpps: f64,
}

impl Formulas {
    /// The formulas for a map of a pipeline that otherwise takes a packet a cycle.
    pub fn of(timing: &Timing, map: &MapTiming, flows: u64) -> Formulas {
        let (most, window, cycles) = (timing.clock_mhz, map.hold_cycles, timing.flush_cycles(map));
        let by_pairs = |norm| throughput(most, zipf_flush(flows, window, norm), f64::from(cycles));
        let mean_cycles = f64::from(cycles) - mean_distance(flows, window) + 1.0;
        Formulas {
            map: map.name.clone(),
            flows,
            flush_cycles: cycles,
            window,
            printed_mpps: by_pairs(Norm::Logarithm),
            harmonic_mpps: by_pairs(Norm::Harmonic),
            conflict_mpps: throughput(most, conflict(flows, window), mean_cycles),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOWS: u64 = 50_000;

    /// Truncated to whole percents, as in the paper.
    fn percents(probability: f64) -> f64 {
        (probability * 100.0).floor() / 100.0
    }

    #[test]
    fn table_3_of_ehdl() {
        for (cycles, window, mpps) in [(109.0, 2, 120.0), (41.0, 2, 178.0), (59.0, 3, 91.0), (39.0, 5, 52.0)] {
            let flush = percents(zipf_flush(FLOWS, window, Norm::Harmonic));
            assert_eq!(throughput(250.0, flush, cycles).floor(), mpps, "K {cycles}, L {window}");
        }
        // DNAT: the sum over pairs exceeds 1.
        assert!(zipf_flush(FLOWS, 51, Norm::Logarithm) > 1.0);
    }

    #[test]
    fn table_4_of_ehdl() {
        for (window, flush, cycles) in [(2, 0.01, 61.0), (3, 0.03, 21.0), (4, 0.06, 11.0), (5, 0.10, 7.0)] {
            let printed = percents(zipf_flush(FLOWS, window, Norm::Harmonic));
            assert_eq!(printed, flush, "L {window}");
            assert_eq!(most_flush_cycles(1.6, printed).round(), cycles, "L {window}");
        }
        // The logarithm, as the formula is printed, gives other values.
        let as_printed = [2, 3, 4, 5].map(|window| percents(zipf_flush(FLOWS, window, Norm::Logarithm)));
        assert_eq!(as_printed, [0.01, 0.03, 0.07, 0.11]);
    }

    #[test]
    fn equation_3_solves_equation_2() {
        let (flush, cycles) = (0.07, 23.0);
        assert!((most_flush_cycles(250.0 / throughput(250.0, flush, cycles), flush) - cycles).abs() < 1e-9);
    }

    #[test]
    fn pairs_recur() {
        let (two, five) = (conflict(FLOWS, 2), conflict(FLOWS, 5));
        assert!((zipf_flush(FLOWS, 2, Norm::Harmonic) - two).abs() < 1e-9);
        let ratio = zipf_flush(FLOWS, 5, Norm::Harmonic) / five;
        assert!((2.0..2.6).contains(&ratio), "{ratio}");
        // With one flow the next packet always conflicts.
        assert!((conflict(1, 5) - 1.0).abs() < 1e-12 && conflict(FLOWS, 1) == 0.0);
        assert!((mean_distance(1, 5) - 1.0).abs() < 1e-12);
        assert!((2.0..2.5).contains(&mean_distance(FLOWS, 5)));
    }
}
