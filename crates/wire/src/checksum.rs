// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Internet checksum: computed in full, and updated incrementally.

use std::net::IpAddr;

use crate::field::{CHECKSUMS, Checksum, FIELD_COUNT, FIELDS, FieldId, Source, bits_of};
use crate::graph::{Header, Slice};
use crate::parse::Layers;

const HEADERS: usize = Header::ALL.len();

/// A partial one's complement sum of 16-bit words.
///
/// # Source
/// [RFC 1071]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const fn new() -> Sum {
        Sum(0)
    }

    /// Adds a word.
    #[must_use]
    pub const fn word(self, word: u16) -> Sum {
        Sum(self.0 + word as u64)
    }

    /// Adds bytes that start at an even offset; an odd last byte is the upper half of its word.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let (pairs, last) = bytes.as_chunks::<2>();
        let sum = pairs.iter().fold(self, |sum, pair| sum.word(u16::from_be_bytes(*pair)));
        last.first().map_or(sum, |&byte| sum.word(u16::from(byte) << 8))
    }

    /// Adds the pseudo-header of TCP, UDP or ICMPv6 over either IP: addresses, protocol and payload length.
    ///
    /// # Source
    /// [RFC 9293 3.1], [RFC 8200 8.1]
    #[must_use]
    pub fn pseudo_header(self, src: IpAddr, dst: IpAddr, proto: u8, len_bytes: u32) -> Sum {
        let address = |sum: Sum, address: IpAddr| match address {
            IpAddr::V4(v4) => sum.bytes(&v4.octets()),
            IpAddr::V6(v6) => sum.bytes(&v6.octets()),
        };
        address(address(self, src), dst).word(u16::from(proto)).bytes(&len_bytes.to_be_bytes())
    }

    /// The value for the checksum field: the complement of the folded sum.
    pub const fn checksum(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }
}

/// The 16-bit words of a header that hold IP addresses, by header.
static ADDRESS_WORDS: [u128; HEADERS] = {
    let mut words = [0; HEADERS];
    let mut i = 0;
    while i < FIELD_COUNT {
        if let Source::Address { v4, v6 } = FIELDS[i].source {
            let names = [v4, v6];
            let mut n = 0;
            while n < names.len() {
                if let Some((header, slice)) = bits_of(names[n]) {
                    words[header as usize] |= slice.words();
                }
                n += 1;
            }
        }
        i += 1;
    }
    words
};

impl Slice {
    /// The 16-bit words that the slice touches, counted from the start of the header: bit 0 is the first. The
    /// catalogue's test checks that 128 words are enough.
    pub const fn words(self) -> u128 {
        let first = self.offset_bits / 16;
        let last = (self.offset_bits + self.width_bits as u16 - 1) / 16;
        (u128::MAX >> (127 - last)) & (u128::MAX << first)
    }
}

impl Checksum {
    /// The 16-bit words of `header` that this checksum covers if both headers are present: all of its own header but
    /// itself, the addresses of the IP headers with a pseudo-header, and all later headers if it covers the payload.
    pub fn words_covered(&self, header: Header) -> u128 {
        if header == self.header {
            !self.slice().words()
        } else if self.pseudo_header.contains(&header) {
            ADDRESS_WORDS[header as usize]
        } else if self.covers_payload && header.is_payload() && !self.header.is_payload() {
            u128::MAX
        } else {
            0
        }
    }

    /// Its bits in its header.
    pub fn slice(&self) -> Slice {
        crate::graph::bytes(self.offset_bytes, 2)
    }
}

/// Writes fields in parallel and updates the checksums that cover them.
///
/// `layers` is the parse of `packet`. A field takes the low bits of its value; one that is absent, or that rows may not
/// write, is not written. Overlapping fields (`ipv4.tos` and `ipv4.dscp`) are written in the given order.
///
/// # Checksums
/// `HC' = ~(~HC + sum(~m) + sum(m'))` over every 16-bit word `m` that a write touches, aligned to the start of its
/// header and counted once, with its final value `m'`. So
/// - a wrong checksum stays wrong, by the same difference;
/// - the set of words depends on the fields that are written, not on whether their values change. A checksum of 0xffff
///   (which no correct sender makes, but which is equivalent to 0) therefore becomes 0 even if nothing changes;
/// - 0 stays 0 where it means that there is no checksum, and a computed 0 is then sent as 0xffff;
/// - a transport checksum covers all later headers: user-defined headers, a tunnel, and the inner packet with its own
///   checksums, which are updated first.
///
/// Only parsed headers are updated: a transport header after a fifth IPv6 extension header, or of a protocol that is
/// not in the parse graph, does not follow writes to its addresses.
///
/// Deviation: with a routing header with segments left, the pseudo-header has the last segment and not `ipv6.dst` [RFC
/// 8200 8.1], and with a home address option that address and not `ipv6.src` [RFC 6275 6.3]; the checksum follows a
/// write of `ipv6.dst` or `ipv6.src` all the same.
///
/// # Source
/// [RFC 1624 3]
pub fn rewrite(packet: &mut [u8], layers: &Layers, writes: &[(FieldId, u128)]) {
    let mut touched = Touched { headers: 0, words: [0; HEADERS] };
    for &(field, _) in writes {
        if let Some((header, slice)) = target(layers, field) {
            touched.add(header, slice);
        }
    }
    // If no word is covered, the checksum is unchanged.
    let mut sums = [None; CHECKSUMS.len()];
    for (sum, checksum) in sums.iter_mut().zip(&CHECKSUMS) {
        if !touched.is_covered(layers, checksum) {
            continue;
        }
        *sum = checksum_field(packet, layers, checksum)
            .filter(|&old| old != 0 || !checksum.zero_is_none)
            .and_then(|old| touched.add_words(Sum::new().word(!old), packet, layers, checksum, |old| !old));
        if sum.is_some() {
            touched.add(checksum.header, checksum.slice());
        }
    }
    for &(field, value) in writes {
        if let Some((header, slice)) = target(layers, field)
            && let Some(bytes) = layers.offset(header).and_then(|offset| packet.get_mut(offset..))
        {
            slice.write(bytes, value);
        }
    }
    for (sum, checksum) in sums.into_iter().zip(&CHECKSUMS) {
        let Some(sum) = sum.and_then(|sum| touched.add_words(sum, packet, layers, checksum, |new| new)) else {
            continue;
        };
        let new = match sum.checksum() {
            0 if checksum.zero_is_none => 0xffff,
            new => new,
        };
        if let Some(bytes) = layers.offset(checksum.header).and_then(|offset| packet.get_mut(offset..)) {
            checksum.slice().write(bytes, u128::from(new));
        }
    }
}

/// The 16-bit words that are written.
struct Touched {
    headers: u32,
    words: [u128; HEADERS],
}

impl Touched {
    fn add(&mut self, header: Header, slice: Slice) {
        self.headers |= header.bit();
        self.words[header as usize] |= slice.words();
    }

    /// The headers with written words that this checksum covers.
    fn covered<'a>(&'a self, checksum: &'a Checksum) -> impl Iterator<Item = (Header, u128)> + 'a {
        let mut headers = self.headers;
        std::iter::from_fn(move || {
            let header = Header::ALL.get(headers.trailing_zeros() as usize)?;
            headers &= headers - 1;
            Some((*header, self.words[*header as usize] & checksum.words_covered(*header)))
        })
        .filter(|&(_, words)| words != 0)
    }

    fn is_covered(&self, layers: &Layers, checksum: &Checksum) -> bool {
        layers.has(checksum.header) && self.covered(checksum).next().is_some()
    }

    /// Adds the words that this checksum covers, as mapped by `of`; `None` if the packet is not the one that was
    /// parsed.
    fn add_words(
        &self,
        mut sum: Sum,
        packet: &[u8],
        layers: &Layers,
        checksum: &Checksum,
        of: impl Fn(u16) -> u16,
    ) -> Option<Sum> {
        for (header, mut words) in self.covered(checksum) {
            let offset = layers.offset(header)?;
            while words != 0 {
                let at = offset + 2 * words.trailing_zeros() as usize;
                words &= words - 1;
                let word = packet.get(at..)?.first_chunk()?;
                sum = sum.word(of(u16::from_be_bytes(*word)));
            }
        }
        Some(sum)
    }
}

/// The bits of this packet that a write of the field changes.
fn target(layers: &Layers, field: FieldId) -> Option<(Header, Slice)> {
    let concrete = layers.resolve(field).filter(|_| field.is_writable())?;
    match concrete.source() {
        Source::Header(header, slice) => Some((header, slice)),
        _ => None,
    }
}

fn checksum_field(packet: &[u8], layers: &Layers, checksum: &Checksum) -> Option<u16> {
    let value = checksum.slice().read(packet.get(layers.offset(checksum.header)?..)?)?;
    Some(value as u16)
}

#[cfg(test)]
mod tests;
