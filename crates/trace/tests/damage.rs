// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Malformed captures: packets before the error are read, and the error states what is wrong and where.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common;

use std::io::{Cursor, Read, Write};

use common::{
    Order, block, enhanced, interface, obsolete, option, packet, pcap, pcap_header, pcap_packet, read, read_all,
    read_batches, section, simple, verdict,
};
use flowloom_testkit::Rng;
use flowloom_trace::{CaptureReader, CaptureWriter, CapturedPacket, Format, MergedReader, PacketBuffer, TraceError};
use lzma_rust2::{XzOptions, XzWriter};

fn message(bytes: &[u8]) -> String {
    read("x", bytes).1.expect("an error").to_string()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn sample_packets() -> Vec<CapturedPacket> {
    let lens = [0usize, 1, 2, 3, 4, 60, 61, 0, 33];
    lens.iter()
        .zip(0u64..)
        .map(|(&len, i)| packet(1_700_000_000_000_000_000 + i * 1000, 0, 64, &vec![i as u8; len]))
        .collect()
}

/// A pcapng file with all kinds of blocks, and the offset at which each packet ends.
fn sample_pcapng(order: Order) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = section(order);
    let mut ends = Vec::new();
    bytes.extend(interface(order, 1, 0, &[option(order, 9, &[9])]));
    for data in [b"abc".as_slice(), b"", b"abcdefgh"] {
        bytes.extend(enhanced(order, 0, 77, 100, data, &[verdict(order, 3)]));
        ends.push(bytes.len());
        bytes.extend(block(order, 5, b"statistics"));
        bytes.extend(obsolete(order, 0, 78, 100, data));
        ends.push(bytes.len());
        bytes.extend(simple(order, data.len() as u32, data));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[test]
fn pcap_cut_at_every_byte() {
    for order in [Order::Little, Order::Big] {
        let packets = sample_packets();
        let whole = pcap(order, true, &packets);
        let mut ends = vec![24];
        ends.extend(packets.iter().scan(24, |end, packet| {
            *end += 16 + packet.bytes.len();
            Some(*end)
        }));
        for len in 0..whole.len() {
            let (found, error) = read("cut", &whole[..len]);
            let complete = ends.iter().filter(|end| **end <= len).count().saturating_sub(1);
            assert_eq!(found, packets[..complete], "cut at {len}");
            assert_eq!(error.is_none(), ends.contains(&len), "cut at {len}: {error:?}");
            if let Some(TraceError::Truncated { place, found_bytes, expected_bytes, .. }) = &error {
                assert_eq!(place.offset_bytes + found_bytes, len as u64);
                assert!(found_bytes < expected_bytes && place.packets == complete as u64);
            }
        }
    }
}

#[test]
fn pcapng_cut_at_every_byte() {
    for order in [Order::Little, Order::Big] {
        let (whole, ends) = sample_pcapng(order);
        let packets = read_all("whole", &whole);
        assert_eq!(packets.len(), ends.len());
        assert_eq!(packets[0].verdict, Some(3));
        for len in 0..whole.len() {
            let (found, error) = read("cut", &whole[..len]);
            let complete = ends.iter().filter(|end| **end <= len).count();
            assert_eq!(found, packets[..complete], "cut at {len}");
            match error {
                Some(TraceError::Truncated { place, found_bytes, expected_bytes, .. }) => {
                    assert_eq!(place.offset_bytes + found_bytes, len as u64);
                    assert!(found_bytes < expected_bytes && place.packets == complete as u64);
                }
                Some(TraceError::NotACapture { .. }) => assert!(len < 4),
                Some(error) => panic!("cut at {len}: {error}"),
                None => assert!(len > 0 && is_block_end(order, &whole, len), "cut at {len} unnoticed"),
            }
        }
    }
}

fn is_block_end(order: Order, whole: &[u8], len: usize) -> bool {
    let mut at = 0;
    while at < len {
        let word: [u8; 4] = whole[at + 4..at + 8].try_into().unwrap();
        at += if order == Order::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) } as usize;
    }
    at == len
}

#[test]
fn xz_cut_at_every_byte() {
    let packets = sample_packets();
    let whole = xz(&pcap(Order::Little, true, &packets));
    assert_eq!(read_all("whole", &whole), packets);
    for len in 0..whole.len() {
        let (found, error) = read("cut", &whole[..len]);
        assert!(packets.starts_with(&found), "cut at {len}");
        assert!(error.is_some(), "cut at {len} unnoticed");
    }
    // Only the checks at the end are missing: every packet is present.
    assert_eq!(read("cut", &whole[..whole.len() - 1]).0, packets);
    let message = message(&whole[..whole.len() - 1]);
    let expected = "`x` at byte 332 of the unpacked capture, after 9 packets: the xz file is truncated; ";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn damaged_bytes_never_panic() {
    let mut rng = Rng::from_env(0xdab);
    let mut samples: Vec<Vec<u8>> = Vec::new();
    for order in [Order::Little, Order::Big] {
        samples.push(sample_pcapng(order).0);
        samples.push(pcap(order, false, &sample_packets()));
    }
    samples.push(xz(&samples[0]));
    samples.push(xz(&samples[1]));
    let (mut refused, mut read_packets) = (0, 0);
    for _ in 0..60_000 {
        let mut bytes = rng.pick(&samples).clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                _ => {
                    let end = (at + rng.below(12)).min(bytes.len());
                    bytes.drain(at..end);
                }
            }
        }
        let (packets, error) = read("damaged", &bytes);
        refused += u64::from(error.is_some());
        read_packets += packets.len();
        if let Some(error) = error {
            assert!(!error.to_string().is_empty());
        }
    }
    eprintln!("60000 damaged captures: {refused} refused, {read_packets} packets read");
    assert!(refused > 10_000 && read_packets > 10_000);
}

#[test]
fn unsupported_formats_are_named() {
    let cases = [
        (&b""[..], "`x` starts with nothing: it is empty"),
        (b"\x7fELF\x02", "`x` starts with `7f 45 4c 46`"),
        (b"\x1f\x8b\x08\0\0", "`x` is compressed with gzip"),
    ];
    for (bytes, found) in cases {
        assert_eq!(message(bytes), format!("{found}, expected a pcap or pcapng capture, plain or in xz"));
    }
    assert!(message(&[0x34, 0xcd, 0xb2, 0xa1, 2, 0, 4, 0]).contains("patched libpcap"));
    assert!(message(&xz(b"hello")).contains("`68 65 6c 6c`"));
}

#[test]
fn unsupported_link_types_are_named() {
    for order in [Order::Little, Order::Big] {
        let expected = "interface 0 has link type LINKTYPE_LINUX_SLL (113), expected LINKTYPE_ETHERNET (1)";
        let header = pcap_header(order, true, 65_535, 113);
        assert_eq!(message(&header), format!("`x` at byte 0, after 0 packets: {expected}"));
        // Interface 0 is Ethernet and its packets come first. Interface 2 has no packets, so its link type is ignored.
        let mut bytes = section(order);
        for link_type in [1, 276, 9999] {
            bytes.extend(interface(order, link_type, 0, &[]));
        }
        bytes.extend(enhanced(order, 0, 0, 1, b"a", &[]));
        let at = bytes.len();
        bytes.extend(enhanced(order, 1, 0, 1, b"a", &[]));
        assert_eq!(read("x", &bytes).0.len(), 1);
        let expected = "interface 1 has link type LINKTYPE_LINUX_SLL2 (276), expected LINKTYPE_ETHERNET (1)";
        assert_eq!(message(&bytes), format!("`x` at byte {at}, after 1 packets: {expected}"));
        let mut bytes = section(order);
        bytes.extend(interface(order, 9999, 0, &[]));
        bytes.extend(simple(order, 1, b"a"));
        assert!(message(&bytes).contains("interface 0 has link type 9999, expected"));
        // The bits above the link type describe the frame check sequence.
        assert!(read_all("fcs", &pcap_header(order, true, 65_535, 0x2400_0001)).is_empty());
    }
}

#[test]
fn wrong_values_in_pcap() {
    let order = Order::Big;
    let mut bytes = pcap_header(order, true, 96, 1);
    bytes.extend(pcap_packet(order, 1, 2, 1500, &[0; 97]));
    assert_eq!(read_all("longer than the snap length", &bytes)[0].bytes.len(), 97);
    let at = bytes.len() + 8;
    bytes.extend(order.words(&[1, 2, 262_145, 262_145]));
    let expected = "the captured length of a packet is 262145 bytes, expected at most 262144 bytes";
    assert_eq!(message(&bytes), format!("`x` at byte {at}, after 1 packets: {expected}"));
    let mut large = pcap_header(order, true, 300_000, 1);
    large.extend(pcap_packet(order, 1, 2, 262_145, &vec![7; 262_145]));
    assert_eq!(read_all("a larger snap length", &large)[0].bytes.len(), 262_145);
    let mut bytes = pcap_header(order, true, 96, 1);
    bytes[5] = 3;
    assert_eq!(message(&bytes), "`x` at byte 4, after 0 packets: the version is 3.4, expected 2.4");
    bytes = pcap_header(order, true, 96, 1);
    bytes.extend(pcap_packet(order, 1, 2, 64, &[0; 64]));
    bytes.pop();
    assert_eq!(
        message(&bytes),
        "`x` at byte 24, after 0 packets: the capture ends within a packet, found 79 bytes of 80"
    );
}

#[test]
fn wrong_values_in_pcapng() {
    let order = Order::Little;
    let start = [section(order), interface(order, 1, 0, &[])].concat();
    let at = start.len();
    let with = |bytes: &[u8]| message(&[start.as_slice(), bytes].concat());

    let mut bytes = section(order);
    bytes[8] = 0;
    assert!(message(&bytes).contains("at byte 8, after 0 packets: the byte-order magic of a section is 0x003c2b1a"));
    bytes = section(order);
    bytes[12] = 2;
    assert!(message(&bytes).contains("at byte 12, after 0 packets: the version of a section is 2.0, expected 1.0"));

    let good = enhanced(order, 0, 5, 3, b"abc", &[]);
    let change = |offset: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[offset..offset + 4].copy_from_slice(&order.u32(value));
        bytes
    };
    let mut unknown = block(order, 0xbad, b"1234");
    unknown[12] = 24;
    let long_option = enhanced(order, 0, 5, 3, b"abc", &[[order.u16(1), order.u16(5)].concat()]);
    let long_tsresol = interface(order, 1, 0, &[option(order, 9, &[9, 9])]);
    let short_tsoffset = interface(order, 1, 0, &[option(order, 14, &[9, 9])]);
    let multiple = "a multiple of 4 from 32 to 33554432 for an enhanced packet block (type 0x6)";
    let cases = [
        (change(4, 38), 4, "the length of a block is 38 bytes", multiple),
        (change(4, 0), 4, "the length of a block is 0 bytes", multiple),
        (change(4, u32::MAX - 3), 4, "the length of a block is 4294967292 bytes", multiple),
        (change(32, 40), 32, "the length at the end of a block is 40 bytes", "36 bytes, its length at the start"),
        (change(8, 1), 8, "the interface of a packet is 1", "one of the 1 interfaces that the section describes"),
        (change(20, 5), 20, "the captured length of a packet is 5 bytes", "at most 4 bytes"),
        (change(20, u32::MAX), 20, "the captured length of a packet is 4294967295 bytes", "at most 4 bytes"),
        (unknown, 12, "the length at the end of a block is 24 bytes", "16 bytes, its length at the start"),
        (long_option, 34, "the length of an option is 5 bytes", "at most 0 bytes"),
        (long_tsresol, 16, "`if_tsresol` is 2 bytes long", "1 bytes"),
        (short_tsoffset, 16, "`if_tsoffset` is 2 bytes long", "8 bytes"),
    ];
    for (bytes, offset, found, expected) in cases {
        let place = format!("`x` at byte {}, after 0 packets", at + offset);
        assert_eq!(with(&bytes), format!("{place}: {found}, expected {expected}"));
    }

    let before_1970 = interface(order, 1, 0, &[option(order, 14, &order.u64(-1i64 as u64))]);
    let bytes = [before_1970, enhanced(order, 1, 999_999, 3, b"abc", &[])].concat();
    let expected = "the time of a packet is -1000 ns since 1970, expected 0 to 18446744073709551615 ns";
    assert!(with(&bytes).contains(expected));
    let coarse = interface(order, 1, 0, &[option(order, 9, &[0])]);
    let bytes = [coarse, enhanced(order, 1, u64::MAX, 3, b"abc", &[])].concat();
    assert!(with(&bytes).contains("the time of a packet is 18446744073709551615000000000 ns"));
}

/// A source that returns one byte at a time and fails at the end.
struct Failing(Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(&mut buffer[..1])? {
            0 => Err(std::io::Error::other("the cable is cut")),
            count => Ok(count),
        }
    }
}

#[test]
fn read_errors_follow_the_packets_before_them() {
    let packets = sample_packets();
    for bytes in [pcap(Order::Little, true, &packets), sample_pcapng(Order::Big).0] {
        let expected = read_all("whole", &bytes);
        let place =
            format!("cannot read `wire` at byte {}, after {} packets: the cable is cut", bytes.len(), expected.len());
        let again = bytes.clone();
        let mut reader = CaptureReader::from_reader("wire", Failing(Cursor::new(bytes))).unwrap();
        for packet in &expected {
            assert_eq!(reader.next_packet().unwrap().as_ref(), Some(packet));
        }
        assert_eq!(reader.next_packet().unwrap_err().to_string(), place);
        let reader = CaptureReader::from_reader("wire", Failing(Cursor::new(again))).unwrap();
        let (batched, error) = read_batches(MergedReader::new(vec![reader]), usize::MAX);
        assert_eq!((batched, error.unwrap().to_string()), (expected, place));
    }
}

#[test]
fn a_packet_beyond_the_limit_is_malformed_where_it_is_whole() {
    let order = Order::Little;
    // After the first window of batches, which the long packet would not fit in.
    let mut bytes = pcap(order, true, &vec![packet(0, 0, 200, &[1; 200]); 1000]);
    bytes.extend(pcap_packet(order, 0, 0, 262_145, &vec![2; 262_145]));
    bytes.extend(pcap_packet(order, 0, 0, 1, &[3]));
    let (packets, error) = read("x", &bytes);
    assert_eq!(packets.len(), 1000);
    assert!(error.unwrap().to_string().contains("is 262145 bytes, expected at most 262144"));
}

#[test]
fn of_a_damaged_xz_file_all_ways_read_the_same_packets() {
    let mut rng = Rng::from_env(0xda3a);
    let packets: Vec<CapturedPacket> = (0..4000).map(|time| packet(time, 0, 1, &rng.bytes(400))).collect();
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    writer.write_all(&pcap(Order::Little, true, &packets)).unwrap();
    let packed = writer.finish().unwrap();
    let mut flipped = packed.clone();
    flipped[packed.len() / 2] ^= 0x55;
    for damaged in [&packed[..packed.len() / 2], &flipped] {
        let (read, error) = read("x", damaged);
        assert!(error.is_some() && read[..] == packets[..read.len()]);
        // Half of what is there, but for what the decompressor keeps to itself.
        assert!((1800..=4000).contains(&read.len()), "{} packets", read.len());
    }
}

#[test]
fn merging_continues_after_a_malformed_file() {
    let whole = pcap(Order::Little, true, &[packet(10, 0, 1, b"a"), packet(30, 0, 1, b"c"), packet(50, 0, 1, b"e")]);
    let other = pcap(Order::Little, true, &[packet(20, 0, 1, b"b"), packet(40, 0, 1, b"d")]);
    let open = |bytes: &[u8]| CaptureReader::from_reader("x", Cursor::new(bytes.to_vec())).unwrap();
    let merged = MergedReader::new(vec![open(&whole[..whole.len() - 1]), open(&other)]);
    let seen: Vec<_> = merged.map(|packet| packet.map(|p| (p.bytes[0], p.port)).ok()).collect();
    assert_eq!(seen, [Some((b'a', 1)), Some((b'b', 2)), Some((b'c', 1)), None, Some((b'd', 2))]);
    let mut merged = MergedReader::new(vec![open(&whole[..whole.len() - 1]), open(&other)]);
    let mut buffer = PacketBuffer::default();
    let mut batches = Vec::new();
    for _ in 0..4 {
        let read = merged.read_batch(usize::MAX, &mut buffer);
        batches.push(read.map(|()| buffer.batch().iter().map(|packet| packet.bytes[0]).collect::<Vec<_>>()).ok());
    }
    assert_eq!(batches, [Some(b"abc".to_vec()), None, Some(b"d".to_vec()), Some(Vec::new())]);

    // If several captures are malformed, the first file's error comes first.
    let named = |name| CaptureReader::from_reader(name, Cursor::new(whole[..30].to_vec())).unwrap();
    let merged = MergedReader::new(vec![named("first"), open(&other), named("last")]);
    let errors: Vec<_> = merged.filter_map(Result::err).map(|error| error.to_string()).collect();
    assert!(errors[0].contains("`first`") && errors[1].contains("`last`") && errors.len() == 2, "{errors:?}");
}

/// A sink with this many bytes of capacity.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(std::io::Error::other("the disk is full"));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.0 == 0 { Err(std::io::Error::other("the disk is full")) } else { Ok(()) }
    }
}

#[test]
fn write_errors_are_reported() {
    assert!(CaptureWriter::to_writer("y", Format::Pcap, Full(23)).is_err());
    let mut writer = CaptureWriter::to_writer("y", Format::Pcap, Full(24 + 17)).unwrap();
    writer.write(0, 1, 1, None, b"a").unwrap();
    let error = writer.write(0, 1, 1, None, b"a").unwrap_err();
    assert_eq!(error.to_string(), "cannot write `y` after 1 packets: the disk is full");
    assert_eq!(writer.finish().unwrap_err().to_string(), "cannot write `y` after 1 packets: the disk is full");

    for format in [Format::Pcap, Format::PcapNg] {
        let mut writer = CaptureWriter::to_writer("y", format, std::io::sink()).unwrap();
        let error = writer.write(0, 1, 1, None, &vec![0; 262_145]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write packet 1 to `y`: its length in bytes is 262145, expected at most 262144"
        );
        let far = writer.write(u64::MAX, 1, 1, None, b"a");
        match format {
            Format::PcapNg => far.unwrap(),
            Format::Pcap => assert_eq!(
                far.unwrap_err().to_string(),
                "cannot write packet 1 to `y`: its time in seconds is 18446744073, expected at most 4294967295"
            ),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = CaptureWriter::create(folder.path().join("a.pcap.gz")).err().unwrap().to_string();
    assert!(refused.contains("compression `.gz` is not supported"), "{refused}");
    assert!(matches!(CaptureWriter::create(folder.path().join("no/a.pcap")), Err(TraceError::Create { .. })));
    assert!(matches!(CaptureReader::open(folder.path().join("none")), Err(TraceError::Open { .. })));
    assert!(CaptureReader::open(folder.path()).is_err());
}
