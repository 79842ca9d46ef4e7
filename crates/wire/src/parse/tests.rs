// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used)]
use super::*;
use crate::graph::{Graph, bits, bytes};

fn id(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap()
}

fn read(packet: &[u8], name: &str) -> Option<u128> {
    Layers::parse(Graph::standard(), packet).read(packet, 7, id(name))
}

fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    p.extend(kind.to_be_bytes());
    p.extend(rest);
    p
}

/// 20 bytes of IPv4 with the given total length, then `rest`.
fn ipv4(total_len: u16, proto: u8, flags_and_offset: u16, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0x2c];
    p.extend(total_len.to_be_bytes());
    p.extend([0x12, 0x34]);
    p.extend(flags_and_offset.to_be_bytes());
    p.extend([64, proto, 0, 0, 10, 0, 0, 1, 192, 168, 1, 2]);
    p.extend(rest);
    ethernet(0x0800, &p)
}

fn ipv6(len: u16, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0x6a, 0xb1, 0x23, 0x45];
    p.extend(len.to_be_bytes());
    p.extend([next, 63]);
    p.extend((1..=32).collect::<Vec<u8>>());
    p.extend(rest);
    ethernet(0x86dd, &p)
}

fn tcp(doff: u8, options: &[u8]) -> Vec<u8> {
    let mut p = vec![0x30, 0x39, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 2, doff << 4, 0x12, 0xff, 0xff, 0, 0, 0, 0];
    p.extend(options);
    p
}

#[test]
fn slices_read_and_write_bits() {
    let mut head = [0x45, 0xab, 0xcd, 0xef, 0x01];
    assert_eq!(bits(0, 4).read(&head), Some(4));
    assert_eq!(bits(4, 12).read(&head), Some(0x5ab));
    assert_eq!(bits(39, 1).read(&head), Some(1));
    assert_eq!(bits(39, 2).read(&head), None);
    assert!(bits(4, 12).write(&mut head, 0xf123));
    assert_eq!(head, [0x41, 0x23, 0xcd, 0xef, 0x01]);
    assert!(!bytes(4, 2).write(&mut head, 0));
    assert_eq!(head, [0x41, 0x23, 0xcd, 0xef, 0x01]);
    let mut wide = [0u8; 17];
    assert!(bytes(1, 16).write(&mut wide, u128::MAX - 1));
    assert_eq!(bytes(1, 16).read(&wide), Some(u128::MAX - 1));
    assert_eq!(wide[0], 0);
}

#[test]
fn ipv4_tcp() {
    let p = ipv4(44, 6, 0x4000, &tcp(6, &[2, 4, 5, 0xb4]));
    let layers = Layers::parse(Graph::standard(), &p);
    assert_eq!(layers.valid(), Header::Ethernet.bit() | Header::Ipv4.bit() | Header::Tcp.bit());
    assert_eq!((layers.offset(Header::Tcp), layers.len(Header::Tcp)), (Some(34), Some(24)));
    assert_eq!(layers.offset(Header::Udp), None);
    for (name, value) in [
        ("pkt.len", 58),
        ("pkt.port", 7),
        ("eth.src", 0x0200_0000_0001),
        ("ip.src", IPV4_MAPPED | 0x0a00_0001),
        ("ipv4.dst", 0xc0a8_0102),
        ("ip.tos", 0x2c),
        ("ipv4.dscp", 11),
        ("ip.version", 4),
        ("ipv4.df", 1),
        ("ip.proto", 6),
        ("l4.sport", 12345),
        ("l4.dport", 80),
        ("tcp.flags", 0x12),
        ("tcp.is_ack", 1),
        ("tcp.is_fin", 0),
        ("tcp.payload_len", 0),
    ] {
        assert_eq!(read(&p, name), Some(value), "{name}");
    }
    assert_eq!((read(&p, "ip.frag"), read(&p, "ip.mf")), (Some(0), Some(0)));
    for name in ["udp.sport", "ipv6.src", "vlan.id", "icmp.type", "icmpx.type", "ipv6.frag"] {
        assert_eq!(read(&p, name), None, "{name}");
    }
    assert_eq!(layers.resolve(id("ip.tos")), Some(id("ipv4.tos")));
    assert_eq!(layers.resolve(id("ip.src")), Some(id("ipv4.src")));
    assert_eq!(layers.resolve(id("ip.proto")), Some(id("ip.proto")));
    assert_eq!(layers.resolve(id("udp.len")), None);
}

#[test]
fn lengths_determine_validity() {
    let l4 = |p: &[u8]| Layers::parse(Graph::standard(), p).has(Header::Tcp);
    assert!(l4(&ipv4(40, 6, 0, &tcp(5, &[]))));
    assert!(!l4(&ipv4(39, 6, 0, &tcp(5, &[]))), "beyond the IP length");
    assert!(!l4(&ipv4(60, 6, 0, &tcp(4, &[]))), "data offset below 5");
    assert!(!l4(&ipv4(60, 6, 0, &tcp(6, &[]))), "options not present");
    assert!(!l4(&ipv4(60, 6, 1, &tcp(5, &[]))), "later fragment");
    assert!(l4(&ipv4(60, 6, 0x2000, &tcp(5, &[]))), "first fragment");
    let mut cut = ipv4(1500, 6, 0, &tcp(5, &[]));
    assert_eq!(read(&cut, "tcp.payload_len"), Some(1460), "lengths may exceed the capture");
    cut.pop();
    assert!(!l4(&cut));
    let mut short_total = ipv4(19, 6, 0, &tcp(5, &[]));
    assert!(!Layers::parse(Graph::standard(), &short_total).has(Header::Ipv4));
    assert_eq!(read(&short_total, "ip.proto"), None);
    short_total[14] = 0x65;
    assert!(!Layers::parse(Graph::standard(), &short_total).has(Header::Ipv4), "version 6 under the EtherType of IPv4");
    let udp = |len: u16| {
        let mut u = vec![0, 53, 0, 54];
        u.extend(len.to_be_bytes());
        u.extend([0, 0]);
        Layers::parse(Graph::standard(), &ipv4(28, 17, 0, &u)).has(Header::Udp)
    };
    assert!(udp(8) && udp(9) && !udp(7));
}

#[test]
fn ipv6_extension_headers() {
    let hop = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let frag = |next: u8, offset: u16| [next, 0, (offset >> 5) as u8, (offset << 3) as u8, 0, 0, 0, 1];
    let auth = |next: u8| [next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let build = |headers: &[&[u8]], first: u8| {
        let mut rest = headers.concat();
        rest.extend(tcp(5, &[]));
        rest.extend([0; 10]);
        ipv6(rest.len() as u16, first, &rest)
    };
    let p = build(&[&hop(60), &hop(51), &auth(44), &frag(6, 0)], 0);
    assert_eq!(Layers::parse(Graph::standard(), &p).offset(Header::Tcp), Some(14 + 40 + 8 + 8 + 12 + 8));
    assert_eq!(read(&p, "tcp.payload_len"), Some(10));
    assert_eq!(read(&p, "ip.proto"), Some(6));
    assert_eq!(read(&p, "ipv6.next"), Some(0));
    assert_eq!(read(&p, "ipv6.tc"), Some(0xab));
    assert_eq!(read(&p, "ipv6.flow_label"), Some(0x12345));
    assert_eq!(read(&p, "ip.src"), Some(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));

    assert_eq!((read(&p, "ipv6.frag"), read(&p, "ipv6.mf"), read(&p, "ipv6.frag_id")), (Some(0), Some(0), Some(1)));

    let later = build(&[&frag(6, 3)], 44);
    assert_eq!((read(&later, "ipv6.frag"), read(&later, "ip.frag")), (Some(3), Some(3)));
    let more = [6, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef];
    let first = build(&[&hop(44), &more], 0);
    assert_eq!((read(&first, "ip.mf"), read(&first, "ipv6.frag_id")), (Some(1), Some(0xdead_beef)));
    assert!(read(&first, "tcp.sport").is_some());
    let twice = build(&[&frag(44, 0), &more], 44);
    assert_eq!(read(&twice, "ipv6.frag_id"), Some(1), "the first one counts");
    let whole = build(&[&hop(6)], 0);
    assert_eq!((read(&whole, "ip.mf"), read(&whole, "ipv6.frag_id")), (None, None));
    assert_eq!(read(&later, "ip.proto"), Some(6));
    assert_eq!(read(&later, "tcp.sport"), None);

    let five = build(&[&hop(60), &hop(60), &hop(60), &hop(60), &hop(6)], 0);
    assert_eq!(read(&five, "ip.proto"), Some(60));
    assert_eq!(read(&five, "tcp.sport"), None);
}

#[test]
fn vlan_tags() {
    let inner = ipv4(40, 6, 0, &tcp(5, &[]));
    let tag = |tci: u16, rest: &[u8]| [&tci.to_be_bytes(), rest].concat();
    let mut p = inner[..12].to_vec();
    p.extend([0x88, 0xa8]);
    p.extend(tag(0xb123, &[0x81, 0x00]));
    p.extend(tag(0x0456, &inner[12..]));
    assert_eq!(read(&p, "vlan.id"), Some(0x123));
    assert_eq!(read(&p, "vlan.pcp"), Some(5));
    assert_eq!(read(&p, "vlan.dei"), Some(1));
    assert_eq!(read(&p, "vlan2.id"), Some(0x456));
    assert_eq!(read(&p, "tcp.dport"), Some(80));
    let mut three = p[..12].to_vec();
    three.extend([0x81, 0, 0, 1]);
    three.extend(&p[12..]);
    assert_eq!(read(&three, "vlan2.id"), Some(0x123));
    assert_eq!(read(&three, "ip.src"), None, "a third tag is not followed");
}

#[test]
fn an_empty_packet_has_no_headers() {
    assert_eq!(Layers::parse(Graph::standard(), &[]).valid(), 0);
    assert_eq!(read(&[], "pkt.len"), Some(0));
    assert_eq!(Layers::parse(Graph::standard(), &[0; 13]).valid(), 0);
    assert_eq!(Layers::parse(Graph::standard(), &[0; 14]).valid(), Header::Ethernet.bit());
}
