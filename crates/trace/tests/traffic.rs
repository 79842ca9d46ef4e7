// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generated traffic: its figures match the papers', frames are valid, connections are consistent, and invalid options
//! are rejected.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{HashMap, HashSet};

use crate::common::{NETWORKS, census, generate, read_file};
use flowloom_testkit::Rng;
use flowloom_trace::{CaptureWriter, CapturedPacket, Comparison, Profile, Protocol, START_NS, Traffic, TrafficOptions};
use flowloom_wire::{FieldId, Graph, Header, Layers};

const S: u64 = 1_000_000_000;
const PATTERNS: [Profile; 5] = [Profile::Uniform, Profile::Zipf, Profile::Single, Profile::Alternate, Profile::Churn];

/// A profile's options, with a seed that `FLOWLOOM_SEED` overrides.
fn options(profile: Profile) -> TrafficOptions {
    TrafficOptions { seed: Rng::from_env(0x7aff1c).next_u64(), ..TrafficOptions::new(profile) }
}

/// True if no millisecond has more new flows than the paper's maximum.
fn is_at_most(figure: &Comparison) -> bool {
    !figure.figure.starts_with("new") || figure.measured <= figure.paper
}

/// Ten seconds of the two small networks; the large ones take long and are checked by `make evidence`.
#[test]
fn small_networks_match_the_papers() {
    for profile in [Profile::Uni1, Profile::Uni2] {
        let info = census(&options(profile));
        assert!(info.covers_window() && info.steps_back_in_time == 0);
        for figure in info.compare(profile.row().unwrap()) {
            assert!(figure.is_within_tolerance() && is_at_most(&figure), "{}: {figure:?}", profile.name());
        }
    }
}

/// Half a second of each: the mean, the length classes, and the maximum of new flows per millisecond, which the first
/// bursts reach.
#[test]
fn half_a_second_matches_the_lengths_and_new_flows_of_the_papers() {
    for profile in NETWORKS {
        let info = census(&TrafficOptions { duration_ns: Some(S / 2), ..options(profile) });
        for figure in info.compare(profile.row().unwrap()) {
            let is_right = (figure.figure.starts_with("active") || figure.is_within_tolerance()) && is_at_most(&figure);
            assert!(is_right, "{}: {figure:?}", profile.name());
            // The papers give shares in words, such as half or a third; the mean takes precedence.
            let is_near = figure.unit != flowloom_trace::Unit::Share || figure.deviation.abs() < 0.08;
            assert!(is_near, "{}: {figure:?}", profile.name());
        }
    }
}

/// A seventh of the flows of a large network: the structure scales.
#[test]
fn flow_counts_scale_the_figures_of_the_papers() {
    let options = TrafficOptions { flows: Some(1000), ..options(Profile::Uni2) };
    let info = census(&options);
    for (flows, expected) in info.flows.iter().zip([948.0 / 7.0, 3000.0 / 7.0, 1000.0]) {
        let ratio = flows.max_active_in_10s as f64 / expected;
        assert!((ratio - 1.0).abs() < 0.07, "{flows:?}, expected {expected}");
    }
    assert_eq!(info.flows.iter().map(|flows| flows.max_new_per_ms).collect::<Vec<_>>(), [3, 6, 6]);
}

#[test]
fn traffic_is_determined_by_the_seed() {
    for profile in Profile::ALL {
        let few = TrafficOptions { packets: Some(300), ..options(profile) };
        assert_eq!(generate(&few), generate(&few));
        let other = TrafficOptions { seed: few.seed ^ 1, ..few.clone() };
        assert_ne!(generate(&few), generate(&other), "{}", profile.name());
    }
}

/// The checksum of these bytes; independent of `flowloom_wire`, which generates the traffic [RFC 1071].
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&byte| u32::from(byte));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + folded) as u16
}

/// Asserts that the lengths and checksums of a frame are valid.
fn assert_valid(bytes: &[u8], name: &str) {
    let layers = Layers::parse(Graph::standard(), bytes);
    let read = |field: &str| layers.read(bytes, 1, FieldId::by_name(field).unwrap()).unwrap();
    let computed = |pseudo: &[u8], bytes: &[u8], at| checksum(&[pseudo, &bytes[..at], &bytes[at + 2..]].concat());
    let ip = &bytes[14..];
    let (addresses, packet_bytes) = if layers.has(Header::Ipv4) {
        assert_eq!(read("ipv4.checksum"), computed(&[], &ip[..20], 10).into(), "{name}");
        assert!(read("ipv4.ttl") > 0 && read("ipv4.df") == 1, "{name}");
        (&ip[12..20], read("ipv4.len") as usize)
    } else {
        (&ip[8..40], 40 + read("ipv6.len") as usize)
    };
    assert!(packet_bytes <= ip.len() && (packet_bytes == ip.len() || packet_bytes < 9020), "{name}");
    let found = [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6].into_iter().find(|header| layers.has(*header));
    let transport = found.unwrap_or_else(|| panic!("{name}: no transport header"));
    let segment = &bytes[layers.offset(transport).unwrap()..14 + packet_bytes];
    let pseudo_header = [addresses, &[0, read("ip.proto") as u8], &(segment.len() as u32).to_be_bytes()].concat();
    let checksum = match transport {
        Header::Tcp => computed(&pseudo_header, segment, 16),
        Header::Udp => {
            assert_eq!(read("udp.len"), segment.len() as u128, "{name}");
            // 0 means that there is no checksum.
            Some(computed(&pseudo_header, segment, 6)).filter(|checksum| *checksum != 0).unwrap_or(0xffff)
        }
        Header::Icmp => computed(&[], segment, 2),
        _ => computed(&pseudo_header, segment, 2),
    };
    assert_eq!(read(&format!("{}.checksum", transport.name())), checksum.into(), "{name}");
}

#[test]
fn frames_have_valid_lengths_and_checksums() {
    for profile in Profile::ALL {
        let name = profile.name();
        let base = TrafficOptions { packets: Some(3000), ipv6: Some(0.3), ..options(profile) };
        let mut variants = vec![];
        for size_bytes in [None, Some(74), Some(77), Some(1514), Some(9014)] {
            let protocols = if PATTERNS.contains(&profile) { vec![Some(Protocol::Tcp), None] } else { vec![None] };
            let base = TrafficOptions {
                size_bytes: size_bytes.or(if PATTERNS.contains(&profile) { Some(100) } else { None }),
                ..base.clone()
            };
            variants.extend(protocols.into_iter().map(|protocol| TrafficOptions { protocol, ..base.clone() }));
        }
        for options in variants {
            let packets = generate(&options);
            assert_eq!(packets.len(), 3000);
            assert!(packets.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns), "{name}");
            for packet in packets {
                assert_valid(&packet.bytes, name);
                assert!(!packet.is_cut() && packet.bytes.len() >= 60 && [1, 2].contains(&packet.port));
                assert!(options.size_bytes.is_none_or(|size| packet.original_len_bytes == size), "{name}");
            }
        }
    }
}

#[test]
fn the_smallest_frames_are_possible_without_ipv6() {
    for profile in Profile::ALL {
        let options = TrafficOptions { packets: Some(2000), size_bytes: Some(60), ipv6: Some(0.0), ..options(profile) };
        for packet in generate(&options) {
            assert_eq!((packet.bytes.len(), packet.original_len_bytes), (60, 60));
            assert_valid(&packet.bytes, profile.name());
        }
    }
}

/// Addresses and ports, sequence and acknowledgement numbers, flags and payload length of a TCP segment over IPv4.
fn segment(packet: &CapturedPacket) -> Option<([u8; 12], u32, u32, u8, u32)> {
    let ip = packet.bytes.get(14..)?;
    if packet.bytes[12..14] != [0x08, 0x00] || ip[9] != 6 {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
    let payload = total - 20 - u32::from(ip[32] >> 4) * 4;
    Some((ip[12..24].try_into().unwrap(), word(24), word(28), ip[33], payload))
}

fn reversed(key: &[u8; 12]) -> [u8; 12] {
    let mut other = [0; 12];
    for (to, from) in [(0..4, 4..8), (4..8, 0..4), (8..10, 10..12), (10..12, 8..10)] {
        other[to].copy_from_slice(&key[from]);
    }
    other
}

/// Connections with both directions in the trace: each byte is sent once and in order, only sent data are acknowledged,
/// a SYN comes first and a FIN last, and most SYNs are answered.
#[test]
fn conversations_are_consistent() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let packets = generate(&TrafficOptions { duration_ns: Some(8 * S), ..options(Profile::Uni1) });
    let mut next: HashMap<[u8; 12], u32> = HashMap::new();
    let (mut closed, mut opened, mut answered, mut acks) = (HashSet::new(), 0, 0, 0);
    for packet in &packets {
        let Some((key, seq, ack, flags, payload)) = segment(packet) else { continue };
        let other = reversed(&key);
        let is_first = !next.contains_key(&key);
        assert!(is_first || next[&key] == seq, "a gap or a repetition in {key:?}");
        assert!(is_first || flags & SYN == 0, "a SYN within {key:?}");
        assert!(!closed.contains(&key) || (payload == 0 && flags == ACK), "data behind a FIN in {key:?}");
        if flags & ACK == 0 {
            assert_eq!((flags, ack), (SYN, 0));
        } else if let Some(sent) = next.get(&other) {
            assert!(sent.wrapping_sub(ack) < 1 << 24, "{key:?} acknowledges what was not sent");
            acks += usize::from(ack == *sent);
        }
        opened += usize::from(flags == SYN);
        answered += usize::from(flags == SYN | ACK && next.contains_key(&other));
        if flags & FIN != 0 {
            closed.insert(key);
        }
        next.insert(key, seq.wrapping_add(payload + u32::from(flags & (SYN | FIN) != 0)));
    }
    assert!(opened > 300 && answered * 10 > opened * 7, "{answered} of {opened} are answered");
    assert!(closed.len() > 500 && acks > 5000, "{} closed, {acks} up to date", closed.len());
}

#[test]
fn bidirectional_traffic_uses_both_ports() {
    for profile in NETWORKS {
        let packets = generate(&TrafficOptions { packets: Some(20_000), snap_bytes: Some(64), ..options(profile) });
        let outside = packets.iter().filter(|packet| packet.port == 2).count();
        let is_one_way = matches!(profile, Profile::Chi15 | Profile::Caida2019);
        assert!(if is_one_way { outside == 0 } else { outside > 4000 && outside < 16_000 }, "{outside}");
    }
}

#[test]
fn snap_length_only_truncates() {
    let folder = tempfile::tempdir().unwrap();
    for (profile, file) in [(Profile::Uni2, "a.pcap"), (Profile::Mawi15, "a.pcapng")] {
        let whole = TrafficOptions { packets: Some(3000), ..options(profile) };
        let path = folder.path().join(file);
        let cut = generate(&TrafficOptions { snap_bytes: Some(70), ..whole.clone() });
        let mut writer = CaptureWriter::create_with_snap_len(&path, 70).unwrap();
        for packet in generate(&whole) {
            writer.write(packet.time_ns, packet.port, packet.original_len_bytes, None, &packet.bytes).unwrap();
        }
        writer.finish().unwrap();
        let read = read_file(&path);
        for ((cut, whole), read) in cut.iter().zip(generate(&whole)).zip(read) {
            assert_eq!(cut.bytes, whole.bytes[..whole.bytes.len().min(70)]);
            assert_eq!(cut.original_len_bytes, whole.original_len_bytes);
            assert_eq!(
                (read.time_ns, read.original_len_bytes, read.bytes),
                (cut.time_ns, cut.original_len_bytes, cut.bytes.clone())
            );
        }
        assert!(cut.iter().any(CapturedPacket::is_cut));
        // The file declares the snap length.
        let at = if file == "a.pcap" { 16 } else { 28 + 12 };
        assert_eq!(std::fs::read(&path).unwrap()[at..at + 4], 70u32.to_le_bytes());
    }
}

#[test]
fn a_rate_removes_gaps_only() {
    let own = TrafficOptions { packets: Some(5000), snap_bytes: Some(100), ..options(Profile::Chi15) };
    let fast = TrafficOptions { rate: Some("40G".parse().unwrap()), ..own.clone() };
    let (own, fast) = (generate(&own), generate(&fast));
    let mut bits = 0u128;
    for (own, fast) in own.iter().zip(&fast) {
        assert_eq!((&own.bytes, own.original_len_bytes), (&fast.bytes, fast.original_len_bytes));
        assert_eq!(u128::from(fast.time_ns - START_NS), bits / 40);
        bits += u128::from(fast.original_len_bytes + 24) * 8;
    }
    let (packets, rate) = (Some(10), Some("4Mpps".parse().unwrap()));
    let even = generate(&TrafficOptions { packets, rate, ..TrafficOptions::new(Profile::Uni1) });
    assert!(even.iter().enumerate().all(|(i, packet)| packet.time_ns == START_NS + 250 * i as u64));
}

#[test]
fn traffic_ends_at_the_first_limit() {
    let count = |packets, duration_ns, rate: Option<&str>, profile| {
        let rate = rate.map(|rate| rate.parse().unwrap());
        let options =
            TrafficOptions { packets, duration_ns, rate, snap_bytes: Some(64), ..TrafficOptions::new(profile) };
        (generate(&options).len() as u64, options.expected_packets().unwrap())
    };
    assert_eq!(count(Some(77), None, None, Profile::Uni1).0, 77);
    assert_eq!(count(Some(77), Some(S), None, Profile::Uni1).0, 77);
    let near = |(generate, expected): (u64, u64)| generate.abs_diff(expected) * 20 < expected;
    assert!(near(count(None, None, None, Profile::Uni1)));
    assert!(near(count(Some(100_000), Some(S), None, Profile::Uni1)));
    // Ten seconds of the trace's own time, at any replay rate.
    assert!(near(count(None, None, Some("40G"), Profile::Uni1)));
    assert!(near(count(None, Some(S / 100), Some("10G"), Profile::Uni2)));
    // 672 bits per packet.
    assert_eq!(count(None, Some(672_000), Some("1G"), Profile::Uniform), (1000, 1000));
    assert_eq!(count(None, None, None, Profile::Single), (1_000_000, 1_000_000));
}

/// The flow number of each packet, in order of first packets.
fn flows(packets: &[CapturedPacket]) -> Vec<usize> {
    let mut known = HashMap::new();
    packets
        .iter()
        .map(|packet| {
            let next = known.len();
            *known.entry(packet.bytes[26..38].to_vec()).or_insert(next)
        })
        .collect()
}

/// Packets per flow, most frequent first.
fn counts(flows: &[usize]) -> Vec<usize> {
    let mut counts = vec![0; flows.iter().max().unwrap() + 1];
    flows.iter().for_each(|flow| counts[*flow] += 1);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[test]
fn patterns_follow_their_definition() {
    let base = |profile| TrafficOptions { packets: Some(100_000), snap_bytes: Some(64), ..options(profile) };
    let single = flows(&generate(&TrafficOptions { packets: Some(1000), ..base(Profile::Single) }));
    assert!(single.iter().all(|flow| *flow == 0));
    let turns = flows(&generate(&TrafficOptions { packets: Some(1000), ..base(Profile::Alternate) }));
    assert!(turns.iter().enumerate().all(|(i, flow)| *flow == i % 2));
    let turns = flows(&generate(&TrafficOptions { packets: Some(1000), flows: Some(7), ..base(Profile::Alternate) }));
    assert!(turns.iter().enumerate().all(|(i, flow)| *flow == i % 7));

    let uniform = counts(&flows(&generate(&TrafficOptions { flows: Some(100), ..base(Profile::Uniform) })));
    assert!(uniform.len() == 100 && uniform.iter().all(|count| (800..1200).contains(count)), "{uniform:?}");

    let zipf = counts(&flows(&generate(&TrafficOptions { flows: Some(1000), ..base(Profile::Zipf) })));
    // The harmonic number of 1000 is 7.4855.
    for (rank, count) in zipf.iter().enumerate().take(10) {
        let expected = 1e5 / 7.4855 / (rank + 1) as f64;
        assert!((*count as f64 / expected - 1.0).abs() < 0.15, "rank {rank}: {count}, expected {expected}");
    }
    let steep = TrafficOptions { flows: Some(1000), exponent: Some(3.0), ..base(Profile::Zipf) };
    let steep = counts(&flows(&generate(&steep)));
    assert!((steep[0] as f64 / 1e5 * 1.202 - 1.0).abs() < 0.02);
}

#[test]
fn churn_adds_flows_at_its_rate() {
    // 100k packets at 10k per second take 10 s; 60k new flows per minute are 10k.
    let base = TrafficOptions {
        packets: Some(100_000),
        flows: Some(50),
        size_bytes: Some(60),
        rate: Some("10kpps".parse().unwrap()),
        new_per_minute: Some(60_000),
        ..options(Profile::Churn)
    };
    let packets = generate(&base);
    let found = flows(&packets);
    // Some of the first fifty flows are replaced before their first packet.
    assert!((9_999..=10_049).contains(&counts(&found).len()), "{}", counts(&found).len());
    // Each flow is one of fifty: at its first packet, the flow fifty before it has ended.
    let last_seen: HashMap<_, _> = found.iter().enumerate().map(|(i, flow)| (*flow, i)).collect();
    let first_seen = |flow: usize| found.iter().position(|other| *other == flow).unwrap();
    assert!((200..240).all(|flow| last_seen[&(flow - 50)] < first_seen(flow)));

    // TCP: a SYN first, a FIN last, sequence numbers without gaps.
    let packets = generate(&TrafficOptions { protocol: Some(Protocol::Tcp), size_bytes: Some(100), ..base });
    let mut next: HashMap<[u8; 12], (u32, u8)> = HashMap::new();
    let mut ended = 0;
    for packet in &packets {
        let (key, seq, _, flags, payload) = segment(packet).unwrap();
        match next.get(&key) {
            None => assert_eq!((flags, payload), (2, 0)),
            Some((expected, last)) => assert!(*expected == seq && flags & 2 == 0 && last & 1 == 0),
        }
        ended += usize::from(flags & 1);
        next.insert(key, (seq.wrapping_add(payload + u32::from(flags & 3 != 0)), flags));
    }
    assert!((9_940..=10_000).contains(&ended), "{ended}");
}

#[test]
fn invalid_options_name_the_permitted_range() {
    let refused = |options: TrafficOptions| Traffic::new(&options).err().unwrap().to_string();
    let of = TrafficOptions::new;
    let cases = [
        (
            TrafficOptions { exponent: Some(1.0), ..of(Profile::Uni1) },
            "`uni1` does not accept exponent, expected one of `zipf`, `churn`",
        ),
        (TrafficOptions { new_per_minute: Some(1), ..of(Profile::Zipf) }, "expected one of `churn`"),
        (TrafficOptions { protocol: Some(Protocol::Tcp), ..of(Profile::Chi15) }, "expected one of `uniform`, `zipf`"),
        (TrafficOptions { flows: Some(2), ..of(Profile::Single) }, "`single` does not accept flows"),
        (TrafficOptions { size_bytes: Some(59), ..of(Profile::Uni1) }, "size is 59, expected 60 to 9014 bytes"),
        (
            TrafficOptions { size_bytes: Some(60), ..of(Profile::Mawi15) },
            "expected 74 to 9014 bytes, or 60 with a share of IPv6 of 0",
        ),
        (TrafficOptions { size_bytes: Some(60), ipv6: Some(0.5), ..of(Profile::Uniform) }, "expected 62 to 9014 bytes"),
        (TrafficOptions { size_bytes: Some(10_000), ..of(Profile::Churn) }, "expected 60 to 9014"),
        (
            TrafficOptions { flows: Some(10_000_000), ..of(Profile::Uni1) },
            "flows in 10 s at its 6000 packets per second",
        ),
        (TrafficOptions { flows: Some(99), ..of(Profile::Chi15) }, "flows is 99, expected 100 to"),
        (TrafficOptions { flows: Some(1), ..of(Profile::Alternate) }, "expected 2 to 100000000 flows"),
        (TrafficOptions { flows: Some(0), ..of(Profile::Uniform) }, "expected 1 to"),
        (TrafficOptions { exponent: Some(f64::NAN), ..of(Profile::Zipf) }, "exponent is NaN, expected 0 to 5"),
        (TrafficOptions { exponent: Some(-1.0), ..of(Profile::Churn) }, "exponent is -1, expected 0 to 5"),
        (TrafficOptions { ipv6: Some(1.5), ..of(Profile::Churn) }, "share of IPv6 is 150%, expected 0 to 100%"),
        (TrafficOptions { snap_bytes: Some(0), ..of(Profile::Churn) }, "snap length is 0, expected 14 to 262144 bytes"),
        (TrafficOptions { packets: Some(0), ..of(Profile::Churn) }, "packets is 0, expected at least 1"),
        (TrafficOptions { duration_ns: Some(0), ..of(Profile::Churn) }, "expected at least 1"),
        // 10 Gb/s of 1024-byte packets are 71.6 million per minute.
        (
            TrafficOptions { new_per_minute: Some(100_000_000), ..of(Profile::Churn) },
            "at 10G there are 71564885 packets of 1024 bytes per minute",
        ),
    ];
    for (options, expected) in cases {
        let said = refused(options);
        assert!(said.contains(expected), "{said}\nexpected: {expected}");
    }
    // The limits that the messages name are accepted.
    let most = 71_564_885;
    let churn = |new, protocol| TrafficOptions { new_per_minute: Some(new), protocol, ..of(Profile::Churn) };
    assert!(Traffic::new(&churn(most, None)).is_ok());
    assert!(Traffic::new(&churn(most, Some(Protocol::Tcp))).is_err());
    assert!(Traffic::new(&churn(most / 2, Some(Protocol::Tcp))).is_ok());
}

/// The smallest and the largest permitted number of flows have the requested figures.
#[test]
fn extreme_options_are_accepted() {
    let message = Traffic::new(&TrafficOptions { flows: Some(u64::MAX), ..TrafficOptions::new(Profile::Uni1) });
    let message = message.err().unwrap().to_string();
    let most: u64 = message.split(" to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    for flows in [100, most] {
        let info = census(&TrafficOptions { flows: Some(flows), ..options(Profile::Uni1) });
        let ratio = info.flows[2].max_active_in_10s as f64 / flows as f64;
        assert!((ratio - 1.0).abs() < 0.1, "{flows} asked, {:?}", info.flows[2]);
        assert!((info.mean_len_bytes / 697.0 - 1.0).abs() < 0.1, "{flows} flows, {} bytes", info.mean_len_bytes);
    }
}
