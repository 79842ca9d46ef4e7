// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of a run, read ahead for engines that run them in batches.

use std::collections::VecDeque;

use flowloom_engine::{Choices, Datapath, EngineError, Packet, Port};
use flowloom_trace::{CapturedPacket, TraceError};

use super::{PacketClock, RunOptions, Source, SweepClock};
use crate::error::ExecError;

/// The bytes of packets that are read ahead, besides one packet.
const MAX_AHEAD_BYTES: usize = 4 << 20;

/// A packet with its choices.
pub(super) struct Timed {
    pub(super) captured: CapturedPacket,
    /// Its number in the input.
    pub(super) index: u64,
    pub(super) choices: Choices,
    /// The sweep that is due before it.
    pub(super) sweep: Option<u64>,
}

impl Timed {
    fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.captured.bytes, port: Port(self.captured.port) }
    }
}

/// Reads packets, and announces those that follow one another without anything in between.
pub(super) struct Batches<'i> {
    input: &'i mut dyn Source,
    /// The packets left to read, if there is a limit.
    left: Option<u64>,
    seed: u64,
    sweep: SweepClock,
    reads_ahead: bool,
    clock: PacketClock,
    read: u64,
    ahead: VecDeque<Timed>,
    /// The bytes of those packets.
    ahead_bytes: usize,
    has_ended: bool,
    /// The input's error, which comes after the packets before it.
    error: Option<TraceError>,
    /// The announced packets that have not been processed.
    announced: usize,
}

impl<'i> Batches<'i> {
    pub(super) fn new(input: &'i mut dyn Source, options: RunOptions) -> Batches<'i> {
        let RunOptions { seed, count, sweep, reads_ahead } = options;
        let (clock, ahead) = (PacketClock::default(), VecDeque::new());
        Batches {
            input,
            left: count,
            seed,
            sweep,
            reads_ahead,
            clock,
            read: 0,
            ahead,
            ahead_bytes: 0,
            has_ended: false,
            error: None,
            announced: 0,
        }
    }

    /// The next packet.
    ///
    /// # Errors
    /// The input fails after the packets before.
    pub(super) fn next(&mut self, datapath: &dyn Datapath) -> Result<Option<Timed>, ExecError> {
        let most = if self.reads_ahead { datapath.most_ahead().max(1) } else { 1 };
        // Long packets are not read as far ahead.
        while self.ahead.len() < most
            && (self.ahead_bytes < MAX_AHEAD_BYTES || self.ahead.is_empty())
            && !self.has_ended
            && self.left != Some(0)
        {
            match self.input.next_packet() {
                Ok(Some(captured)) => {
                    let now_ns = self.clock.at(captured.time_ns);
                    let (index, sweep) = (self.read, self.sweep.due(now_ns));
                    let choices = Choices::seeded(now_ns, self.seed, index);
                    self.ahead_bytes += captured.bytes.len();
                    self.ahead.push_back(Timed { captured, index, choices, sweep });
                    self.read += 1;
                    self.left = self.left.map(|left| left - 1);
                }
                // An input that has ended is not asked again.
                Err(error) => (self.has_ended, self.error) = (true, Some(error)),
                Ok(None) => self.has_ended = true,
            }
        }
        if let Some(timed) = self.ahead.pop_front() {
            self.ahead_bytes -= timed.captured.bytes.len();
            return Ok(Some(timed));
        }
        self.error.take().map_or(Ok(None), |error| Err(error.into()))
    }

    /// Announces the packet that is processed next and those after it, up to the next sweep, unless they have been.
    ///
    /// # Errors
    /// The engine fails.
    pub(super) fn announce(
        &mut self,
        datapath: &mut dyn Datapath,
        captured: &CapturedPacket,
        choices: Choices,
    ) -> Result<(), EngineError> {
        let packet = Packet { bytes: &captured.bytes, port: Port(captured.port) };
        let most = datapath.most_ahead();
        if most == 0 || datapath.refuses(&packet).is_some() {
            return Ok(());
        }
        if self.announced == 0 {
            let after = self.ahead.iter().take_while(|timed| timed.sweep.is_none());
            let after = after.map(|timed| (timed.packet(), timed.choices));
            let taken = after.filter(|(packet, _)| datapath.refuses(packet).is_none());
            let batch: Vec<(Packet<'_>, Choices)> =
                std::iter::once((packet, choices)).chain(taken).take(most).collect();
            self.announced = batch.len();
            datapath.announce(&batch)?;
        }
        self.announced -= 1;
        Ok(())
    }
}
