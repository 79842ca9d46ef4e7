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
    /// The next packet of each capture, where `order` names it.
    heads: Vec<CapturedPacket>,
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
            heads: vec![CapturedPacket::default(); captures.len()],
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
        let mut packet = CapturedPacket::default();
        Ok(self.read_into(&mut packet)?.then_some(packet))
    }

    /// As [`MergedReader::next_packet`], into a packet whose memory is used again; says whether there was one. At the end
    /// and after an error `packet` holds nothing of use.
    ///
    /// # Errors
    /// As [`MergedReader::next_packet`].
    pub fn read_into(&mut self, packet: &mut CapturedPacket) -> Result<bool, TraceError> {
        match &mut self.captures[..] {
            // One alone has nothing to be sorted into.
            [only] => {
                if !only.read_into(packet)? {
                    return Ok(false);
                }
            }
            _ => {
                let Some(position) = self.first()? else { return Ok(false) };
                std::mem::swap(packet, &mut self.heads[position]);
                packet.port = position as u32 + FIRST_PORT;
                // Read on the next call: an error there must not hold this packet back.
                self.unread.push(position);
            }
        }
        if let Some(port_by) = &mut self.port_by {
            packet.port = port_by(&packet.bytes);
        }
        Ok(true)
    }

    /// The capture whose next packet comes first.
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
