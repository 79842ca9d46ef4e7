// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules 7 to 9: successors, contexts from the start, full tables and whom they give up; keys and registers of any
//! width.

use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_testkit::PacketBuilder;

use super::{scene, to, udp};

#[test]
fn successors_are_entered_at_the_deadline() {
    let mut s = scene(
        "stateful e { key ip.src; states a, b, c; reg n: u8; expire b -> c (idle 100ns, hard 150ns);
         on a -> b (idle 1us) { n = 7; pass; } on b, c stay { forward(state); } }",
    );
    assert_eq!(s.at(0, &to(1)), "pass");
    assert_eq!(s.at(500, &to(1)), "to 1");
    // Its deadline is 1500: at 1550 it has been in `c` for 50 ns, and this packet starts the idle timer again.
    assert_eq!(s.at(1550, &to(1)), "to 2");
    assert!(s.contexts().ends_with(" c n=7 idle 1650/100 hard 1650"), "{}", s.contexts());
    assert_eq!(s.at(1649, &to(1)), "to 2");
    assert_eq!(s.at(1650, &to(1)), "pass", "the hard timer of the successor leads to the default");

    // Both deadlines have passed when it is met.
    assert_eq!(s.at(10_000, &to(1)), "pass");
    assert!(s.contexts().ends_with(" b n=7 idle 11000/1000"), "{}", s.contexts());
}

#[test]
fn sweeping_equals_aging_on_access() {
    let text = "stateful e { key ip.src; states a, b, c; expire b -> c (hard 100ns);
         on a -> b (hard 1us) { pass; } on b, c stay { forward(state); } }";
    for sweeps in [vec![], vec![1000], vec![1050], vec![999, 1001, 1099]] {
        let mut s = scene(text);
        s.at(0, &to(1));
        for now in sweeps {
            s.machine.sweep(now).expect("never fails");
        }
        let mut late = s.machine.clone();
        assert_eq!(s.at(1099, &to(1)), "to 2");
        late.sweep(1100).expect("never fails");
        assert_eq!(late.contexts(0).count(), 0);
    }
}

#[test]
fn preloaded_contexts_exist_at_start_and_after_a_reset() {
    let mut s = scene(
        "stateful e { key ip.src, l4.dport; states a, b; reg credit: i32; reg home: ip;
         preload (10.0.0.1, 80) -> b { credit = -5; home = 2001:db8::1; }
         on b when credit < 0 && home == 2001:db8::1 stay { credit += 1; reply; } on a { drop; } }",
    );
    assert_eq!(s.at(0, &udp(1, 2, 7, 80)), "tx");
    assert_eq!(s.at(0, &udp(1, 2, 7, 81)), "drop");
    let empty = flowloom_engine::Snapshot::default();
    s.machine.restore(&empty).expect("fits");
    assert_eq!(s.machine.contexts(0).count(), 1, "maps that a state does not name are as when the function was loaded");
    let mut state = s.machine.snapshot().expect("state");
    state.maps.get_mut("e").expect("the table").clear();
    s.machine.restore(&state).expect("fits");
    assert_eq!(s.machine.contexts(0).count(), 0);
}

#[test]
fn full_holds_for_packets_without_a_context() {
    let mut s = scene(
        "stateful e { key ip.src; size 2; states a, b; reg n: u8;
         on a when full { n = 1; forward(9); } on a when !full -> b { pass; } on b when full { drop; } on b stay { reply; } }",
    );
    assert_eq!(s.at(0, &udp(1, 9, 1, 1)), "pass");
    assert_eq!(s.at(0, &udp(2, 9, 1, 1)), "pass");
    assert_eq!(s.at(0, &udp(3, 9, 1, 1)), "to 9");
    assert_eq!(s.at(0, &udp(2, 9, 1, 1)), "tx", "its context is there: the table is not full for it");
    let coverage = s.machine.coverage();
    assert_eq!((coverage.elements[0].rejected, coverage.elements[0].created), (1, 2));
}

#[test]
fn the_policy_selects_the_victim() {
    for (policy, gone) in [("lowest n", 3), ("highest n", 1), ("oldest", 2)] {
        let mut s = scene(&format!(
            "stateful e {{ key ip.src; size 3; full evict {policy}; states a; reg n: i8; on a {{ n += l4.dport; pass; }} }}"
        ));
        // Host 1 has 5, host 2 has 1, host 3 has -2; host 2 was not heard of for the longest time.
        for (now, host, n) in [(10, 1, 4), (20, 2, 1), (30, 3, 0xfffe), (40, 1, 1)] {
            s.at(now, &udp(host, 9, 1, n));
        }
        s.at(50, &udp(4, 9, 1, 1));
        let hosts: Vec<u8> = s.machine.contexts(0).map(|(key, _)| key[15]).collect();
        assert!(hosts.len() == 3 && hosts.contains(&4) && !hosts.contains(&gone), "{policy}: {hosts:?}");
        assert_eq!(s.machine.coverage().elements[0].evicted, 1);
    }
    // Of several the one with the smallest key; a row that creates none gives up none.
    let mut s = scene(
        "stateful e { key ip.src; size 2; full evict lowest n; states a; reg n: u8; on a when l4.dport == 1 { n = 1; pass; } on a { pass; } }",
    );
    for host in [2, 1] {
        s.at(0, &udp(host, 9, 1, 1));
    }
    s.at(0, &udp(5, 9, 1, 2));
    assert_eq!(s.machine.contexts(0).count(), 2);
    s.at(0, &udp(5, 9, 1, 1));
    let hosts: Vec<u8> = s.machine.contexts(0).map(|(key, _)| key[15]).collect();
    assert_eq!(hosts, [2, 5]);
}

#[test]
fn metadata_is_a_key_part_and_registers_hold_addresses() {
    let mut s = scene(
        "meta inside: ip; meta tag: u16;
         stateless sort { when pkt.port == 1 { inside = ip.src; tag = 0x0102; goto next; } always { inside = ip.dst; tag = 0x0102; goto next; } }
         stateful hosts { key tag, inside; states a; reg peer: ip; reg n: u32;
           on a when n == 0 { peer = ip.dst; n = 1; pass; } on a when ip.src == peer { ip.dst = peer; n += 1; reply; } on a { drop; } }",
    );
    assert_eq!(s.at(0, &udp(1, 2, 7, 8)), "pass");
    let key: Vec<u8> = s.machine.contexts(1).next().expect("one").0.to_vec();
    assert_eq!(key, [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1, 0, 0]);
    let (verdict, bytes) = s.run(0, 2, &udp(2, 1, 8, 7).build());
    assert_eq!((verdict.as_str(), &bytes.expect("leaves")[30..34]), ("tx", &[10, 0, 0, 2][..]));
    assert_eq!(s.run(0, 2, &udp(3, 1, 8, 7).build()).0, "drop");
    // The other family is another host.
    assert_eq!(s.at(0, &PacketBuilder::new().ipv6([1; 16], [2; 16]).udp(7, 8)), "pass");
    assert_eq!(s.machine.contexts(1).count(), 2);
}

#[test]
fn a_flood_excludes_the_ingress_port() {
    let mut s = scene("stateless e { always { flood; } }");
    let bytes = to(1).build();
    let mut ports = |port| -> Vec<u32> {
        let packet = Packet { bytes: &bytes, port: Port(port) };
        let outcome = s.machine.process(&packet, &Choices::seeded(0, 0, 0)).expect("never fails");
        outcome.outputs.iter().map(|output| output.port.0).collect()
    };
    assert_eq!((ports(1), ports(2), ports(7)), (vec![2], vec![1], vec![1, 2]));
}
