// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine at line rate: the data path before the element, and the packets that it drops.
//!
//! ```text
//!  line ─► input FIFO ─► one word a cycle ─header─► scheduler ─► element
//!            │
//!            └─► dropped: no room for the longest packet at the first byte
//! ```
//!
//! - Packets follow each other on the line without pause.
//! - The FIFO takes a packet if it has room for the longest packet when the first byte arrives. The length is not known
//!   yet, so that loss does not depend on it. A packet leaves the FIFO with its last word.
//! - The data path reads a packet when it is complete, as damaged packets must not reach the element. It reads a word a
//!   cycle. The header is offered to the element with the second word of the packet, or with its only one; until the
//!   header enters, the data path reads no further word.
//!
//! # Source
//! [FlowBlaze 4.4, 5.1, Appendix B]. Deviation: the paper does not describe its input FIFO.

use std::collections::VecDeque;

use crate::error::{OverlayError, check_ranges};
use crate::scheduler::{Grant, HOLD_CYCLES, Scheduler, SchedulerParameters};

/// Words of a packet that hold its header.
const HEADER_WORDS: u64 = 2;
/// Length of the longest packet, without check sequence.
const LONGEST_BYTES: u32 = 1514;

/// The mechanism that separates packets of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazards {
    /// No scheduler: all packets are one flow, and the data path stalls until the next header may enter.
    Stall {
        /// Least distance between headers, 1 to 64.
        hold_cycles: u32,
    },
    /// A scheduler.
    Schedule(SchedulerParameters),
}

/// A measurement of a machine at line rate.
///
/// ```
/// use flowloom_overlay::{Hazards, LineTest};
///
/// // 64-byte packets, which arrive without check sequence, with 3 cycles of stall after the 2 of their words.
/// let test = LineTest {
///     clock_khz: 156_250,
///     line_mbps: 40_000,
///     overhead_bytes: 0,
///     unit_bytes: 32,
///     word_bytes: 32,
///     fifo_words: 512,
///     hazards: Hazards::Stall { hold_cycles: 5 },
/// };
/// let report = test.run((0..100_000).map(|_| (60, 0)))?;
/// assert!((report.drop_rate() - 0.6).abs() < 0.01);
/// # Ok::<(), flowloom_overlay::OverlayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTest {
    /// Clock of the machine in kHz: 1 to 10,000,000.
    pub clock_khz: u32,
    /// Rate of the line in Mb/s: 1 to 1,000,000.
    pub line_mbps: u32,
    /// Bytes on the line that belong to a packet besides its own, such as check sequence, preamble and gap: at most
    /// 1,000.
    pub overhead_bytes: u32,
    /// Granularity of the line, 1 to 1,024 bytes: a packet with its overhead occupies a multiple.
    pub unit_bytes: u32,
    /// Bytes of a word of the data path: 1 to 1,024.
    pub word_bytes: u32,
    /// Words of the input FIFO: at least those of the longest packet, 1,514 bytes, and at most 2^24.
    pub fifo_words: u32,
    /// The mechanism that separates packets of a flow.
    pub hazards: Hazards,
}

/// Results of a [`LineTest`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineReport {
    /// Packets on the line.
    pub packets: u64,
    /// Bytes on the line, overhead included.
    pub line_bytes: u64,
    /// Packets that the FIFO did not take.
    pub dropped: u64,
    /// Cycles in which the data path waited for a header to enter.
    pub held_cycles: u64,
    /// Cycles from the arrival of the last byte of a packet to the grant of its header, for each packet that was not
    /// dropped, sorted.
    pub waits_cycles: Vec<u32>,
}

impl LineReport {
    /// Fraction of the packets that are dropped, from 0 to 1.
    pub fn drop_rate(&self) -> f64 {
        self.dropped as f64 / self.packets.max(1) as f64
    }

    /// 99th percentile of the waits; 0 if all packets are dropped.
    pub fn wait_99_cycles(&self) -> u32 {
        self.waits_cycles.get(self.waits_cycles.len() * 99 / 100).copied().unwrap_or(0)
    }
}

impl LineTest {
    /// Sends packets through the machine: lengths without check sequence, of 1 to 1,514 bytes, and hashes of flow keys.
    ///
    /// # Errors
    /// If a parameter or a length is out of its range.
    ///
    /// # Cost
    /// About 0.1 microseconds a packet.
    pub fn run(&self, packets: impl IntoIterator<Item = (u32, u16)>) -> Result<LineReport, OverlayError> {
        check_ranges(&[
            ("clock_khz", self.clock_khz.into(), 1, 10_000_000),
            ("line_mbps", self.line_mbps.into(), 1, 1_000_000),
            ("overhead_bytes", self.overhead_bytes.into(), 0, 1000),
            ("unit_bytes", self.unit_bytes.into(), 1, 1024),
            ("word_bytes", self.word_bytes.into(), 1, 1024),
        ])?;
        let longest_words = u64::from(LONGEST_BYTES.div_ceil(self.word_bytes));
        check_ranges(&[("fifo_words", self.fifo_words.into(), longest_words, 1 << 24)])?;
        let mut entrance = Entrance::new(self.hazards)?;
        let mut report = LineReport::default();
        // Packets in the FIFO: the cycle after their last word is read, and their words.
        let mut stored: VecDeque<(u64, u64)> = VecDeque::new();
        let mut stored_words = 0;
        let mut reader_free = 0;
        for (len_bytes, hash) in packets {
            check_ranges(&[("len_bytes", len_bytes.into(), 1, LONGEST_BYTES.into())])?;
            let line_bytes = u64::from((len_bytes + self.overhead_bytes).next_multiple_of(self.unit_bytes));
            let begin = self.cycle_of(report.line_bytes);
            let complete = self.cycle_of(report.line_bytes + u64::from(len_bytes)) + 1;
            report.packets += 1;
            report.line_bytes += line_bytes;
            while let Some((_, words)) = stored.pop_front_if(|(read, _)| *read <= begin) {
                stored_words -= words;
            }
            if stored_words + longest_words > u64::from(self.fifo_words) {
                report.dropped += 1;
                continue;
            }
            let words = u64::from(len_bytes.div_ceil(self.word_bytes));
            let header_words = words.min(HEADER_WORDS);
            let offered = complete.max(reader_free) + header_words - 1;
            let entry = entrance.offer(offered, hash, complete, &mut report.waits_cycles);
            report.held_cycles += entry - offered;
            reader_free = entry + 1 + words - header_words;
            stored.push_back((reader_free, words));
            stored_words += words;
        }
        entrance.drain(&mut report.waits_cycles);
        report.waits_cycles.sort_unstable();
        Ok(report)
    }

    /// The cycle in which the line has carried a number of bytes.
    fn cycle_of(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 8 * u128::from(self.clock_khz) / (u128::from(self.line_mbps) * 1000)) as u64
    }
}

/// The entrance of the element.
enum Entrance {
    /// Distance between headers, and the first cycle in which the next one may enter.
    Stall { hold_cycles: u64, free: u64 },
    /// A scheduler, and a buffer for its grants, whose tags are the cycles in which packets are complete.
    Schedule { scheduler: Box<Scheduler>, grants: Vec<Grant> },
}

impl Entrance {
    fn new(hazards: Hazards) -> Result<Entrance, OverlayError> {
        Ok(match hazards {
            Hazards::Stall { hold_cycles } => {
                check_ranges(&[("hold_cycles", hold_cycles.into(), *HOLD_CYCLES.start(), *HOLD_CYCLES.end())])?;
                Entrance::Stall { hold_cycles: hold_cycles.into(), free: 0 }
            }
            Hazards::Schedule(parameters) => {
                Entrance::Schedule { scheduler: Box::new(Scheduler::new(parameters)?), grants: Vec::new() }
            }
        })
    }

    /// Offers the header of a packet that is complete in this cycle. Returns the cycle in which the header enters, and
    /// appends the waits of the headers that are granted before.
    fn offer(&mut self, offered: u64, hash: u16, complete: u64, waits_cycles: &mut Vec<u32>) -> u64 {
        match self {
            Entrance::Stall { hold_cycles, free } => {
                let entry = offered.max(*free);
                *free = entry + *hold_cycles;
                waits_cycles.push((entry - complete) as u32);
                entry
            }
            Entrance::Schedule { scheduler, grants } => {
                let entry = scheduler.offer(offered, hash, complete, grants);
                waits_cycles.extend(grants.drain(..).map(wait_cycles));
                entry
            }
        }
    }

    /// Appends the waits of the headers that remain.
    fn drain(&mut self, waits_cycles: &mut Vec<u32>) {
        if let Entrance::Schedule { scheduler, grants } = self {
            scheduler.drain(grants);
            waits_cycles.extend(grants.drain(..).map(wait_cycles));
        }
    }
}

fn wait_cycles(grant: Grant) -> u32 {
    (grant.cycle - grant.tag) as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
