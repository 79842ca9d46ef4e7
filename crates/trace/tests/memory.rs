// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory is constant, whatever a capture holds or declares. A single test, since it measures its process.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};

use common::{Order, block, enhanced, interface, packet, pcap_header, pcap_packet, peak_kib, read, section};
use flowloom_testkit::skip;
use flowloom_trace::{CaptureReader, CapturedPacket, MergedReader, ReadAhead};
use lzma_rust2::{XzOptions, XzWriter};

/// A header followed by a repeated body.
struct Repeat {
    header: Vec<u8>,
    body: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Repeat {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at < self.header.len() {
            let count = (&self.header[self.at..]).read(buffer)?;
            self.at += count;
            return Ok(count);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            let inside = (self.at - self.header.len()) % self.body.len();
            if inside == 0 {
                if self.left == 0 {
                    break;
                }
                self.left -= 1;
            }
            let count = (&self.body[inside..]).read(&mut buffer[filled..])?;
            self.at += count;
            filled += count;
        }
        Ok(filled)
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

#[test]
fn memory_is_constant() {
    let Some(before_kib) = peak_kib() else {
        return skip("memory_is_constant", "`/proc/self/status` does not tell `VmHWM`");
    };
    let order = Order::Little;
    let frame = vec![7; 1000];
    let pcap = (pcap_header(order, true, 65_535, 1), pcap_packet(order, 1, 2, 1000, &frame));
    let pcapng = (
        [section(order), interface(order, 1, 0, &[])].concat(),
        // The unknown block is longer than the window.
        [enhanced(order, 0, 1000, 1000, &frame, &[]), block(order, 0xbad, &vec![1; 300_000])].concat(),
    );
    for ((header, body), left) in [(pcap, 100_000), (pcapng, 500)] {
        let reader = || {
            let source = Repeat { header: header.clone(), body: body.clone(), at: 0, left };
            CaptureReader::from_reader("long", source).unwrap()
        };
        let mut packets = reader();
        let mut found = CapturedPacket::default();
        while packets.read_into(&mut found).unwrap() {
            assert_eq!(found.bytes, frame);
        }
        assert_eq!(packets.packets(), left as u64);
        let mut ahead = ReadAhead::new(MergedReader::new(vec![reader()])).unwrap();
        let mut count = 0;
        while let batch = ahead.next_batch(usize::MAX).unwrap()
            && !batch.is_empty()
        {
            assert!(batch.iter().all(|packet| packet.bytes == frame));
            count += batch.len();
        }
        assert_eq!(count, left);
    }

    // Declared lengths beyond the end of the file.
    let mut lying = [section(order), interface(order, 1, 0, &[])].concat();
    lying.extend(order.words(&[6, 32 << 20, 0, 0, 0, 16 << 20, 16 << 20]));
    assert!(read("x", &lying).1.unwrap().to_string().contains("found 28 bytes of 33554432"));
    let mut lying = pcap_header(order, true, u32::MAX, 1);
    lying.extend(order.words(&[0, 0, 16 << 20, 16 << 20]));
    assert!(read("x", &lying).1.unwrap().to_string().contains("found 16 bytes of 16777232"));

    // A dictionary of 4 GiB - 1, the largest that a block header can request.
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    writer.write_all(&common::pcap(order, true, &[packet(0, 0, 1, b"a")])).unwrap();
    let mut packed = writer.finish().unwrap();
    let header = 12..12 + 4 * (usize::from(packed[12]) + 1) - 4;
    packed[header.start + 4] = 40;
    let crc = crc32(&packed[header.clone()]);
    packed[header.end..header.end + 4].copy_from_slice(&crc.to_le_bytes());
    let error = read("x", &packed).1.unwrap().to_string();
    assert!(error.contains("memory"), "{error}");

    let grown_kib = peak_kib().unwrap() - before_kib;
    assert!(grown_kib < 16 << 10, "{grown_kib} KiB more after 500 MB of captures");
}
