//! Several captures as one, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use crate::error::TraceError;
use crate::reader::{CaptureReader, CapturedPacket, FIRST_PORT};

/// Tells the port of a packet from its bytes.
pub type PortBy = Box<dyn FnMut(&[u8]) -> u32 + Send>;

/// Merges captures by time.
///
/// Packets with equal times come in the order of their files, and the packets of one file always in the file's order,
/// even where its clock runs backwards.
///
/// [`CapturedPacket::port`] is, of a single capture, what [`CaptureReader`] says; of several, the position of the
/// capture among them, the first being 1; or what [`MergedReader::port_by`] was given says.
pub struct MergedReader {
    captures: Vec<CaptureReader>,
    /// The next packet of each capture, where it is known.
    heads: Vec<Option<CapturedPacket>>,
    /// Captures that have a next packet, by its time and then by position.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// Captures whose next packet is not known yet.
    unread: Vec<usize>,
    port_by: Option<PortBy>,
}

impl MergedReader {
    /// Opens files in the order of their ports.
    ///
    /// # Errors
    /// As [`CaptureReader::open`], of the first file that cannot be opened.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<MergedReader, TraceError> {
        paths.iter().map(CaptureReader::open).collect::<Result<_, _>>().map(MergedReader::new)
    }

    /// Merges captures in the order of their ports.
    pub fn new(captures: Vec<CaptureReader>) -> MergedReader {
        MergedReader {
            heads: captures.iter().map(|_| None).collect(),
            order: BinaryHeap::with_capacity(captures.len()),
            // Taken from the end, so that the first capture's error is seen first.
            unread: (0..captures.len()).rev().collect(),
            captures,
            port_by: None,
        }
    }

    /// Takes the port of every packet from its bytes.
    #[must_use]
    pub fn port_by(mut self, port_by: PortBy) -> MergedReader {
        self.port_by = Some(port_by);
        self
    }

    /// The next packet, or `None` at the end of all captures.
    ///
    /// # Errors
    /// Where a capture is cut off or damaged. It counts as ended then; the next call goes on with the others.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError> {
        while let Some(position) = self.unread.pop() {
            if let Some(packet) = self.captures[position].next_packet()? {
                self.order.push(Reverse((packet.time_ns, position)));
                self.heads[position] = Some(packet);
            }
        }
        let Some(Reverse((_, position))) = self.order.pop() else { return Ok(None) };
        let Some(mut packet) = self.heads[position].take() else { return Ok(None) };
        // Read on the next call: an error there must not hold this packet back.
        self.unread.push(position);
        if let Some(port_by) = &mut self.port_by {
            packet.port = port_by(&packet.bytes);
        } else if self.captures.len() > 1 {
            packet.port = position as u32 + FIRST_PORT;
        }
        Ok(Some(packet))
    }
}

impl Iterator for MergedReader {
    type Item = Result<CapturedPacket, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_packet().transpose()
    }
}
