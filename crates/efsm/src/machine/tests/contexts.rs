// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules 1, 2, 7, 8 and 9: keys, contexts, their timers, when they exist and how many there may be.

use flowloom_engine::Datapath;
use flowloom_testkit::PacketBuilder;

use super::{scene, tcp, to, udp};

const HOST: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

#[test]
fn a_key_is_its_fields_in_order_big_endian_and_padded() {
    let mut s =
        scene("stateful e { key l4.dport, ip.proto, ipv4.src; states a; reg n: u8; on a stay { n += 1; pass; } }");
    assert_eq!(s.at(0, &udp(3, 4, 7, 0x1234)), "pass");
    // 2 + 1 + 4 bytes and one of padding.
    assert_eq!(s.contexts(), "1234110a00000300 a n=1");
    assert_eq!(s.at(0, &PacketBuilder::new().ipv6(HOST, HOST).udp(7, 8)), "drop", "no `ipv4.src`: otherwise");
    assert_eq!(s.contexts(), "1234110a00000300 a n=1");

    let mut s =
        scene("stateful e { key vlan.id, tcp.is_syn, pkt.port; states a; reg n: u8; on a stay { n += 1; pass; } }");
    let packet = PacketBuilder::new().vlan(0xe123).ipv4([1; 4], [2; 4]).tcp(1, 2).tcp_flags(0x02).build();
    assert_eq!(s.run(0, 0x0102_0304, &packet).0, "pass");
    assert_eq!(s.contexts(), "0123010102030400 a n=1");
}

#[test]
fn addresses_of_both_families_are_16_bytes() {
    let mut s = scene("stateful e { key ip.src; states a; reg n: u8; on a stay { n += 1; pass; } }");
    s.at(0, &to(1));
    s.at(0, &PacketBuilder::new().ipv6(HOST, [1; 16]).tcp(1, 2));
    assert_eq!(s.contexts(), "00000000000000000000ffff0a000001 a n=1\n20010db8000000000000000000000009 a n=1");
}

#[test]
fn both_directions_of_a_biflow_share_a_context() {
    // Ports stand first, and the addresses decide all the same.
    let mut s = scene(
        "stateful e { key biflow(l4.sport, l4.dport, ipv4.src, ipv4.dst); states a; reg n: u8; on a stay { n += 1; pass; } }",
    );
    s.at(0, &udp(1, 2, 9, 5));
    s.at(0, &udp(2, 1, 5, 9));
    assert_eq!(s.contexts(), "000900050a0000010a000002 a n=2");
    s.at(0, &udp(2, 1, 9, 5));
    assert_eq!(s.contexts(), "000500090a0000010a000002 a n=1\n000900050a0000010a000002 a n=2");
    // Equal addresses: the ports decide.
    s.at(0, &udp(3, 3, 9, 5));
    s.at(0, &udp(3, 3, 5, 9));
    assert!(s.contexts().contains("000500090a0000030a000003 a n=2"), "{}", s.contexts());
}

#[test]
fn without_a_key_there_is_one_context() {
    let mut s = scene("stateful e { key none; states a; reg n: u8; on a stay { n += 1; forward(n); } }");
    assert_eq!(s.at(0, &to(1)), "to 1");
    assert_eq!(s.at(0, &PacketBuilder::new()), "to 2");
    assert_eq!(s.run(0, 1, &[]).0, "to 3", "an empty packet has no field, and none is needed");
    assert_eq!(s.contexts(), "00000000 a n=3");
}

#[test]
fn an_absent_context_reads_as_the_default() {
    let mut s = scene(
        "stateful e { key ip.src; states a, b; reg n: u8 = 7; reg m: i16 = -2;
         on a when n == 7 && m == -2 && udp.dport == 1 stay { forward(state); }
         on a when m == -2 -> b { m += 1; forward(n); } on b stay { forward(m & 0xff); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 0");
    assert_eq!(s.contexts(), "", "a row that changes nothing creates nothing");
    assert_eq!(s.at(0, &to(2)), "to 7");
    assert_eq!(s.contexts(), "00000000000000000000ffff0a000001 b n=7 m=65535");
    assert_eq!(s.at(0, &to(2)), "to 255");
}

#[test]
fn a_context_equal_to_the_default_is_removed() {
    let mut s = scene(
        "stateful e { key udp.sport; states a, b; reg n: u8 = 7;
         on a when udp.dport == 1 -> b { n = 8; pass; }
         on b when udp.dport == 2 -> a { pass; }
         on b when udp.dport == 3 -> a { n = 7; pass; }
         on a when udp.dport == 4 stay { n = 7; pass; }
         on a when udp.dport == 5 stay { n += 1; pass; }
         on a when udp.dport == 6 -> a { n = 7; pass; } }",
    );
    let mut run = |ports: &[u16]| {
        ports.iter().for_each(|&p| drop(s.at(0, &to(p))));
        let left = s.contexts();
        s.machine = crate::Machine::new(s.machine.function().clone());
        left
    };
    assert_eq!(run(&[1]), "00070000 b n=8");
    assert_eq!(run(&[1, 2]), "00070000 a n=8", "the initial state, but not the initial registers");
    assert_eq!(run(&[1, 3]), "", "by a transition and an update");
    assert_eq!(run(&[1, 2, 4]), "", "by an update alone");
    assert_eq!(run(&[1, 2, 6]), "", "by a transition to where it was");
    assert_eq!(run(&[4, 6]), "", "never stored");
    assert_eq!(run(&[5]), "00070000 a n=8", "a register alone makes a context");
    assert_eq!(run(&[5; 256]), "", "and once it has come around, none");
}

#[test]
fn a_context_in_the_initial_state_with_a_timer_is_kept() {
    let mut s = scene(
        "stateful e { key udp.sport; states a, b; reg n: u8;
         on a when udp.dport == 1 -> a (idle 5ns) { pass; }
         on a when udp.dport == 2 -> a (hard 5ns) { pass; }
         on a when udp.dport == 3 stay { n = 0; pass; }
         on a when udp.dport == 4 -> a { n = 0; pass; } }",
    );
    s.at(10, &to(1));
    assert_eq!(s.contexts(), "00070000 a n=0 idle 15/5");
    s.at(12, &to(3));
    assert_eq!(s.contexts(), "00070000 a n=0 idle 17/5", "the timer runs on");
    s.at(13, &to(4));
    assert_eq!(s.contexts(), "", "a transition without timers takes it away");
    s.at(14, &to(2));
    s.at(15, &to(3));
    assert_eq!(s.contexts(), "00070000 a n=0 hard 19");
    s.at(16, &to(4));
    assert_eq!(s.contexts(), "");
}

const TIMERS: &str = "stateful e { key udp.sport; states a, b, c, d;
    on a when udp.dport == 1 -> b (idle 10ns) { forward(1); }
    on a when udp.dport == 2 -> c (hard 10ns) { forward(2); }
    on a when udp.dport == 3 -> d (idle 10ns, hard 25ns) { forward(3); }
    on b, c, d when udp.dport == 4 stay { forward(4); }
    on b, c, d when udp.dport == 5 -> d (hard 100ns) { forward(5); }
    on b, c, d when udp.dport == 6 -> b (idle 3ns) { forward(6); }
    on b, c, d when udp.dport == 7 -> c { forward(7); }
    otherwise { forward(9); } }";

#[test]
fn timers_expire_exactly_at_the_deadline() {
    for (port, name) in [(1, "idle"), (2, "hard")] {
        for (now, expected) in [(1009, "to 4"), (1010, "to 9"), (1011, "to 9"), (u64::MAX - 1, "to 9")] {
            let mut s = scene(TIMERS);
            s.at(1000, &to(port));
            assert_eq!(s.at(now, &to(4)), expected, "{name} timer, at {now}");
            let e = &s.machine.coverage().elements[0];
            let (idle, hard) = (e.idle_expired.values().sum::<u64>(), e.hard_expired.values().sum::<u64>());
            let out = u64::from(expected == "to 9");
            assert_eq!((idle, hard), if port == 1 { (out, 0) } else { (0, out) });
        }
    }
}

#[test]
fn packets_restart_the_idle_timer_but_not_the_hard_timer() {
    let mut s = scene(TIMERS);
    s.at(0, &to(3));
    assert_eq!(s.contexts(), "00070000 d idle 10/10 hard 25");
    assert_eq!(s.at(9, &to(4)), "to 4");
    assert_eq!(s.contexts(), "00070000 d idle 19/10 hard 25", "a row that stays keeps both, idle from now");
    assert_eq!(s.at(18, &to(99)), "to 9", "no row matches");
    assert_eq!(s.contexts(), "00070000 d idle 28/10 hard 25", "and idle is re-armed all the same");
    assert_eq!(s.at(24, &udp(1, 2, 8, 4)), "to 9", "another flow");
    assert_eq!(s.at(24, &to(4)), "to 4");
    assert_eq!(s.at(25, &to(4)), "to 9", "hard runs out");
    assert_eq!(s.contexts(), "");
    assert_eq!(s.machine.coverage().elements[0].hard_expired[&3], 1);
}

#[test]
fn a_transition_replaces_both_timers() {
    let mut s = scene(TIMERS);
    s.at(0, &to(3));
    s.at(1, &to(5));
    assert_eq!(s.contexts(), "00070000 d hard 101", "no idle timer is written, so there is none");
    s.at(50, &to(6));
    assert_eq!(s.contexts(), "00070000 b idle 53/3");
    s.at(52, &to(7));
    assert_eq!(s.contexts(), "00070000 c", "no timer at all");
    assert_eq!(s.at(1 << 60, &to(4)), "to 4", "which never runs out");
    assert_eq!(s.contexts(), "00070000 c");
}

#[test]
fn an_expired_context_reads_as_the_default() {
    let mut s = scene(
        "stateful e { key udp.sport; states a, b; reg n: u8 = 3;
         on a when n == 3 -> b (idle 5ns) { n += 1; forward(n); } on b stay { n += 1; forward(n); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 4");
    assert_eq!(s.at(4, &to(1)), "to 5");
    assert_eq!(s.at(9, &to(1)), "to 4", "registers are initial again, and a row may create it anew");
    assert_eq!(s.contexts(), "00070000 b n=4 idle 14/5");
    let e = &s.machine.coverage().elements[0];
    assert_eq!((e.created, e.removed, e.idle_expired[&1], e.flows_looked_up), (2, 0, 1, 1));
}

#[test]
fn expiry_of_both_timers_counts_as_idle() {
    let mut s = scene(TIMERS);
    s.at(0, &to(3));
    s.at(40, &to(4));
    let e = &s.machine.coverage().elements[0];
    assert_eq!((e.idle_expired.len(), e.hard_expired.len()), (1, 0));
}

#[test]
fn a_sweep_removes_only_expired_contexts() {
    let mut s = scene(TIMERS);
    s.at(0, &udp(1, 2, 1, 1));
    s.at(0, &udp(1, 2, 2, 2));
    s.at(0, &udp(1, 2, 3, 3));
    s.at(0, &udp(1, 2, 4, 3));
    s.at(9, &udp(1, 2, 4, 4));
    s.machine.sweep(9).expect("sweeps");
    assert_eq!(s.contexts().lines().count(), 4);
    s.machine.sweep(10).expect("sweeps");
    assert_eq!(s.contexts(), "00040000 d idle 19/10 hard 25");
    s.machine.sweep(u64::MAX).expect("sweeps");
    assert_eq!(s.contexts(), "");
    assert_eq!(s.machine.coverage().elements[0].idle_expired.len(), 0, "only packets are counted");
}

#[test]
fn timers_of_other_elements_do_not_matter_at_the_maximum_time() {
    let text = "stateful e { key udp.sport; states a, b; on a -> b { forward(1); } on b stay { forward(2); } }";
    let mut s = scene(text);
    s.at(0, &to(1));
    assert_eq!(s.at(u64::MAX, &to(1)), "to 2");
    s.machine.sweep(u64::MAX).expect("sweeps");
    assert_eq!(s.contexts(), "00070000 b");
}

const SMALL: &str = "meta m;
    stateful e { key udp.sport; size 2; states a, b; reg n: u8 = 10; global g: u8 = 20;
    on a when udp.dport == 1 -> b (idle 100ns) { n += 1; g += 1; m = n; ip.tos = g; forward(n); }
    on a when udp.dport == 2 stay { g += 1; forward(g); }
    on a when udp.dport == 3 stay { n = 10; g = 9; forward(g); }
    on b when udp.dport == 4 -> a { n = 10; forward(n); }
    on b stay { n += 1; forward(n); } }";

#[test]
fn a_full_table_rejects_new_contexts() {
    let mut s = scene(SMALL);
    assert_eq!(s.at(0, &udp(1, 2, 1, 1)), "to 11");
    assert_eq!(s.at(0, &udp(1, 2, 2, 1)), "to 11");
    assert_eq!(s.machine.globals(0), [22]);
    // The row matches and its packet actions run, on the values from before: no update happened.
    let (verdict, bytes) = s.run(0, 1, &udp(1, 2, 3, 1).build());
    assert_eq!((verdict.as_str(), bytes.expect("sent")[15]), ("to 10", 22));
    assert_eq!(s.machine.globals(0), [22], "nor of global registers");
    assert_eq!(s.machine.coverage().elements[0].rejected, 1);
    // What creates nothing is not rejected.
    assert_eq!(s.at(0, &udp(1, 2, 3, 2)), "to 23");
    assert_eq!(s.at(0, &udp(1, 2, 3, 3)), "to 9");
    // Contexts that are there live on, and one that goes makes room.
    assert_eq!(s.at(0, &udp(1, 2, 1, 9)), "to 12");
    assert_eq!(s.at(0, &udp(1, 2, 2, 4)), "to 10");
    assert_eq!(s.at(0, &udp(1, 2, 3, 1)), "to 11");
    let e = &s.machine.coverage().elements[0];
    assert_eq!((e.created, e.removed, e.rejected), (3, 1, 1));
}

#[test]
fn an_expired_context_occupies_the_table_until_swept_or_found() {
    let mut s = scene(SMALL);
    s.at(0, &udp(1, 2, 1, 1));
    s.at(0, &udp(1, 2, 2, 1));
    assert_eq!(s.at(500, &udp(1, 2, 3, 1)), "to 10", "two contexts have run out, and are still stored");
    assert_eq!(s.at(500, &udp(1, 2, 2, 1)), "to 11", "the flow's own expired context makes room for it");
    s.machine.sweep(500).expect("sweeps");
    assert_eq!(s.at(500, &udp(1, 2, 3, 1)), "to 11");
    assert_eq!(s.contexts().lines().count(), 2);
}

#[test]
fn without_a_key_field_no_row_runs() {
    let mut s = scene(
        "meta m; stateful e { key tcp.sport; states a; reg n: u8; global g: u8; on any stay { n += 1; g += 1; pass; }
         otherwise { m = 5; goto next; } } stateless l { always { forward(m); } }",
    );
    assert_eq!(s.at(0, &to(1)), "to 5");
    assert_eq!((s.contexts().as_str(), s.machine.globals(0)), ("", &[0][..]));
    let e = &s.machine.coverage().elements[0];
    assert_eq!((e.no_key, e.no_match, e.flows_looked_up), (1, 0, 0));
    // Later fragments have no ports.
    assert_eq!(s.at(0, &tcp(0, 0).payload(&[0; 64]).fragment(1, false)), "to 5");
    assert_eq!(s.at(0, &tcp(0, 0).payload(&[0; 64]).fragment(0, true)), "pass");
}
