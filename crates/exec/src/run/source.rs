// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packets come from.

use std::iter::Fuse;

use flowloom_trace::{Batch, CapturedPacket, PacketBuffer, TraceError};

/// Packets in the order in which they run. A run asks for all of them in one of the two ways, and for none after the
/// end or an error.
pub trait Source {
    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// Those of the captures.
    fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError>;

    /// The next packets, at least one and at most `most`; none at the end. For runs of which only counts are wanted.
    ///
    /// # Errors
    /// Those of the captures, after the packets before.
    fn next_batch(&mut self, most: usize) -> Result<Batch<'_>, TraceError>;

    /// Takes back the last `packets` packets of the last batch, which has as many: they begin the next one.
    fn take_back(&mut self, packets: usize);
}

/// The packets of an iterator.
#[derive(Debug)]
pub struct IterSource<I> {
    packets: Fuse<I>,
    buffer: PacketBuffer,
    /// The packets of the buffer that have been returned.
    taken: usize,
    /// What comes after the buffer.
    failure: Option<TraceError>,
}

impl<I: Iterator<Item = Result<CapturedPacket, TraceError>>> IterSource<I> {
    /// A source of these packets.
    pub fn new(packets: impl IntoIterator<IntoIter = I>) -> IterSource<I> {
        let packets = packets.into_iter().fuse();
        IterSource { packets, buffer: PacketBuffer::default(), taken: 0, failure: None }
    }

    /// The packets that the iterator has not been asked for.
    pub fn into_rest(self) -> Fuse<I> {
        self.packets
    }
}

impl<I: Iterator<Item = Result<CapturedPacket, TraceError>>> Source for IterSource<I> {
    fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError> {
        self.packets.next().transpose()
    }

    fn next_batch(&mut self, most: usize) -> Result<Batch<'_>, TraceError> {
        if self.taken == self.buffer.batch().len() {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            self.buffer.clear();
            self.taken = 0;
            for packet in self.packets.by_ref().take(most) {
                match packet {
                    Ok(packet) => self.buffer.push(&packet),
                    Err(failure) if self.buffer.batch().is_empty() => return Err(failure),
                    Err(failure) => {
                        self.failure = Some(failure);
                        break;
                    }
                }
            }
        }
        let first = self.taken;
        self.taken = self.buffer.batch().len().min(first.saturating_add(most));
        Ok(self.buffer.batch().slice(first, self.taken))
    }

    fn take_back(&mut self, packets: usize) {
        self.taken -= packets;
    }
}
