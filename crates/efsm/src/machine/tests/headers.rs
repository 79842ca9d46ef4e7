// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of headers of one's own, of MPLS, of tunnels and of the packets inside: in keys, conditions, updates and
//! actions.

use flowloom_testkit::{Gtpu, PacketBuilder};

use super::{scene, to, udp};

const PAXOS: &str = "header paxos after udp when udp.dport == 0x8888, udp.sport == 0x8888 {
        type: u8; pad: u4; flags: u4; instance: u32; acceptor: ipv4; mac: mac; key: ipv6; }
     header value after paxos when paxos.type == 2 { length: u16; }
     header trailer after value { magic: u64; }";

/// A header `paxos` in UDP, after it `rest`.
fn paxos(kind: u8, instance: u32, rest: &[u8]) -> PacketBuilder {
    let mut bytes = vec![kind, 0x5a];
    bytes.extend(instance.to_be_bytes());
    bytes.extend([10, 0, 0, 9, 2, 0, 0, 0, 0, 7]);
    bytes.extend((0x2001_0db8_u128 << 96 | 5).to_be_bytes());
    bytes.extend(rest);
    udp(1, 2, 7, 0x8888).payload(&bytes)
}

#[test]
fn declared_headers_are_read_when_selected() {
    let mut s = scene(&format!(
        "{PAXOS} stateless e {{
           when trailer.magic == 0x1122334455667788 && value.length == 3 {{ forward(4); }}
           when value.length == 3 {{ forward(3); }}
           when paxos.flags == 10 && paxos.pad == 5 && paxos.acceptor in 10.0.0.0/24 && paxos.mac == 02:00:00:00:00:07
             && paxos.key in 2001:db8::/32 && paxos.type in {{1, 7}} {{ forward(paxos.instance); }}
           when udp.dport == udp.dport + 0 {{ forward(9); }} }}"
    ));
    assert_eq!(s.at(0, &paxos(1, 5, &[])), "to 5");
    assert_eq!(s.at(0, &paxos(7, 6, &[0, 3])), "to 6", "`value` is told by the type");
    assert_eq!(s.at(0, &paxos(2, 6, &[0, 3])), "to 3");
    assert_eq!(s.at(0, &paxos(2, 6, &[0, 3, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88])), "to 4");
    assert_eq!(s.at(0, &paxos(1, 5, &[]).truncated(70)), "to 9", "a part of a header is none");
    assert_eq!(s.at(0, &to(0x8889).payload(&[1; 64])), "to 9");
    let by_source = udp(1, 2, 0x8888, 9).payload(&paxos(1, 8, &[]).build()[42..]);
    assert_eq!(s.at(0, &by_source), "to 8", "either port tells it");
}

#[test]
fn declared_headers_are_written_and_checksums_updated() {
    let mut s = scene(&format!(
        "{PAXOS} stateless e {{ when paxos.type == 1 {{
           paxos.type = 7; paxos.flags = 0; paxos.pad = 10; paxos.instance += 1; paxos.acceptor = ipv4.src;
           paxos.mac = eth.dst; paxos.key = 2001:db8::6; pass; }} }}"
    ));
    let mut bytes = vec![7, 0xa0, 0, 0, 0, 6, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    bytes.extend((0x2001_0db8_u128 << 96 | 6).to_be_bytes());
    assert_eq!(s.bytes_at(0, &paxos(1, 5, &[])), udp(1, 2, 7, 0x8888).payload(&bytes).build());
}

#[test]
fn declared_headers_serve_as_keys_and_register_values() {
    let mut s = scene(&format!(
        "{PAXOS} stateful e {{ key paxos.instance, paxos.key; states a; reg who: ip; reg n: u8;
           on a {{ who = paxos.key; n += paxos.type; forward(n); }} otherwise {{ forward(99); }} }}"
    ));
    assert_eq!(s.at(0, &paxos(3, 5, &[])), "to 3");
    assert_eq!(s.at(0, &paxos(1, 5, &[])), "to 4");
    assert_eq!(s.at(0, &paxos(1, 6, &[])), "to 1");
    assert_eq!(s.at(0, &to(5)), "to 99", "no header, no context");
    let key = "20010db8000000000000000000000005";
    let value = 0x2001_0db8_u128 << 96 | 5;
    assert_eq!(s.contexts(), format!("00000005{key} a who={value} n=4\n00000006{key} a who={value} n=1"));
}

#[test]
fn emitted_declared_headers_set_their_selectors() {
    let mut s = scene(&format!(
        "{PAXOS} stateless e {{ when paxos.type == 1 {{
           emit(2) eth(dst = eth.src, src = eth.dst) / ipv4(src = ipv4.dst, dst = ipv4.src) / udp(sport = 9)
             / paxos(instance = paxos.instance, key = paxos.key, flags = 3) / value / trailer(magic = 5);
           drop; }} }}
         "
    ));
    let sent = s.one(&paxos(1, 0x01020304, &[]));
    let mut bytes = vec![2, 3, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend((0x2001_0db8_u128 << 96 | 5).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    let expected = PacketBuilder::new()
        .eth([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 2], [10, 0, 0, 1])
        .ipv4_id(0, false)
        .udp(9, 0x8888)
        .payload(&bytes);
    assert_eq!(sent, expected.build(), "the port and the type follow from what stands behind");
}

#[test]
fn headers_follow_ethernet_ip_and_tcp() {
    let mut s = scene(
        "header arp after eth when eth.type == 0x0806 { htype: u16; ptype: u16; hlen: u8; plen: u8; op: u16; }
         header gre after ip when ip.proto == 47 { flags: u16; protocol: u16; }
         header dns after tcp when tcp.dport == 53, tcp.sport == 53 { length: u16; id: u16; }
         stateless e { when arp.op == 2 { forward(1); } when gre.protocol == 0x88be { forward(2); } when dns.id == 7 { forward(3); } }",
    );
    let arp = PacketBuilder::new().ethertype(0x0806).payload(&[0, 1, 8, 0, 6, 4, 0, 2]);
    assert_eq!([s.at(0, &arp), s.at(0, &arp.vlan(5))], ["to 1", "to 1"], "wherever the EtherType stands");
    let gre = |packet: PacketBuilder| packet.proto(47).payload(&[0, 0, 0x88, 0xbe]);
    assert_eq!(s.at(0, &gre(PacketBuilder::new().ipv4([1; 4], [2; 4]))), "to 2");
    assert_eq!(s.at(0, &gre(PacketBuilder::new().ipv6([1; 16], [2; 16]))), "to 2");
    let dns = PacketBuilder::new().ipv4([1; 4], [2; 4]).tcp(9, 53).tcp_options(&[1; 8]).payload(&[0, 9, 0, 7]);
    assert_eq!(s.at(0, &dns), "to 3", "behind the options");
}

#[test]
fn labels_and_tunnels_have_fields() {
    let mut s = scene(
        "stateful e { key biflow(inner.5-tuple, gtpu.teid); states a; reg n: u8;
           on a when inner.ip.src in 10.0.0.0/24 && inner.udp.dport == 8 && gtpu.type == 255 {
             n += 1; gtpu.teid = gtpu.teid + 1; inner.ip.ttl -= 1; inner.udp.dport = 80; ip.tos = n; forward(n); }
           otherwise { goto next; } }
         stateful f { key mpls.label, mpls2.tc; states a; reg n: u8;
           on a when mpls.bos == 0 { n += mpls2.ttl; mpls.label = mpls2.label; mpls.ttl = 7; forward(n); }
           otherwise { forward(99); } }",
    );
    let inside = |dport, ttl| udp(1, 2, 7, dport).ttl(ttl).payload(b"x");
    let tunnel = |teid, tos, inside: &PacketBuilder| udp(3, 4, 2152, 2152).tos(tos).tunnel(&Gtpu::new(teid), inside);
    assert_eq!(
        s.run(0, 1, &tunnel(5, 0, &inside(8, 64)).build()),
        ("to 1".to_owned(), Some(tunnel(6, 1, &inside(80, 63)).build()))
    );
    assert_eq!(s.at(0, &tunnel(5, 0, &inside(8, 64))), "to 2");
    assert_eq!(s.at(0, &tunnel(4, 0, &inside(8, 64))), "to 1", "another tunnel");
    let labels = udp(1, 2, 3, 4).mpls(16, 1, 64).mpls(17, 2, 5);
    let expected = udp(1, 2, 3, 4).mpls(17, 1, 7).mpls(17, 2, 5).build();
    assert_eq!(s.run(0, 1, &labels.build()), ("to 5".to_owned(), Some(expected)));
    assert_eq!(s.at(0, &udp(1, 2, 3, 4).mpls(16, 1, 64)), "to 99", "no second label");
}
