// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps: tags, labels and tunnels that come and go, copies, packets of one's own.

use flowloom_engine::{Choices, Datapath, Packet, Port, Ports};
use flowloom_testkit::{Gtpu, PacketBuilder};

use super::{Scene, scene, tcp, to, udp};

impl Scene {
    /// Everything that leaves, in order: ports and bytes.
    fn leaves(&mut self, packet: &PacketBuilder) -> Vec<(u32, Vec<u8>)> {
        let choices = Choices::seeded(0, 0, 0);
        let bytes = packet.build();
        let packet = Packet { bytes: &bytes, port: Port(1) };
        let outcome = self.machine.process(&packet, &choices).expect("the machine never fails");
        outcome.outputs.into_iter().map(|output| (output.port.0, output.bytes)).collect()
    }

    /// What leaves, which is one packet.
    pub(super) fn one(&mut self, packet: &PacketBuilder) -> Vec<u8> {
        let mut all = self.leaves(packet);
        assert_eq!(all.len(), 1, "{all:02x?}");
        all.remove(0).1
    }
}

/// What leaves where the only row of an element has this block.
fn after(block: &str, packet: &PacketBuilder) -> Vec<u8> {
    scene(&format!("stateless e {{ always {{ {block} pass; }} }}")).one(packet)
}

/// The outer packet of a tunnel from 192.0.2.1 to 192.0.2.2.
fn outside(tos: u8, ttl: u8, teid: u32, inside: &PacketBuilder) -> PacketBuilder {
    PacketBuilder::new()
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2])
        .ipv4_id(0, false)
        .tos(tos)
        .ttl(ttl)
        .udp(2152, 2152)
        .udp_without_checksum()
        .tunnel(&Gtpu::new(teid), inside)
}

#[test]
fn tags_are_pushed_and_popped() {
    let pushed = after("push vlan(id = 5, pcp = 3, dei = 1);", &to(9));
    assert_eq!(pushed, to(9).vlan(3 << 13 | 1 << 12 | 5).build());
    assert_eq!(after("push vlan(id = udp.dport + 1); push vlan(id = 7);", &to(9)), to(9).vlan(7).vlan(10).build());
    let double = to(9).vlan(7).vlan(10);
    assert_eq!(after("pop vlan;", &double), to(9).vlan(10).build());
    assert_eq!(after("pop vlan; pop vlan;", &double), to(9).build());
    assert_eq!(after("push vlan(id = 1); pop vlan;", &to(9)), to(9).build());
}

#[test]
fn labels_are_pushed_and_popped() {
    let pushed = after("push mpls(label = 0xfffff, tc = 5, ttl = 9);", &to(9));
    assert_eq!(pushed, to(9).mpls(0xfffff, 5, 9).build());
    let two = to(9).vlan(3).mpls(17, 0, 64).mpls(16, 1, 64);
    assert_eq!(after("push mpls(label = 17);", &to(9).vlan(3).mpls(16, 1, 64)), two.build(), "after the tags, ttl 64");
    assert_eq!(after("pop mpls;", &two), to(9).vlan(3).mpls(16, 1, 64).build());
    assert_eq!(after("pop mpls; pop mpls;", &two), to(9).vlan(3).build(), "the EtherType is that of IPv4 again");
    let v6 = PacketBuilder::new().ipv6([1; 16], [2; 16]).udp(1, 2);
    assert_eq!(after("pop mpls;", &v6.clone().mpls(1, 0, 2)), v6.build(), "and of IPv6");
}

#[test]
fn tunnels_are_added_and_removed() {
    let plain = to(9).payload(b"payload");
    let encap = "encap ipv4(src = 192.0.2.1, dst = 192.0.2.2, tos = 8, ttl = 7) / udp / gtpu(teid = 0xdeadbeef);";
    let tunnel = outside(8, 7, 0xdead_beef, &plain);
    assert_eq!(after(encap, &plain), tunnel.build());
    assert_eq!(after("decap;", &tunnel), plain.build());
    assert_eq!(after(&format!("{encap} decap;"), &plain), plain.build());
    // Tags stay outside of a tunnel.
    assert_eq!(after(encap, &plain.clone().vlan(5)), tunnel.vlan(5).build());
    let v6 = "encap ipv6(src = 2001:db8::1, dst = 2001:db8::2) / udp(sport = 5, dport = 2152) / gtpu(teid = 1); push vlan(id = 4);";
    let (src, dst) = (0x2001_0db8_u128 << 96 | 1, 0x2001_0db8_u128 << 96 | 2);
    let expected = PacketBuilder::new()
        .vlan(4)
        .ipv6(src.to_be_bytes(), dst.to_be_bytes())
        .udp(5, 2152)
        .udp_without_checksum()
        .tunnel(&Gtpu::new(1), &plain);
    assert_eq!(after(v6, &plain), expected.build());
}

#[test]
fn a_row_requires_the_headers_that_its_steps_remove() {
    for (block, has, lacks) in [
        ("pop vlan;", to(9).vlan(1), to(9)),
        ("pop vlan; pop vlan;", to(9).vlan(1).vlan(2), to(9).vlan(1)),
        ("push vlan(id = 1); pop vlan; pop vlan;", to(9).vlan(1), to(9)),
        ("pop mpls;", to(9).mpls(1, 0, 1), to(9).vlan(1)),
        ("decap;", outside(0, 64, 1, &to(9)), to(9)),
        ("encap ipv4(src = 1.1.1.1, dst = 1.1.1.1) / udp / gtpu(teid = 1);", to(9), PacketBuilder::new()),
        ("clone(2); push mpls(label = mpls.label);", to(9).mpls(5, 0, 1), to(9)),
    ] {
        let mut s = scene(&format!("stateless e {{ always {{ {block} forward(7); }} }}"));
        assert_eq!(s.at(0, &lacks), "drop", "{block}");
        assert_eq!(s.leaves(&has).last().map(|(port, _)| *port), Some(7), "{block}");
    }
}

#[test]
fn copies_have_the_frame_at_that_step() {
    let mut s = scene(
        "stateless e { always { clone(2); push vlan(id = 1); clone(3); push vlan(id = 2); ip.ttl = 5; forward(4); } }",
    );
    let expected =
        [(2, to(9).ttl(5)), (3, to(9).ttl(5).vlan(1)), (4, to(9).ttl(5).vlan(2).vlan(1))].map(|(p, b)| (p, b.build()));
    assert_eq!(s.leaves(&to(9)), expected, "writes come first, wherever they stand");
    let mut s = scene("stateless e { always { clone(2); drop; } }");
    assert_eq!(s.leaves(&to(9)), [(2, to(9).build())], "a copy leaves though the packet is dropped");
}

#[test]
fn unbound_ports_lose_only_their_copy() {
    let mut s = scene(
        "stateless e { always { clone(udp.dport); emit(udp.dport) eth(dst = eth.src, src = eth.dst) / \
                       ipv4(src = 10.0.0.1, dst = 10.0.0.2) / udp(sport = 1, dport = 2); forward(4); } }",
    );
    let ports = |s: &mut Scene, dport| s.leaves(&to(dport)).into_iter().map(|(port, _)| port).collect::<Vec<_>>();
    assert_eq!(ports(&mut s, 255), [255, 255, 4]);
    assert_eq!(ports(&mut s, 256), [4]);
    s.machine.bind_ports(&Ports::bound([Port(1), Port(3), Port(4)]));
    assert_eq!(ports(&mut s, 2), [4]);
    assert_eq!(ports(&mut s, 3), [3, 3, 4]);
}

#[test]
fn emitted_packets_are_complete() {
    let mut s = scene(
        "stateful e { key udp.sport; states a; reg n: u32 = 40;
           on a { n += 2; ip.ttl = 9;
             emit(3) eth(dst = eth.src, src = eth.dst) / ipv4(src = ipv4.dst, dst = ipv4.src, tos = n, ttl = ip.ttl)
                 / udp(sport = udp.dport, dport = udp.sport);
             emit(n) eth(dst = 02:00:00:00:00:09, src = 02:00:00:00:00:08) / vlan(id = 6) / ipv6(src = 2001:db8::1, dst = 2001:db8::2)
                 / tcp(sport = 1, dport = 2, seq = n, is_syn = 1, window = 77);
             forward(1); } }",
    );
    let all = s.leaves(&to(9).ttl(33));
    let mac = |last| [2, 0, 0, 0, 0, last];
    let (src, dst) = (0x2001_0db8_u128 << 96 | 1, 0x2001_0db8_u128 << 96 | 2);
    let answer = PacketBuilder::new().eth(mac(2), mac(1)).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).ipv4_id(0, false);
    let syn = PacketBuilder::new().eth(mac(8), mac(9)).vlan(6).ipv6(src.to_be_bytes(), dst.to_be_bytes());
    let expected = [
        (3, answer.tos(42).ttl(33).udp(9, 7).build()),
        (42, syn.tcp(1, 2).tcp_seq(42, 0).tcp_flags(2).tcp_window(77, 0).build()),
        (1, to(9).ttl(9).build()),
    ];
    assert_eq!(all, expected, "registers after the row, fields before it");
}

#[test]
fn emitted_packets_may_be_tunneled() {
    let mut s = scene(
        "stateless e { always { emit(2) eth(dst = eth.dst, src = eth.src) / ipv4(src = 192.0.2.1, dst = 192.0.2.2) / udp / gtpu(teid = 5)
           / ipv4(src = ipv4.src, dst = 10.9.9.9) / icmp(type = 8, id = 1, seq = 2); drop; } }",
    );
    let echo = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 9, 9, 9]).ipv4_id(0, false).icmp(8, 0, 1, 2);
    let tunnel = PacketBuilder::new()
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2])
        .ipv4_id(0, false)
        .udp(2152, 2152)
        .tunnel(&Gtpu::new(5), &echo);
    assert_eq!(s.leaves(&to(9)), [(2, tunnel.build())]);
}

#[test]
fn later_elements_parse_the_changed_frame() {
    let mut s = scene(
        "stateless e { when udp.dport == 2152 { decap; goto next; } when udp.dport == 1 { pop vlan; goto next; } \
                       when udp.dport == 2 { push vlan(id = 4); goto next; } }
         stateful f { key ip.src, udp.dport; states a; reg n: u8; on a { n += 1; ip.tos = n; forward(udp.sport); } \
                      otherwise { forward(9); } }",
    );
    let inside = udp(7, 8, 3, 4);
    assert_eq!(s.leaves(&outside(0, 64, 1, &inside)), [(3, inside.clone().tos(1).build())]);
    assert_eq!(s.leaves(&udp(1, 2, 6, 1).vlan(5)), [(6, udp(1, 2, 6, 1).tos(1).build())]);
    assert_eq!(s.leaves(&udp(1, 2, 6, 2).vlan(5)), [(6, udp(1, 2, 6, 2).tos(1).vlan(4).vlan(5).build())]);
    // Behind a third tag nothing is parsed: the key is absent.
    let three = udp(1, 2, 6, 2).vlan(5).vlan(6);
    assert_eq!(s.leaves(&three).first().map(|(port, bytes)| (*port, bytes.len())), Some((9, three.build().len() + 4)));
    assert_eq!(s.leaves(&outside(0, 64, 1, &tcp(2, 0)))[0].0, 9, "no UDP port inside of the tunnel");
}
