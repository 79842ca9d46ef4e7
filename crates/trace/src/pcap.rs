// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plain pcap files [pcap 4, 5].

use crate::batch::Place;
use crate::error::TraceError;
use crate::input::{ByteOrder, Input, Malformation};
use crate::linktype;
use crate::reader::{FIRST_PORT, LARGEST_PACKET_BYTES, MAX_PACKET_BYTES};

const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(crate) const NANOSECONDS: u32 = 0xa1b2_3c4d;
const NS_PER_S: u64 = 1_000_000_000;
/// The bits above describe the frame check sequence.
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;

/// Byte order, timestamp resolution and length limit of one file.
#[derive(Debug)]
pub(crate) struct Pcap {
    order: ByteOrder,
    fraction_ns: u64,
    limit_bytes: u32,
}

impl Pcap {
    /// Returns the byte order and the timestamp unit in nanoseconds if `start` has a pcap magic.
    pub(crate) fn recognise(start: &[u8]) -> Option<(ByteOrder, u64)> {
        let start = start.get(..4)?;
        [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| match order.u32(start, 0) {
            MICROSECONDS => Some((order, 1000)),
            NANOSECONDS => Some((order, 1)),
            _ => None,
        })
    }

    /// Reads the file header, after [`Pcap::recognise`].
    pub(crate) fn open(input: &mut Input, order: ByteOrder, fraction_ns: u64) -> Result<Pcap, TraceError> {
        let header = input.peek_whole("the file's header", FILE_HEADER_BYTES)?;
        let version = (order.u16(header, 4), order.u16(header, 6));
        let snap_bytes = order.u32(header, 16);
        let link_type = order.u32(header, 20) & LINK_TYPE_MASK;
        // Before 2.3 the two lengths of a packet are swapped.
        if version.0 != 2 || version.1 < 3 {
            let found = format!("{}.{}", version.0, version.1);
            return Err(input.malformed(Malformation::new(4, "the version", found, "2.4")));
        }
        if link_type != linktype::ETHERNET {
            return Err(TraceError::LinkType { place: input.place(), interface: 0, link_type });
        }
        input.consume(FILE_HEADER_BYTES);
        // Tools that merge or convert captures leave packets longer than the snap length they write.
        Ok(Pcap { order, fraction_ns, limit_bytes: snap_bytes.clamp(LARGEST_PACKET_BYTES, MAX_PACKET_BYTES) })
    }

    /// Finds packets that are whole in these bytes of the window, from `begin` on, until there are `most`. Returns the
    /// bytes of their records.
    pub(crate) fn find_whole(&self, window: &[u8], begin: usize, places: &mut Vec<Place>, most: usize) -> usize {
        let mut at = begin;
        while places.len() < most
            && let Some(header) = window[at..].first_chunk()
        {
            let place = self.place(header, at + PACKET_HEADER_BYTES);
            let end = place.at + place.len_bytes as usize;
            if place.len_bytes > self.limit_bytes || end > window.len() {
                break;
            }
            places.push(place);
            at = end;
        }
        at - begin
    }

    /// The packet after a header, whose bytes begin at `at`.
    #[inline(always)]
    fn place(&self, header: &[u8; PACKET_HEADER_BYTES], at: usize) -> Place {
        let word = |at| self.order.u32(header, at);
        // Both factors have at most 32 bits, so this cannot overflow. A fraction of a second or more carries over.
        let time_ns = u64::from(word(0)) * NS_PER_S + u64::from(word(4)) * self.fraction_ns;
        let (len_bytes, original_len_bytes) = (word(8), word(12));
        Place { at, len_bytes, time_ns, original_len_bytes, interface: 0, port: FIRST_PORT, verdict: None }
    }

    /// Finds the next packet in the window of `input`. Returns `None` at the end.
    pub(crate) fn next(&mut self, input: &mut Input) -> Result<Option<Place>, TraceError> {
        if input.peek(PACKET_HEADER_BYTES)?.is_empty() {
            return Ok(None);
        }
        let mut header = [0; PACKET_HEADER_BYTES];
        header.copy_from_slice(input.peek_whole("a packet's header", PACKET_HEADER_BYTES)?);
        let place = self.place(&header, 0);
        if place.len_bytes > self.limit_bytes {
            let found = format!("{} bytes", place.len_bytes);
            let expected = format!("at most {} bytes", self.limit_bytes);
            return Err(input.malformed(Malformation::new(8, "the captured length of a packet", found, expected)));
        }
        let record_bytes = PACKET_HEADER_BYTES + place.len_bytes as usize;
        input.peek_whole("a packet", record_bytes)?;
        let at = input.position() + PACKET_HEADER_BYTES;
        input.consume(record_bytes);
        Ok(Some(Place { at, ..place }))
    }
}
