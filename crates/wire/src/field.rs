//! The field catalogue as data: what rows and keys can name.

use std::borrow::Cow;
use std::fmt;

use crate::graph::{Header, Scope, Slice, bits, bytes};

/// A field: of the catalogue, by its place in [`FIELDS`], or of a header of one's own, by its bits.
///
/// What a field of one's own header is called, only its graph knows ([`crate::Graph::field_name`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(Place);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Catalogue(u16),
    User(Header, Slice),
}

impl fmt::Debug for FieldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldId({})", self.name())
    }
}

/// One field of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name, e.g. `tcp.seq`.
    pub name: &'static str,
    /// Width in bits.
    pub width_bits: u8,
    /// Where its value comes from.
    pub source: Source,
    /// Whether rows may write it. Lengths, versions and what selects the next header are fixed.
    pub writable: bool,
    /// The field of the other direction: `ip.src` and `ip.dst` are each other's.
    pub partner: Option<&'static str>,
    /// What it is, in a few words.
    pub meaning: &'static str,
}

/// Where a field's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Bits of one header; absent where the header is.
    Header(Header, Slice),
    /// Whichever of these fields is present, tried in order; at most one can be.
    Either(&'static [&'static str]),
    /// As [`Source::Either`] for the IPv4 and the IPv6 address, IPv4 as `::ffff:a.b.c.d` [RFC 4291 2.5.5.2].
    Address {
        /// The IPv4 field, 32 bits.
        v4: &'static str,
        /// The IPv6 field, 128 bits.
        v6: &'static str,
    },
    /// The protocol number after the last IP or extension header of this packet that was parsed.
    IpProto(Scope),
    /// Bytes of payload after this TCP header by the IP header's lengths.
    TcpPayloadLen(Header),
    /// Bytes of the packet that are present.
    PacketLen,
    /// The port the packet arrived by.
    PacketPort,
}

/// How many fields there are.
pub const FIELD_COUNT: usize = FIELDS.len();

/// Of how many fields an `Either` may choose.
const ALTERNATIVES: usize = 2;

/// What the names inside [`FIELDS`] stand for, looked up by the compiler: a name that does not exist fails the build.
static LINKS: [Links; FIELD_COUNT] = {
    let mut links =
        [Links { alternatives: [FieldId(Place::Catalogue(0)); ALTERNATIVES], count: 0, partner: None }; FIELD_COUNT];
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

/// The bits that a concrete field of the catalogue has.
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
    /// `pkt.len`, which every packet has.
    pub const PACKET_LEN: FieldId = existing("pkt.len");

    /// The field called `name`.
    pub const fn by_name(name: &str) -> Option<FieldId> {
        let mut i = 0;
        while i < FIELDS.len() {
            if same(FIELDS[i].name, name) {
                return Some(FieldId(Place::Catalogue(i as u16)));
            }
            i += 1;
        }
        None
    }

    /// All fields of the catalogue, in its order.
    pub fn all() -> impl Iterator<Item = FieldId> {
        (0..FIELD_COUNT as u16).map(|i| FieldId(Place::Catalogue(i)))
    }

    /// Bits of a header of one's own; `None` for any other header.
    pub(crate) fn user(header: Header, slice: Slice) -> Option<FieldId> {
        header.user_index().map(|_| FieldId(Place::User(header, slice)))
    }

    fn entry(self) -> Option<(&'static Field, &'static Links)> {
        match self.0 {
            Place::Catalogue(i) => Some((&FIELDS[usize::from(i)], &LINKS[usize::from(i)])),
            Place::User(..) => None,
        }
    }

    /// The name in the catalogue. A field of one's own header is named by its number and its bits, as in
    /// `user0[16..32]`.
    pub fn name(self) -> Cow<'static, str> {
        match self.0 {
            Place::Catalogue(i) => Cow::Borrowed(FIELDS[usize::from(i)].name),
            Place::User(header, Slice { offset_bits, width_bits }) => {
                Cow::Owned(format!("{}[{offset_bits}..{}]", header.name(), offset_bits + u16::from(width_bits)))
            }
        }
    }

    /// Width in bits.
    pub fn width_bits(self) -> u8 {
        match self.0 {
            Place::Catalogue(i) => FIELDS[usize::from(i)].width_bits,
            Place::User(_, slice) => slice.width_bits,
        }
    }

    /// Where its value comes from.
    pub fn source(self) -> Source {
        match self.0 {
            Place::Catalogue(i) => FIELDS[usize::from(i)].source,
            Place::User(header, slice) => Source::Header(header, slice),
        }
    }

    /// Whether rows may write it.
    pub fn is_writable(self) -> bool {
        self.entry().is_none_or(|(field, _)| field.writable)
    }

    /// The fields that this one stands for, whichever is present: `tcp.sport` and `udp.sport` of `l4.sport`, the IPv4 and
    /// then the IPv6 address of `ip.src`. Empty for a field that is itself concrete.
    pub fn alternatives(self) -> &'static [FieldId] {
        self.entry().map_or(&[], |(_, links)| &links.alternatives[..links.count])
    }

    /// The field of the other direction, where there is one.
    pub fn partner(self) -> Option<FieldId> {
        self.entry().and_then(|(_, links)| links.partner)
    }

    /// Bytes that the field takes in a flow key.
    pub fn key_bytes(self) -> usize {
        usize::from(self.width_bits()).div_ceil(8)
    }

    /// The header that the field is a part of; `None` for one that stands for several or is derived.
    pub fn header(self) -> Option<Header> {
        match self.source() {
            Source::Header(header, _) => Some(header),
            _ => None,
        }
    }

    /// The single headers whose validity makes the field present: any one of them is enough. Empty where the field is
    /// always present.
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

/// A checksum that follows changes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// The header it stands in.
    pub header: Header,
    /// Its offset in that header.
    pub offset_bytes: u16,
    /// Whether it also covers the addresses of the IP header below (the pseudo header).
    pub pseudo_header: bool,
    /// Whether 0 means that there is none, so that a computed 0 is sent as 0xffff [RFC 768].
    pub zero_is_none: bool,
}

/// All checksums. Each covers its own header.
pub static CHECKSUMS: [Checksum; 5] = [
    Checksum { header: Header::Ipv4, offset_bytes: 10, pseudo_header: false, zero_is_none: false },
    Checksum { header: Header::Tcp, offset_bytes: 16, pseudo_header: true, zero_is_none: false },
    Checksum { header: Header::Udp, offset_bytes: 6, pseudo_header: true, zero_is_none: true },
    Checksum { header: Header::Icmp, offset_bytes: 2, pseudo_header: false, zero_is_none: false },
    Checksum { header: Header::Icmp6, offset_bytes: 2, pseudo_header: true, zero_is_none: false },
];

const fn fixed(name: &'static str, header: Header, slice: Slice, meaning: &'static str) -> Field {
    Field {
        name,
        width_bits: slice.width_bits,
        source: Source::Header(header, slice),
        writable: false,
        partner: None,
        meaning,
    }
}

const fn field(name: &'static str, header: Header, slice: Slice, meaning: &'static str) -> Field {
    Field { writable: true, ..fixed(name, header, slice, meaning) }
}

const fn paired(
    name: &'static str,
    header: Header,
    slice: Slice,
    partner: &'static str,
    meaning: &'static str,
) -> Field {
    Field { partner: Some(partner), ..field(name, header, slice, meaning) }
}

const fn derived(name: &'static str, width_bits: u8, source: Source, meaning: &'static str) -> Field {
    Field { name, width_bits, source, writable: false, partner: None, meaning }
}

const fn either(name: &'static str, width_bits: u8, of: &'static [&'static str], meaning: &'static str) -> Field {
    Field { name, width_bits, source: Source::Either(of), writable: true, partner: None, meaning }
}

/// Every field, by header.
pub static FIELDS: &[Field] = {
    use Header::{Ethernet, Icmp, Icmp6, Ipv4, Ipv6, Tcp, Udp, Vlan, Vlan2};
    &[
        derived("pkt.len", 32, Source::PacketLen, "bytes of the packet that are present"),
        derived("pkt.port", 32, Source::PacketPort, "port the packet arrived by"),
        paired("eth.dst", Ethernet, bytes(0, 6), "eth.src", "destination MAC address"),
        paired("eth.src", Ethernet, bytes(6, 6), "eth.dst", "source MAC address"),
        fixed("eth.type", Ethernet, bytes(12, 2), "EtherType after the addresses (0x8100 where a tag follows)"),
        field("vlan.pcp", Vlan, bits(0, 3), "priority code point of the outermost tag"),
        field("vlan.dei", Vlan, bits(3, 1), "drop eligible indicator"),
        field("vlan.id", Vlan, bits(4, 12), "VLAN identifier of the outermost tag"),
        fixed("vlan.type", Vlan, bytes(2, 2), "EtherType after the tag"),
        field("vlan2.pcp", Vlan2, bits(0, 3), "priority code point of the second tag"),
        field("vlan2.dei", Vlan2, bits(3, 1), "drop eligible indicator"),
        field("vlan2.id", Vlan2, bits(4, 12), "VLAN identifier of the second tag"),
        fixed("vlan2.type", Vlan2, bytes(2, 2), "EtherType after the second tag"),
        Field {
            name: "ip.src",
            width_bits: 128,
            source: Source::Address { v4: "ipv4.src", v6: "ipv6.src" },
            writable: true,
            partner: Some("ip.dst"),
            meaning: "source address, IPv4 as ::ffff:a.b.c.d",
        },
        Field {
            name: "ip.dst",
            width_bits: 128,
            source: Source::Address { v4: "ipv4.dst", v6: "ipv6.dst" },
            writable: true,
            partner: Some("ip.src"),
            meaning: "destination address, IPv4 as ::ffff:a.b.c.d",
        },
        derived("ip.proto", 8, Source::IpProto(Scope::Outer), "protocol after the last IP or extension header"),
        either("ip.tos", 8, &["ipv4.tos", "ipv6.tc"], "type of service or traffic class"),
        either("ip.ttl", 8, &["ipv4.ttl", "ipv6.hop_limit"], "time to live or hop limit"),
        Field { writable: false, ..either("ip.version", 4, &["ipv4.version", "ipv6.version"], "4 or 6") },
        fixed("ipv4.version", Ipv4, bits(0, 4), "4"),
        fixed("ipv4.ihl", Ipv4, bits(4, 4), "header length in 32-bit words"),
        field("ipv4.tos", Ipv4, bytes(1, 1), "type of service"),
        field("ipv4.dscp", Ipv4, bits(8, 6), "differentiated services code point"),
        field("ipv4.ecn", Ipv4, bits(14, 2), "explicit congestion notification"),
        fixed("ipv4.len", Ipv4, bytes(2, 2), "total length in bytes"),
        field("ipv4.id", Ipv4, bytes(4, 2), "identification"),
        fixed("ipv4.df", Ipv4, bits(49, 1), "don't fragment"),
        fixed("ipv4.mf", Ipv4, bits(50, 1), "more fragments"),
        fixed("ipv4.frag", Ipv4, bits(51, 13), "fragment offset in 8-byte units"),
        field("ipv4.ttl", Ipv4, bytes(8, 1), "time to live"),
        fixed("ipv4.proto", Ipv4, bytes(9, 1), "protocol"),
        fixed("ipv4.checksum", Ipv4, bytes(10, 2), "header checksum"),
        paired("ipv4.src", Ipv4, bytes(12, 4), "ipv4.dst", "source address"),
        paired("ipv4.dst", Ipv4, bytes(16, 4), "ipv4.src", "destination address"),
        fixed("ipv6.version", Ipv6, bits(0, 4), "6"),
        field("ipv6.tc", Ipv6, bits(4, 8), "traffic class"),
        field("ipv6.flow_label", Ipv6, bits(12, 20), "flow label"),
        fixed("ipv6.len", Ipv6, bytes(4, 2), "payload length in bytes"),
        fixed("ipv6.next", Ipv6, bytes(6, 1), "next header of the fixed header"),
        field("ipv6.hop_limit", Ipv6, bytes(7, 1), "hop limit"),
        paired("ipv6.src", Ipv6, bytes(8, 16), "ipv6.dst", "source address"),
        paired("ipv6.dst", Ipv6, bytes(24, 16), "ipv6.src", "destination address"),
        Field {
            partner: Some("l4.dport"),
            ..either("l4.sport", 16, &["tcp.sport", "udp.sport"], "source port of TCP or UDP")
        },
        Field {
            partner: Some("l4.sport"),
            ..either("l4.dport", 16, &["tcp.dport", "udp.dport"], "destination port of TCP or UDP")
        },
        paired("tcp.sport", Tcp, bytes(0, 2), "tcp.dport", "source port"),
        paired("tcp.dport", Tcp, bytes(2, 2), "tcp.sport", "destination port"),
        field("tcp.seq", Tcp, bytes(4, 4), "sequence number"),
        field("tcp.ack", Tcp, bytes(8, 4), "acknowledgement number"),
        fixed("tcp.doff", Tcp, bits(96, 4), "header length in 32-bit words"),
        field("tcp.flags", Tcp, bytes(13, 1), "flags CWR ECE URG ACK PSH RST SYN FIN"),
        field("tcp.is_cwr", Tcp, bits(104, 1), "congestion window reduced"),
        field("tcp.is_ece", Tcp, bits(105, 1), "ECN echo"),
        field("tcp.is_urg", Tcp, bits(106, 1), "urgent pointer counts"),
        field("tcp.is_ack", Tcp, bits(107, 1), "acknowledgement number counts"),
        field("tcp.is_psh", Tcp, bits(108, 1), "push"),
        field("tcp.is_rst", Tcp, bits(109, 1), "reset"),
        field("tcp.is_syn", Tcp, bits(110, 1), "synchronise"),
        field("tcp.is_fin", Tcp, bits(111, 1), "finish"),
        field("tcp.window", Tcp, bytes(14, 2), "receive window, unscaled"),
        fixed("tcp.checksum", Tcp, bytes(16, 2), "checksum"),
        field("tcp.urgent", Tcp, bytes(18, 2), "urgent pointer"),
        derived("tcp.payload_len", 16, Source::TcpPayloadLen(Tcp), "bytes of payload by the IP header's lengths"),
        paired("udp.sport", Udp, bytes(0, 2), "udp.dport", "source port"),
        paired("udp.dport", Udp, bytes(2, 2), "udp.sport", "destination port"),
        fixed("udp.len", Udp, bytes(4, 2), "length in bytes, header included"),
        fixed("udp.checksum", Udp, bytes(6, 2), "checksum, 0 for none"),
        field("icmp.type", Icmp, bytes(0, 1), "type"),
        field("icmp.code", Icmp, bytes(1, 1), "code"),
        fixed("icmp.checksum", Icmp, bytes(2, 2), "checksum"),
        field("icmp.id", Icmp, bytes(4, 2), "identifier of an echo"),
        field("icmp.seq", Icmp, bytes(6, 2), "sequence number of an echo"),
        field("icmp6.type", Icmp6, bytes(0, 1), "type"),
        field("icmp6.code", Icmp6, bytes(1, 1), "code"),
        fixed("icmp6.checksum", Icmp6, bytes(2, 2), "checksum"),
        field("icmp6.id", Icmp6, bytes(4, 2), "identifier of an echo"),
        field("icmp6.seq", Icmp6, bytes(6, 2), "sequence number of an echo"),
    ]
};

/// What `5-tuple` stands for in a key.
pub const FIVE_TUPLE: [&str; 5] = ["ip.src", "ip.dst", "ip.proto", "l4.sport", "l4.dport"];

#[cfg(test)]
mod tests;
