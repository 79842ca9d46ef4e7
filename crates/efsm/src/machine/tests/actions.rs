// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 6 and the verdicts: what packet actions see and do.

use flowloom_testkit::PacketBuilder;
use flowloom_wire::checksum::Sum;

use super::{scene, tcp, to, udp};

#[test]
fn each_terminal_action_has_its_verdict() {
    let mut s = scene(
        "stateless e { when udp.dport == 1 { drop; } when udp.dport == 2 { pass; } when udp.dport == 3 { punt; }
         when udp.dport == 4 { reply; } when udp.dport == 5 { forward(0); } when udp.dport == 6 { forward(255); }
         when udp.dport == 7 { forward(udp.dport + 249); } when udp.dport == 8 { forward(udp.sport - 8); } }",
    );
    for (port, expected) in
        [(1, "drop"), (2, "pass"), (3, "pass"), (4, "tx"), (5, "to 0"), (6, "to 255"), (7, "aborted"), (8, "aborted")]
    {
        assert_eq!(s.at(0, &to(port)), expected, "{port}");
    }
    assert_eq!(s.at(0, &udp(1, 2, 9, 8)), "to 1", "the port is a number of 32 bits: 7 - 8 is none that is bound");
}

#[test]
fn actions_see_registers_after_and_fields_before() {
    let mut s = scene(
        "meta m = 0; stateful e { key udp.sport; states a, b; reg n: u8 = 5; global g: u8 = 7;
         on a -> b { n += 1; g += n; ip.tos = n; ip.ttl = ip.tos; m = g; udp.dport = udp.sport; goto next; }
         on b stay { ip.tos = state; forward(n + g); } }
         stateless l { when m == 12 { forward(ip.tos); } }",
    );
    let bytes = s.bytes_at(0, &to(9).tos(0x40));
    assert_eq!((bytes[15], bytes[22], bytes[37]), (6, 0x40, 7), "n after, the old tos, the port that was");
    assert_eq!(s.at(0, &to(9)), "to 18", "6 + 12");
    assert_eq!(s.bytes_at(0, &to(9))[15], 1, "the number of the state that was matched");
}

#[test]
fn actions_read_the_matched_state_not_the_next() {
    let mut s = scene(
        "stateful e { key udp.sport; states a, b, c; on a -> c { forward(state); } on c -> b { forward(state); } on b stay { forward(state); } }",
    );
    assert_eq!([s.at(0, &to(1)), s.at(0, &to(1)), s.at(0, &to(1))], ["to 0", "to 2", "to 1"]);
}

#[test]
fn metadata_and_fields_are_written_in_parallel() {
    let mut s = scene(
        "meta x; meta y: u8; meta z: i8;
         stateless e { always { x = 300; y = 2; z = -1; goto next; } }
         stateless f { always { x = y; y = x; ip.tos = x; eth.src = eth.dst; eth.dst = eth.src; goto next; } }
         stateless g { when z < 0 && x == 2 { ip.ttl = y; pass; } }",
    );
    let bytes = s.bytes_at(0, &to(1));
    assert_eq!((bytes[15], bytes[22]), (44, 44), "300 in 8 bits; x and y have changed places");
    assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    assert_eq!(s.bytes_at(0, &to(1))[22], 44, "metadata starts anew with each packet");
}

#[test]
fn later_elements_read_what_earlier_ones_wrote() {
    let mut s = scene(
        "stateless e { when udp.dport == 1 { udp.dport = 2; ip.ttl -= 1; goto f; } when udp.dport == 5 { goto g; } }
         stateless f { when udp.dport == 2 { udp.dport += 1; ip.ttl -= 1; goto g; } }
         stateful g { key udp.dport; states a; reg n: u8; on any stay { n = ip.ttl; forward(n); } }",
    );
    assert_eq!(s.at(0, &to(1).ttl(64)), "to 62");
    let keys: Vec<Vec<u8>> = s.machine.contexts(2).map(|(k, _)| k.to_vec()).collect();
    assert_eq!(keys, [[0, 3, 0, 0]], "and are keyed by it");
    assert_eq!(s.at(0, &to(5).ttl(33)), "to 33", "elements in between are passed over");
    assert_eq!(s.at(0, &to(4)), "drop");
}

#[test]
fn checksum_updates_preserve_errors() {
    let mut s = scene(
        "stateless e { when tcp.seq >= 0 { ip.src = 192.0.2.1; ip.ttl -= 1; tcp.seq += 5; l4.dport = 99; vlan.id = 5; pass; }
         always { ip.src = ip.dst; ip.ttl -= 1; l4.sport = 0xffff; pass; } }",
    );
    let before =
        PacketBuilder::new().vlan(7).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(7, 8).tcp_seq(0xffff_ffff, 1).ttl(9);
    let expected = PacketBuilder::new().vlan(5).ipv4([192, 0, 2, 1], [10, 0, 0, 2]).tcp(7, 99).tcp_seq(4, 1).ttl(8);
    assert_eq!(s.bytes_at(0, &before), expected.build());
    let v6 = |src: u8, port| PacketBuilder::new().ipv6([src; 16], [3; 16]).udp(port, 8).payload(b"odd");
    assert_eq!(s.bytes_at(0, &v6(1, 7).ttl(2)), v6(3, 0xffff).ttl(1).build());

    let word = |bytes: &[u8], at: usize| u32::from(bytes[at]) << 8 | u32::from(bytes[at + 1]);
    let (right, wrong) = (udp(1, 2, 7, 8).ttl(5), udp(1, 2, 7, 8).ttl(5).wrong_checksums(0x0123, 0x4000));
    let (left, left_wrong) = (s.bytes_at(0, &right), s.bytes_at(0, &wrong));
    for at in [24, 40] {
        let difference = |a: &[u8], b: &[u8]| (word(a, at) + 0xffff - word(b, at)) % 0xffff;
        assert_eq!(difference(&left, &left_wrong), difference(&right.build(), &wrong.build()), "at {at}");
    }
}

#[test]
fn udp_checksum_0_is_kept_and_a_computed_0_becomes_ffff() {
    let mut s = scene("stateless e { always { udp.dport = udp.sport; pass; } }");
    assert_eq!(s.bytes_at(0, &udp(1, 2, 7, 8).udp_without_checksum())[40..42], [0, 0]);
    // The payload that makes the sum of the packet as it leaves come to 0xffff.
    let leaving = udp(1, 2, 7, 7).payload(&[0, 0]).build();
    let missing = [leaving[40], leaving[41]];
    let bytes = s.bytes_at(0, &udp(1, 2, 7, 8).payload(&missing));
    assert_eq!(bytes[40..42], [0xff, 0xff]);
    let sum = Sum::new().pseudo_header([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 10).bytes(&bytes[34..44]);
    assert_eq!(sum.checksum(), 0, "which is right");
}

#[test]
fn writes_take_low_bits_and_preserve_adjacent_fields() {
    let mut s = scene(
        "stateless e { when tcp.is_syn { tcp.is_syn = 0; tcp.is_ack = ip.ttl; ipv4.dscp = ip.ttl; vlan.pcp = ip.ttl; vlan.id = tcp.window; pass; }
         when ipv6.flow_label == 0x12345 { ipv6.tc = pkt.len + 0x1c9; ipv6.flow_label = 0xabcde; pass; } }",
    );
    let tagged = |tci: u16, tos: u8, flags: u8| {
        PacketBuilder::new()
            .vlan(tci)
            .ipv4([1; 4], [2; 4])
            .tos(tos)
            .ttl(0x7f)
            .tcp(1, 2)
            .tcp_flags(flags)
            .tcp_window(0xabcd, 0)
    };
    assert_eq!(s.bytes_at(0, &tagged(0x1fff, 0x01, 0xc2)), tagged(0xfbcd, 0xfd, 0xd0).build());
    let labelled = |tos: u8, label: u32| PacketBuilder::new().ipv6([1; 16], [2; 16]).tos(tos).flow_label(label);
    assert_eq!(s.bytes_at(0, &labelled(0x5a, 0x12345)), labelled(0xff, 0xabcde).build());
}

#[test]
fn addresses_are_copied_within_and_between_families() {
    let mut s = scene(
        "stateless e { when l4.dport == 1 { ip.src = ip.dst; ip.dst = ip.src; pass; }
         when l4.dport == 2 { ip.dst = 2001:db8::1; pass; } when l4.dport == 3 { ip.dst = 9.8.7.6; pass; } }",
    );
    assert_eq!(s.bytes_at(0, &udp(1, 2, 7, 1)), udp(2, 1, 7, 1).build());
    let v6 = |src: u8, dst: [u8; 16], port| PacketBuilder::new().ipv6([src; 16], dst).udp(7, port);
    let fixed = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(s.bytes_at(0, &v6(1, [2; 16], 1)), v6(2, [1; 16], 1).build());
    assert_eq!(s.bytes_at(0, &v6(1, [2; 16], 2)), v6(1, fixed, 2).build());
    assert_eq!(s.at(0, &udp(1, 2, 7, 2)), "drop", "an IPv4 packet has no place for it");
    assert_eq!(
        s.bytes_at(0, &udp(1, 2, 7, 3)),
        PacketBuilder::new().ipv4([10, 0, 0, 1], [9, 8, 7, 6]).udp(7, 3).build()
    );
    assert_eq!(s.at(0, &v6(1, [2; 16], 3)), "drop");
}

#[test]
fn derived_fields() {
    let mut s = scene(
        "stateless e { when tcp.payload_len == 3 { forward(tcp.payload_len); } when pkt.len == 14 { forward(pkt.port); }
         when ip.proto == 47 { forward(pkt.len); } always { forward(now & 0x7f); } }",
    );
    assert_eq!(s.at(0, &tcp(0, 0).tcp_options(&[1; 4]).payload(b"abc").pad_to(100)), "to 3", "padding does not count");
    assert_eq!(s.run(0, 9, &PacketBuilder::new().build()).0, "to 9");
    assert_eq!(s.at(0, &PacketBuilder::new().ipv4([1; 4], [2; 4]).proto(47).payload(&[0; 8])), "to 42");
    assert_eq!(s.at(300, &to(1)), "to 44");
}
