// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Round trips in every format and byte order.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common;

use common::{
    Order, any_packet, block, enhanced, interface, obsolete, option, pcap, read_all, read_file, runner, section,
    simple, write,
};
use flowloom_trace::CapturedPacket;
use proptest::collection::vec;
use proptest::prelude::*;

const ORDERS: [Order; 2] = [Order::Little, Order::Big];

#[test]
fn written_captures_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let with_ports = (any_packet(), any::<u32>(), 0..6u32, proptest::option::of(any::<u32>()));
    let mut runner = runner(48);
    runner
        .run(&vec(with_ports, 0..40), |drawn| {
            let mut next_interface = Vec::new();
            let packets: Vec<_> = drawn
                .into_iter()
                .map(|(packet, wide, narrow, verdict)| {
                    // Mostly few ports, sometimes an arbitrary one.
                    let port = if wide % 16 == 0 { wide } else { narrow };
                    let interface = next_interface.iter().position(|known| *known == port).unwrap_or_else(|| {
                        next_interface.push(port);
                        next_interface.len() - 1
                    });
                    CapturedPacket { port, interface: interface as u32, verdict, ..packet }
                })
                .collect();
            // The information that pcap preserves.
            let plain: Vec<_> = packets
                .iter()
                .map(|packet| CapturedPacket { port: 1, interface: 0, verdict: None, ..packet.clone() })
                .collect();
            for name in ["a.pcapng", "b.pcapng.xz", "c.pcap", "d.pcap.xz", "e.cap", "F.PCAPNG"] {
                let path = folder.path().join(name);
                write(&path, &packets);
                let expected = if name.to_lowercase().contains("pcapng") { &packets } else { &plain };
                prop_assert_eq!(&read_file(&path), expected, "{}", name);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn pcap_of_both_byte_orders_and_resolutions() {
    let mut runner = runner(128);
    runner
        .run(&vec(any_packet(), 0..30), |packets| {
            for order in ORDERS {
                prop_assert_eq!(&read_all("ns", &pcap(order, true, &packets)), &packets);
                let coarse: Vec<_> =
                    packets.iter().map(|p| CapturedPacket { time_ns: p.time_ns / 1000 * 1000, ..p.clone() }).collect();
                prop_assert_eq!(&read_all("us", &pcap(order, false, &packets)), &coarse);
            }
            Ok(())
        })
        .unwrap();
}

/// One block of a random pcapng file.
#[derive(Debug, Clone)]
enum Drawn {
    Section(bool),
    Interface { resolution: u8, offset_s: i64, snap: u32 },
    Packet { id: u32, ticks: u64, kind: u8, packet: CapturedPacket },
    Other { kind: u32, body: Vec<u8> },
}

fn any_block() -> impl Strategy<Value = Drawn> {
    let resolution = prop_oneof![
        Just(6u8),
        Just(9),
        0..=19u8,
        Just(127),
        (0..=63u8).prop_map(|exponent| 0x80 | exponent),
        Just(0xff)
    ];
    let other = prop_oneof![Just(4u32), Just(5), Just(10), Just(0xbad), Just(0x4000_0bad), Just(0x8000_0001)];
    prop_oneof![
        1 => any::<bool>().prop_map(Drawn::Section),
        4 => (resolution, -1000..1000i64, prop_oneof![Just(0u32), 1..2000u32])
            .prop_map(|(resolution, offset_s, snap)| Drawn::Interface { resolution, offset_s, snap }),
        12 => (any::<u32>(), prop_oneof![any::<u64>(), 0..1u64 << 50], 0..3u8, any_packet())
            .prop_map(|(id, ticks, kind, packet)| Drawn::Packet { id, ticks, kind, packet }),
        2 => (other, vec(any::<u8>(), 0..100)).prop_map(|(kind, body)| Drawn::Other { kind, body }),
    ]
}

/// Independent conversion to nanoseconds as the format defines it, by long division.
fn expected_ns(ticks: u64, resolution: u8, offset_s: i64) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    let per_s = if resolution & 0x80 == 0 { 10u128.checked_pow(exponent) } else { 1u128.checked_shl(exponent) };
    let ns = match per_s {
        Some(per_s) => {
            let (seconds, rest) = (u128::from(ticks) / per_s, u128::from(ticks) % per_s);
            // `rest` has at most 64 bits, like `ticks`.
            seconds * 1_000_000_000 + rest * 1_000_000_000 / per_s
        }
        None => 0,
    };
    u64::try_from(ns as i128 + i128::from(offset_s) * 1_000_000_000).ok()
}

#[test]
fn pcapng_with_sections_interfaces_and_all_packet_blocks() {
    let mut runner = runner(400);
    let packets = std::cell::Cell::new([0u64; 3]);
    let count = |kind: u8| {
        let mut counts = packets.get();
        counts[usize::from(kind)] += 1;
        packets.set(counts);
    };
    runner
        .run(&(any::<bool>(), vec(any_block(), 0..60)), |(is_big, blocks)| {
            let pick = |is_big| if is_big { Order::Big } else { Order::Little };
            let mut order = pick(is_big);
            let mut bytes = section(order);
            let mut interfaces = Vec::new();
            let mut expected: Vec<CapturedPacket> = Vec::new();
            for drawn in blocks {
                match drawn {
                    Drawn::Section(is_big) => {
                        order = pick(is_big);
                        bytes.extend(section(order));
                        interfaces.clear();
                    }
                    Drawn::Interface { resolution, offset_s, snap } => {
                        let options = [
                            option(order, 2, b"eth0"),
                            option(order, 9, &[resolution]),
                            option(order, 14, &order.u64(offset_s as u64)),
                        ];
                        bytes.extend(interface(order, 1, snap, &options));
                        interfaces.push((resolution, offset_s, snap));
                    }
                    Drawn::Packet { id, ticks, kind, packet } if !interfaces.is_empty() => {
                        let original = packet.original_len_bytes;
                        if kind == 2 {
                            let snap = interfaces[0].2;
                            let original = packet.bytes.len() as u32;
                            let captured = if snap == 0 { original } else { original.min(snap) } as usize;
                            bytes.extend(simple(order, original, &packet.bytes[..captured]));
                            let time_ns = expected.last().map_or(0, |before| before.time_ns);
                            expected.push(common::packet(time_ns, 0, original, &packet.bytes[..captured]));
                            count(kind);
                            continue;
                        }
                        let id = id % interfaces.len() as u32;
                        let (resolution, offset_s, _) = interfaces[id as usize];
                        let Some(time_ns) = expected_ns(ticks, resolution, offset_s) else { continue };
                        bytes.extend(match kind {
                            0 => enhanced(order, id, ticks, original, &packet.bytes, &[]),
                            _ => obsolete(order, id as u16, ticks, original, &packet.bytes),
                        });
                        expected.push(common::packet(time_ns, id, original, &packet.bytes));
                        count(kind);
                    }
                    Drawn::Packet { .. } => {}
                    Drawn::Other { kind, body } => bytes.extend(block(order, kind, &body)),
                }
            }
            prop_assert_eq!(read_all("ng", &bytes), expected);
            Ok(())
        })
        .unwrap();
    let [enhanced, obsolete, simple] = packets.get();
    eprintln!("packets in enhanced blocks {enhanced}, obsolete ones {obsolete}, simple ones {simple}");
    assert!(packets.get().iter().all(|count| *count >= 100));
}
