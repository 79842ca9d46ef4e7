// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that follow each other, in memory that later ones use again.
//!
//! ```text
//!  memory, the window of a reader:  header │ bytes │ header │ bytes │ header │ bytes │ ...
//!                                            ▲                ▲                ▲
//!  places:                                   0                1                2
//! ```

use crate::reader::CapturedPacket;

/// Where a packet lies in the memory of a batch, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) len_bytes: u32,
    pub(crate) time_ns: u64,
    pub(crate) original_len_bytes: u32,
    pub(crate) interface: u32,
    pub(crate) port: u32,
    pub(crate) verdict: Option<u32>,
}

impl Place {
    #[inline]
    pub(crate) fn bytes(self, memory: &[u8]) -> &[u8] {
        &memory[self.at..self.at + self.len_bytes as usize]
    }

    /// Copies the packet to `packet`, whose memory is used again.
    pub(crate) fn copy_to(self, packet: &mut CapturedPacket, memory: &[u8]) {
        packet.bytes.clear();
        packet.bytes.extend_from_slice(self.bytes(memory));
        packet.time_ns = self.time_ns;
        packet.original_len_bytes = self.original_len_bytes;
        packet.interface = self.interface;
        packet.port = self.port;
        packet.verdict = self.verdict;
    }
}

/// A packet of a batch. The fields are those of [`CapturedPacket`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at CapturedPacket")]
pub struct PacketRef<'a> {
    pub time_ns: u64,
    pub bytes: &'a [u8],
    pub original_len_bytes: u32,
    pub interface: u32,
    pub port: u32,
    pub verdict: Option<u32>,
}

impl From<PacketRef<'_>> for CapturedPacket {
    fn from(packet: PacketRef<'_>) -> CapturedPacket {
        let PacketRef { time_ns, bytes, original_len_bytes, interface, port, verdict } = packet;
        CapturedPacket { time_ns, bytes: bytes.to_vec(), original_len_bytes, interface, port, verdict }
    }
}

/// Packets that follow each other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch<'a> {
    memory: &'a [u8],
    places: &'a [Place],
}

impl<'a> Batch<'a> {
    fn new(memory: &'a [u8], places: &'a [Place]) -> Batch<'a> {
        Batch { memory, places }
    }

    /// The number of packets.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are no packets.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The packets with numbers from `first` to before `end`, which are there.
    #[must_use]
    pub fn slice(self, first: usize, end: usize) -> Batch<'a> {
        Batch { places: &self.places[first..end], ..self }
    }

    /// The packets in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PacketRef<'a>> + use<'a> {
        let memory = self.memory;
        self.places.iter().map(move |place| {
            let Place { time_ns, original_len_bytes, interface, port, verdict, .. } = *place;
            PacketRef { time_ns, bytes: place.bytes(memory), original_len_bytes, interface, port, verdict }
        })
    }
}

/// The memory of a batch.
///
/// ```
/// # use flowloom_trace::{CapturedPacket, PacketBuffer};
/// let mut buffer = PacketBuffer::default();
/// buffer.push(&CapturedPacket { bytes: vec![1, 2], port: 1, ..CapturedPacket::default() });
/// buffer.push(&CapturedPacket { bytes: vec![3], port: 2, ..CapturedPacket::default() });
/// let packets: Vec<_> = buffer.batch().iter().map(|packet| (packet.port, packet.bytes)).collect();
/// assert_eq!(packets, [(1, &[1, 2][..]), (2, &[3])]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct PacketBuffer {
    /// The bytes of packets, and others between them.
    pub(crate) memory: Vec<u8>,
    pub(crate) places: Vec<Place>,
}

impl PacketBuffer {
    /// Adds a copy of a packet.
    pub fn push(&mut self, packet: &CapturedPacket) {
        let at = self.memory.len();
        self.memory.extend_from_slice(&packet.bytes);
        let CapturedPacket { time_ns, original_len_bytes, interface, port, verdict, ref bytes } = *packet;
        let len_bytes = bytes.len() as u32;
        self.places.push(Place { at, len_bytes, time_ns, original_len_bytes, interface, port, verdict });
    }

    /// Removes all packets; the memory is kept.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.places.clear();
    }

    /// The packets.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.memory, &self.places)
    }

    /// Computes the ports of all packets from their bytes.
    pub(crate) fn set_ports(&mut self, mut port_by: impl FnMut(&[u8]) -> u32) {
        for place in &mut self.places {
            place.port = port_by(place.bytes(&self.memory));
        }
    }
}
