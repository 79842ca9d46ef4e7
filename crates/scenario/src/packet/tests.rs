// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares parsed packets with the builder of `testkit`, and checks round trips.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use flowloom_testkit::{Extension, PacketBuilder, Rng};
use flowloom_wire::graph::{Parent, UserField, UserHeader, bits, bytes};
use flowloom_wire::{FieldId, Graph, Header, Layers};

use super::{Changed, Kind, Packet, Reader, Target, differences};
use crate::cursor::Cursor;
use crate::lex::tokens;

fn read_with(words: &str, user_headers: &[UserHeader], input: Option<&Packet>) -> Result<Packet, String> {
    let (tokens, errors) = tokens(words);
    assert_eq!(errors, [], "{words}");
    let names = BTreeMap::new();
    let mut cursor = Cursor::new(words, &tokens, &names);
    let packet = Reader { user_headers, input }.packet(&mut cursor).map_err(|error| error.message)?;
    cursor.end().map_err(|error| error.message)?;
    Ok(packet)
}

fn read(words: &str) -> Packet {
    read_with(words, &[], None).unwrap_or_else(|error| panic!("{words}: {error}"))
}

fn encoded(words: &str) -> Vec<u8> {
    read(words).encode(&[]).bytes
}

#[test]
fn packet_text_equals_the_packet_builder() {
    let v4 = || PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let address = |last: u8| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(last)).octets();
    let v6 = || PacketBuilder::new().ipv6(address(1), address(2));
    let counting: Vec<u8> = (0..100).collect();
    let cases: Vec<(&str, PacketBuilder)> = vec![
        ("tcp 10.0.0.1:4000 > 10.0.0.2:80 syn", v4().tcp(4000, 80).tcp_flags(2)),
        ("tcp 10.0.0.1:4000 > 10.0.0.2:80", v4().tcp(4000, 80)),
        (
            "tcp 10.0.0.1:4000 > 10.0.0.2:80 seq 7 ack 9 psh win 512 urgent 3 ttl 3 tos 0x10 id 77 df 1 data 0x00ff10",
            v4().tcp(4000, 80)
                .tcp_seq(7, 9)
                .tcp_flags(0x18)
                .tcp_window(512, 3)
                .ttl(3)
                .tos(0x10)
                .ipv4_id(77, true)
                .payload(&[0, 255, 16]),
        ),
        (
            "ipv4 10.0.0.1 > 10.0.0.2 / tcp 4000 > 80 syn mss 1460 sackok ts 1:2 nop wscale 7",
            v4().tcp(4000, 80)
                .tcp_flags(2)
                .tcp_options(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7]),
        ),
        (
            "tcp 10.0.0.1:4000 > 10.0.0.2:80 sack 1..2, 0x10..0x20",
            v4().tcp(4000, 80).tcp_options(&[5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 32]),
        ),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 data 100", v4().udp(1, 2).payload(&counting)),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 data \"hi\\n\"", v4().udp(1, 2).payload(b"hi\n")),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 size 142", v4().udp(1, 2).payload(&counting)),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 checksum 0", v4().udp(1, 2).udp_without_checksum()),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 pad 60", v4().udp(1, 2).pad_to(60)),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 data 100 cut 50", v4().udp(1, 2).payload(&counting).truncated(50)),
        (
            "udp [2001:db8::1]:1 > [2001:db8::2]:2 hop_limit 9 tc 7 flow_label 5",
            v6().udp(1, 2).ttl(9).tos(7).flow_label(5),
        ),
        ("ip 2001:db8::1 > 2001:db8::2 ttl 9 tos 7 / tcp 1 > 2 fin", v6().tcp(1, 2).tcp_flags(1).ttl(9).tos(7)),
        ("icmp 10.0.0.1 > 10.0.0.2 echo id 7 seq 1", v4().icmp(8, 0, 7, 1)),
        ("icmp 10.0.0.1 > 10.0.0.2 type 3 code 4", v4().icmp(3, 4, 0, 0)),
        ("icmp6 2001:db8::1 > 2001:db8::2 echo-reply id 7 seq 1", v6().icmp(129, 0, 7, 1)),
        (
            "vlan 5 pcp 3 / vlan 6 dei 1 / udp 10.0.0.1:1 > 10.0.0.2:2",
            v4().vlan(3 << 13 | 5).vlan(1 << 12 | 6).udp(1, 2),
        ),
        (
            "eth 02:00:00:00:00:07 > ff:ff:ff:ff:ff:ff / udp 10.0.0.1:1 > 10.0.0.2:2",
            v4().eth([2, 0, 0, 0, 0, 7], [255; 6]).udp(1, 2),
        ),
        ("ipv4 10.0.0.1 > 10.0.0.2 proto 47 / bytes 0x01020304", v4().proto(47).payload(&[1, 2, 3, 4])),
        ("ipv4 10.0.0.1 > 10.0.0.2 options 0x94040000 / udp 1 > 2", v4().ipv4_options(&[0x94, 4, 0, 0]).udp(1, 2)),
        (
            "ipv6 2001:db8::1 > 2001:db8::2 / hopopts / frag id 1 / udp 1 > 2",
            v6().extension(Extension::HopByHop(0))
                .extension(Extension::Fragment { offset_units: 0, more: false })
                .udp(1, 2),
        ),
    ];
    for (words, builder) in cases {
        assert_eq!(encoded(words), builder.build(), "{words}");
    }
}

/// Handwritten bytes: the builder has no ARP.
#[test]
fn arp_follows_the_standard() {
    let expected = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &[2, 0, 0, 0, 0, 1, 10, 0, 0, 1],
        &[0; 6],
        &[10, 0, 0, 2],
    ]
    .concat();
    assert_eq!(encoded("eth 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff / arp request 10.0.0.1 > 10.0.0.2"), expected);
}

/// The engines' parser, an independent implementation, finds the values in the bytes.
#[test]
fn the_parser_finds_the_headers_of_the_text() {
    let cases = [
        ("mpls 100 tc 1 / mpls 200 ttl 3 / tcp 10.0.0.1:1 > 10.0.0.2:2", "mpls.label", 100),
        ("mpls 100 tc 1 / mpls 200 ttl 3 / tcp 10.0.0.1:1 > 10.0.0.2:2", "mpls2.ttl", 3),
        ("mpls 100 tc 1 / mpls 200 ttl 3 / tcp 10.0.0.1:1 > 10.0.0.2:2", "mpls2.bos", 1),
        ("mpls 100 / tcp 10.0.0.1:1 > 10.0.0.2:2", "tcp.dport", 2),
        ("ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 / tcp 10.0.0.1:1 > 10.0.0.2:2", "gtpu.teid", 7),
        ("ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 / tcp 10.0.0.1:1 > 10.0.0.2:2", "udp.dport", 2152),
        ("ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 seq 9 / tcp 10.0.0.1:1 > 10.0.0.2:2", "inner.tcp.dport", 2),
        ("ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 qfi 5 / udp [2001:db8::1]:1 > [2001:db8::2]:2", "inner.udp.dport", 2),
        ("ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 seq 1 qfi 5 / icmp 1.1.1.1 > 2.2.2.2 echo id 6", "inner.icmp.id", 6),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 syn nop wscale 7", "tcp.opt.wscale", 7),
    ];
    for (words, field, value) in cases {
        let bytes = encoded(words);
        let layers = Layers::parse(Graph::standard(), &bytes);
        let found = layers.read(&bytes, 1, FieldId::by_name(field).unwrap());
        assert_eq!(found, Some(value), "{words}: {field}");
    }
}

/// Dissection and encoding are inverse; so are formatting and parsing.
#[test]
fn packet_text_round_trips() {
    let mut rng = Rng::from_env(0x776f_7264);
    let mut by_words = 0;
    for _ in 0..4000 {
        let bytes = PacketBuilder::random(&mut rng, 5).build();
        let packet = Packet::dissect(&bytes, &[]);
        // A fragment's checksum covers the whole datagram; scenarios do not know authentication headers.
        let is_fragment = packet.layers.iter().any(|layer| match layer.kind {
            Kind::Ipv4 => layer.get(bits(50, 14)) != 0,
            kind => kind == Kind::Extension(44),
        });
        let checksums = packet.layers.iter().filter(|l| l.kind == Kind::Udp && l.get(bytes_at(6)) == 0);
        if is_fragment || checksums.count() > 0 {
            continue;
        }
        assert_eq!(packet.encode(&[]).bytes, bytes, "{}", packet.format(&[]));
        assert_eq!(differences(&packet, &bytes, &[]), [] as [String; 0]);
        let words = packet.format(&[]);
        if words.contains('…')
            || words.contains('(')
            || words.contains("gtpu")
            || words.contains("options")
            || words.contains("type")
            || describes_more_than_text(&packet)
        {
            continue; // truncated text, and fields that the text omits
        }
        if let Ok(again) = read_with(&words, &[], None) {
            assert_eq!(again.encode(&[]).bytes, bytes, "{words}");
            by_words += 1;
        }
    }
    assert!(by_words > 300, "{by_words}");
}

/// True if the text omits information: another tag protocol, an unknown protocol, an acknowledgement number without its
/// flag, contents of an extension header.
fn describes_more_than_text(packet: &Packet) -> bool {
    let known = [Kind::Tcp, Kind::Udp, Kind::Icmp, Kind::Icmp6, Kind::Arp, Kind::Gtpu];
    packet.layers.last().is_none_or(|layer| !known.contains(&layer.kind))
        || packet.layers.iter().any(|layer| matches!(layer.kind, Kind::Extension(_)))
        || packet
            .layers
            .iter()
            .any(|l| l.kind == Kind::Tcp && l.get(bytes(13, 1)) & 0x10 == 0 && l.get(bytes(8, 4)) != 0)
        || packet.layers.windows(2).any(|pair| {
            let at = if pair[0].kind == Kind::Eth { 12 } else { 2 };
            pair[1].kind == Kind::Vlan && pair[0].get(bytes_at(at)) != 0x8100
        })
}

fn bytes_at(offset: u16) -> flowloom_wire::graph::Slice {
    bytes(offset, 2)
}

/// Dissection of malformed packets succeeds and consumes all bytes.
#[test]
fn malformed_packets_are_dissected() {
    let mut rng = Rng::from_env(0x6272_6f6b);
    for _ in 0..20_000 {
        let mut bytes = PacketBuilder::random(&mut rng, 3).build();
        flowloom_testkit::mutate(&mut rng, &mut bytes);
        let packet = Packet::dissect(&bytes, &[]);
        let len: usize = packet.layers.iter().map(|layer| layer.bytes.len()).sum();
        assert_eq!(len + packet.payload.len() + packet.trailer.len(), bytes.len());
        let _ = (packet.format(&[]), differences(&packet, &bytes, &[]));
    }
}

fn paxos() -> Vec<UserHeader> {
    let field = |name: &str, width_bits| UserField { name: name.to_owned(), width_bits };
    vec![UserHeader {
        name: "paxos".to_owned(),
        after: Parent::Udp,
        when: vec![(FieldId::by_name("udp.dport").unwrap(), 0x8888)],
        fields: vec![field("type", 8), field("flags", 8), field("instance", 32), field("value", 64)],
    }]
}

#[test]
fn headers_of_the_function_have_their_fields() {
    let user_headers = paxos();
    let packet =
        read_with("udp 10.0.0.1 > 10.0.0.2 / paxos type 2 instance 7 value 0xff data 4", &user_headers, None).unwrap();
    let bytes = packet.encode(&user_headers).bytes;
    let graph = Graph::with(&user_headers).unwrap();
    let layers = Layers::parse(&graph, &bytes);
    assert!(layers.has(Header::User0));
    assert_eq!(layers.read(&bytes, 1, graph.field("paxos.instance").unwrap()), Some(7));
    assert_eq!(layers.read(&bytes, 1, graph.field("udp.dport").unwrap()), Some(0x8888));
    let again = Packet::dissect(&bytes, &user_headers);
    assert_eq!(again.outline(&user_headers), "eth / ipv4 / udp / paxos");
    assert_eq!(
        again.format(&user_headers).split(" / paxos").nth(1),
        Some(" type 2 flags 0 instance 7 value 255 data 4")
    );
    let mut changed = Changed::new(packet.clone());
    let target = packet.target("paxos.type", &user_headers).unwrap();
    changed.set(target, 3);
    let lines = differences(&changed.finish(&user_headers), &bytes, &user_headers);
    assert!(lines.iter().any(|line| line == "paxos.type: expected 3, found 2"), "{lines:?}");
}

/// Changes by name equal a packet written with the new values.
#[test]
fn changed_packets_equal_new_packets() {
    type Case = (&'static str, &'static [(&'static str, u128)], &'static str);
    let cases: [Case; 6] = [
        ("tcp 10.0.0.1:1 > 10.0.0.2:2", &[("ip.src", 0x0102_0304), ("l4.dport", 80)], "tcp 1.2.3.4:1 > 10.0.0.2:80"),
        (
            "udp [2001:db8::1]:1 > [2001:db8::2]:2",
            &[("ip.tos", 9), ("udp.sport", 7)],
            "udp [2001:db8::1]:7 > [2001:db8::2]:2 tc 9",
        ),
        ("udp 10.0.0.1:1 > 10.0.0.2:2 checksum 0", &[("ip.dst", 1)], "udp 10.0.0.1:1 > 0.0.0.1:2 checksum 0"),
        (
            "vlan 5 / vlan 6 / icmp 10.0.0.1 > 10.0.0.2 echo",
            &[("vlan2.id", 9), ("icmp.id", 3)],
            "vlan 5 / vlan 9 / icmp 10.0.0.1 > 10.0.0.2 echo id 3",
        ),
        (
            "ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 / tcp 10.0.0.1:1 > 10.0.0.2:2",
            &[("inner.ip.ttl", 3), ("inner.l4.sport", 9), ("ip.ttl", 5), ("gtpu.teid", 8)],
            "ipv4 10.1.0.1 > 10.1.0.2 ttl 5 / udp / gtpu 8 / tcp 10.0.0.1:9 > 10.0.0.2:2 ttl 3",
        ),
        (
            "tcp 10.0.0.1:1 > 10.0.0.2:2",
            &[("tcp.is_syn", 1), ("eth.src", 5)],
            "eth 00:00:00:00:00:05 > 02:00:00:00:00:02 / tcp 10.0.0.1:1 > 10.0.0.2:2 syn ack",
        ),
    ];
    for (before, changes, after) in cases {
        let mut changed = Changed::new(read(before));
        for (name, value) in changes {
            let target = changed.packet().target(name, &[]).unwrap();
            changed.set(target, *value);
        }
        assert_eq!(changed.finish(&[]).encode(&[]).bytes, encoded(after), "{before} -> {after}");
    }
}

/// Scenarios expect the engines' update of an incorrect checksum (RFC 1624, in `flowloom_wire`).
#[test]
fn changes_preserve_the_error_of_a_checksum() {
    let mut rng = Rng::from_env(0x7772_6f6e);
    let (src, sport) = (FieldId::by_name("ip.src").unwrap(), FieldId::by_name("l4.sport").unwrap());
    for _ in 0..500 {
        let wrong = 1 + rng.below(0xfffd);
        let kind = *rng.pick(&["tcp", "udp"]);
        let (address, port) = (rng.next_u64() as u32, rng.next_u64() as u16);
        let words = format!("{kind} 10.0.0.1:1 > 10.0.0.2:2 checksum {wrong} data 9");
        let packet = read(&words);
        let mut changed = Changed::new(packet.clone());
        for (name, value) in [("ip.src", u128::from(address)), ("l4.sport", port.into())] {
            let target = changed.packet().target(name, &[]).unwrap();
            changed.set(target, value);
        }
        let mut bytes = packet.encode(&[]).bytes;
        let layers = Layers::parse(Graph::standard(), &bytes);
        flowloom_wire::rewrite(&mut bytes, &layers, &[(src, address.into()), (sport, port.into())]);
        let to = Ipv4Addr::from_bits(address);
        assert_eq!(differences(&changed.finish(&[]), &bytes, &[]), [] as [String; 0], "{words} to {to}:{port}");
    }
}

#[test]
fn inner_and_outer_denote_parts_of_the_input_packet() {
    let input = read(
        "eth 02:00:00:00:00:07 > 02:00:00:00:00:08 / vlan 5 / ipv4 10.1.0.1 > 10.1.0.2 / udp / gtpu 7 / tcp 10.0.0.1:1 > 10.0.0.2:2 data 3 pad 100",
    );
    let inner = read_with("inner", &[], Some(&input)).unwrap();
    assert_eq!(
        inner.format(&[]),
        "eth 02:00:00:00:00:07 > 02:00:00:00:00:08 / tcp 10.0.0.1:1 > 10.0.0.2:2 ack data 3 (and 3 bytes after it)"
    );
    let same = read_with("mpls 9 / same", &[], Some(&input)).unwrap();
    assert_eq!(same.outline(&[]), "eth / mpls / vlan / ipv4 / udp / gtpu / ipv4 / tcp");
    assert_eq!(same.trailer, input.trailer);
    assert!(read_with("same / udp 1 > 2", &[], Some(&input)).is_err());
    assert!(read_with("inner", &[], Some(&read("udp 10.0.0.1:1 > 10.0.0.2:2"))).is_err());
    let mut changed = Changed::new(same);
    assert!(changed.remove(Kind::Mpls) && !changed.remove(Kind::Mpls) && changed.remove(Kind::Vlan));
    assert_eq!(changed.finish(&[]).outline(&[]), "eth / ipv4 / udp / gtpu / ipv4 / tcp");
}

#[test]
fn differences_are_reported_by_field() {
    let packet = read("vlan 5 / tcp 10.0.0.1:1 > 10.0.0.2:2 syn data 4");
    let found = encoded("vlan 6 / tcp 10.0.0.1:1 > 10.0.0.2:3 syn ack ttl 3 data 0x00010203ff checksum 7");
    assert_eq!(
        differences(&packet, &found, &[]),
        [
            "vlan.id: expected 5, found 6",
            "ipv4.len: expected 44, found 45",
            "ipv4.ttl: expected 64, found 3",
            "ipv4.checksum: expected 0x66ca, found 0xa3c9",
            "tcp.dport: expected 2, found 3",
            "tcp.flags: expected syn, found syn ack",
            "tcp.checksum: expected 0x99d5, found 0x0007, which is incorrect for the found packet",
            "payload: expected 4 bytes, found 5; from byte 4 on expected the end, found ff",
        ]
    );
    let other = differences(&packet, &encoded("udp 10.0.0.1:1 > 10.0.0.2:2"), &[]);
    assert_eq!(other[0], "headers: expected eth / vlan / ipv4 / tcp, found eth / ipv4 / udp");
    // Ignored parts may have any value, but checksums must match them.
    let mut changed = Changed::new(packet.clone());
    changed.ignore(packet.target("ip.ttl", &[]).unwrap());
    changed.ignore(Target::Payload);
    let expected = changed.finish(&[]);
    for (words, differs) in [
        ("vlan 5 / tcp 10.0.0.1:1 > 10.0.0.2:2 syn ttl 9 data 4", false),
        ("vlan 5 / tcp 10.0.0.1:1 > 10.0.0.2:2 syn ttl 9 data 400", false),
        ("vlan 5 / tcp 10.0.0.1:1 > 10.0.0.2:2 syn ttl 9 data 4 checksum 1", true),
        ("vlan 5 / tcp 10.0.0.1:1 > 10.0.0.2:3 syn ttl 9 data 4", true),
    ] {
        assert_eq!(!differences(&expected, &encoded(words), &[]).is_empty(), differs, "{words}");
    }
}

#[test]
fn an_explicit_ethertype_is_formatted() {
    let packet = read("eth type 0x9100 / vlan 5 / udp 10.0.0.1:1 > 10.0.0.2:2");
    let words = packet.format(&[]);
    assert!(words.starts_with("eth ") && words.contains(" type 0x9100 / vlan 5"), "{words}");
    assert!(!read("vlan 5 / udp 10.0.0.1:1 > 10.0.0.2:2").format(&[]).contains("eth"));
}

#[test]
fn a_header_can_follow_the_data_of_an_extension() {
    let with = |extension: &str| encoded(&format!("ipv6 2001:db8::1 > 2001:db8::2 / {extension} / udp 1 > 2"));
    // Two bytes of the header and eight of data, padded to a multiple of 8.
    assert_eq!(with("dstopts data 8"), with("dstopts options 0x0001020304050607"));
    assert_eq!(with("dstopts data 8").len(), 14 + 40 + 16 + 8);
    // In the last header, the data are the payload.
    assert_eq!(encoded("ipv6 2001:db8::1 > 2001:db8::2 / dstopts data 8").len(), 14 + 40 + 8 + 8);
}
