// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules 3 and 4: which row matches.

use flowloom_testkit::PacketBuilder;

use super::{scene, tcp, to, udp};

#[test]
fn the_first_row_that_matches_wins() {
    let mut s = scene(
        "stateful e { key ip.src; states a, b, c;
         on b when udp.dport in 1..9 stay { forward(1); }
         on a, c when udp.dport in 3..5 -> b { forward(2); }
         on any when udp.dport in 4..9 -> c { forward(3); }
         on a stay { forward(4); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 4");
    assert_eq!(s.at(0, &to(9)), "to 3");
    assert_eq!(s.at(0, &to(3)), "to 2", "in `c`");
    assert_eq!(s.at(0, &to(4)), "to 1", "in `b`");
    assert_eq!(s.at(0, &to(10)), "drop", "no row of `b`: the implicit `otherwise`");
    let e = &s.machine.coverage().elements[0];
    let hits: Vec<Vec<u64>> = e.rows.iter().map(|r| r.values().copied().collect()).collect();
    assert_eq!(hits, [vec![1], vec![0, 1], vec![1, 0, 0], vec![1]]);
    assert_eq!((e.no_match, e.no_key), (1, 0));
}

#[test]
fn without_a_match_otherwise_runs_and_nothing_changes() {
    let mut s = scene(
        "meta m; meta k: u8;
         stateful e { key ip.src; states a, b; reg n: u8; global g: u8;
         on a -> b { n = 4; g = 5; goto l; } on b when udp.dport == 1 stay { n = 9; goto l; }
         otherwise { m = 300; k = 255; goto l; } } stateless l { always { forward(m + k & 0x1ff); } }",
    );
    assert_eq!(s.at(0, &to(2)), "to 0");
    // 555 - 512.
    assert_eq!(s.at(0, &to(2)), "to 43");
    assert_eq!(s.contexts(), "00000000000000000000ffff0a000001 b n=4");
    assert_eq!(s.machine.globals(0), [5]);
}

#[test]
fn conditions_read_values_before_the_packet() {
    let mut s = scene(
        "stateful e { key ip.src; states a; reg n: u8; global g: u8;
         on a when n == 0 && g == 0 stay { n = 1; g = 1; forward(1); }
         on a when n == 1 && g == 1 stay { n = 0; forward(2); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 1");
    assert_eq!(s.at(0, &to(1)), "to 2");
    assert_eq!(s.at(0, &to(1)), "drop", "n is 0 again and g is not");
    assert_eq!(s.at(0, &udp(3, 1, 1, 1)), "drop", "the global register is that of all flows");
}

#[test]
fn a_row_with_an_absent_field_does_not_match() {
    // Each row of TCP fields in another role; UDP packets must pass by all of them.
    for role in [
        "when tcp.seq >= 0 stay { forward(1); }",
        "when !(tcp.seq in 1..2) stay { forward(1); }",
        "when !tcp.is_syn stay { forward(1); }",
        "stay { n = tcp.seq; forward(1); }",
        "stay { g = min(5, tcp.window); forward(1); }",
        "stay { ip.tos = tcp.flags; forward(1); }",
        "stay { m = tcp.flags; forward(1); }",
        "stay { tcp.window = 0; forward(1); }",
        "stay { forward(tcp.flags); }",
        "stay { tcp.flags = tcp.flags; forward(1); }",
    ] {
        let mut s = scene(&format!(
            "meta m; stateful e {{ key ip.src; states a; reg n; global g: u8; on a {role} on a stay {{ forward(n); }} }}"
        ));
        assert_eq!(s.at(0, &to(1)), "to 0", "{role}");
        assert_eq!(s.at(0, &tcp(1, 0)), "to 1", "{role}");
    }
    let mut s = scene("stateless e { when ip.src != ipv6.dst { forward(1); } when ip.src != 1.2.3.4 { forward(2); } }");
    assert_eq!(s.at(0, &to(1)), "to 2");
    assert_eq!(s.at(0, &PacketBuilder::new().ipv6([1; 16], [2; 16])), "to 1");
    assert_eq!(s.at(0, &PacketBuilder::new()), "drop");
}

#[test]
fn comparisons_are_signed_by_type() {
    let mut s = scene(
        "stateful e { key ip.src; states a; reg i: i8 = -1; reg u: u8 = 255; reg w: i64 = -1; reg v: u64 = 0xffffffffffffffff;
         on a when udp.dport == 1 && i < 0 && i <= -1 && i > -2 && w < i + 1 stay { forward(1); }
         on a when udp.dport == 2 && u > 0 && v > u && u >= 255 stay { forward(2); }
         on a when udp.dport == 3 && i < u && i != u stay { forward(3); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 1");
    assert_eq!(s.at(0, &to(2)), "to 2");
    assert_eq!(s.at(0, &to(3)), "to 3", "-1 and 255 are different numbers, whatever their bits");
}

#[test]
fn serial_order_is_the_sign_of_the_difference() {
    let mut s = scene(
        "stateful e { key ip.src; states a; reg at: u32 = 0xfffffff0;
         on a when tcp.seq before at stay { forward(1); }
         on a when tcp.seq after at stay { forward(2); }
         on a when !(tcp.seq after at) && !(tcp.seq before at) stay { forward(3); } }",
    );
    for (seq, expected) in [
        (0xffff_fff0, "to 3"),
        (0xffff_ffef, "to 1"),
        (0xffff_fff1, "to 2"),
        (0, "to 2"),
        (0x7fff_ffef, "to 2"),
        // Half the space away, both ways: negative.
        (0x7fff_fff0, "to 1"),
        (0x7fff_fff1, "to 1"),
    ] {
        assert_eq!(s.at(0, &tcp(0, seq)), expected, "{seq:#x}");
    }
    let mut s = scene(
        "stateless e { when ip.tos before ip.ttl { forward(1); } when ip.tos after ip.ttl { forward(2); } always { forward(3); } }",
    );
    for (tos, expected) in [(64, "to 3"), (63, "to 1"), (65, "to 2"), (191, "to 2"), (192, "to 1"), (193, "to 1")] {
        assert_eq!(s.at(0, &to(1).tos(tos)), expected, "8 bits: {tos}");
    }
}

#[test]
fn clocks_wrap_and_count_in_their_unit() {
    let mut s = scene(
        "stateful e { key ip.src; states a; reg t: u16 time(2ns);
         on a when udp.dport == 1 stay { t = now; forward(t & 0xff); }
         on a when now after t + 10ns stay { forward(100); }
         on a when now after t + 2ns stay { forward(101); } on a stay { forward(102); } }",
    );
    // 65536 units of 2 ns are 131072 ns: 65530 units, which is 131060 ns.
    let start = 131_072 * 5 + 131_061;
    assert_eq!(s.at(start, &to(1)), "to 250", "65530 & 255, rounded down");
    assert_eq!(s.at(start + 2, &to(2)), "to 102", "one unit after is not after one unit");
    assert_eq!(s.at(start + 4, &to(2)), "to 101");
    assert_eq!(s.at(start + 10, &to(2)), "to 101", "nor are five after five");
    assert_eq!(s.at(start + 12, &to(2)), "to 100", "the clock has wrapped, and six units are");
}

#[test]
fn masks_ranges_prefixes_and_both_families() {
    let mut s = scene(
        "stateless e {
         when ip.src in 10.0.0.4/30 && !(ip.dst in 10.0.0.2/32) { forward(1); }
         when ip.src == ip.dst { forward(2); }
         when ip.src in ::/0 && ip.dst == 2001:db8::9 { forward(3); }
         when udp.dport & 0x0f0 == 0x050 { forward(4); }
         when udp.sport in 100..200 { forward(5); }
         when !(udp.sport in 7..7) { forward(6); }
         when eth.src in 02:00:00:00:00:00/40 { forward(7); } }",
    );
    let v6 = |last: u8| PacketBuilder::new().ipv6([1; 16], [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    assert_eq!(s.at(0, &udp(7, 1, 7, 0)), "to 1");
    assert_eq!(s.at(0, &udp(7, 2, 7, 0)), "to 7", "the negated prefix");
    assert_eq!(s.at(0, &udp(8, 8, 7, 0)), "to 2");
    assert_eq!(s.at(0, &v6(9).udp(7, 0)), "to 3");
    assert_eq!(s.at(0, &v6(8).udp(7, 0x1f5f)), "to 4");
    for (port, expected) in [(99, "to 6"), (100, "to 5"), (200, "to 5"), (201, "to 6"), (7, "to 7")] {
        assert_eq!(s.at(0, &udp(1, 2, port, 0)), expected, "{port}");
    }
    assert_eq!(s.at(0, &udp(1, 2, 7, 0).eth([3, 0, 0, 0, 0, 1], [2; 6])), "drop");
}

#[test]
fn alternatives_of_a_row_match_independently() {
    let mut s = scene(
        "stateless e {
         when udp.dport == 1 || tcp.dport == 1 { forward(1); }
         when (udp.dport in 2..3 || tcp.dport == 2) && !(l4.sport == 9 || l4.sport == 8) { forward(2); }
         when !(l4.dport >= 2 && l4.dport <= 3) { forward(3); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 1", "the other alternative reads an absent field");
    assert_eq!(s.at(0, &udp(1, 1, 1, 2)), "to 2");
    assert_eq!(s.at(0, &udp(1, 1, 9, 2)), "drop");
    assert_eq!(s.at(0, &udp(1, 1, 8, 3)), "drop");
    assert_eq!(s.at(0, &to(4)), "to 3");
}

#[test]
fn present_detects_headers() {
    let mut s = scene(
        "stateless e {
         when !present(ip) { forward(1); }
         when present(tcp) { forward(2); }
         when !present(tcp) && present(l4.dport) { forward(3); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 3");
    assert_eq!(s.at(0, &PacketBuilder::new().ethertype(0x88b5).payload(&[0; 20])), "to 1");
}

#[test]
fn forget_removes_the_context() {
    let mut s = scene(
        "stateful e { key ip.src; states a, b; reg n: u8 = 5; reg from: ip; global g: u8;
         on a -> b (idle 9s) { n = 1; from = ip.src; pass; }
         on b when udp.dport == 1 { n += 1; pass; }
         on any { forget; g += 1; forward(n + g); } }",
    );
    assert_eq!(s.at(0, &to(1)), "pass");
    assert_eq!(s.at(0, &to(1)), "pass");
    assert_ne!(s.contexts(), "");
    assert_eq!(s.at(0, &to(2)), "to 6", "the register is in its initial state, the global register counts");
    assert_eq!(s.contexts(), "");
}

#[test]
fn echo_is_recognized_in_both_families() {
    let mut s = scene(
        "stateless e {
         when icmpx.is_echo_request { forward(1); }
         when icmpx.is_echo_reply { forward(2); }
         when !icmpx.is_echo_request { forward(3); } }",
    );
    let v4 = |kind| PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).icmp(kind, 0, 7, 1);
    let v6 = |kind| PacketBuilder::new().ipv6([1; 16], [2; 16]).icmp(kind, 0, 7, 1);
    let mut of = |packets: [PacketBuilder; 3]| packets.map(|packet| s.at(0, &packet));
    assert_eq!(of([v4(8), v4(0), v4(3)]), ["to 1", "to 2", "to 3"]);
    assert_eq!(of([v6(128), v6(129), v6(3)]), ["to 1", "to 2", "to 3"]);
    assert_eq!(s.at(0, &to(8)), "drop");
}
