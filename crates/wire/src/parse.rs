// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference parser: walks a [`Graph`] and knows no protocol.
//!
//! A node is valid if its minimal bytes are present, its conditions hold, its length is at least the minimum and
//! present as a whole, and it fits the extent given by the headers before it. The first invalid node ends the parse;
//! headers before it stay valid. The extents of IP headers may exceed the captured bytes, since captures are truncated:
//! only the headers themselves must be present.

use crate::field::{FieldId, IPV4_MAPPED, Source};
use crate::graph::{Check, ETHERNET, Extent, Graph, Header, HeaderOption, Length, Next, Node, Scope, Slice};

const HEADERS: usize = Header::ALL.len();

/// The headers of a packet and their offsets.
///
/// # Cost
/// No allocation; one step for each header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layers {
    valid: u32,
    offset_bytes: [u16; HEADERS],
    len_bytes: [u16; HEADERS],
    left_bytes: [u16; HEADERS],
    ip_proto: [Option<u8>; 2],
}

impl Layers {
    /// Parses a packet from its Ethernet header on. Every packet has a parse; that of an empty one has no valid header.
    pub fn parse(graph: &Graph, packet: &[u8]) -> Layers {
        let mut layers = Layers::default();
        let nodes = graph.nodes();
        let mut node = &nodes[ETHERNET];
        let mut offset = 0;
        let mut left = 0;
        while let Some((len, left_after)) = measure(node, &packet[offset..], left) {
            let here = &packet[offset..];
            left = left_after;
            // The first of several headers of a kind counts.
            if let Some(header) = node.header.filter(|header| !layers.has(*header)) {
                layers.valid |= header.bit();
                layers.offset_bytes[header as usize] = offset as u16;
                layers.len_bytes[header as usize] = len as u16;
                layers.left_bytes[header as usize] = left as u16;
            }
            if let Some(option) = node.option
                && let Some(at) = option.find(&here[..len])
            {
                layers.valid |= option.header.bit();
                layers.offset_bytes[option.header as usize] = (offset + at) as u16;
                layers.len_bytes[option.header as usize] = option.len_bytes.into();
            }
            if let Some((scope, slice)) = node.next.ip_proto {
                layers.ip_proto[scope as usize] = slice.read(here).map(|proto| proto as u8);
            }
            if node.next.only_if_zero.and_then(|slice| slice.read(here)).is_some_and(|bits| bits != 0) {
                break;
            }
            let Some(to) = node.next.choose(here) else { break };
            node = &nodes[to];
            offset += len;
        }
        layers
    }

    /// The validity bits of all headers, by [`Header::bit`].
    pub fn valid(&self) -> u32 {
        self.valid
    }

    /// True if the header is valid.
    pub fn has(&self, header: Header) -> bool {
        self.valid & header.bit() != 0
    }

    /// Offset of a header from the start of the packet, in bytes.
    pub fn offset(&self, header: Header) -> Option<usize> {
        self.has(header).then(|| usize::from(self.offset_bytes[header as usize]))
    }

    /// Length of a header in bytes, options included.
    pub fn len(&self, header: Header) -> Option<usize> {
        self.has(header).then(|| usize::from(self.len_bytes[header as usize]))
    }

    /// Number of bytes of the IP packet after this header by the IP header's lengths; 0 for a header outside of IP.
    /// They need not be present.
    pub fn payload_len(&self, header: Header) -> Option<usize> {
        self.has(header).then(|| usize::from(self.left_bytes[header as usize]))
    }

    /// The IP protocol number of the outer or inner packet; `None` if there is no such packet.
    pub fn protocol(&self, scope: Scope) -> Option<u8> {
        self.ip_proto[scope as usize]
    }

    /// True if the packet has the field.
    pub fn is_present(&self, field: FieldId) -> bool {
        match field.source() {
            Source::Header(header, _) => self.has(header),
            Source::Either(_) | Source::Address { .. } => field.alternatives().iter().any(|&f| self.is_present(f)),
            Source::IpProto(scope) => self.ip_proto[scope as usize].is_some(),
            Source::TcpPayloadLen(header) => self.has(header),
            Source::PacketLen | Source::PacketPort => true,
        }
    }

    /// The concrete field that a name stands for in this packet: `ipv4.tos` for `ip.tos` if the packet is IPv4. `None`
    /// if it is absent.
    pub fn resolve(&self, field: FieldId) -> Option<FieldId> {
        match field.alternatives() {
            [] => self.is_present(field).then_some(field),
            alternatives => alternatives.iter().find_map(|&f| self.resolve(f)),
        }
    }

    /// The value of a field; `None` if it is absent.
    ///
    /// `packet` is the parsed packet, possibly with changed fields; `port` is its ingress port. An IPv4 address that is
    /// read as `ip.src` or `ip.dst` has the prefix [`IPV4_MAPPED`].
    pub fn read(&self, packet: &[u8], port: u32, field: FieldId) -> Option<u128> {
        match field.source() {
            Source::Header(header, slice) => slice.read(packet.get(self.offset(header)?..)?),
            Source::Either(_) => self.read(packet, port, self.resolve(field)?),
            Source::Address { .. } => {
                let concrete = self.resolve(field)?;
                let mapped = if concrete.width_bits() == 32 { IPV4_MAPPED } else { 0 };
                Some(mapped | self.read(packet, port, concrete)?)
            }
            Source::IpProto(scope) => self.ip_proto[scope as usize].map(u128::from),
            Source::TcpPayloadLen(header) => self.payload_len(header).map(|len| len as u128),
            Source::PacketLen => Some(packet.len() as u128),
            Source::PacketPort => Some(u128::from(port)),
        }
    }
}

/// Length of a valid node and the number of bytes of the IP packet after it; `None` if the node is not valid.
fn measure(node: &Node, bytes: &[u8], left: usize) -> Option<(usize, usize)> {
    let min = usize::from(node.min_bytes);
    let head = bytes.get(..min)?;
    for check in &node.checks {
        let holds = match *check {
            Check::Equal(slice, value) => slice.read(head)? == u128::from(value),
            Check::AtLeast(slice, value) => slice.read(head)? >= u128::from(value),
        };
        if !holds {
            return None;
        }
    }
    let len = match node.length {
        Length::Fixed => min,
        Length::Peek => 0,
        Length::Scaled { slice, add, times } => (slice.read(head)? as usize + usize::from(add)) * usize::from(times),
    };
    if len > bytes.len() || len < min && node.length != Length::Peek {
        return None;
    }
    let read = |slice: Slice| slice.read(head).map(|value| value as usize);
    let within = || left.checked_sub(len);
    let left = match node.extent {
        Extent::Open => left,
        Extent::Total(slice) => read(slice)?.checked_sub(len)?,
        Extent::After(slice) => read(slice)?,
        Extent::Within => within()?,
        Extent::TotalWithin(slice) => within()?.min(read(slice)?.checked_sub(len)?),
        Extent::AfterWithin(slice) => within()?.min(read(slice)?),
    };
    Some((len, left))
}

impl HeaderOption {
    /// Offset of the option in its header.
    fn find(&self, header: &[u8]) -> Option<usize> {
        let mut at = usize::from(self.start_bytes);
        loop {
            let left = header.get(at..)?;
            let len = match *left {
                [0, ..] | [] => return None,
                [1, ..] => 1,
                [_] => return None,
                [kind, len, ..] => {
                    let len = usize::from(len);
                    if len < 2 || len > left.len() {
                        return None;
                    }
                    if kind == self.kind {
                        return (len == usize::from(self.len_bytes)).then_some(at);
                    }
                    len
                }
            };
            at += len;
        }
    }
}

impl Next {
    /// The next node after a header that starts at `header[0]`.
    fn choose(&self, header: &[u8]) -> Option<usize> {
        let edge = self.choices.iter().find_map(|choice| {
            let value = choice.selector.read(header)?;
            choice.edges.iter().find(|edge| u128::from(edge.0) == value)
        });
        edge.map(|edge| edge.1).or(self.otherwise)
    }
}

impl Slice {
    /// The value of the slice in a header that starts at `header[0]`; `None` if it is not wholly present.
    pub fn read(self, header: &[u8]) -> Option<u128> {
        let (range, shift) = self.span();
        let value = header.get(range)?.iter().fold(0, |value, &byte| value << 8 | u128::from(byte));
        Some(value >> shift & self.mask())
    }

    /// Replaces the slice by the low bits of `value` and keeps the adjacent bits; returns `false` without a change if
    /// it is not wholly present.
    pub fn write(self, header: &mut [u8], value: u128) -> bool {
        let (range, shift) = self.span();
        let Some(bytes) = header.get_mut(range) else { return false };
        let mut mask = self.mask() << shift;
        let mut value = (value & self.mask()) << shift;
        for byte in bytes.iter_mut().rev() {
            *byte = *byte & !(mask as u8) | value as u8;
            mask >>= 8;
            value >>= 8;
        }
        true
    }

    /// The bytes that hold the slice, and the number of bits after it in the last byte. They fit in 128 bits: a slice
    /// wider than 120 bits is aligned, which the catalogue's test checks.
    fn span(self) -> (core::ops::Range<usize>, usize) {
        let start = usize::from(self.offset_bits);
        let end = start + usize::from(self.width_bits);
        (start / 8..end.div_ceil(8), end.wrapping_neg() % 8)
    }

    fn mask(self) -> u128 {
        match self.width_bits {
            0 => 0,
            width => u128::MAX >> (128 - u32::from(width)),
        }
    }
}

#[cfg(test)]
mod tests;
