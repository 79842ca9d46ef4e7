// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistics of captures that are easily counted by hand.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_trace::{CapturedPacket, Census, FlowCount, TraceInfo};

fn packet(time_ns: u64, port: u32, bytes: Vec<u8>) -> CapturedPacket {
    let original_len_bytes = bytes.len() as u32;
    CapturedPacket { time_ns, port, original_len_bytes, bytes, ..CapturedPacket::default() }
}

fn udp(from: (u8, u16), to: (u8, u16)) -> Vec<u8> {
    PacketBuilder::new().ipv4([10, 0, 0, from.0], [10, 0, 0, to.0]).udp(from.1, to.1).build()
}

fn census(packets: &[CapturedPacket]) -> TraceInfo {
    let mut census = Census::new();
    packets.iter().for_each(|packet| census.add(packet));
    census.finish()
}

fn count(info: &TraceInfo, name: &str) -> u64 {
    info.protocols.iter().find(|protocol| protocol.name == name).map_or(0, |protocol| protocol.packets)
}

#[test]
fn an_empty_capture_has_no_times() {
    let info = census(&[]);
    assert_eq!((info.packets, info.wire_bytes, info.duration_ns), (0, 0, 0));
    assert_eq!((info.first_time_ns, info.last_time_ns), (None, None));
    assert_eq!(info.mean_len_bytes.to_bits(), 0.0f64.to_bits());
    assert!(info.flows.iter().all(|flows| flows.one_way == 0));
}

#[test]
fn packets_are_counted() {
    let mut arp = vec![0xff; 12];
    arp.extend([0x08, 0x06]);
    let mut length = vec![0; 12];
    length.extend([0x00, 0x32]);
    let gre = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).proto(47).payload(b"x").build();
    let tagged_arp = [&arp[..12], &[0x81, 0, 0, 1, 0x08, 0x06]].concat();
    let cut = CapturedPacket { original_len_bytes: 1000, ..packet(3_000, 2, udp((1, 5), (2, 6))) };
    let cut_bytes = cut.bytes.len() as u64;
    let packets = [
        packet(5_000, 1, arp),
        cut,
        packet(4_000, 1, gre),
        packet(4_000, 1, vec![0; 13]),
        packet(9_000, 7, length),
        packet(9_000, 7, tagged_arp),
    ];
    let info = census(&packets);
    assert_eq!(info.packets, 6);
    assert_eq!(info.captured_bytes, packets.iter().map(|packet| packet.bytes.len() as u64).sum::<u64>());
    assert_eq!(info.wire_bytes, info.captured_bytes + 1000 - cut_bytes);
    assert!((info.mean_len_bytes - info.wire_bytes as f64 / 6.0).abs() < 1e-9);
    assert_eq!((info.first_time_ns, info.last_time_ns, info.duration_ns), (Some(3_000), Some(9_000), 6_000));
    assert_eq!((info.steps_back_in_time, info.cut_packets), (1, 1));
    assert_eq!(info.ports.into_iter().collect::<Vec<_>>(), [(1, 3), (2, 1), (7, 2)]);
    let info = census(&packets);
    for (name, expected) in [
        ("eth", 5),
        ("vlan", 1),
        ("ipv4", 2),
        ("udp", 1),
        ("tcp", 0),
        ("ip.proto 47", 1),
        ("ethertype 0x0806", 2),
        ("ieee 802.3", 1),
        ("no ethernet", 1),
    ] {
        assert_eq!(count(&info, name), expected, "{name}");
    }
}

#[test]
fn unidirectional_and_bidirectional_flows_are_counted() {
    let (a, b) = ((1, 100), (2, 200));
    let frames =
        [udp(a, b), udp(b, a), udp(a, b), udp((1, 100), (2, 201)), udp((1, 200), (2, 100)), udp((3, 100), (2, 200))];
    let packets: Vec<_> = frames.into_iter().map(|bytes| packet(0, 1, bytes)).collect();
    // All packets have the same time: each flow is active and new.
    let flow = |key, one_way, both_ways| FlowCount {
        key,
        packets: 6,
        one_way,
        both_ways,
        max_active_in_10s: one_way,
        max_new_per_ms: one_way,
    };
    assert_eq!(
        census(&packets).flows,
        [flow("ip.src", 3, None), flow("ip.src, ip.dst", 3, Some(2)), flow("5-tuple", 5, Some(4))]
    );
}

#[test]
fn lengths_are_counted_by_class() {
    let of = |len: u32| CapturedPacket { original_len_bytes: len, ..packet(0, 1, udp((1, 1), (2, 2))) };
    let info = census(&[0, 79, 80, 99, 100, 299, 300, 599, 600, 1399, 1400, 1_000_000].map(of));
    assert_eq!(info.sizes.iter().map(|class| class.packets).collect::<Vec<_>>(), [2; 6]);
    let bounds: Vec<_> = info.sizes.iter().map(|class| (class.from_bytes, class.below_bytes)).collect();
    assert_eq!((bounds[0], bounds[5]), ((0, Some(80)), (1400, None)));
    assert!(bounds.windows(2).all(|pair| pair[0].1 == Some(pair[1].0)));
    let shares = [(0, Some(80)), (80, Some(300)), (1400, None), (0, None)].map(|(from, below)| info.share(from, below));
    assert!(
        shares.iter().zip([2, 4, 2, 12]).all(|(share, twelfths)| (share - f64::from(twelfths) / 12.0).abs() < 1e-9)
    );
}

#[test]
fn new_flows_are_counted_in_any_millisecond() {
    let frame = |i: u16| udp((1, i), (2, 1));
    let at = |times: &[u64]| {
        let packets: Vec<_> = times.iter().zip(1..).map(|(time, i)| packet(*time, 1, frame(i))).collect();
        census(&packets).flows[2].max_new_per_ms
    };
    assert_eq!(at(&[0]), 1);
    // The half-open window may start at any time.
    assert_eq!(at(&[900_000, 1_100_000, 1_899_999]), 3);
    assert_eq!(at(&[900_000, 1_100_000, 1_900_000]), 2);
    assert_eq!(at(&[0, 1_000_000, 2_000_000]), 1);
    // A known flow is not new.
    let again: Vec<_> = (0..5).map(|i| packet(i, 1, frame(7))).collect();
    assert_eq!(census(&again).flows[2].max_new_per_ms, 1);
}

#[test]
fn flows_are_active_in_any_ten_seconds() {
    const S: u64 = 1_000_000_000;
    let at = |packets: &[(u64, u16)]| {
        let packets: Vec<_> = packets.iter().map(|(time, port)| packet(*time, 1, udp((1, *port), (2, 1)))).collect();
        census(&packets).flows[2].max_active_in_10s
    };
    assert_eq!(at(&[(0, 1), (9 * S, 2)]), 2);
    assert_eq!(at(&[(0, 1), (10 * S - 1, 2)]), 2);
    assert_eq!(at(&[(0, 1), (10 * S, 2)]), 1);
    // A flow with further packets stays active; a flow that returns is active again.
    assert_eq!(at(&[(0, 1), (5 * S, 1), (14 * S, 2)]), 2);
    assert_eq!(at(&[(0, 1), (30 * S, 2), (31 * S, 1), (32 * S, 3)]), 3);
}

/// Model: for each key, the maximum number of flows within a window that starts at any packet; all flows or only new
/// ones.
fn by_hand(packets: &[(u64, u16, u16)], window_ns: u64, is_first_only: bool) -> [u64; 3] {
    [0, 1, 2].map(|number| {
        let key = |a: u16, b: u16| [(a >> 3, 0), (a >> 3, b >> 3), (a, b)][number];
        let mut seen = HashSet::new();
        let events: Vec<_> = packets
            .iter()
            .filter_map(|&(time, a, b)| (seen.insert(key(a, b)) || !is_first_only).then_some((time, key(a, b))))
            .collect();
        let within = |from: u64| {
            let inside = events.iter().filter(|(time, _)| (from..from + window_ns).contains(time));
            inside.map(|(_, key)| key).collect::<HashSet<_>>().len() as u64
        };
        events.iter().map(|(time, _)| within(*time)).max().unwrap_or(0)
    })
}

#[test]
fn sliding_windows_equal_a_model() {
    let mut rng = Rng::from_env(0x1f0);
    for _ in 0..150 {
        let step_ns = *rng.pick(&[120_000, 300_000_000, 2_000_000_000]);
        let (mut time_ns, mut drawn) = (0, Vec::new());
        for _ in 0..rng.below(150) {
            time_ns += rng.next_u64() % step_ns;
            drawn.push((time_ns, rng.below(60) as u16, rng.below(30) as u16));
        }
        // Eight ports per host.
        let packets: Vec<_> = drawn
            .iter()
            .map(|&(time, a, b)| packet(time, 1, udp(((a >> 3) as u8, a & 7), (100 + (b >> 3) as u8, b & 7))))
            .collect();
        let info = census(&packets);
        let counted = |what: fn(&FlowCount) -> u64| [0, 1, 2].map(|key| what(&info.flows[key]));
        assert_eq!(counted(|flows| flows.max_active_in_10s), by_hand(&drawn, 10_000_000_000, false));
        assert_eq!(counted(|flows| flows.max_new_per_ms), by_hand(&drawn, 1_000_000, true));
    }
}
