// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets for programs: generated, corrupted, short.

use flowloom_engine::Port;
use flowloom_testkit::{PacketBuilder, Rng, mutate};
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

/// Packets of small numbers, so that offsets collide; some of them are longer than a window.
pub fn small_numbers(rng: &mut Rng, count: usize) -> Vec<Arrival> {
    let packet = |number: usize, rng: &mut Rng| {
        let more = if rng.chance(1, 16) { 200 } else { 0 };
        let bytes = (0..64 + more + rng.below(12)).map(|_| rng.below(16) as u8).collect();
        Arrival { time_ns: number as u64, port: Port(0), bytes }
    };
    (0..count).map(|number| packet(number, rng)).collect()
}
