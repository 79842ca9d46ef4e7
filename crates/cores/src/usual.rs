// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of usual formats: their key is at fixed offsets, so that its hash takes two loads and a product for each two
//! words, some nanoseconds in all.

use flowloom_engine::Port;

use crate::hash::{Factor, Products, product};

/// A format that most packets have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// Bytes of the packet by which it is known: offset and value. The last one is the protocol after the IP header.
    pub(crate) bytes: &'static [(u16, u8)],
    /// The length of its headers, up to those of TCP or UDP.
    pub(crate) len_bytes: usize,
}

impl Format {
    /// Whether it has this protocol after the IP header.
    pub(crate) fn has_protocol(&self, protocol: u8) -> bool {
        self.bytes.last().is_some_and(|(_, value)| *value == protocol)
    }
}

/// Untagged TCP and UDP over IPv4 without options, whole, with and without the flag that forbids fragments; and over
/// IPv6 without extension headers and traffic class.
pub(crate) const FORMATS: [Format; 6] = [
    Format { bytes: &[(12, 0x08), (13, 0), (14, 0x45), (20, 0x40), (21, 0), (23, 6)], len_bytes: 54 },
    Format { bytes: &[(12, 0x08), (13, 0), (14, 0x45), (20, 0), (21, 0), (23, 6)], len_bytes: 54 },
    Format { bytes: &[(12, 0x08), (13, 0), (14, 0x45), (20, 0x40), (21, 0), (23, 17)], len_bytes: 42 },
    Format { bytes: &[(12, 0x08), (13, 0), (14, 0x45), (20, 0), (21, 0), (23, 17)], len_bytes: 42 },
    Format { bytes: &[(12, 0x86), (13, 0xdd), (14, 0x60), (20, 6)], len_bytes: 74 },
    Format { bytes: &[(12, 0x86), (13, 0xdd), (14, 0x60), (20, 17)], len_bytes: 62 },
];

/// Where the words begin that have all bytes of formats.
const KNOWN: [usize; 2] = [12, 16];
/// The bytes of a load.
const LOAD_BYTES: usize = 8;

/// Where a word of the key is in the packets of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The bytes of the packet from `at` on under a mask, as a little-endian number, and a constant in the other bits.
    Packet { at: i32, mask: u64, constant: u64 },
    /// The ingress port.
    Port,
}

impl Origin {
    pub(crate) fn constant(constant: u64) -> Origin {
        Origin::Packet { at: 0, mask: 0, constant }
    }

    /// The end of its bytes in the packet.
    fn end(&self) -> usize {
        match self {
            Origin::Packet { at, mask, .. } if *mask != 0 => {
                (i64::from(*at) + i64::from((64 - mask.leading_zeros()).div_ceil(8))).max(0) as usize
            }
            _ => 0,
        }
    }
}

/// A factor: 8 bytes of the packet, rotated, under a mask, and what they are combined with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    at: usize,
    right: u32,
    mask: u64,
    with: u64,
}

impl Load {
    #[inline]
    fn of(self, packet: &[u8]) -> u64 {
        (number(packet, self.at).rotate_right(self.right) & self.mask) ^ self.with
    }
}

/// The hash of packets of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usual {
    /// The bytes from 12 and from 16 on: a mask, and what they are under it.
    known: [(u64, u64); 2],
    /// The bytes that such a packet has at least.
    len_bytes: usize,
    /// The products of constants.
    base: u64,
    products: Vec<[Load; 2]>,
    /// What the ingress port is combined with: a factor and the other one.
    of_port: Option<(u64, Load)>,
}

impl Usual {
    /// The hash of packets of a format, of whose key a word comes from `origins[word]`; `None` if the ingress port is
    /// in several words.
    fn new(format: &Format, origins: &[Origin], hash: &Products) -> Option<Usual> {
        let len_bytes = origins.iter().map(Origin::end).fold(format.len_bytes.max(KNOWN[1] + LOAD_BYTES), usize::max);
        let known = KNOWN.map(|begin| {
            let own = format.bytes.iter().filter_map(|(at, value)| {
                let bits = 8 * usize::from(*at).checked_sub(begin).filter(|byte| *byte < LOAD_BYTES)?;
                Some((0xff << bits, u64::from(*value) << bits))
            });
            own.fold((0, 0), |(mask, value), (own_mask, own)| (mask | own_mask, value | own))
        });
        let (mut base, mut products, mut of_port) = (0_u64, Vec::new(), None);
        let load = |factor: Factor| match factor.word.map_or(Origin::constant(0), |word| origins[word]) {
            Origin::Packet { at, mask, constant } => {
                let first = (at.max(0) as usize).min(len_bytes - LOAD_BYTES);
                let right = (8 * (at - first as i32)).rem_euclid(64) as u32;
                Some(Load { at: first, right, mask, with: constant ^ factor.key })
            }
            Origin::Port => None,
        };
        for [one, other] in hash.factors() {
            match (load(*one), load(*other)) {
                (Some(one), Some(other)) if one.mask == 0 && other.mask == 0 => {
                    base = base.wrapping_add(product(one.with, other.with));
                }
                (Some(one), Some(other)) => products.push([one, other]),
                (None, Some(load)) if of_port.is_none() => of_port = Some((one.key, load)),
                (Some(load), None) if of_port.is_none() => of_port = Some((other.key, load)),
                _ => return None,
            }
        }
        Some(Usual { known, len_bytes, base, products, of_port })
    }

    /// The format of both, if they differ in one bit that tells them apart.
    fn joined(&self, other: &Usual) -> Option<Usual> {
        let mut joined = self.clone();
        joined.known = other.known;
        if joined != *other {
            return None;
        }
        let differ = [0, 1].map(|word| self.known[word].1 ^ other.known[word].1);
        let is_one_bit = differ[0].count_ones() <= 1 && differ[1].count_ones() <= 1;
        let are_masks_equal = [0, 1].iter().all(|word| self.known[*word].0 == other.known[*word].0);
        // Both words may have the same byte of the packet.
        let bits = [(differ[0], KNOWN[0]), (differ[1], KNOWN[1])];
        let bit = |(bits, begin): (u64, usize)| (bits != 0).then(|| 8 * begin + bits.trailing_zeros() as usize);
        let is_same = match bits.map(bit) {
            [Some(one), Some(other)] => one == other,
            [None, None] => false,
            _ => true,
        };
        if !(is_one_bit && are_masks_equal && is_same) {
            return None;
        }
        for (known, differ) in joined.known.iter_mut().zip(differ) {
            *known = (known.0 & !differ, known.1 & !differ);
        }
        Some(joined)
    }

    #[inline]
    fn hash(&self, packet: &[u8], port: Port) -> u64 {
        let mut hash = self.base;
        for [one, other] in &self.products {
            hash = hash.wrapping_add(product(one.of(packet), other.of(packet)));
        }
        if let Some((key, load)) = self.of_port {
            hash = hash.wrapping_add(product(u64::from(port.0) ^ key, load.of(packet)));
        }
        hash
    }
}

/// The hashes of packets of several formats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UsualFormats(Vec<Usual>);

impl UsualFormats {
    /// Adds a format, of whose key a word comes from `origins[word]`.
    pub(crate) fn add(&mut self, format: &Format, origins: &[Origin], hash: &Products) {
        let Some(mut new) = Usual::new(format, origins, hash) else { return };
        while let Some((at, joined)) = self.0.iter().enumerate().find_map(|(at, known)| Some((at, known.joined(&new)?)))
        {
            self.0.remove(at);
            new = joined;
        }
        self.0.push(new);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hash of the packet's key; `None` for a packet of another format.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], port: Port) -> Option<u64> {
        if packet.len() < KNOWN[1] + LOAD_BYTES {
            return None;
        }
        let seen = KNOWN.map(|at| number(packet, at));
        let differs = |usual: &Usual, word: usize| seen[word] & usual.known[word].0 ^ usual.known[word].1;
        let is_own = |usual: &&Usual| differs(usual, 0) | differs(usual, 1) == 0 && packet.len() >= usual.len_bytes;
        self.0.iter().find(is_own).map(|usual| usual.hash(packet, port))
    }
}

/// The little-endian number of 8 bytes.
#[inline]
fn number(packet: &[u8], at: usize) -> u64 {
    packet[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_loaded_from_where_they_are() {
        let packet: Vec<u8> = (0..42).collect();
        let format = Format { bytes: &[(12, 12), (20, 20)], len_bytes: 42 };
        let hash = Products::new(&[0, 1, 2, 3], |word| word == 3);
        // The last two bytes, of which 8 would go beyond the end; the first two as the high ones; constants beside.
        let origins = [
            Origin::Packet { at: 40, mask: 0xffff, constant: 7 << 16 },
            Origin::Packet { at: -6, mask: 0xffff << 48, constant: 0 },
            Origin::Port,
            Origin::constant(9),
        ];
        let mut formats = UsualFormats::default();
        formats.add(&format, &origins, &hash);
        let expected = [7 << 16 | 41 << 8 | 40, 1 << 56, 5, 9];
        assert_eq!(formats.hash(&packet, Port(5)), Some(hash.hash(|word| expected[word])));
        assert_eq!(formats.hash(&packet[..41], Port(5)), None);
        let mut other = packet.clone();
        other[20] ^= 1;
        assert_eq!(formats.hash(&other, Port(5)), None);
    }

    #[test]
    fn formats_that_differ_in_one_bit_become_one() {
        let hash = Products::new(&[1, 0], |_| false);
        let origins = [26, 30].map(|at| Origin::Packet { at, mask: 0xffff_ffff, constant: 0 });
        let mut formats = UsualFormats::default();
        FORMATS[..4].iter().for_each(|format| formats.add(format, &origins, &hash));
        // TCP and UDP differ in their lengths.
        assert_eq!(formats.0.len(), 2);
        let mut packet = vec![0; 60];
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        for (flags, protocol, is_known) in
            [(0, 6, true), (0x40, 6, true), (0x40, 17, true), (0x20, 17, false), (0x80, 6, false), (0, 4, false)]
        {
            (packet[20], packet[23]) = (flags, protocol);
            assert_eq!(formats.hash(&packet, Port(1)).is_some(), is_known, "{flags:#x} {protocol}");
        }
    }
}
