//! Frames with their bytes, out of captures or made.

use flowloom_trace::{CapturedPacket, MergedReader, Traffic};

use super::PredictError;

/// A frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// When it came.
    pub time_ns: u64,
    /// The port it came by.
    pub port: u32,
    /// How long it was, without check sequence.
    pub len_bytes: u32,
    /// Its first bytes; what was not captured counts as zeros.
    pub bytes: &'a [u8],
}

/// Where frames come from.
pub trait Frames {
    /// The next one.
    ///
    /// # Errors
    /// It cannot be read or made.
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
