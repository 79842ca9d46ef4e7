// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handmade captures in every variant of the formats, the packets expected from them, and generated traffic.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::Cursor;
use std::path::Path;

use flowloom_testkit::Rng;
use flowloom_trace::{
    CaptureReader, CaptureWriter, CapturedPacket, Census, GeneratedPacket, MergedReader, PacketBuffer, Profile,
    TraceError, TraceInfo, Traffic, TrafficOptions,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A test runner whose seed is printed, or taken from `FLOWLOOM_SEED`.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let mut rng = Rng::from_env(0x7ace);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &rng.bytes(32)))
}

/// Reads captures to their end or their first error, in batches of at most `most` packets.
pub(crate) fn read_batches(mut reader: MergedReader, most: usize) -> (Vec<CapturedPacket>, Option<TraceError>) {
    let (mut packets, mut buffer) = (Vec::new(), PacketBuffer::default());
    loop {
        match reader.read_batch(most, &mut buffer) {
            Ok(()) if buffer.batch().is_empty() => return (packets, None),
            Ok(()) => {
                assert!(buffer.batch().len() <= most);
                packets.extend(buffer.batch().iter().map(CapturedPacket::from));
            }
            Err(error) => return (packets, Some(error)),
        }
    }
}

/// Reads a capture to its end or its first error, packet by packet; in batches it has the same packets and error.
pub(crate) fn read(name: &str, bytes: &[u8]) -> (Vec<CapturedPacket>, Option<TraceError>) {
    let (packets, error) = read_packets(name, bytes);
    for most in [2, usize::MAX] {
        let Ok(reader) = CaptureReader::from_reader(name, Cursor::new(bytes.to_vec())) else { break };
        let (batched, batched_error) = read_batches(MergedReader::new(vec![reader]), most);
        assert_eq!(batched, packets, "{name}: batches of {most}");
        assert_eq!(batched_error.map(|e| e.to_string()), error.as_ref().map(ToString::to_string), "{name}: {most}");
    }
    (packets, error)
}

fn read_packets(name: &str, bytes: &[u8]) -> (Vec<CapturedPacket>, Option<TraceError>) {
    let mut reader = match CaptureReader::from_reader(name, Cursor::new(bytes.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut packets = Vec::new();
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => packets.push(packet),
            Ok(None) => return (packets, None),
            Err(error) => {
                assert!(matches!(reader.next_packet(), Ok(None)), "a capture ends with its first error");
                return (packets, Some(error));
            }
        }
    }
}

/// Reads a well-formed capture.
pub(crate) fn read_all(name: &str, bytes: &[u8]) -> Vec<CapturedPacket> {
    let (packets, error) = read(name, bytes);
    assert!(error.is_none(), "{}", error.unwrap());
    packets
}

/// Reads a well-formed file.
pub(crate) fn read_file(path: &Path) -> Vec<CapturedPacket> {
    CaptureReader::open(path).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Writes packets to a file of the format that its name tells.
pub(crate) fn write(path: &Path, packets: &[CapturedPacket]) {
    let mut writer = CaptureWriter::create(path).unwrap();
    for packet in packets {
        writer.write(packet.time_ns, packet.port, packet.original_len_bytes, packet.verdict, &packet.bytes).unwrap();
    }
    assert_eq!(writer.packets(), packets.len() as u64);
    writer.finish().unwrap();
}

pub(crate) const NETWORKS: [Profile; 6] =
    [Profile::Uni1, Profile::Uni2, Profile::Mawi15, Profile::Chi15, Profile::Caida2019, Profile::Mawi2021];

fn captured(packet: GeneratedPacket<'_>) -> CapturedPacket {
    let GeneratedPacket { time_ns, port, len_bytes, bytes } = packet;
    let bytes = bytes.to_vec();
    CapturedPacket { time_ns, port, original_len_bytes: len_bytes, bytes, ..CapturedPacket::default() }
}

pub(crate) fn generate(options: &TrafficOptions) -> Vec<CapturedPacket> {
    let mut traffic = Traffic::new(options).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = traffic.next_packet() {
        packets.push(captured(packet));
    }
    packets
}

pub(crate) fn census(options: &TrafficOptions) -> TraceInfo {
    let mut census = Census::new();
    let mut traffic = Traffic::new(&TrafficOptions { snap_bytes: Some(128), ..options.clone() }).unwrap();
    while let Some(packet) = traffic.next_packet() {
        census.add(&captured(packet));
    }
    census.finish()
}

/// Peak memory of the process so far.
pub(crate) fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub(crate) fn u64(self, value: u64) -> [u8; 8] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub(crate) fn words(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| self.u32(*value)).collect()
    }
}

pub(crate) fn pcap_header(order: Order, is_ns: bool, snap: u32, link_type: u32) -> Vec<u8> {
    let mut bytes = order.u32(if is_ns { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
    bytes.extend([order.u16(2), order.u16(4)].concat());
    bytes.extend(order.words(&[0, 0, snap, link_type]));
    bytes
}

pub(crate) fn pcap_packet(order: Order, seconds: u32, fraction: u32, original: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = order.words(&[seconds, fraction, data.len() as u32, original]);
    bytes.extend(data);
    bytes
}

pub(crate) fn pcap(order: Order, is_ns: bool, packets: &[CapturedPacket]) -> Vec<u8> {
    let mut bytes = pcap_header(order, is_ns, 262_144, 1);
    for packet in packets {
        let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
        let fraction = if is_ns { ns } else { ns / 1000 };
        bytes.extend(pcap_packet(order, seconds as u32, fraction as u32, packet.original_len_bytes, &packet.bytes));
    }
    bytes
}

/// A pcapng block.
pub(crate) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = order.u32(padded as u32 + 12);
    let mut bytes = [order.u32(kind).as_slice(), &len, body].concat();
    bytes.resize(padded + 8, 0);
    bytes.extend(len);
    bytes
}

/// A pcapng option.
pub(crate) fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [order.u16(code).as_slice(), &order.u16(value.len() as u16), value].concat();
    bytes.resize(4 + value.len().next_multiple_of(4), 0);
    bytes
}

/// A section header with a comment option.
pub(crate) fn section(order: Order) -> Vec<u8> {
    let mut body = order.u32(0x1a2b_3c4d).to_vec();
    body.extend([order.u16(1), order.u16(0)].concat());
    body.extend(order.u64(u64::MAX));
    body.extend(option(order, 1, b"by hand"));
    body.extend(option(order, 0, b""));
    block(order, 0x0a0d_0d0a, &body)
}

/// An interface description with these options.
pub(crate) fn interface(order: Order, link_type: u16, snap: u32, options: &[Vec<u8>]) -> Vec<u8> {
    let mut body = [order.u16(link_type), order.u16(0)].concat();
    body.extend(order.u32(snap));
    body.extend(options.concat());
    if !options.is_empty() {
        body.extend(option(order, 0, b""));
    }
    block(order, 1, &body)
}

fn padded(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    data.resize(data.len().next_multiple_of(4), 0);
    data
}

/// An enhanced packet block.
pub(crate) fn enhanced(order: Order, id: u32, ticks: u64, original: u32, data: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
    let mut body = order.words(&[id, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original]);
    body.extend(padded(data));
    body.extend(options.concat());
    block(order, 6, &body)
}

/// An obsolete packet block.
pub(crate) fn obsolete(order: Order, id: u16, ticks: u64, original: u32, data: &[u8]) -> Vec<u8> {
    let mut body = [order.u16(id), order.u16(0xffff)].concat();
    body.extend(order.words(&[(ticks >> 32) as u32, ticks as u32, data.len() as u32, original]));
    body.extend(padded(data));
    block(order, 2, &body)
}

/// A simple packet block.
pub(crate) fn simple(order: Order, original: u32, data: &[u8]) -> Vec<u8> {
    block(order, 3, &[order.u32(original).as_slice(), data].concat())
}

/// The `epb_verdict` of an XDP program.
pub(crate) fn verdict(order: Order, number: u64) -> Vec<u8> {
    option(order, 7, &[[2].as_slice(), &order.u64(number)].concat())
}

pub(crate) fn packet(time_ns: u64, interface: u32, original_len_bytes: u32, bytes: &[u8]) -> CapturedPacket {
    CapturedPacket { time_ns, bytes: bytes.to_vec(), original_len_bytes, interface, port: interface + 1, verdict: None }
}

/// Any packet that pcap can represent, on interface 0 without a verdict.
pub(crate) fn any_packet() -> impl Strategy<Value = CapturedPacket> {
    let len = prop_oneof![8 => 0..200usize, 1 => 1400..1600usize, 1 => Just(9000usize), 1 => Just(70_000usize)];
    let bytes = len.prop_flat_map(|len| {
        vec(any::<u8>(), len.min(64)).prop_map(move |head| {
            let mut bytes = head.clone();
            // Long packets repeat their head: more random bytes would not test more.
            bytes.extend(head.iter().cycle().take(len - head.len()));
            bytes
        })
    });
    let time = prop_oneof![0..=4_294_967_295_999_999_999u64, Just(0), Just(4_294_967_295_999_999_999)];
    let original = prop_oneof![Just(None), any::<u32>().prop_map(Some)];
    (time, bytes, original).prop_map(|(time_ns, bytes, original)| {
        let original = original.unwrap_or(bytes.len() as u32);
        packet(time_ns, 0, original, &bytes)
    })
}
