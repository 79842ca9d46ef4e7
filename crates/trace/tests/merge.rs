// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Merging of captures.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::io::Cursor;

use common::{Order, enhanced, interface, option, packet, pcap, runner, section};
use flowloom_trace::{CaptureReader, CapturedPacket, MergedReader};
use proptest::collection::vec;
use proptest::prelude::*;

fn open(bytes: &[u8]) -> CaptureReader {
    CaptureReader::from_reader("x", Cursor::new(bytes.to_vec())).unwrap()
}

fn merge(captures: &[Vec<u8>]) -> MergedReader {
    MergedReader::new(captures.iter().map(|bytes| open(bytes)).collect())
}

fn all(reader: MergedReader) -> Vec<CapturedPacket> {
    reader.collect::<Result<_, _>>().unwrap()
}

#[test]
fn merging_is_a_stable_sort_by_time() {
    let mut runner = runner(256);
    runner
        .run(&vec(vec(0..20u64, 0..12), 1..6), |files| {
            let mut expected = Vec::new();
            let mut captures = Vec::new();
            for (position, mut times) in files.into_iter().enumerate() {
                times.sort_unstable();
                let packets: Vec<_> =
                    times.iter().enumerate().map(|(i, time)| packet(*time, 0, 2, &[position as u8, i as u8])).collect();
                captures.push(pcap(Order::Little, true, &packets));
                expected.extend(packets.into_iter().map(|p| CapturedPacket { port: position as u32 + 1, ..p }));
            }
            // Model: a stable sort of the concatenated files.
            expected.sort_by_key(|packet| packet.time_ns);
            prop_assert_eq!(all(merge(&captures)), expected);
            Ok(())
        })
        .unwrap();
}

#[test]
fn one_file_keeps_its_order_and_its_ports() {
    let packets = [packet(30, 0, 1, b"a"), packet(10, 0, 1, b"b"), packet(20, 0, 1, b"c")];
    assert_eq!(all(merge(&[pcap(Order::Big, true, &packets)])), packets);
    assert!(all(merge(&[])).is_empty());

    let order = Order::Little;
    let mut bytes = section(order);
    bytes.extend(interface(order, 1, 0, &[]));
    bytes.extend(interface(order, 1, 0, &[option(order, 2, b"eth1")]));
    bytes.extend(interface(order, 1, 0, &[option(order, 2, b"port 40")]));
    for id in [2, 1, 0] {
        bytes.extend(enhanced(order, id, 0, 1, b"a", &[]));
    }
    // Interfaces are numbered from 0 in every section.
    bytes.extend(section(Order::Big));
    bytes.extend(interface(Order::Big, 1, 0, &[]));
    bytes.extend(enhanced(Order::Big, 0, 0, 1, b"a", &[]));
    let ports = |reader: MergedReader| all(reader).iter().map(|packet| packet.port).collect::<Vec<_>>();
    assert_eq!(ports(merge(&[bytes.clone()])), [40, 2, 1, 1]);
    assert_eq!(ports(merge(&[bytes.clone(), bytes.clone()])), [1, 1, 1, 1, 2, 2, 2, 2]);
    let by_bytes = merge(&[bytes.clone(), bytes]).port_by(Box::new(|bytes| u32::from(bytes[0])));
    assert!(ports(by_bytes).iter().all(|port| *port == u32::from(b'a')));
}
