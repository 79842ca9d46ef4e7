// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of usual formats: their key is at fixed offsets, so that its hash takes a load and a product for each word,
//! some nanoseconds in all.

use flowloom_engine::{Arrival, Port};

use crate::hash::Factors;

/// A format that most packets have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// Bytes of the packet by which it is known: offset and value. The last one is the protocol after the IP header.
    pub(crate) bytes: &'static [(u16, u8)],
    /// The length of its headers, up to those of TCP or UDP.
    pub(crate) len_bytes: usize,
}

impl Format {
    /// True if it has this protocol after the IP header.
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

/// A word: 8 bytes of the packet, rotated, under a mask, and its factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    /// Where the word itself begins: its 8 bytes may go beyond the packet.
    begin: i32,
    at: u16,
    right: u32,
    mask: u64,
    factor: u64,
}

impl Load {
    #[inline]
    fn term(self, packet: &[u8]) -> u64 {
        (number(packet, self.at.into()).rotate_right(self.right) & self.mask).wrapping_mul(self.factor)
    }
}

/// The hash of packets of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usual {
    /// The bytes from 12 and from 16 on: a mask, and what they are under it.
    known: [(u64, u64); 2],
    /// The bytes that such a packet has at least.
    len_bytes: usize,
    /// The sum of constants.
    base: u64,
    loads: Vec<Load>,
    /// The factor of the ingress port.
    of_port: u64,
}

impl Usual {
    /// The hash of packets of a format, of whose key a word comes from `origins[word]`.
    fn new(format: &Format, origins: &[Origin], hash: &Factors) -> Usual {
        let len_bytes = origins.iter().map(Origin::end).fold(format.len_bytes.max(KNOWN[1] + LOAD_BYTES), usize::max);
        let known = KNOWN.map(|begin| {
            let own = format.bytes.iter().filter_map(|(at, value)| {
                let bits = 8 * usize::from(*at).checked_sub(begin).filter(|byte| *byte < LOAD_BYTES)?;
                Some((0xff << bits, u64::from(*value) << bits))
            });
            own.fold((0, 0), |(mask, value), (own_mask, own)| (mask | own_mask, value | own))
        });
        let (mut base, mut loads, mut of_port) = (0_u64, Vec::new(), 0_u64);
        for (origin, factor) in origins.iter().zip(hash.factors()) {
            match *origin {
                Origin::Packet { at, mask, constant } => {
                    // The bits of both differ.
                    base = base.wrapping_add(constant.wrapping_mul(*factor));
                    let first = (at.max(0) as usize).min(len_bytes - LOAD_BYTES);
                    let right = (8 * (at - first as i32)).rem_euclid(64) as u32;
                    if mask != 0 {
                        loads.push(Load { begin: at, at: first as u16, right, mask, factor: *factor });
                    }
                }
                Origin::Port => of_port = of_port.wrapping_add(*factor),
            }
        }
        Usual { known, len_bytes, base, loads, of_port }
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
        let base = self.base.wrapping_add(self.of_port.wrapping_mul(port.0.into()));
        self.loads.iter().fold(base, |sum, load| sum.wrapping_add(load.term(packet)))
    }
}

/// The hashes of packets of several formats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UsualFormats {
    formats: Vec<Usual>,
    ipv4: Option<Ipv4>,
}

impl UsualFormats {
    /// Adds a format, of whose key a word comes from `origins[word]`.
    pub(crate) fn add(&mut self, format: &Format, origins: &[Origin], hash: &Factors) {
        let mut new = Usual::new(format, origins, hash);
        while let Some((at, joined)) =
            self.formats.iter().enumerate().find_map(|(at, known)| Some((at, known.joined(&new)?)))
        {
            self.formats.remove(at);
            new = joined;
        }
        self.formats.push(new);
        self.ipv4 = Ipv4::of(&self.formats);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.formats.is_empty()
    }

    /// The hash of the packet's key; `None` for a packet of another format.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], port: Port) -> Option<u64> {
        self.of(packet).map(|usual| usual.hash(packet, port))
    }
}

/// Where the addresses of IPv4 without options begin, and the ports after it.
const ADDRESSES_AT: usize = 26;
const PORTS_AT: usize = 34;
/// The bytes that are loaded of any such packet.
const IPV4_BYTES: usize = 42;

/// The hash of packets whose key has words of IPv4 addresses and ports only, at offsets that are known when this is
/// compiled. For one or two formats, TCP and UDP, which differ in bytes of the second word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ipv4 {
    known: [(u64, u64); 2],
    /// The second word of the other format differs by these bits.
    differ: u64,
    /// By format, the sum of constants.
    bases: [u64; 2],
    len_bytes: [usize; 2],
    /// Of source and destination address, source and destination port.
    factors: [u64; 4],
}

impl Ipv4 {
    /// `None` if no format has such a hash.
    fn of(formats: &[Usual]) -> Option<Ipv4> {
        let (at, factors) = formats.iter().enumerate().find_map(|(at, usual)| Some((at, Ipv4::factors(usual)?)))?;
        let usual = &formats[at];
        let masks = |usual: &Usual| usual.known.map(|(mask, _)| mask);
        let is_alike = |other: &&Usual| {
            (masks(other), other.known[0]) == (masks(usual), usual.known[0]) && Ipv4::factors(other) == Some(factors)
        };
        let other = formats[at + 1..].iter().find(is_alike).unwrap_or(usual);
        Some(Ipv4 {
            known: usual.known,
            differ: usual.known[1].1 ^ other.known[1].1,
            bases: [usual.base, other.base],
            len_bytes: [usual.len_bytes.max(IPV4_BYTES), other.len_bytes.max(IPV4_BYTES)],
            factors,
        })
    }

    /// The factors of addresses and ports; `None` if other bytes count, or the bytes of one of these count otherwise.
    fn factors(usual: &Usual) -> Option<[u64; 4]> {
        if usual.of_port != 0 {
            return None;
        }
        let mut of_bytes = [0_u64; IPV4_BYTES];
        for load in &usual.loads {
            for byte in 0..LOAD_BYTES {
                let mask = (load.mask >> (8 * byte)) as u8;
                if mask != 0 {
                    let at = usize::try_from(load.begin + byte as i32).ok().filter(|_| mask == 0xff)?;
                    let of_byte = of_bytes.get_mut(at)?;
                    *of_byte = of_byte.wrapping_add(load.factor << (8 * byte));
                }
            }
        }
        let (mut left, mut factors) = (of_bytes, [0; 4]);
        let words = [(ADDRESSES_AT, 4), (ADDRESSES_AT + 4, 4), (PORTS_AT, 2), (PORTS_AT + 2, 2)];
        for (factor, (at, len)) in factors.iter_mut().zip(words) {
            *factor = of_bytes[at];
            for byte in 0..len {
                left[at + byte] = left[at + byte].wrapping_sub(*factor << (8 * byte));
            }
        }
        (left == [0; IPV4_BYTES]).then_some(factors)
    }

    #[inline]
    fn hash(&self, packet: &[u8]) -> Option<u64> {
        let bytes: &[u8; IPV4_BYTES] = packet.first_chunk()?;
        let differs = |word: usize| number(bytes, KNOWN[word]) & self.known[word].0 ^ self.known[word].1;
        let differ = differs(1);
        let is_first = differ == 0;
        let (base, len_bytes) = (self.bases[usize::from(!is_first)], self.len_bytes[usize::from(!is_first)]);
        if differs(0) != 0 || !(is_first | (differ == self.differ)) || packet.len() < len_bytes {
            return None;
        }
        let addresses = number(bytes, ADDRESSES_AT);
        // The lower half has the ports.
        let ports = number(bytes, PORTS_AT) as u32;
        let words = [addresses & 0xffff_ffff, addresses >> 32, u64::from(ports & 0xffff), u64::from(ports >> 16)];
        let term = |(word, factor): (u64, u64)| word.wrapping_mul(factor);
        Some(words.into_iter().zip(self.factors).map(term).fold(base, u64::wrapping_add))
    }
}

impl UsualFormats {
    /// As [`UsualFormats::hash`], faster for IPv4.
    #[inline]
    pub(crate) fn hash_of(&self, arrival: &Arrival<'_>) -> Option<u64> {
        let ipv4 = self.ipv4.as_ref().and_then(|ipv4| ipv4.hash(arrival.bytes));
        ipv4.or_else(|| self.hash(arrival.bytes, arrival.port))
    }

    /// The format of a packet.
    fn of(&self, packet: &[u8]) -> Option<&Usual> {
        let seen = KNOWN.map(|at| number(packet, at));
        let differs = |usual: &Usual, word: usize| seen[word] & usual.known[word].0 ^ usual.known[word].1;
        let is_own = |usual: &&Usual| differs(usual, 0) | differs(usual, 1) == 0 && packet.len() >= usual.len_bytes;
        self.formats.iter().find(is_own)
    }
}

/// The little-endian number of 8 bytes; 0 if the packet is too short.
#[inline]
fn number(packet: &[u8], at: usize) -> u64 {
    let bytes = packet.get(at..at + LOAD_BYTES).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_loaded_from_where_they_are() {
        let packet: Vec<u8> = (0..42).collect();
        let format = Format { bytes: &[(12, 12), (20, 20)], len_bytes: 42 };
        let hash = Factors::new(&[0, 1, 2, 3]);
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
    fn packets_of_ipv4_have_the_hashes_that_others_have() {
        let all = Factors::new(&[1, 0, 3, 2, 4]);
        let word = |at, bytes: u32| Origin::Packet { at, mask: u64::MAX >> (64 - 8 * bytes), constant: 0 };
        let five = [word(26, 4), word(30, 4), word(34, 2), word(36, 2), Origin::constant(3)];
        let low = Origin::Packet { at: -2, mask: u64::MAX << 16, constant: 0 };
        let upper = Origin::Packet { at: 22, mask: u64::MAX << 32, constant: 0xffff << 16 };
        for (origins, factors, is_ipv4) in [
            (&five[..], all.clone(), true),
            (&[five[0], low], Factors::new(&[0, 1]), false),
            (&[five[1], Origin::Port], Factors::new(&[0, 1]), false),
            (&[five[1], word(29, 2)], Factors::new(&[0, 1]), false),
            (&[five[0], word(30, 8)], Factors::new(&[0, 1]), true),
            (&[upper, five[3]], Factors::new(&[0, 1]), true),
            (&five[..1], Factors::new(&[0]), true),
        ] {
            let mut formats = UsualFormats::default();
            FORMATS[..4].iter().for_each(|format| formats.add(format, origins, &factors));
            let mut packets: Vec<Vec<u8>> = Vec::new();
            for number in 0..2000_u32 {
                let mut packet: Vec<u8> = (0..64).map(|at| (number * 7 + at * 13) as u8).collect();
                packet[12..15].copy_from_slice(&[8, 0, 0x45]);
                (packet[20], packet[21], packet[23]) = (0x40, 0, [6, 17, 17, 17, 4][number as usize % 5]);
                // Shorter than the words, the headers, or the bytes by which formats are known.
                packet.truncate([64, 60, 54, 43, 42, 41, 20, 3][number as usize % 8]);
                packets.push(packet);
            }
            let arrival = |bytes| Arrival { bytes, now_ns: 0, port: Port(9) };
            let arrivals: Vec<Arrival<'_>> = packets.iter().map(|packet| arrival(packet)).collect();
            let hashes: Vec<Option<u64>> = arrivals.iter().map(|arrival| formats.hash_of(arrival)).collect();
            let alone: Vec<Option<u64>> =
                arrivals.iter().map(|packet| formats.hash(packet.bytes, packet.port)).collect();
            assert_eq!(hashes, alone);
            assert!(hashes.iter().flatten().count() > 700);
            let ipv4 = arrivals.iter().filter_map(|packet| formats.ipv4?.hash(packet.bytes));
            assert_eq!(ipv4.count() > 700, is_ipv4, "{origins:?}");
        }
    }

    #[test]
    fn formats_that_differ_in_one_bit_become_one() {
        let hash = Factors::new(&[1, 0]);
        let origins = [26, 30].map(|at| Origin::Packet { at, mask: 0xffff_ffff, constant: 0 });
        let mut formats = UsualFormats::default();
        FORMATS[..4].iter().for_each(|format| formats.add(format, &origins, &hash));
        // TCP and UDP differ in their lengths.
        assert_eq!(formats.formats.len(), 2);
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
