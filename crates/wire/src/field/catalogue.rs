// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the catalogue.

use super::{Field, Source};
use crate::graph::{Header, Slice, bits, bytes};
use crate::header::{INNER, OUTER};

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

/// One row of [`packets`], with a prefix before its names.
macro_rules! row {
    ($of:ident $p:literal fixed $name:literal: $header:ident $slice:expr, $meaning:literal) => {
        fixed(concat!($p, $name), $of.$header, $slice, $meaning)
    };
    ($of:ident $p:literal field $name:literal: $header:ident $slice:expr, $meaning:literal) => {
        field(concat!($p, $name), $of.$header, $slice, $meaning)
    };
    ($of:ident $p:literal paired $name:literal: $header:ident $kind:ident($($at:tt)*) <-> $partner:literal, $meaning:literal) => {
        paired(concat!($p, $name), $of.$header, $kind($($at)*), concat!($p, $partner), $meaning)
    };
    ($of:ident $p:literal either $name:literal: $width:literal, $a:literal | $b:literal, $meaning:literal) => {
        either(concat!($p, $name), $width, &[concat!($p, $a), concat!($p, $b)], $meaning)
    };
    ($of:ident $p:literal fixed_either $($rest:tt)*) => {
        Field { writable: false, ..row!($of $p either $($rest)*) }
    };
    ($of:ident $p:literal ports $name:literal: $a:literal | $b:literal <-> $partner:literal, $meaning:literal) => {
        Field { partner: Some(concat!($p, $partner)), ..row!($of $p either $name: 16, $a | $b, $meaning) }
    };
    ($of:ident $p:literal address $name:literal: $v4:literal | $v6:literal <-> $partner:literal, $meaning:literal) => {
        Field {
            source: Source::Address { v4: concat!($p, $v4), v6: concat!($p, $v6) },
            partner: Some(concat!($p, $partner)),
            ..row!($of $p either $name: 128, $v4 | $v6, $meaning)
        }
    };
    ($of:ident $p:literal proto $name:literal: $meaning:literal) => {
        derived(concat!($p, $name), 8, Source::IpProto($of.scope), $meaning)
    };
    ($of:ident $p:literal payload $name:literal: $header:ident, $meaning:literal) => {
        derived(concat!($p, $name), 16, Source::TcpPayloadLen($of.$header), $meaning)
    };
}

/// Rows for the outermost IP packet, and the same rows for the one inside a tunnel.
macro_rules! packets {
    ($({ $($row:tt)* })*) => {
        const PACKET: &[Field] = &[$(row!(OUTER "" $($row)*)),*];
        const INNER_PACKET: &[Field] = &[$(row!(INNER "inner." $($row)*)),*];
    };
}

packets! {
    { address "ip.src": "ipv4.src" | "ipv6.src" <-> "ip.dst", "source address, IPv4 as ::ffff:a.b.c.d" }
    { address "ip.dst": "ipv4.dst" | "ipv6.dst" <-> "ip.src", "destination address, IPv4 as ::ffff:a.b.c.d" }
    { proto "ip.proto": "protocol after the last IP or extension header" }
    { either "ip.tos": 8, "ipv4.tos" | "ipv6.tc", "type of service or traffic class" }
    { either "ip.ttl": 8, "ipv4.ttl" | "ipv6.hop_limit", "time to live or hop limit" }
    { fixed_either "ip.version": 4, "ipv4.version" | "ipv6.version", "4 or 6" }
    { fixed_either "ip.frag": 13, "ipv4.frag" | "ipv6.frag", "fragment offset in 8-byte units; of IPv6 only with a fragment header" }
    { fixed_either "ip.mf": 1, "ipv4.mf" | "ipv6.mf", "more fragments; of IPv6 only with a fragment header" }
    { fixed "ipv4.version": ipv4 bits(0, 4), "4" }
    { fixed "ipv4.ihl": ipv4 bits(4, 4), "header length in 32-bit words" }
    { field "ipv4.tos": ipv4 bytes(1, 1), "type of service" }
    { field "ipv4.dscp": ipv4 bits(8, 6), "differentiated services code point" }
    { field "ipv4.ecn": ipv4 bits(14, 2), "explicit congestion notification" }
    { fixed "ipv4.len": ipv4 bytes(2, 2), "total length in bytes" }
    { field "ipv4.id": ipv4 bytes(4, 2), "identification" }
    { fixed "ipv4.df": ipv4 bits(49, 1), "don't fragment" }
    { fixed "ipv4.mf": ipv4 bits(50, 1), "more fragments" }
    { fixed "ipv4.frag": ipv4 bits(51, 13), "fragment offset in 8-byte units" }
    { field "ipv4.ttl": ipv4 bytes(8, 1), "time to live" }
    { fixed "ipv4.proto": ipv4 bytes(9, 1), "protocol" }
    { fixed "ipv4.checksum": ipv4 bytes(10, 2), "header checksum" }
    { paired "ipv4.src": ipv4 bytes(12, 4) <-> "ipv4.dst", "source address" }
    { paired "ipv4.dst": ipv4 bytes(16, 4) <-> "ipv4.src", "destination address" }
    { fixed "ipv6.version": ipv6 bits(0, 4), "6" }
    { field "ipv6.tc": ipv6 bits(4, 8), "traffic class" }
    { field "ipv6.flow_label": ipv6 bits(12, 20), "flow label" }
    { fixed "ipv6.len": ipv6 bytes(4, 2), "payload length in bytes" }
    { fixed "ipv6.next": ipv6 bytes(6, 1), "next header of the fixed header" }
    { field "ipv6.hop_limit": ipv6 bytes(7, 1), "hop limit" }
    { paired "ipv6.src": ipv6 bytes(8, 16) <-> "ipv6.dst", "source address" }
    { paired "ipv6.dst": ipv6 bytes(24, 16) <-> "ipv6.src", "destination address" }
    { fixed "ipv6.frag": fragment bits(16, 13), "fragment offset in 8-byte units, of the fragment header" }
    { fixed "ipv6.mf": fragment bits(31, 1), "more fragments, of the fragment header" }
    { field "ipv6.frag_id": fragment bytes(4, 4), "identification, of the fragment header" }
    { ports "l4.sport": "tcp.sport" | "udp.sport" <-> "l4.dport", "source port of TCP or UDP" }
    { ports "l4.dport": "tcp.dport" | "udp.dport" <-> "l4.sport", "destination port of TCP or UDP" }
    { paired "tcp.sport": tcp bytes(0, 2) <-> "tcp.dport", "source port" }
    { paired "tcp.dport": tcp bytes(2, 2) <-> "tcp.sport", "destination port" }
    { field "tcp.seq": tcp bytes(4, 4), "sequence number" }
    { field "tcp.ack": tcp bytes(8, 4), "acknowledgement number" }
    { fixed "tcp.doff": tcp bits(96, 4), "header length in 32-bit words" }
    { field "tcp.flags": tcp bytes(13, 1), "flags CWR ECE URG ACK PSH RST SYN FIN" }
    { field "tcp.is_cwr": tcp bits(104, 1), "congestion window reduced" }
    { field "tcp.is_ece": tcp bits(105, 1), "ECN echo" }
    { field "tcp.is_urg": tcp bits(106, 1), "urgent pointer counts" }
    { field "tcp.is_ack": tcp bits(107, 1), "acknowledgement number counts" }
    { field "tcp.is_psh": tcp bits(108, 1), "push" }
    { field "tcp.is_rst": tcp bits(109, 1), "reset" }
    { field "tcp.is_syn": tcp bits(110, 1), "synchronise" }
    { field "tcp.is_fin": tcp bits(111, 1), "finish" }
    { field "tcp.window": tcp bytes(14, 2), "receive window, unscaled" }
    { fixed "tcp.checksum": tcp bytes(16, 2), "checksum" }
    { field "tcp.urgent": tcp bytes(18, 2), "urgent pointer" }
    { payload "tcp.payload_len": tcp, "bytes of payload by the IP header's lengths" }
    { fixed "tcp.opt.wscale": window_scale bytes(2, 1), "window scale option, the number of bits that windows are shifted by" }
    { paired "udp.sport": udp bytes(0, 2) <-> "udp.dport", "source port" }
    { paired "udp.dport": udp bytes(2, 2) <-> "udp.sport", "destination port" }
    { fixed "udp.len": udp bytes(4, 2), "length in bytes, header included" }
    { fixed "udp.checksum": udp bytes(6, 2), "checksum, 0 for none" }
    { field "icmp.type": icmp bytes(0, 1), "type" }
    { field "icmp.code": icmp bytes(1, 1), "code" }
    { fixed "icmp.checksum": icmp bytes(2, 2), "checksum" }
    { field "icmp.id": icmp bytes(4, 2), "identifier of an echo" }
    { field "icmp.seq": icmp bytes(6, 2), "sequence number of an echo" }
    { field "icmp6.type": icmp6 bytes(0, 1), "type" }
    { field "icmp6.code": icmp6 bytes(1, 1), "code" }
    { fixed "icmp6.checksum": icmp6 bytes(2, 2), "checksum" }
    { field "icmp6.id": icmp6 bytes(4, 2), "identifier of an echo" }
    { field "icmp6.seq": icmp6 bytes(6, 2), "sequence number of an echo" }
    { either "icmpx.type": 8, "icmp.type" | "icmp6.type", "type of ICMP or ICMPv6; the families number them differently" }
    { either "icmpx.code": 8, "icmp.code" | "icmp6.code", "code of ICMP or ICMPv6" }
    { either "icmpx.id": 16, "icmp.id" | "icmp6.id", "identifier of an echo, of ICMP or ICMPv6" }
    { either "icmpx.seq": 16, "icmp.seq" | "icmp6.seq", "sequence number of an echo, of ICMP or ICMPv6" }
}

const LINK: &[Field] = {
    use Header::{Ethernet, Mpls, Mpls2, Mpls3, Mpls4, Vlan, Vlan2};
    &[
        derived("pkt.len", 32, Source::PacketLen, "bytes of the packet that are present"),
        derived("pkt.port", 32, Source::PacketPort, "port the packet arrived on"),
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
        field("mpls.label", Mpls, bits(0, 20), "label of the outermost entry of the stack"),
        field("mpls.tc", Mpls, bits(20, 3), "traffic class"),
        fixed("mpls.bos", Mpls, bits(23, 1), "bottom of stack: no label follows"),
        field("mpls.ttl", Mpls, bits(24, 8), "time to live"),
        field("mpls2.label", Mpls2, bits(0, 20), "label of the second entry of the stack"),
        field("mpls2.tc", Mpls2, bits(20, 3), "traffic class"),
        fixed("mpls2.bos", Mpls2, bits(23, 1), "bottom of stack: no label follows"),
        field("mpls2.ttl", Mpls2, bits(24, 8), "time to live"),
        field("mpls3.label", Mpls3, bits(0, 20), "label of the third entry of the stack"),
        field("mpls3.tc", Mpls3, bits(20, 3), "traffic class"),
        fixed("mpls3.bos", Mpls3, bits(23, 1), "bottom of stack: no label follows"),
        field("mpls3.ttl", Mpls3, bits(24, 8), "time to live"),
        field("mpls4.label", Mpls4, bits(0, 20), "label of the fourth entry of the stack"),
        field("mpls4.tc", Mpls4, bits(20, 3), "traffic class"),
        fixed("mpls4.bos", Mpls4, bits(23, 1), "bottom of stack: no label follows"),
        field("mpls4.ttl", Mpls4, bits(24, 8), "time to live"),
    ]
};

const TUNNEL: &[Field] = {
    use Header::Gtpu;
    &[
        fixed("gtpu.flags", Gtpu, bytes(0, 1), "version, protocol type and the flags E, S and PN"),
        fixed("gtpu.type", Gtpu, bytes(1, 1), "message type, 255 for a packet of a user"),
        fixed("gtpu.len", Gtpu, bytes(2, 2), "bytes after the first 8 of the header"),
        field("gtpu.teid", Gtpu, bytes(4, 4), "tunnel endpoint identifier"),
    ]
};

static ALL: [Field; LINK.len() + PACKET.len() + TUNNEL.len() + INNER_PACKET.len()] = {
    let groups = [LINK, PACKET, TUNNEL, INNER_PACKET];
    let mut all = [LINK[0]; LINK.len() + PACKET.len() + TUNNEL.len() + INNER_PACKET.len()];
    let (mut group, mut i, mut next) = (0, 0, 0);
    while next < all.len() {
        if i == groups[group].len() {
            (group, i) = (group + 1, 0);
        } else {
            all[next] = groups[group][i];
            (i, next) = (i + 1, next + 1);
        }
    }
    all
};

/// All fields, by header; those without `inner.` are of the outermost packet.
pub static FIELDS: &[Field] = &ALL;
