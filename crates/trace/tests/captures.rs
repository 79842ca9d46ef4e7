// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real captures, from the folder that `FLOWLOOM_TRACES` names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flowloom_trace::{CaptureReader, CaptureWriter, CapturedPacket, MergedReader, TraceInfo, traces_from_env};

/// The captures; none, with a skip message, if the variable is not set.
fn captures(test: &str) -> Vec<PathBuf> {
    let captures = traces_from_env().unwrap_or_else(|error| panic!("{error}"));
    captures.unwrap_or_else(|| {
        flowloom_testkit::skip(test, "`FLOWLOOM_TRACES` is not set");
        Vec::new()
    })
}

fn packets(path: &Path) -> impl Iterator<Item = CapturedPacket> {
    let fail = |error| -> CapturedPacket { panic!("{error}") };
    CaptureReader::open(path).unwrap().map(move |packet| packet.unwrap_or_else(fail))
}

/// Packet counts from the table in the folder's README: `| name | packets | flows | mean size | what |`.
fn stated_packets(folder: &Path) -> HashMap<String, u64> {
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
    };
    readme.lines().filter_map(row).collect()
}

#[test]
fn every_capture_is_read_completely() {
    let mut total = 0;
    for path in captures("every_capture_is_read_completely") {
        let count = packets(&path).count() as u64;
        let stem = path.file_name().unwrap().to_string_lossy().split('.').next().unwrap().to_owned();
        if let Some(stated) = stated_packets(path.parent().unwrap()).get(&stem) {
            assert_eq!(count, *stated, "{}", path.display());
        }
        eprintln!("{}: {count} packets", path.display());
        total += count;
    }
    eprintln!("{total} packets read");
}

#[test]
fn every_capture_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    for path in captures("every_capture_round_trips") {
        // Both at a time: captures are compressed, and read twice only.
        let copies = ["copy.pcap", "copy.pcapng"].map(|name| folder.path().join(name));
        let mut writers = copies.each_ref().map(|copy| CaptureWriter::create(copy).unwrap());
        for packet in packets(&path) {
            for writer in &mut writers {
                writer.write(packet.time_ns, packet.port, packet.original_len_bytes, Some(2), &packet.bytes).unwrap();
            }
        }
        writers.into_iter().for_each(|writer| writer.finish().unwrap());
        let [one, other] = copies.each_ref().map(|copy| {
            packets(copy).map(|copy| CapturedPacket { verdict: None, ..copy }).map(Some).chain(std::iter::repeat(None))
        });
        let given = packets(&path).map(Some).chain([None]);
        assert!(given.zip(one).zip(other).all(|((given, one), other)| given == one && given == other));
    }
}

#[test]
fn every_capture_has_an_info() {
    for path in captures("every_capture_has_an_info") {
        let started = std::time::Instant::now();
        let info = TraceInfo::read(&mut MergedReader::open(&[&path]).unwrap()).unwrap();
        let by_key: Vec<_> = info.flows.iter().map(|flows| (flows.one_way, flows.both_ways)).collect();
        eprintln!(
            "{}: {} packets of {:.0} bytes in {} ms, flows {by_key:?}, at most {} new a ms, read in {} ms",
            path.display(),
            info.packets,
            info.mean_len_bytes,
            info.duration_ns / 1_000_000,
            info.flows[2].max_new_per_ms,
            started.elapsed().as_millis()
        );
        let flows = &info.flows[2];
        assert!(flows.both_ways.unwrap() <= flows.one_way && flows.one_way <= flows.packets);
        assert!(flows.packets <= info.packets && flows.max_new_per_ms <= flows.max_active_in_10s);
        assert!(flows.max_active_in_10s <= flows.one_way);
        assert_eq!(info.sizes.iter().map(|class| class.packets).sum::<u64>(), info.packets);
        assert!(info.captured_bytes <= info.wire_bytes || info.cut_packets == 0);
    }
}
