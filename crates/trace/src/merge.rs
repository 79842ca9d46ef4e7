// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Merges several captures in time order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use crate::batch::PacketBuffer;
use crate::error::TraceError;
use crate::reader::{CaptureReader, CapturedPacket, FIRST_PORT};

/// Computes the port of a packet from its bytes.
pub type PortBy = Box<dyn FnMut(&[u8]) -> u32 + Send>;

/// Merges captures by time.
///
/// Packets with equal times are ordered by file. Packets of one file keep their order, even if its timestamps decrease.
///
/// [`CapturedPacket::port`] is that of [`CaptureReader`] for a single capture, and the position of the capture, from 1,
/// for several. [`MergedReader::port_by`] overrides both.
pub struct MergedReader {
    captures: Vec<CaptureReader>,
    /// The next packet of each capture; valid for captures in `order`.
    heads: Vec<CapturedPacket>,
    /// Captures that have a next packet, by its time and then by position.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// Captures whose next packet is not read yet.
    unread: Vec<usize>,
    port_by: Option<PortBy>,
    /// What ended the last batch of several captures, for the next read.
    failure: Option<TraceError>,
}

/// The bytes of a batch of several captures, besides one packet.
const BATCH_BYTES: usize = 512 << 10;

impl MergedReader {
    /// Opens files, in port order.
    ///
    /// # Errors
    /// Those of [`CaptureReader::open`], for the first file that cannot be opened.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<MergedReader, TraceError> {
        paths.iter().map(CaptureReader::open).collect::<Result<_, _>>().map(MergedReader::new)
    }

    /// Merges captures, in port order.
    pub fn new(captures: Vec<CaptureReader>) -> MergedReader {
        MergedReader {
            heads: vec![CapturedPacket::default(); captures.len()],
            order: BinaryHeap::with_capacity(captures.len()),
            // Popped from the end, so that the first capture's error is reported first.
            unread: (0..captures.len()).rev().collect(),
            captures,
            port_by: None,
            failure: None,
        }
    }

    /// Sets a function that computes the port of each packet from its bytes.
    #[must_use]
    pub fn port_by(mut self, port_by: PortBy) -> MergedReader {
        self.port_by = Some(port_by);
        self
    }

    /// Returns the next packet, or `None` at the end of all captures.
    ///
    /// # Errors
    /// If a capture is truncated or malformed. It then counts as ended; the next call continues with the others.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError> {
        let mut packet = CapturedPacket::default();
        Ok(self.read_into(&mut packet)?.then_some(packet))
    }

    /// Like [`MergedReader::next_packet`], but reuses the memory of `packet`. Returns false at the end. At the end and
    /// after an error the contents of `packet` are unspecified.
    ///
    /// # Errors
    /// As [`MergedReader::next_packet`].
    pub fn read_into(&mut self, packet: &mut CapturedPacket) -> Result<bool, TraceError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match &mut self.captures[..] {
            // A single capture needs no merge.
            [only] => {
                if !only.read_into(packet)? {
                    return Ok(false);
                }
            }
            _ => {
                let Some(position) = self.first()? else { return Ok(false) };
                std::mem::swap(packet, &mut self.heads[position]);
                packet.port = position as u32 + FIRST_PORT;
                // Read by the next call: an error there must not delay this packet.
                self.unread.push(position);
            }
        }
        if let Some(port_by) = &mut self.port_by {
            packet.port = port_by(&packet.bytes);
        }
        Ok(true)
    }

    /// Replaces the packets of `buffer` by the next ones, at most `most`, and none at the end of all captures. There
    /// may be fewer before the end. The packets of a single capture are not copied, but stay where they were read to;
    /// the rest of what was read with them is copied, so `most` should not be small.
    ///
    /// # Errors
    /// As [`MergedReader::next_packet`], after the packets before.
    pub fn read_batch(&mut self, most: usize, buffer: &mut PacketBuffer) -> Result<(), TraceError> {
        if let [only] = &mut self.captures[..] {
            only.read_batch(most, buffer)?;
            if let Some(port_by) = &mut self.port_by {
                buffer.set_ports(port_by);
            }
            return Ok(());
        }
        buffer.clear();
        let mut packet = CapturedPacket::default();
        while buffer.batch().len() < most && buffer.memory.len() < BATCH_BYTES {
            match self.read_into(&mut packet) {
                Ok(true) => buffer.push(&packet),
                Ok(false) => break,
                Err(failure) if buffer.batch().is_empty() => return Err(failure),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Position of the capture with the earliest next packet.
    fn first(&mut self) -> Result<Option<usize>, TraceError> {
        while let Some(position) = self.unread.pop() {
            let head = &mut self.heads[position];
            if self.captures[position].read_into(head)? {
                self.order.push(Reverse((head.time_ns, position)));
            }
        }
        Ok(self.order.pop().map(|Reverse((_, position))| position))
    }
}

impl Iterator for MergedReader {
    type Item = Result<CapturedPacket, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_packet().transpose()
    }
}
