// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The field catalogue as data: the fields of rows and keys.

mod catalogue;

use std::borrow::Cow;
use std::fmt;

pub use catalogue::FIELDS;

use crate::graph::{Header, Scope, Slice};

/// A field: of the catalogue, by its index in [`FIELDS`], or of a user-defined header, by its bits.
///
/// The name of a field of a user-defined header is only known to its graph ([`crate::Graph::field_name`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(Location);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Location {
    Catalogue(u16),
    User(Header, Slice),
}

impl fmt::Debug for FieldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldId({})", self.name())
    }
}

/// A field of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name, e.g. `tcp.seq`.
    pub name: &'static str,
    /// Width in bits.
    pub width_bits: u8,
    /// The source of its value.
    pub source: Source,
    /// Whether rows may write it. Lengths, versions and next-header selectors are read-only.
    pub writable: bool,
    /// The field of the other direction: `ip.src` and `ip.dst` are partners.
    pub partner: Option<&'static str>,
    /// A short description.
    pub meaning: &'static str,
}

/// The source of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Bits of a header; absent if the header is.
    Header(Header, Slice),
    /// The one of these fields that is present, tried in order; at most one can be.
    Either(&'static [&'static str]),
    /// As [`Source::Either`] for the IPv4 and the IPv6 address, IPv4 as `::ffff:a.b.c.d` [RFC 4291 2.5.5.2].
    Address {
        /// The IPv4 field, 32 bits.
        v4: &'static str,
        /// The IPv6 field, 128 bits.
        v6: &'static str,
    },
    /// The protocol number of the last parsed IP or extension header of this packet.
    IpProto(Scope),
    /// The payload length after this TCP header by the IP header's lengths.
    TcpPayloadLen(Header),
    /// The captured length of the packet.
    PacketLen,
    /// The ingress port.
    PacketPort,
}

/// The number of fields.
pub const FIELD_COUNT: usize = FIELDS.len();

/// The number of alternatives of an `Either`.
const ALTERNATIVES: usize = 2;

/// The targets of the names in [`FIELDS`], resolved at compile time: an unknown name fails the build.
static LINKS: [Links; FIELD_COUNT] = {
    let mut links =
        [Links { alternatives: [FieldId(Location::Catalogue(0)); ALTERNATIVES], count: 0, partner: None }; FIELD_COUNT];
    let mut i = 0;
    while i < FIELD_COUNT {
        match FIELDS[i].source {
            Source::Either(names) => {
                links[i].count = names.len();
                let mut n = 0;
                while n < names.len() {
                    links[i].alternatives[n] = existing(names[n]);
                    n += 1;
                }
            }
            Source::Address { v4, v6 } => {
                links[i].count = 2;
                links[i].alternatives = [existing(v4), existing(v6)];
            }
            _ => {}
        }
        if let Some(partner) = FIELDS[i].partner {
            links[i].partner = Some(existing(partner));
        }
        i += 1;
    }
    links
};

#[derive(Clone, Copy)]
struct Links {
    alternatives: [FieldId; ALTERNATIVES],
    count: usize,
    partner: Option<FieldId>,
}

#[allow(clippy::panic, reason = "only evaluated at compile time")]
const fn existing(name: &str) -> FieldId {
    match FieldId::by_name(name) {
        Some(id) => id,
        None => panic!("a field refers to one that does not exist"),
    }
}

/// The bits of a concrete field of the catalogue.
pub(crate) const fn bits_of(name: &str) -> Option<(Header, Slice)> {
    let mut i = 0;
    while i < FIELDS.len() {
        if let Source::Header(header, slice) = FIELDS[i].source
            && same(FIELDS[i].name, name)
        {
            return Some((header, slice));
        }
        i += 1;
    }
    None
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

impl FieldId {
    /// `pkt.len`, which is always present.
    pub const PACKET_LEN: FieldId = existing("pkt.len");

    /// The field called `name`.
    pub const fn by_name(name: &str) -> Option<FieldId> {
        let mut i = 0;
        while i < FIELDS.len() {
            if same(FIELDS[i].name, name) {
                return Some(FieldId(Location::Catalogue(i as u16)));
            }
            i += 1;
        }
        None
    }

    /// All fields of the catalogue, in its order.
    pub fn all() -> impl Iterator<Item = FieldId> {
        (0..FIELD_COUNT as u16).map(|i| FieldId(Location::Catalogue(i)))
    }

    /// Bits of a user-defined header; `None` for any other header.
    pub(crate) fn user(header: Header, slice: Slice) -> Option<FieldId> {
        header.user_index().map(|_| FieldId(Location::User(header, slice)))
    }

    fn entry(self) -> Option<(&'static Field, &'static Links)> {
        match self.0 {
            Location::Catalogue(i) => Some((&FIELDS[usize::from(i)], &LINKS[usize::from(i)])),
            Location::User(..) => None,
        }
    }

    /// The name in the catalogue. A field of a user-defined header is named by the header's number and its bits, as in
    /// `user0[16..32]`.
    pub fn name(self) -> Cow<'static, str> {
        match self.0 {
            Location::Catalogue(i) => Cow::Borrowed(FIELDS[usize::from(i)].name),
            Location::User(header, Slice { offset_bits, width_bits }) => {
                Cow::Owned(format!("{}[{offset_bits}..{}]", header.name(), offset_bits + u16::from(width_bits)))
            }
        }
    }

    /// Width in bits.
    pub fn width_bits(self) -> u8 {
        match self.0 {
            Location::Catalogue(i) => FIELDS[usize::from(i)].width_bits,
            Location::User(_, slice) => slice.width_bits,
        }
    }

    /// The source of its value.
    pub fn source(self) -> Source {
        match self.0 {
            Location::Catalogue(i) => FIELDS[usize::from(i)].source,
            Location::User(header, slice) => Source::Header(header, slice),
        }
    }

    /// True if rows may write it.
    pub fn is_writable(self) -> bool {
        self.entry().is_none_or(|(field, _)| field.writable)
    }

    /// The fields that this one stands for: `tcp.sport` and `udp.sport` of `l4.sport`, the IPv4 and then the IPv6
    /// address of `ip.src`. Empty for a concrete field.
    pub fn alternatives(self) -> &'static [FieldId] {
        self.entry().map_or(&[], |(_, links)| &links.alternatives[..links.count])
    }

    /// The field of the other direction, if there is one.
    pub fn partner(self) -> Option<FieldId> {
        self.entry().and_then(|(_, links)| links.partner)
    }

    /// The size of the field in a flow key.
    pub fn key_bytes(self) -> usize {
        usize::from(self.width_bits()).div_ceil(8)
    }

    /// The header of the field; `None` for one that stands for several or is derived.
    pub fn header(self) -> Option<Header> {
        match self.source() {
            Source::Header(header, _) => Some(header),
            _ => None,
        }
    }

    /// The headers any of which makes the field present. Empty if the field is always present.
    pub fn headers(self) -> Vec<Header> {
        match self.source() {
            Source::Header(header, _) => vec![header],
            Source::Either(_) | Source::Address { .. } => {
                self.alternatives().iter().flat_map(|field| field.headers()).collect()
            }
            Source::IpProto(Scope::Outer) => vec![Header::Ipv4, Header::Ipv6],
            Source::IpProto(Scope::Inner) => vec![Header::InnerIpv4, Header::InnerIpv6],
            Source::TcpPayloadLen(header) => vec![header],
            Source::PacketLen | Source::PacketPort => Vec::new(),
        }
    }
}

/// IPv4 addresses as 128-bit values: `::ffff:0:0` [RFC 4291 2.5.5.2].
pub const IPV4_MAPPED: u128 = 0xffff_0000_0000;

/// A checksum that is updated along with the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// Its header.
    pub header: Header,
    /// Its offset in that header.
    pub offset_bytes: u16,
    /// The IP headers whose addresses it covers too (the pseudo-header), whichever is present.
    pub pseudo_header: &'static [Header],
    /// Whether it covers all later headers and the payload, too.
    pub covers_payload: bool,
    /// Whether 0 means that there is no checksum, so that a computed 0 is sent as 0xffff [RFC 768].
    pub zero_is_none: bool,
}

const OUTER_IP: &[Header] = &[Header::Ipv4, Header::Ipv6];
const INNER_IP: &[Header] = &[Header::InnerIpv4, Header::InnerIpv6];

const fn of_ip(header: Header) -> Checksum {
    Checksum { header, offset_bytes: 10, pseudo_header: &[], covers_payload: false, zero_is_none: false }
}

const fn of_transport(header: Header, offset_bytes: u16, pseudo_header: &'static [Header]) -> Checksum {
    Checksum { header, offset_bytes, pseudo_header, covers_payload: true, zero_is_none: false }
}

const fn of_udp(header: Header, pseudo_header: &'static [Header]) -> Checksum {
    Checksum { zero_is_none: true, ..of_transport(header, 6, pseudo_header) }
}

/// All checksums. Each covers its own header; those within the payload of another one come first.
pub static CHECKSUMS: [Checksum; 10] = [
    of_ip(Header::InnerIpv4),
    of_transport(Header::InnerTcp, 16, INNER_IP),
    of_udp(Header::InnerUdp, INNER_IP),
    of_transport(Header::InnerIcmp, 2, &[]),
    of_transport(Header::InnerIcmp6, 2, INNER_IP),
    of_ip(Header::Ipv4),
    of_transport(Header::Tcp, 16, OUTER_IP),
    of_udp(Header::Udp, OUTER_IP),
    of_transport(Header::Icmp, 2, &[]),
    of_transport(Header::Icmp6, 2, OUTER_IP),
];

/// The fields of `5-tuple` in a key.
pub const FIVE_TUPLE: [&str; 5] = ["ip.src", "ip.dst", "ip.proto", "l4.sport", "l4.dport"];
/// The fields of `inner.5-tuple` in a key.
pub const INNER_FIVE_TUPLE: [&str; 5] =
    ["inner.ip.src", "inner.ip.dst", "inner.ip.proto", "inner.l4.sport", "inner.l4.dport"];

#[cfg(test)]
mod tests;
