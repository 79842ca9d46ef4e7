// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 5-tuples of generated traffic.

use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Graph, KeySpec, Layers};

use super::{START_NS, Traffic};

/// Arrivals of generated traffic as pairs of time, in ns since the first packet may arrive, and 5-tuple. Packets
/// without a 5-tuple are left out.
pub struct FiveTuples {
    traffic: Traffic,
    spec: KeySpec,
    packets: u64,
}

impl FiveTuples {
    /// The 5-tuples of the remaining packets.
    pub fn of(traffic: Traffic) -> FiveTuples {
        let fields = FIVE_TUPLE.map(|name| FieldId::by_name(name).expect("fields of the 5-tuple are known"));
        FiveTuples { traffic, spec: KeySpec::of_fields(&fields, false).expect("fixed fields make a key"), packets: 0 }
    }

    /// Bytes of each 5-tuple.
    pub fn key_bytes(&self) -> u32 {
        self.spec.key_bytes() as u32
    }

    /// Number of packets so far, those without a 5-tuple included.
    pub fn packets(&self) -> u64 {
        self.packets
    }
}

impl Iterator for FiveTuples {
    type Item = (u64, Vec<u8>);

    fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            let packet = self.traffic.next_packet()?;
            self.packets += 1;
            let layers = Layers::parse(Graph::standard(), packet.bytes);
            if let Some(key) = self.spec.extract(&layers, packet.bytes, packet.port, &[]) {
                return Some((packet.time_ns - START_NS, key));
            }
        }
    }
}
