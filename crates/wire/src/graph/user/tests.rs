// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used)]
use super::*;
use crate::Layers;

fn fields(widths: &[(&str, u8)]) -> Vec<UserField> {
    widths.iter().map(|&(name, width_bits)| UserField { name: name.to_owned(), width_bits }).collect()
}

fn header(name: &str, after: Parent, when: &[(&str, u64)], widths: &[(&str, u8)]) -> UserHeader {
    let when = when.iter().map(|&(field, value)| (FieldId::by_name(field).unwrap(), value)).collect();
    UserHeader { name: name.to_owned(), after, when, fields: fields(widths) }
}

fn paxos() -> UserHeader {
    header(
        "paxos",
        Parent::Udp,
        &[("udp.dport", 0x8888), ("udp.sport", 0x8888)],
        &[("type", 8), ("pad", 8), ("instance", 32), ("value", 64)],
    )
}

fn udp(sport: u16, dport: u16, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    p.extend((28 + rest.len() as u16).to_be_bytes());
    p.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    p.extend(sport.to_be_bytes());
    p.extend(dport.to_be_bytes());
    p.extend((8 + rest.len() as u16).to_be_bytes());
    p.extend([0, 0]);
    p.extend(rest);
    p
}

fn read(graph: &Graph, packet: &[u8], name: &str) -> Option<u128> {
    Layers::parse(graph, packet).read(packet, 0, graph.field(name).unwrap())
}

#[test]
fn declared_fields_have_names_and_values() {
    let graph = Graph::with(&[paxos()]).unwrap();
    let instance = graph.field("paxos.instance").unwrap();
    assert_eq!(graph.field_name(instance), "paxos.instance");
    assert_eq!(instance.name(), "user0[16..48]");
    assert_eq!((instance.width_bits(), instance.key_bytes(), instance.is_writable()), (32, 4, true));
    assert_eq!((instance.headers(), instance.partner()), (vec![Header::User0], None));
    assert_eq!(graph.user_header("paxos"), Some(Header::User0));
    assert_eq!((graph.header_name(Header::User0), graph.header_name(Header::Udp)), ("paxos", "udp"));
    assert_eq!(graph.field("paxos.no"), None);
    assert_eq!(graph.field("tcp.seq"), FieldId::by_name("tcp.seq"));
    assert_eq!(graph.fields().count(), FIELDS.len() + 4);
    let body = [7, 0, 0, 0, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8];
    for (sport, dport) in [(1, 0x8888), (0x8888, 1), (0x8888, 0x8888)] {
        let packet = udp(sport, dport, &body);
        assert_eq!(read(&graph, &packet, "paxos.type"), Some(7));
        assert_eq!(read(&graph, &packet, "paxos.instance"), Some(0x102));
        assert_eq!(read(&graph, &packet, "paxos.value"), Some(0x0102_0304_0506_0708));
        assert_eq!(read(&graph, &packet[..packet.len() - 1], "paxos.type"), None);
    }
    assert_eq!(read(&graph, &udp(1, 2, &body), "paxos.type"), None);
    let mut short = udp(1, 0x8888, &body);
    short[17] -= 1;
    assert_eq!(read(&graph, &short, "paxos.type"), None, "beyond the IP length");
    assert!(Graph::standard().field("paxos.type").is_none());
}

#[test]
fn the_first_declared_header_wins() {
    let kvs = header("kvs", Parent::Udp, &[("udp.dport", 9)], &[("key", 16)]);
    let graph = Graph::with(&[paxos(), kvs.clone()]).unwrap();
    let packet = udp(0x8888, 9, &[1; 20]);
    assert_eq!((read(&graph, &packet, "paxos.type"), read(&graph, &packet, "kvs.key")), (Some(1), None));
    let graph = Graph::with(&[kvs, paxos()]).unwrap();
    assert_eq!((read(&graph, &packet, "paxos.type"), read(&graph, &packet, "kvs.key")), (None, Some(0x101)));
}

#[test]
fn headers_follow_by_selector_or_unconditionally() {
    let kind = FieldId::user(Header::User0, crate::graph::bits(0, 8)).unwrap();
    let more = UserHeader { when: vec![(kind, 3)], ..header("more", Parent::User(0), &[], &[("a", 4), ("b", 12)]) };
    let plain = header("plain", Parent::User(0), &[], &[("c", 16)]);
    let last = header("last", Parent::User(1), &[], &[("d", 16)]);
    let graph = Graph::with(&[paxos(), more, plain.clone(), last]).unwrap();
    let mut body = vec![0; 14];
    body.extend([0x12, 0x34, 0x56, 0x78]);
    let packet = udp(1, 0x8888, &body);
    assert_eq!((read(&graph, &packet, "plain.c"), read(&graph, &packet, "more.a")), (Some(0x1234), None));
    body[0] = 3;
    let packet = udp(1, 0x8888, &body);
    assert_eq!((read(&graph, &packet, "plain.c"), read(&graph, &packet, "more.a")), (None, Some(1)));
    assert_eq!((read(&graph, &packet, "more.b"), read(&graph, &packet, "last.d")), (Some(0x234), Some(0x5678)));
    let twice = Graph::with(&[paxos(), header("p", Parent::User(0), &[], &[("c", 16)]), plain]).unwrap_err();
    assert_eq!(twice.to_string(), "header `plain` always follows `paxos`, and so does `p`");
}

#[test]
fn declared_headers_follow_ethernet_and_ip() {
    let probe = header("probe", Parent::Ethernet, &[("eth.type", 0x88b5)], &[("id", 16)]);
    let shim = header("shim", Parent::Ip, &[("ip.proto", 253)], &[("x", 16)]);
    let graph = Graph::with(&[probe, shim]).unwrap();
    for tags in 0..3 {
        let mut packet = vec![0; 12];
        packet.extend([0x81, 0, 0, 1].repeat(tags));
        packet.extend([0x88, 0xb5, 0xab, 0xcd]);
        assert_eq!(read(&graph, &packet, "probe.id"), Some(0xabcd), "{tags} tags");
    }
    let mut v4 = udp(0x102, 0, &[]);
    v4[23] = 253;
    assert_eq!(read(&graph, &v4, "shim.x"), Some(0x102));
    v4[21] = 1;
    assert_eq!(read(&graph, &v4, "shim.x"), None, "a later fragment");
    let mut v6 = vec![0; 12];
    v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 10, 60, 64]);
    v6.extend([0; 32]);
    v6.extend([253, 0, 0, 0, 0, 0, 0, 0, 9, 8]);
    assert_eq!(read(&graph, &v6, "shim.x"), Some(0x908));
    assert_eq!(read(&graph, &v6, "ip.proto"), Some(253));
}

#[test]
fn errors_describe_the_declaration() {
    let one = |user: UserHeader| Graph::with(&[user]).unwrap_err().to_string();
    let udp = |widths: &[(&str, u8)]| header("h", Parent::Udp, &[("udp.dport", 5)], widths);
    assert_eq!(one(udp(&[("a", 8)])), "header `h` has 8 bits; it must have a multiple of 16, from 16 to 2032");
    assert_eq!(one(udp(&[])), "header `h` has 0 bits; it must have a multiple of 16, from 16 to 2032");
    assert_eq!(one(udp(&[("a", 65)])), "field `h.a` has 65 bits; it must have 1 to 64, or 128");
    assert_eq!(one(udp(&[("a", 8), ("a", 8)])), "header `h` has two fields called `a`");
    assert_eq!(one(udp(&[("a", 4), ("b", 128)])), "field `h.b` of 128 bits starts at bit 4, which is not a whole byte");
    let long: Vec<(String, u8)> = (0..16).map(|i| (format!("f{i}"), 128)).collect();
    let long: Vec<(&str, u8)> = long.iter().map(|(name, width)| (name.as_str(), *width)).collect();
    assert!(one(udp(&long)).contains("has 2048 bits"));
    let f = [("a", 16)];
    assert_eq!(one(header("ip", Parent::Ip, &[("ip.proto", 99)], &f)), "another header has fields called `ip`");
    assert_eq!(
        one(header("h", Parent::Ip, &[("ip.proto", 6)], &f)),
        "header `h` is selected by `ip.proto` == 0x6, which already selects `tcp`"
    );
    assert_eq!(
        one(header("h", Parent::Udp, &[("udp.dport", 1), ("udp.dport", 1)], &f)),
        "header `h` is selected by `udp.dport` == 0x1, which already selects `h`"
    );
    assert_eq!(
        one(header("h", Parent::Ethernet, &[("eth.type", 0x1_0000)], &f)),
        "header `h` is selected by `eth.type` == 0x10000, which does not fit 16 bits"
    );
    assert_eq!(one(header("h", Parent::Udp, &[], &f)), "header `h` needs a value of `udp` that selects it");
    assert_eq!(
        one(header("h", Parent::Udp, &[("tcp.dport", 1)], &f)),
        "header `h` cannot be selected by `tcp.dport`: it follows `udp`"
    );
    assert_eq!(
        one(header("h", Parent::Ip, &[("ip.ttl", 1)], &f)),
        "header `h` cannot be selected by `ip.ttl`: it follows `ip.proto`"
    );
    assert_eq!(
        one(header("h", Parent::User(0), &[], &f)),
        "header `h` follows a header that is not declared before it"
    );
    let many: Vec<UserHeader> =
        (0..9).map(|i| header(&format!("h{i}"), Parent::Udp, &[("udp.dport", i)], &f)).collect();
    assert_eq!(Graph::with(&many).unwrap_err().to_string(), "9 headers are declared, at most 8 are allowed");
    assert!(Graph::with(&many[..8]).is_ok());
}
