// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A buffered window over the bytes of a capture that tracks its offset.
//!
//! Memory is constant: the window is as large as the largest requested record. It grows only as bytes arrive, so a file
//! that declares a false length costs no memory.

use std::io::{ErrorKind, Read};

use crate::error::{Location, TraceError};

const WINDOW_BYTES: usize = 128 << 10;

/// An invalid value inside a record. The reader adds the location of the record.
#[derive(Debug)]
pub(crate) struct Malformation {
    /// Offset of the value in the record.
    pub(crate) at_bytes: u64,
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) expected: String,
}

impl Malformation {
    pub(crate) fn new(at_bytes: u64, what: &'static str, found: String, expected: impl Into<String>) -> Malformation {
        Malformation { at_bytes, what, found, expected: expected.into() }
    }
}

/// The bytes of a capture from the current read position.
pub(crate) struct Input {
    name: String,
    source: Box<dyn Read + Send>,
    is_unpacked: bool,
    window: Vec<u8>,
    start: usize,
    end: usize,
    offset_bytes: u64,
    is_ended: bool,
    /// Number of packets read so far, for messages.
    pub(crate) packets: u64,
}

impl Input {
    pub(crate) fn new(name: String, source: Box<dyn Read + Send>, is_unpacked: bool) -> Input {
        Input {
            name,
            source,
            is_unpacked,
            window: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            offset_bytes: 0,
            is_ended: false,
            packets: 0,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The bytes in memory, those that have been consumed included.
    pub(crate) fn window(&self) -> &[u8] {
        &self.window[..self.end]
    }

    /// The number of the next byte in the window.
    pub(crate) fn position(&self) -> usize {
        self.start
    }

    /// The bytes in memory that have not been consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Exchanges the window for another memory of `len` bytes, or more where more have not been consumed, which are
    /// copied there.
    pub(crate) fn exchange_window(&mut self, memory: &mut Vec<u8>, len: usize) {
        let left = self.end - self.start;
        // It may have been the window of a long record.
        memory.resize(len.max(left), 0);
        memory.shrink_to(2 * len);
        memory[..left].copy_from_slice(self.unread());
        std::mem::swap(&mut self.window, memory);
        (self.start, self.end) = (0, left);
    }

    /// The current read position.
    pub(crate) fn place(&self) -> Location {
        self.place_at(0)
    }

    fn place_at(&self, at_bytes: u64) -> Location {
        Location {
            file: self.name.clone(),
            offset_bytes: self.offset_bytes + at_bytes,
            is_unpacked: self.is_unpacked,
            packets: self.packets,
        }
    }

    /// Returns the next `len` bytes without consuming them; fewer only at the end of the capture.
    pub(crate) fn peek(&mut self, len: usize) -> Result<&[u8], TraceError> {
        while self.end - self.start < len && !self.is_ended {
            self.refill(len)?;
        }
        let end = self.end.min(self.start + len);
        Ok(&self.window[self.start..end])
    }

    /// Returns the next `len` bytes, those of `what`, without consuming them.
    pub(crate) fn peek_whole(&mut self, what: &'static str, len: usize) -> Result<&[u8], TraceError> {
        let found = self.peek(len)?.len();
        if found < len {
            let (found_bytes, expected_bytes) = (found as u64, len as u64);
            return Err(TraceError::Truncated { place: self.place(), what, found_bytes, expected_bytes });
        }
        Ok(&self.window[self.start..self.start + len])
    }

    /// Consumes `len` bytes, which must have been peeked.
    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.offset_bytes += len as u64;
    }

    /// Discards `len` bytes. Returns the number of bytes that were present.
    pub(crate) fn skip(&mut self, len: u64) -> Result<u64, TraceError> {
        let mut left = len;
        while left > 0 {
            let step = left.min(WINDOW_BYTES as u64) as usize;
            let found = self.peek(step)?.len();
            self.consume(found);
            left -= found as u64;
            if found < step {
                break;
            }
        }
        Ok(len - left)
    }

    fn refill(&mut self, len: usize) -> Result<(), TraceError> {
        if self.start > 0 && self.start + len > self.window.len() {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.window.len() {
            self.window.resize(self.window.len() * 2, 0);
        }
        match self.source.read(&mut self.window[self.end..]) {
            Ok(0) => self.is_ended = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A decompressor returns this kind only if its input is truncated.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.is_unpacked => {
                return Err(TraceError::TruncatedXz { place: self.place_at((self.end - self.start) as u64) });
            }
            Err(source) => {
                return Err(TraceError::Read { place: self.place_at((self.end - self.start) as u64), source });
            }
        }
        Ok(())
    }

    pub(crate) fn malformed(&self, malformation: Malformation) -> TraceError {
        let Malformation { at_bytes, what, found, expected } = malformation;
        TraceError::Malformed { place: self.place_at(at_bytes), what, found, expected }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Reads an integer at `at`, which must lie inside `bytes`.
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let little = u16::from_le_bytes(Self::array(bytes, at));
        if self == ByteOrder::Big { little.swap_bytes() } else { little }
    }

    /// Reads an integer at `at`, which must lie inside `bytes`.
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let little = u32::from_le_bytes(Self::array(bytes, at));
        if self == ByteOrder::Big { little.swap_bytes() } else { little }
    }

    /// Reads an integer at `at`, which must lie inside `bytes`.
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let little = u64::from_le_bytes(Self::array(bytes, at));
        if self == ByteOrder::Big { little.swap_bytes() } else { little }
    }

    /// The `N` bytes at `at`.
    #[inline]
    fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&bytes[at..at + N]);
        array
    }
}
