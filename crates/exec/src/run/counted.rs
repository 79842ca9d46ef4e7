// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of which only counts are wanted: packets are read in batches, which the engine counts ([`Datapath::tally`])
//! where they lie.

use std::time::{Duration, Instant};

use flowloom_engine::{Arrival, Datapath, Draws, PacketError, Port, Tally};

use super::{PROGRESS_EVERY, PacketClock, RunOptions, RunSummary, Sinks, Source};
use crate::error::ExecError;

/// The packets of the first batch, and the least of batches that take long.
const LEAST: usize = 1 << 8;

/// True if a run has no use for what packets leave behind.
pub(super) fn is_counted(datapath: &dyn Datapath, sinks: &Sinks<'_>, options: &RunOptions) -> bool {
    datapath.tallies() && sinks.packets.is_none() && options.reads_ahead
}

/// As [`super::run`], without sinks.
pub(super) fn run(
    datapath: &mut dyn Datapath,
    input: &mut dyn Source,
    options: RunOptions,
    progress: &mut dyn FnMut(&RunSummary),
) -> Result<RunSummary, ExecError> {
    let RunOptions { seed, count: wanted, mut sweep, .. } = options;
    let (start, mut reported) = (Instant::now(), Duration::ZERO);
    let (mut summary, mut clock, mut tally) = (RunSummary::default(), PacketClock::default(), Tally::default());
    let wanted = wanted.unwrap_or(u64::MAX);
    // A signal is heard, and progress is reported, between batches, and at each sweep.
    let mut most = LEAST;
    while summary.packets < wanted {
        let batch = input.next_batch(most.min(usize::try_from(wanted - summary.packets).unwrap_or(most)))?;
        if batch.is_empty() {
            break;
        }
        let mut arrivals: Vec<Arrival<'_>> = Vec::with_capacity(batch.len());
        let mut due = None;
        for packet in batch.iter() {
            let now_ns = clock.at(packet.time_ns);
            due = sweep.due(now_ns);
            if due.is_some() {
                break;
            }
            summary.times_ns = Some((summary.times_ns.map_or(now_ns, |(first, _)| first), now_ns));
            summary.bytes += packet.bytes.len() as u64;
            arrivals.push(Arrival { bytes: packet.bytes, port: Port(packet.port), now_ns });
        }
        let first = summary.packets;
        if !arrivals.is_empty() {
            let fails = |PacketError { packet, source }| ExecError::Engine { packet: first + packet as u64, source };
            datapath.tally(&arrivals, Draws { seed, first }, &mut tally).map_err(fails)?;
        }
        summary.packets += arrivals.len() as u64;
        let left = batch.len() - arrivals.len();
        if let Some(moment_ns) = due {
            input.take_back(left);
            let packet = summary.packets;
            datapath.sweep(moment_ns).map_err(|source| ExecError::Engine { packet, source })?;
            summary.sweeps += 1;
        }
        (summary.verdicts, summary.events) = (tally.verdicts, tally.events);
        (summary.outputs, summary.output_bytes) = (tally.outputs, tally.output_bytes);
        let before = summary.elapsed;
        summary.elapsed = start.elapsed();
        most = match summary.elapsed - before < PROGRESS_EVERY / 4 {
            true => most.saturating_mul(2),
            false => (most / 2).max(LEAST),
        };
        if summary.elapsed - reported >= PROGRESS_EVERY {
            reported = summary.elapsed;
            progress(&summary);
        }
    }
    summary.elapsed = start.elapsed();
    Ok(summary)
}
