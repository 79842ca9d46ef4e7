// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of which only counts are wanted: packets are read in batches, which the engine counts ([`Datapath::tally`]).

use std::time::{Duration, Instant};

use flowloom_engine::{Arrival, Datapath, Draws, PacketError, Port, Tally};
use flowloom_trace::{CapturedPacket, TraceError};

use super::{PROGRESS_EVERY, PacketClock, RunOptions, RunSummary, Sinks};
use crate::error::ExecError;

/// The packets and bytes of a batch: more than the cache of a core, so that packets that this thread has read are in
/// the cache that all cores share when other cores read them.
const BATCH: usize = 1 << 15;
/// The packets of the first batch, and of batches that take long.
const LEAST: usize = 1 << 8;
const BATCH_BYTES: usize = 4 << 20;

/// True if a run has no use for what packets leave behind.
pub(super) fn is_counted(datapath: &dyn Datapath, sinks: &Sinks<'_>, options: &RunOptions) -> bool {
    datapath.tallies() && sinks.packets.is_none() && options.reads_ahead
}

/// As [`super::run`], without sinks.
pub(super) fn run(
    datapath: &mut dyn Datapath,
    input: &mut dyn Iterator<Item = Result<CapturedPacket, TraceError>>,
    options: RunOptions,
    progress: &mut dyn FnMut(&RunSummary),
) -> Result<RunSummary, ExecError> {
    let RunOptions { seed, count, mut sweep, .. } = options;
    let (start, mut reported) = (Instant::now(), Duration::ZERO);
    let (mut summary, mut clock, mut tally) = (RunSummary::default(), PacketClock::default(), Tally::default());
    let mut left = count.unwrap_or(u64::MAX);
    // Packets that nothing lies between, with their times.
    let mut batch: Vec<(CapturedPacket, u64)> = Vec::new();
    // A signal is heard, and progress is reported, between batches.
    let mut most = LEAST;
    let (mut has_ended, mut error) = (false, None);
    while !has_ended || !batch.is_empty() {
        let (mut due, mut bytes) = (None, 0);
        // A packet before which a sweep is due begins the next batch.
        let mut first_of_next = None;
        while batch.len() < most && bytes < BATCH_BYTES && due.is_none() && !has_ended {
            match (left > 0).then(|| input.next()).flatten() {
                Some(Ok(captured)) => {
                    left -= 1;
                    let now_ns = clock.at(captured.time_ns);
                    due = sweep.due(now_ns);
                    bytes += captured.bytes.len();
                    match due {
                        Some(_) => first_of_next = Some((captured, now_ns)),
                        None => batch.push((captured, now_ns)),
                    }
                }
                Some(Err(failed)) => (has_ended, error) = (true, Some(failed)),
                None => has_ended = true,
            }
        }
        let first = summary.packets;
        let arrivals: Vec<Arrival<'_>> = batch.iter().map(arrival).collect();
        let fails = |PacketError { packet, source }| ExecError::Engine { packet: first + packet as u64, source };
        datapath.tally(&arrivals, Draws { seed, first }, &mut tally).map_err(fails)?;
        summary.packets += arrivals.len() as u64;
        summary.bytes += arrivals.iter().map(|arrival| arrival.bytes.len() as u64).sum::<u64>();
        if let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) {
            let begin_ns = summary.times_ns.map_or(first.now_ns, |(begin_ns, _)| begin_ns);
            summary.times_ns = Some((begin_ns, last.now_ns));
        }
        batch.clear();
        if let Some(moment_ns) = due {
            let packet = summary.packets;
            datapath.sweep(moment_ns).map_err(|source| ExecError::Engine { packet, source })?;
            summary.sweeps += 1;
        }
        batch.extend(first_of_next);
        (summary.verdicts, summary.events) = (tally.verdicts, tally.events);
        (summary.outputs, summary.output_bytes) = (tally.outputs, tally.output_bytes);
        let before = summary.elapsed;
        summary.elapsed = start.elapsed();
        most = match summary.elapsed - before < PROGRESS_EVERY / 4 {
            true => (most * 2).min(BATCH),
            false => (most / 2).max(LEAST),
        };
        if summary.elapsed - reported >= PROGRESS_EVERY {
            reported = summary.elapsed;
            progress(&summary);
        }
    }
    // The input's error comes after the packets before it.
    error.map_or(Ok(summary), |failed| Err(failed.into()))
}

fn arrival((captured, now_ns): &(CapturedPacket, u64)) -> Arrival<'_> {
    Arrival { bytes: &captured.bytes, port: Port(captured.port), now_ns: *now_ns }
}
