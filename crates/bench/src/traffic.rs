// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of the comparisons with the kernel: 64 bytes of UDP over IPv4, by the number of their flow.

use std::collections::HashMap;

use flowloom_random::{Draw, SplitMix64};
use flowloom_trace::{FiveTuples, Profile, Traffic, TrafficOptions};

use crate::error::BenchError;

pub(crate) const PACKET_BYTES: usize = 64;
/// The flows after which an order begins again, a power of 2.
const ORDER: usize = 1 << 21;

/// The flows of a link that are active in 10 s, at most [FlowBlaze table 6].
const LINK_FLOWS: u64 = 178_000;

const SOURCE_AT: usize = 26;
const DESTINATION_AT: usize = 30;
const PORTS_AT: usize = 34;

/// Where the flows of packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All flows with equal probability.
    Uniform,
    /// The profile of a link in Chicago in 2015, scaled to the number of flows; several such links, if one has fewer.
    Chi15,
}

impl Mix {
    pub(crate) const ALL: [Mix; 2] = [Mix::Uniform, Mix::Chi15];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mix::Uniform => "uniform",
            Mix::Chi15 => "chi15",
        }
    }

    /// The flows of packets, by number.
    pub(crate) fn order(self, flows: u64) -> Result<Vec<u64>, BenchError> {
        let mut rng = SplitMix64::new(flows);
        match self {
            Mix::Uniform => Ok((0..ORDER).map(|_| rng.below(flows)).collect()),
            Mix::Chi15 => {
                let links = flows.div_ceil(LINK_FLOWS);
                let link = |seed| {
                    let profile = TrafficOptions::new(Profile::Chi15);
                    Traffic::new(&TrafficOptions {
                        packets: Some(2 * ORDER as u64 / links + 1),
                        flows: Some(flows / links),
                        seed,
                        ..profile
                    })
                };
                let mut traces = Vec::new();
                for seed in 1..=links {
                    traces.push(FiveTuples::of(link(seed)?));
                }
                // Flows that follow each other in a trace are no neighbours in tables.
                let mut numbers: Vec<u64> = (0..flows).collect();
                for at in (1..numbers.len()).rev() {
                    numbers.swap(at, rng.index(at + 1));
                }
                let mut known = HashMap::new();
                let mut order = Vec::with_capacity(ORDER);
                while order.len() < ORDER {
                    let link = order.len() % traces.len();
                    let Some((_, tuple)) = traces[link].next() else {
                        let what = format!("{} packets of chi15, expected {ORDER}", order.len());
                        return Err(BenchError::Wrong { what });
                    };
                    let next = known.len() % numbers.len();
                    order.push(numbers[*known.entry((link, tuple)).or_insert(next)]);
                }
                Ok(order)
            }
        }
    }
}

/// A packet of the first flow.
pub(crate) fn packet() -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    packet[12..14].copy_from_slice(&[8, 0]);
    // IPv4 without options, 50 bytes, 64 hops, UDP; the checksum is none that a function verifies.
    packet[14..26].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet[38..40].copy_from_slice(&[0, 30]);
    write_flow(&mut packet, 0);
    packet
}

/// Writes addresses and ports of a flow, as the kernel's driver does.
#[inline]
pub(crate) fn write_flow(packet: &mut [u8], flow: u64) {
    let number = flow as u32;
    let mut write = |at: usize, word: u32| packet[at..at + 4].copy_from_slice(&word.to_be_bytes());
    write(SOURCE_AT, 0x0a00_0000 + number);
    write(DESTINATION_AT, 0xc0a8_0000 | number.wrapping_mul(2_654_435_761) >> 16);
    write(PORTS_AT, (1024 + (number & 0x3fff)) << 16 | 53);
}
