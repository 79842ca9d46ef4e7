// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Structural edits and rendered stacks, checked with the parser and with fixed expectations.
#![allow(clippy::expect_used, clippy::panic)]

use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_wire::checksum::Sum;
use flowloom_wire::edit::{decapsulate, encapsulate, pop_mpls, pop_vlan, push_mpls, push_vlan};
use flowloom_wire::stack::StackError;
use flowloom_wire::{FieldId, Graph, Header, Layers, Stack};

fn field(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap_or_else(|| panic!("no field `{name}`"))
}

fn parse(frame: &[u8]) -> Layers {
    Layers::parse(Graph::standard(), frame)
}

fn read(frame: &[u8], name: &str) -> Option<u128> {
    parse(frame).read(frame, 1, field(name))
}

#[track_caller]
fn reads<const N: usize>(frame: &[u8], names: [&str; N], expected: [u128; N]) {
    assert_eq!(names.map(|name| read(frame, name)), expected.map(Some), "{names:?}");
}

fn frames() -> Vec<Vec<u8>> {
    let v4 = || PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let v6 = || PacketBuilder::new().ipv6([0x20; 16], [0x21; 16]);
    vec![
        v4().udp(1, 2).payload(b"four").build(),
        v6().tcp(3, 4).build(),
        PacketBuilder::new().vlan(7).ipv4([1; 4], [2; 4]).udp(5, 6).build(),
        PacketBuilder::new().vlan(7).vlan(8).ipv6([1; 16], [2; 16]).udp(5, 6).build(),
        PacketBuilder::new().build(),
    ]
}

/// A tunnel with TEID 7 between 192.0.2.1 and 192.0.2.2, or between two IPv6 addresses.
fn tunnel(is_v4: bool) -> (Stack, Vec<(flowloom_wire::graph::Slice, u128)>) {
    let ip = if is_v4 { Header::Ipv4 } else { Header::Ipv6 };
    let stack = Stack::tunnel(Graph::standard(), &[ip, Header::Udp, Header::Gtpu]).expect("a tunnel");
    let (src, dst) = if is_v4 { ("ipv4.src", "ipv4.dst") } else { ("ipv6.src", "ipv6.dst") };
    let slot = |header, name| stack.slot(header, field(name)).expect("is there");
    let values = vec![(slot(0, src), 0xc000_0201), (slot(0, dst), 0xc000_0202), (slot(2, "gtpu.teid"), 7)];
    (stack, values)
}

#[test]
fn push_then_pop_restores_the_frame() {
    for frame in frames() {
        let mut changed = frame.clone();
        assert!(push_vlan(&mut changed, &parse(&frame), 0xa123));
        reads(&changed, ["vlan.id", "vlan.pcp"], [0x123, 5]);
        assert_eq!(read(&changed, "vlan2.id"), read(&frame, "vlan.id"));
        let layers = parse(&changed);
        assert!(pop_vlan(&mut changed, &layers));
        assert_eq!(changed, frame);

        // The type of the payload after a label is known by its IP version.
        if read(&frame, "ip.version").is_none() {
            continue;
        }
        for (tc, bos) in [(1, 1), (2, 0), (3, 0)] {
            let layers = parse(&changed);
            assert!(push_mpls(&mut changed, &layers, 0x1234_5040 | tc << 9));
            reads(&changed, ["mpls.tc", "mpls.label", "mpls.bos"], [tc.into(), 0x12345, bos]);
            assert_eq!(read(&changed, "ip.src"), read(&frame, "ip.src"));
        }
        for _ in 0..3 {
            let layers = parse(&changed);
            assert!(pop_mpls(&mut changed, &layers));
        }
        assert_eq!(changed, frame);
    }
}

#[test]
fn pop_without_header_is_rejected() {
    for frame in [Vec::new(), vec![0; 13], PacketBuilder::new().build()] {
        let mut changed = frame.clone();
        let layers = parse(&frame);
        assert!(!pop_vlan(&mut changed, &layers) && !pop_mpls(&mut changed, &layers));
        assert!(!decapsulate(&mut changed, &layers));
        let (stack, values) = tunnel(true);
        assert!(!encapsulate(&mut changed, &layers, &stack, &values));
        assert_eq!(changed, frame);
    }
    assert!(!push_vlan(&mut vec![0; 13], &parse(&[0; 13]), 0));
    assert!(!push_mpls(&mut Vec::new(), &parse(&[]), 0));
}

#[test]
fn encapsulation_preserves_the_packet() {
    for frame in frames().into_iter().filter(|frame| read(frame, "ip.version").is_some()) {
        for is_v4 in [true, false] {
            // Padding of the link layer is not part of the packet.
            for padding in [0, 5] {
                let mut padded = frame.clone();
                padded.resize(frame.len() + padding, 0xee);
                let (stack, values) = tunnel(is_v4);
                let mut changed = padded.clone();
                assert!(encapsulate(&mut changed, &parse(&padded), &stack, &values));
                let headers = if is_v4 { 36 } else { 56 };
                assert_eq!(changed.len(), padded.len() + headers);
                let version = if is_v4 { 4 } else { 6 };
                reads(&changed, ["gtpu.teid", "udp.dport", "udp.sport", "udp.checksum"], [7, 2152, 2152, 0]);
                reads(&changed, ["ip.ttl", "ip.version"], [64, version]);
                assert_eq!(read(&changed, "inner.ip.src"), read(&frame, "ip.src"));
                let layers = parse(&changed);
                let ip = layers.offset(if is_v4 { Header::Ipv4 } else { Header::Ipv6 }).expect("is there");
                if is_v4 {
                    assert_eq!(Sum::new().bytes(&changed[ip..ip + 20]).checksum(), 0, "the header checksum is right");
                }
                let inside = frame.len() - layers.offset(Header::Ethernet).map_or(0, |_| ip);
                reads(&changed, ["gtpu.len", "udp.len"], [inside as u128, inside as u128 + 16]);
                assert!(decapsulate(&mut changed, &layers));
                assert_eq!(changed, padded);
            }
        }
    }
}

#[test]
fn built_packets_parse_as_declared() {
    use Header::{Ethernet, Gtpu, Icmp, Icmp6, Ipv4, Ipv6, Mpls, Tcp, Udp, Vlan};
    let sum = |frame: &[u8], from: usize, to: usize| Sum::new().bytes(&frame[from..to]).checksum();
    for (headers, valid) in [
        (vec![Ethernet, Ipv4, Udp], vec!["udp.len"]),
        (vec![Ethernet, Vlan, Vlan, Ipv6, Tcp], vec!["vlan2.id", "tcp.seq"]),
        (vec![Ethernet, Mpls, Mpls, Ipv4, Icmp], vec!["mpls2.label", "icmp.type"]),
        (vec![Ethernet, Ipv6, Icmp6], vec!["icmp6.type"]),
        (vec![Ethernet, Ipv4, Udp, Gtpu, Ipv4, Icmp], vec!["gtpu.teid", "inner.icmp.type"]),
        (vec![Ethernet, Ipv6, Udp, Gtpu, Ipv6, Udp], vec!["gtpu.teid", "inner.udp.len"]),
    ] {
        let stack = Stack::packet(Graph::standard(), &headers).expect("a packet");
        let packet = stack.render(&[], 0);
        for name in valid {
            assert!(read(&packet, name).is_some(), "{headers:?} has `{name}`: {packet:02x?}");
        }
        assert_eq!(parse(&packet).valid().count_ones() as usize, headers.len(), "{headers:?}");
        // Checksums of transport headers over IPv4, with an explicit pseudo-header.
        if headers == [Ethernet, Ipv4, Udp, Gtpu, Ipv4, Icmp] {
            assert_eq!((sum(&packet, 14, 34), sum(&packet, 50, 70), sum(&packet, 70, 78)), (0, 0, 0));
            let udp = Sum::new().bytes(&packet[26..34]).word(17).word(44).bytes(&packet[34..]).checksum();
            assert_eq!(udp, 0);
        }
    }
    let error = |headers: &[Header]| Stack::packet(Graph::standard(), headers).expect_err("no packet").to_string();
    assert_eq!(error(&[]), "the first header is `nothing`, expected `eth`");
    assert_eq!(error(&[Ethernet, Udp]), "`udp` cannot follow `eth`");
    let expected = "the last header is `ipv4`, expected `tcp`, `udp`, `icmp`, `icmp6` or a declared header";
    assert_eq!(error(&[Ethernet, Ipv4]), expected);
    let tunnel = Stack::tunnel(Graph::standard(), &[Ipv4, Udp]);
    assert!(matches!(tunnel, Err(StackError::Last { .. })));
}

#[test]
fn edits_never_panic() {
    let mut rng = Rng::from_env(31);
    let seeds = frames();
    for _ in 0..20_000 {
        let mut frame = seeds[rng.below(seeds.len())].clone();
        for _ in 0..rng.below(6) {
            let layers = parse(&frame);
            let (stack, values) = tunnel(rng.chance(1, 2));
            match rng.below(7) {
                0 => drop(push_vlan(&mut frame, &layers, rng.next_u64() as u16)),
                1 => drop(pop_vlan(&mut frame, &layers)),
                2 => drop(push_mpls(&mut frame, &layers, rng.next_u64() as u32)),
                3 => drop(pop_mpls(&mut frame, &layers)),
                4 => drop(encapsulate(&mut frame, &layers, &stack, &values)),
                5 => drop(decapsulate(&mut frame, &layers)),
                _ => frame.truncate(rng.below(frame.len() + 1)),
            }
            if !frame.is_empty() && rng.chance(1, 3) {
                let at = rng.below(frame.len());
                frame[at] ^= 1 << rng.below(8);
            }
        }
    }
}
