// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures: packets from memory, and departures to a writer or to nothing.

use flowloom_engine::{Frame, HEADROOM_BYTES, Port};
use flowloom_trace::{CaptureWriter, CapturedPacket, TraceError};

use crate::device::{Departure, Device, DeviceCounters, RunBatch};
use crate::error::PortsError;

/// The packets of a batch, at most.
const BATCH: usize = 64;
/// The limit to which a packet may grow, as in the interpreter: a page without the kernel's record at its end.
const BUFFER_BYTES: usize = 4096 - 320;

#[derive(Debug, Clone, Copy)]
struct Stored {
    time_ns: u64,
    port: Port,
    at: usize,
    len: usize,
}

/// A source of captured packets, all in memory, one or several times over.
///
/// Each repetition starts where the one before ended, as much later as the first two packets are apart, so that time
/// goes on.
#[derive(Debug)]
pub struct CaptureSource {
    packets: Vec<Stored>,
    bytes: Vec<u8>,
    buffers: Vec<u8>,
    buffer_bytes: usize,
    /// The next packet, the repetitions left after this one, and what is added to the times of this one.
    next: usize,
    repeats: u64,
    shift_ns: u64,
    period_ns: u64,
}

impl CaptureSource {
    /// Reads all packets of `input` into memory, to be received `1 + repeats` times.
    ///
    /// # Errors
    /// The input's.
    pub fn read(
        input: &mut dyn Iterator<Item = Result<CapturedPacket, TraceError>>,
        repeats: u64,
    ) -> Result<CaptureSource, PortsError> {
        let (mut packets, mut bytes) = (Vec::new(), Vec::new());
        for packet in input {
            let CapturedPacket { time_ns, bytes: content, port, .. } = packet?;
            packets.push(Stored { time_ns, port: Port(port), at: bytes.len(), len: content.len() });
            bytes.extend_from_slice(&content);
        }
        let times = || packets.iter().map(|packet| packet.time_ns);
        let (first, last) = (times().next().unwrap_or(0), times().max().unwrap_or(0));
        let gap = times().nth(1).map_or(1, |second| second.saturating_sub(first).max(1));
        let longest = packets.iter().map(|packet| packet.len).max().unwrap_or(0);
        let buffer_bytes = (HEADROOM_BYTES + longest).max(BUFFER_BYTES);
        Ok(CaptureSource {
            buffers: vec![0; BATCH * buffer_bytes],
            period_ns: last.saturating_sub(first).saturating_add(gap),
            packets,
            bytes,
            buffer_bytes,
            next: 0,
            repeats,
            shift_ns: 0,
        })
    }

    /// The number of packets of one repetition.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }
}

impl Device for CaptureSource {
    fn name(&self) -> &str {
        "captures"
    }

    fn ports(&self) -> Vec<(Port, String)> {
        Vec::new()
    }

    fn is_live(&self) -> bool {
        false
    }

    fn is_ended(&self) -> bool {
        self.packets.is_empty() || (self.next == self.packets.len() && self.repeats == 0)
    }

    fn receive(&mut self, _now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        if self.next == self.packets.len() && self.repeats > 0 {
            self.repeats -= 1;
            self.next = 0;
            self.shift_ns = self.shift_ns.saturating_add(self.period_ns);
        }
        let last = self.packets.len().min(self.next + BATCH);
        let shift_ns = self.shift_ns;
        let mut frames: Vec<Frame<'_>> = self.packets[self.next..last]
            .iter()
            .zip(self.buffers.chunks_exact_mut(self.buffer_bytes))
            .map(|(packet, buffer)| {
                let end = HEADROOM_BYTES + packet.len;
                buffer[HEADROOM_BYTES..end].copy_from_slice(&self.bytes[packet.at..packet.at + packet.len]);
                let time_ns = packet.time_ns.saturating_add(shift_ns);
                Frame::new(buffer, HEADROOM_BYTES, end, packet.port, time_ns)
            })
            .collect();
        let count = frames.len();
        self.next = last;
        if count > 0 {
            run(&mut frames)?;
        }
        Ok(count)
    }

    fn transmit(&mut self, _: Departure<'_>) -> Result<(), PortsError> {
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

/// A sink of everything that leaves or is passed, through whatever port: to a capture, or only counted.
///
/// The writer is the caller's, who finishes it after the run.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "a writer has no progress")]
pub struct CaptureSink<'a> {
    writer: Option<&'a mut CaptureWriter>,
    counters: DeviceCounters,
}

impl<'a> CaptureSink<'a> {
    /// Writes to `writer`, in order; `None` only counts.
    pub fn new(writer: Option<&'a mut CaptureWriter>) -> CaptureSink<'a> {
        CaptureSink { writer, counters: DeviceCounters::default() }
    }
}

impl Device for CaptureSink<'_> {
    fn name(&self) -> &str {
        "capture"
    }

    fn ports(&self) -> Vec<(Port, String)> {
        Vec::new()
    }

    fn takes_all(&self) -> bool {
        true
    }

    fn is_live(&self) -> bool {
        false
    }

    fn is_ended(&self) -> bool {
        true
    }

    fn receive(&mut self, _: u64, _: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        Ok(0)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        let Departure { port, verdict, time_ns, bytes } = departure;
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes.len() as u64;
        if let Some(writer) = self.writer.as_deref_mut() {
            writer.write(time_ns, port.0, bytes.len() as u32, Some(verdict.number()), bytes)?;
        }
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}
