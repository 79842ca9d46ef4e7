// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames with their bytes, from captures or generated.

use flowloom_trace::{CapturedPacket, MergedReader, Traffic};

use super::error::PredictError;

/// A frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The arrival time.
    pub time_ns: u64,
    /// The ingress port.
    pub port: u32,
    /// The original length without the frame check sequence.
    pub len_bytes: u32,
    /// The captured bytes; the rest counts as zeros.
    pub bytes: &'a [u8],
}

/// A source of frames.
pub trait Frames {
    /// The next frame.
    ///
    /// # Errors
    /// It cannot be read or generated.
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError>;
}

impl<F: Frames + ?Sized> Frames for Box<F> {
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
        (**self).next_frame()
    }
}

impl Frames for Traffic {
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
        Ok(self.next_packet().map(|packet| Frame {
            time_ns: packet.time_ns,
            port: packet.port,
            len_bytes: packet.len_bytes,
            bytes: packet.bytes,
        }))
    }
}

/// Captures, merged by time.
pub struct Captured {
    reader: MergedReader,
    packet: CapturedPacket,
}

impl Captured {
    /// The packets of a reader.
    pub fn new(reader: MergedReader) -> Captured {
        Captured { reader, packet: CapturedPacket::default() }
    }
}

impl Frames for Captured {
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, PredictError> {
        if !self.reader.read_into(&mut self.packet)? {
            return Ok(None);
        }
        let CapturedPacket { time_ns, port, original_len_bytes, ref bytes, .. } = self.packet;
        let len_bytes = original_len_bytes.max(bytes.len() as u32);
        Ok(Some(Frame { time_ns, port, len_bytes, bytes }))
    }
}
