// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop that feeds packets to an engine.

mod ahead;
mod counted;
mod events;
mod source;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use flowloom_context::ContextLayout;
use flowloom_engine::{Datapath, Event, Packet, Port, Refusal, Verdict};
use flowloom_trace::{CaptureWriter, CapturedPacket};

use crate::error::ExecError;
use ahead::{Batches, Timed};
pub use events::EventWriter;
pub use source::{IterSource, Source};

const PACKETS_PER_CLOCK_READ: u64 = 1024;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The times of sweeps: the multiples of the period, as packet times reach them. Of several multiples between two
/// packets only the last one matters, so there is one sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepClock {
    period_ns: u64,
    next_ns: u64,
}

impl SweepClock {
    /// A clock of this period; 0 means never.
    pub fn new(period_ns: u64) -> SweepClock {
        SweepClock { period_ns, next_ns: if period_ns == 0 { u64::MAX } else { period_ns } }
    }

    /// The clock of a function with these tables: the smallest of their periods.
    pub fn of<'a>(layouts: impl IntoIterator<Item = &'a ContextLayout>) -> SweepClock {
        let swept = layouts.into_iter().filter(|layout| !layout.deadline_offsets.is_empty());
        SweepClock::new(swept.map(|layout| layout.sweep_ns).filter(|period| *period != 0).min().unwrap_or(0))
    }

    /// The time between two sweeps in nanoseconds; 0 if there are none.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// True if there are sweeps at all.
    pub(crate) fn is_running(&self) -> bool {
        self.period_ns != 0
    }

    /// This clock, started at `now_ns`: the first sweep is at the next multiple.
    pub(crate) fn from(mut self, now_ns: u64) -> SweepClock {
        if self.is_running() {
            self.due(now_ns);
        }
        self
    }

    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The time of the sweep that is due before a packet at `now_ns`; times never go back.
    pub fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.period_ns == 0 || now_ns < self.next_ns {
            return None;
        }
        let moment_ns = now_ns / self.period_ns * self.period_ns;
        self.next_ns = moment_ns.saturating_add(self.period_ns);
        Some(moment_ns)
    }
}

/// The clock of functions: the greatest packet time so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketClock {
    now_ns: u64,
}

impl PacketClock {
    /// The time on this clock of a packet captured at `time_ns`.
    pub fn at(&mut self, time_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(time_ns);
        self.now_ns
    }
}

/// The options of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The seed of the random values that the function draws.
    pub seed: u64,
    /// The number of packets to stop after.
    pub count: Option<u64>,
    /// The times of sweeps.
    pub sweep: SweepClock,
    /// Whether packets are read before they run, for engines that run them in batches.
    pub reads_ahead: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { seed: 0, count: None, sweep: SweepClock::new(0), reads_ahead: true }
    }
}

/// The counters of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunSummary {
    /// The packets read, those included that the engine refused.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// The packets by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; 5],
    /// The packets that the engine cannot run, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// The packets that left.
    pub outputs: u64,
    /// Their bytes.
    pub output_bytes: u64,
    /// The records written for user space.
    pub events: u64,
    /// The number of sweeps.
    pub sweeps: u64,
    /// The arrival times of the first and the last packet, on the function's clock.
    pub times_ns: Option<(u64, u64)>,
    /// The elapsed time, reading and writing included.
    pub elapsed: Duration,
}

impl RunSummary {
    /// The packets with this verdict.
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict.number() as usize]
    }

    /// The packets that the engine ran.
    pub fn run(&self) -> u64 {
        self.verdicts.iter().sum()
    }

    /// The rate in packets a second; 0 if no time has passed.
    pub fn packets_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.packets as f64 / seconds } else { 0.0 }
    }
}

/// The outputs of a run.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "a writer has no progress")]
pub struct Sinks<'a> {
    /// The writer of packets.
    pub packets: Option<&'a mut CaptureWriter>,
    /// The writer of records.
    pub events: Option<&'a mut EventWriter>,
    /// The callback for each record.
    pub reader: Option<&'a mut EventReader<'a>>,
}

/// Called with each record as soon as its packet is processed.
pub type EventReader<'a> = dyn FnMut(&Event) -> io::Result<()> + 'a;

/// Runs every packet of `input` through `datapath`, in order, and writes the outputs to `sinks`. Packets that a CPU map
/// passes to the network stack on another CPU are written with their ingress port.
///
/// A packet's time is the greatest so far; its random values depend on the seed and its number in the input alone, so a
/// packet that one engine refuses does not affect the others. Outputs keep the time of the packet in the capture; the
/// original length changes by as much as the captured length does. `progress` is called about ten times a second.
///
/// # Errors
/// Input, output or engine fail. Packets before an input error have been run and written.
///
/// # Cost
/// Constant memory besides the engine's state.
pub fn run(
    datapath: &mut dyn Datapath,
    input: &mut dyn Source,
    mut sinks: Sinks<'_>,
    options: RunOptions,
    progress: &mut dyn FnMut(&RunSummary),
) -> Result<RunSummary, ExecError> {
    if counted::is_counted(datapath, &sinks, &options) {
        return counted::run(datapath, input, options, progress);
    }
    let start = Instant::now();
    let mut reported = Duration::ZERO;
    let mut summary = RunSummary::default();
    let mut batches = Batches::new(input, options);
    while let Some(timed) = batches.next(datapath)? {
        let Timed { captured, index, choices, sweep } = timed;
        let fails = |source| ExecError::Engine { packet: index, source };
        let now_ns = choices.now_ns;
        summary.packets += 1;
        summary.bytes += captured.bytes.len() as u64;
        summary.times_ns = Some((summary.times_ns.map_or(now_ns, |(first, _)| first), now_ns));
        if let Some(moment_ns) = sweep {
            datapath.sweep(moment_ns).map_err(fails)?;
            summary.sweeps += 1;
        }
        batches.announce(datapath, &captured, choices).map_err(fails)?;

        let packet = Packet { bytes: &captured.bytes, port: Port(captured.port) };
        if let Some(refusal) = datapath.refuses(&packet) {
            *summary.refused.entry(refusal).or_default() += 1;
        } else {
            let outcome = datapath.process(&packet, &choices).map_err(fails)?;
            summary.verdicts[outcome.verdict.number() as usize] += 1;
            for sent in &outcome.outputs {
                summary.outputs += 1;
                summary.output_bytes += sent.bytes.len() as u64;
                if let Some(writer) = sinks.packets.as_deref_mut() {
                    let original = original_len(&captured, sent.bytes.len());
                    let verdict = Some(outcome.verdict.number());
                    let port = if sent.port.is_wire() { sent.port.0 } else { captured.port };
                    writer.write(captured.time_ns, port, original, verdict, &sent.bytes)?;
                }
            }
            for event in &outcome.events {
                summary.events += 1;
                if let Some(writer) = sinks.events.as_deref_mut() {
                    writer.write(index, now_ns, event).map_err(ExecError::Events)?;
                }
                if let Some(reader) = sinks.reader.as_deref_mut() {
                    reader(event).map_err(ExecError::Events)?;
                }
            }
        }

        if summary.packets.is_multiple_of(PACKETS_PER_CLOCK_READ) {
            summary.elapsed = start.elapsed();
            if summary.elapsed - reported >= PROGRESS_EVERY {
                reported = summary.elapsed;
                progress(&summary);
            }
        }
    }
    summary.elapsed = start.elapsed();
    Ok(summary)
}

/// The original length of an output of `sent_bytes` bytes for the packet `captured`.
fn original_len(captured: &CapturedPacket, sent_bytes: usize) -> u32 {
    let change = sent_bytes as i64 - captured.bytes.len() as i64;
    let length = i64::from(captured.original_len_bytes) + change;
    // A capture may claim less than it holds; an original length is never less than the captured one.
    length.clamp(0, u32::MAX.into()).max(sent_bytes as i64) as u32
}

#[cfg(test)]
mod tests;
