// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Merging of captures.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::collections::VecDeque;
use std::io::{Cursor, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Order, block, enhanced, interface, option, packet, pcap, read_batches, runner, section};
use flowloom_trace::{CaptureReader, CapturedPacket, MergedReader, PacketBuffer, ReadAhead};
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

/// The packets of well-formed captures in batches of at most `most`.
fn batched(reader: MergedReader, most: usize) -> Vec<CapturedPacket> {
    let (packets, error) = read_batches(reader, most);
    assert!(error.is_none(), "{error:?}");
    packets
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
            prop_assert_eq!(&all(merge(&captures)), &expected);
            prop_assert_eq!(&batched(merge(&captures), 3), &expected);
            prop_assert_eq!(&batched(merge(&captures), usize::MAX), &expected);
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
    for captures in [vec![bytes.clone()], vec![bytes.clone(), bytes]] {
        let by_bytes = || merge(&captures).port_by(Box::new(|bytes| u32::from(bytes[0])));
        assert!(ports(by_bytes()).iter().all(|port| *port == u32::from(b'a')));
        assert_eq!(batched(by_bytes(), 3), all(by_bytes()));
    }
}

/// Captures of packets whose lengths change, longer than the windows of readers.
fn long_captures() -> Vec<Vec<u8>> {
    let packets = |first: u64| -> Vec<CapturedPacket> {
        let bytes = |number: u64| vec![number as u8; 1 + (number as usize * 7919) % 1500];
        (first..first + 6000).map(|number| packet(number * 3 % 10_000, 0, 1, &bytes(number))).collect()
    };
    let mut captures = vec![pcap(Order::Little, true, &packets(0)), pcap(Order::Big, false, &packets(5))];
    let order = Order::Little;
    let mut blocks = [section(order), interface(order, 1, 0, &[])].concat();
    for packet in packets(9) {
        blocks.extend(enhanced(order, 0, packet.time_ns / 1000, packet.bytes.len() as u32, &packet.bytes, &[]));
    }
    captures.push(blocks);
    // Sections in turn in both byte orders, and blocks that are skipped, some of which are longer than a window.
    let mut sections = Vec::new();
    for (number, part) in packets(2).chunks(50).enumerate() {
        let order = [Order::Little, Order::Big][number % 2];
        sections.extend([section(order), interface(order, 1, 0, &[])].concat());
        for packet in part {
            sections.extend(enhanced(order, 0, packet.time_ns / 1000, packet.bytes.len() as u32, &packet.bytes, &[]));
        }
        sections.extend(block(order, 0xbad, &vec![7; [40, 5000, 600_000][number % 3]]));
    }
    captures.push(sections);
    captures
}

#[test]
fn batches_have_the_packets_that_are_read_one_by_one() {
    let captures = long_captures();
    for captures in [&captures[..1], &captures[1..2], &captures[2..3], &captures[3..], &captures[..]] {
        let expected = all(merge(captures));
        assert_eq!(expected.len(), 6000 * captures.len());
        for most in [1, 1000, usize::MAX] {
            assert!(batched(merge(captures), most) == expected, "batches of {most}");
        }
        // What has been read by packets is not read again, and the other way round.
        let mut reader = merge(captures);
        let mut mixed = Vec::new();
        let mut buffer = PacketBuffer::default();
        for most in [1, 2, 500] {
            mixed.push(reader.next_packet().unwrap().unwrap());
            reader.read_batch(most, &mut buffer).unwrap();
            mixed.extend(buffer.batch().iter().map(CapturedPacket::from));
        }
        mixed.extend(all(reader));
        assert!(mixed == expected);
    }
}

/// A pipe to which these pieces are written in turn, and that would then be waited for.
struct Pieces(VecDeque<Vec<u8>>);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.0.front_mut().expect("waits for the pipe");
        let count = buffer.len().min(piece.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        piece.drain(..count);
        if piece.is_empty() {
            self.0.pop_front();
        }
        Ok(count)
    }
}

#[test]
fn packets_of_a_pipe_do_not_wait_for_later_ones() {
    let packets: Vec<CapturedPacket> = (0..5_u64).map(|time| packet(time, 0, 1, &[time as u8; 40])).collect();
    let plain = pcap(Order::Little, true, &packets);
    let order = Order::Little;
    let mut blocks = [section(order), interface(order, 1, 0, &[])].concat();
    packets.iter().for_each(|packet| blocks.extend(enhanced(order, 0, 0, 40, &packet.bytes, &[])));
    for capture in [plain, blocks] {
        let record = if capture[0] == 0x0a { 32 + 40 } else { 16 + 40 };
        let cuts = [capture.len() - 3 * record, capture.len() - 3 * record / 2, capture.len()];
        let begins = [0, cuts[0], cuts[1]];
        let pieces = begins.iter().zip(cuts).map(|(begin, end)| capture[*begin..end].to_vec()).collect();
        let source = CaptureReader::from_reader("pipe", Pieces(pieces)).unwrap();
        let (mut reader, mut buffer) = (MergedReader::new(vec![source]), PacketBuffer::default());
        let mut batches = Vec::new();
        for _ in 0..3 {
            reader.read_batch(usize::MAX, &mut buffer).unwrap();
            batches.push(buffer.batch().iter().map(|packet| packet.bytes[0]).collect::<Vec<_>>());
        }
        assert_eq!(batches, [vec![0, 1], vec![2], vec![3, 4]]);
    }
}

#[test]
fn packets_are_read_ahead_to_the_end_or_an_error() {
    let captures = long_captures();
    for most in [1, 700, usize::MAX] {
        let mut ahead = ReadAhead::new(merge(&captures)).unwrap();
        let mut packets = Vec::new();
        loop {
            let batch = ahead.next_batch(most).unwrap();
            assert!(batch.len() <= most);
            packets.extend(batch.iter().map(CapturedPacket::from));
            if batch.is_empty() {
                break;
            }
        }
        assert!(packets == all(merge(&captures)), "batches of {most}");
        assert!(ahead.next_batch(1).unwrap().is_empty());
    }
    // The error comes after the packets before it, once.
    let cut = &captures[0][..captures[0].len() - 1];
    let mut ahead = ReadAhead::new(merge(&[cut.to_vec()])).unwrap();
    let mut packets = 0;
    let error = loop {
        match ahead.next_batch(4000) {
            Ok(batch) => {
                assert!(!batch.is_empty(), "the end comes before the error");
                packets += batch.len();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(packets, 5999);
    assert!(error.to_string().contains("after 5999 packets"), "{error}");
    assert!(ahead.next_batch(1).unwrap().is_empty());
}

/// A source without end that tells whether it is still there.
struct Endless {
    _is_there: Arc<()>,
    at: u64,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let record = pcap(Order::Little, true, &[packet(0, 0, 1, &[1; 60])]);
        let (header, record) = record.split_at(24);
        for byte in buffer.iter_mut() {
            *byte =
                header.get(self.at as usize).copied().unwrap_or_else(|| record[(self.at - 24) as usize % record.len()]);
            self.at += 1;
        }
        Ok(buffer.len())
    }
}

#[test]
fn the_thread_ends_when_its_packets_are_not_wanted_any_more() {
    let is_there = Arc::new(());
    let source = CaptureReader::from_reader("endless", Endless { _is_there: Arc::clone(&is_there), at: 0 }).unwrap();
    let mut ahead = ReadAhead::new(MergedReader::new(vec![source])).unwrap();
    assert_eq!(ahead.next_batch(100).unwrap().len(), 100);
    assert_eq!(Arc::strong_count(&is_there), 2);
    drop(ahead);
    let end = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(&is_there) > 1 {
        assert!(Instant::now() < end, "the thread goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn packets_that_are_taken_back_come_again() {
    let captures = long_captures();
    let expected = all(merge(&captures[..1]));
    let mut ahead = ReadAhead::new(merge(&captures[..1])).unwrap();
    let mut packets: Vec<CapturedPacket> = Vec::new();
    for number in 0.. {
        let batch = ahead.next_batch(40);
        let batch: Vec<_> = batch.unwrap().iter().map(CapturedPacket::from).collect();
        if batch.is_empty() {
            break;
        }
        // All of them, some, or none.
        let back = [batch.len(), 1, 0][number % 3].min(batch.len());
        packets.extend_from_slice(&batch[..batch.len() - back]);
        ahead.take_back(back);
    }
    assert!(packets == expected);
}

#[test]
#[should_panic(expected = "no port for this")]
fn panics_of_the_reading_thread_are_passed_on() {
    let reader = merge(&long_captures()[..1]).port_by(Box::new(|bytes| {
        assert!(bytes.len() < 1000, "no port for this");
        1
    }));
    let mut ahead = ReadAhead::new(reader).unwrap();
    while !ahead.next_batch(usize::MAX).unwrap().is_empty() {}
}
