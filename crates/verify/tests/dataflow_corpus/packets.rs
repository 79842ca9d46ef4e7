// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets for programs: generated, corrupted, short, and from captures.

use std::path::PathBuf;

use flowloom_engine::Port;
use flowloom_testkit::{PacketBuilder, Rng, mutate};
use flowloom_trace::CaptureReader;
use flowloom_verify::Arrival;

/// Time between two generated packets, in nanoseconds.
const APART_NS: u64 = 1_000_000;

fn arrivals(bytes: impl Iterator<Item = Vec<u8>>, rng: &mut Rng) -> Vec<Arrival> {
    let mut time_ns = 1_000_000_000;
    bytes
        .map(|bytes| {
            time_ns += rng.below(2 * APART_NS as usize) as u64;
            Arrival { time_ns, port: Port(rng.below(4) as u32), bytes }
        })
        .collect()
}

/// Packets of all kinds in the parse graph, half of them corrupted.
pub fn made(rng: &mut Rng, count: usize) -> Vec<Arrival> {
    let mut own = rng.fork();
    let bytes = (0..count).map(|_| {
        let mut bytes = PacketBuilder::random(&mut own, 4).build();
        if own.chance(1, 2) {
            mutate(&mut own, &mut bytes);
        }
        bytes
    });
    arrivals(bytes, rng)
}

/// Packets of 0 to 60 bytes, truncated valid ones or random.
pub fn short(rng: &mut Rng, count: usize) -> Vec<Arrival> {
    let mut own = rng.fork();
    let bytes = (0..count).map(|number| {
        let len = number % 61;
        let mut bytes = match own.chance(3, 4) {
            true => PacketBuilder::random(&mut own, 4).build(),
            false => own.bytes(60),
        };
        bytes.truncate(len);
        bytes
    });
    arrivals(bytes, rng)
}

/// Packets of each capture in `FLOWLOOM_TRACES`: the first `of_each`, and as many spread over the rest.
pub fn captured(of_each: usize) -> Vec<(String, Vec<Arrival>)> {
    let Some(folder) = std::env::var_os("FLOWLOOM_TRACES").map(PathBuf::from) else { return Vec::new() };
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.to_string_lossy().contains(".pcap"));
    files.sort();
    let chosen = files.into_iter().map(|path| {
        let reader = CaptureReader::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let all: Vec<Arrival> = reader
            .map(|packet| {
                let packet = packet.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                Arrival { time_ns: packet.time_ns, port: Port(packet.port), bytes: packet.bytes }
            })
            .collect();
        let step = (all.len() / of_each.max(1)).max(1);
        let chosen = all.into_iter().enumerate().filter(|(index, _)| *index < of_each || index % step == 0);
        let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        (name, chosen.map(|(_, packet)| packet).collect())
    });
    chosen.collect()
}

/// Packets of small numbers, so that offsets collide.
pub fn small_numbers(rng: &mut Rng, count: usize) -> Vec<Arrival> {
    let packet = |number: usize, rng: &mut Rng| {
        let bytes = (0..64 + rng.below(12)).map(|_| rng.below(16) as u8).collect();
        Arrival { time_ns: number as u64, port: Port(0), bytes }
    };
    (0..count).map(|number| packet(number, rng)).collect()
}
