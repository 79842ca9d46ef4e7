// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reduces a disagreement to a minimal trace that still shows it.
//!
//! # Steps
//! 1. Removes all packets after the one that showed the disagreement.
//! 2. Delta debugging (ddmin) removes packets: first tries windows at the end, where most culprits are, then ever
//!    smaller chunks, until no single packet can be removed.
//! 3. Simplifies the rest: gaps between packets become 0 or round, payload is truncated, bytes become 0.
//!
//! The kind of the disagreement is preserved as long as that costs no packets: a second pass accepts any kind, and its
//! result is used only if it is shorter.
//!
//! Each trial starts from the initial state of the comparison, so the result shows the disagreement by itself. The same
//! input gives the same output; the number of trials is bounded.

use flowloom_engine::{Datapath, EngineError};

use crate::arrival::Arrival;
use crate::compare::{CompareOptions, Pair, Report, Snapshots, compare};
use crate::difference::Kind;

/// Options of shrinking.
#[derive(Debug, Clone, Copy)]
pub struct ShrinkOptions {
    /// Maximum number of packets run in all trials together, on each engine.
    pub max_packets: u64,
    /// True if times and bytes are simplified too.
    pub simplify: bool,
}

impl Default for ShrinkOptions {
    fn default() -> ShrinkOptions {
        ShrinkOptions { max_packets: 20_000_000, simplify: true }
    }
}

/// Progress of shrinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShrinkProgress {
    /// Packets that are left.
    pub packets_left: usize,
    /// Number of trials so far.
    pub trials: u64,
}

/// A minimal trace.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// Packets of the trace.
    pub packets: Vec<Arrival>,
    /// Comparison of the engines on it.
    pub report: Report,
    /// Number of trials.
    pub trials: u64,
    /// True if the bound ended the search: the trace may not be minimal.
    pub hit_bound: bool,
}

/// Shrinks `packets`, on which the engines disagree; `None` where they agree.
///
/// # Errors
/// An engine failed.
///
/// # Cost
/// At most `shrink.max_packets` packets on each engine.
pub fn shrink(
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    packets: &[Arrival],
    options: &CompareOptions,
    shrink: &ShrinkOptions,
    progress: &mut dyn FnMut(ShrinkProgress),
) -> Result<Option<Shrunk>, EngineError> {
    // The first comparison finds the culprit, bisection included.
    let Some(first) = compare(reference, target, packets, options)?.disagreement else { return Ok(None) };
    let mut search = Search {
        pair: Pair { reference, target, options },
        budget: shrink.max_packets,
        trials: 0,
        kind: Some(first.kind),
        progress,
    };
    let culprit = first.position.map_or(0, |p| p + 1);
    let mut best = search.minimise(packets[..culprit].iter().collect())?;
    if best.len() > 1 {
        search.kind = None;
        let other = search.minimise(best.clone())?;
        if other.len() < best.len() {
            best = other;
        } else {
            search.kind = Some(first.kind);
        }
    }
    let mut best: Vec<Arrival> = best.into_iter().cloned().collect();
    if shrink.simplify {
        search.simplify(&mut best)?;
    }
    let (trials, hit_bound) = (search.trials, search.budget == 0);
    let Pair { reference, target, .. } = search.pair;
    let report = compare(reference, target, &best, options)?;
    Ok(Some(Shrunk { packets: best, report, trials, hit_bound }))
}

/// Numbers of packets at the end of a stream that [`shrink_end`] tries to shrink, before all of them.
const ENDS: [usize; 3] = [1 << 12, 1 << 16, 1 << 20];

/// Shrinks the last packets of a stream of `count` packets, on which the engines disagree; `end(n)` reads the last `n`
/// of them. Most disagreements need only the last few packets: the packets before are read only if the engines agree on
/// these. `None` where they agree on all.
///
/// # Errors
/// An engine failed, or the packets cannot be read.
///
/// # Cost
/// The memory of the packets that were read last, and as [`shrink()`] for each number of packets.
pub fn shrink_end<E: From<EngineError>>(
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    count: usize,
    end: &mut dyn FnMut(usize) -> Result<Vec<Arrival>, E>,
    options: &CompareOptions,
    how: &ShrinkOptions,
    progress: &mut dyn FnMut(ShrinkProgress),
) -> Result<Option<Shrunk>, E> {
    for read in ENDS.into_iter().filter(|read| *read < count).chain([count]) {
        let shrunk = shrink(reference, target, &end(read)?, options, how, progress)?;
        if shrunk.is_some() {
            return Ok(shrunk);
        }
    }
    Ok(None)
}

struct Search<'a, 'p> {
    pair: Pair<'a>,
    /// Number of packets that may still be run.
    budget: u64,
    trials: u64,
    /// The kind to preserve; `None` for any.
    kind: Option<Kind>,
    progress: &'p mut dyn FnMut(ShrinkProgress),
}

impl Search<'_, '_> {
    /// Number of packets up to the disagreement, if `packets` show it.
    fn reproduces<'p, P>(&mut self, packets: P) -> Result<Option<usize>, EngineError>
    where
        P: IntoIterator<Item = &'p Arrival, IntoIter: ExactSizeIterator>,
    {
        let packets = packets.into_iter();
        let cost = packets.len() as u64 + 1;
        if packets.len() == 0 || cost > self.budget {
            // The search ends at the first trial over budget: continuing with smaller ones would make the result depend
            // on their order.
            if cost > self.budget {
                self.budget = 0;
            }
            return Ok(None);
        }
        self.budget -= cost;
        self.trials += 1;
        let finding = self.pair.run(packets, Snapshots::AtEnd)?.finding;
        Ok(finding.filter(|f| self.kind.is_none_or(|kind| kind == f.kind)).and_then(|f| f.position.map(|p| p + 1)))
    }

    fn report_progress(&mut self, packets_left: usize) {
        (self.progress)(ShrinkProgress { packets_left, trials: self.trials });
    }

    /// ddmin: the result shows the disagreement and no single packet of it can be removed.
    fn minimise<'p>(&mut self, mut packets: Vec<&'p Arrival>) -> Result<Vec<&'p Arrival>, EngineError> {
        // Most disagreements need only the last few packets.
        let mut window = 1;
        while window < packets.len() {
            let tail = &packets[packets.len() - window..];
            if let Some(needed) = self.reproduces(tail.iter().copied())? {
                packets = tail[..needed].to_vec();
                break;
            }
            window *= 4;
        }
        let mut pieces = 2;
        while packets.len() >= 2 {
            self.report_progress(packets.len());
            let size = packets.len().div_ceil(pieces);
            let mut smaller = None;
            // Remove early chunks first: the end shows the disagreement, the beginning is most often irrelevant.
            for start in (0..packets.len()).step_by(size) {
                let end = (start + size).min(packets.len());
                let rest: Vec<&Arrival> = packets[..start].iter().chain(&packets[end..]).copied().collect();
                if let Some(needed) = self.reproduces(rest.iter().copied())? {
                    smaller = Some(rest[..needed].to_vec());
                    break;
                }
            }
            match smaller {
                Some(rest) => {
                    packets = rest;
                    pieces = pieces.saturating_sub(1).max(2);
                }
                None if size == 1 => break,
                None => pieces = (pieces * 2).min(packets.len()),
            }
        }
        self.report_progress(packets.len());
        Ok(packets)
    }

    /// Replaces `packets` by `trial` if it still shows the disagreement after its last packet.
    fn accept(&mut self, packets: &mut Vec<Arrival>, trial: Vec<Arrival>) -> Result<bool, EngineError> {
        if trial == *packets {
            return Ok(false);
        }
        let good = self.reproduces(&trial)? == Some(trial.len());
        if good {
            *packets = trial;
        }
        Ok(good)
    }

    fn simplify(&mut self, packets: &mut Vec<Arrival>) -> Result<(), EngineError> {
        self.simplify_times(packets)?;
        for i in 0..packets.len() {
            self.simplify_packet(packets, i)?;
            self.report_progress(packets.len());
        }
        Ok(())
    }

    /// First packet at time 0; gaps of 0, else 1 ns, else rounded down.
    fn simplify_times(&mut self, packets: &mut Vec<Arrival>) -> Result<(), EngineError> {
        // Clamp times to be monotonic, like the engines' clock.
        let mut now = 0;
        for packet in packets.iter_mut() {
            now = packet.time_ns.max(now);
            packet.time_ns = now;
        }
        for i in 0..packets.len() {
            let before = if i == 0 { 0 } else { packets[i - 1].time_ns };
            let gap = packets[i].time_ns - before;
            let rounded = [1_000_000_000, 1_000_000, 1_000].map(|unit| gap - gap % unit);
            for shorter in [0, 1].into_iter().chain(rounded).filter(|&g| g < gap) {
                let mut trial = packets.clone();
                for packet in &mut trial[i..] {
                    packet.time_ns -= gap - shorter;
                }
                if self.accept(packets, trial)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Port 0, no more bytes than needed, and zeros where possible.
    fn simplify_packet(&mut self, packets: &mut Vec<Arrival>, i: usize) -> Result<(), EngineError> {
        let mut trial = packets.clone();
        trial[i].port.0 = 0;
        self.accept(packets, trial)?;
        let mut cut = packets[i].bytes.len() / 2;
        while cut > 0 {
            let mut trial = packets.clone();
            let len = trial[i].bytes.len();
            if cut < len {
                trial[i].bytes.truncate(len - cut);
                if self.accept(packets, trial)? {
                    continue;
                }
            }
            cut /= 2;
        }
        let mut size = packets[i].bytes.len().next_power_of_two();
        while size > 0 {
            for start in (0..packets[i].bytes.len()).step_by(size) {
                let mut trial = packets.clone();
                let end = (start + size).min(trial[i].bytes.len());
                trial[i].bytes[start..end].fill(0);
                self.accept(packets, trial)?;
            }
            size /= 2;
        }
        Ok(())
    }
}
