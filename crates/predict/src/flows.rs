// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synthetic traffic of flows: a flow number for each packet, generated from a seed.

use flowloom_random::{SplitMix64, Weighted, mix};

use super::arrival::{Arrival, Arrivals};
use super::error::PredictError;

/// The most flows: their table has 8 bytes each.
const MAX_FLOWS: u32 = 1 << 28;

/// Packets of flows whose popularity follows Zipf's law. All have one length and arrive at the given pace.
///
/// Every packet reads and writes every map, with its flow as the key.
#[derive(Debug, Clone)]
pub struct Flows {
    popularity: Weighted,
    rng: SplitMix64,
    len_bytes: u32,
    /// The constant key of a map that all flows share.
    maps: Vec<Option<u64>>,
    remaining: u64,
}

impl Flows {
    /// `packets` packets of `flows` flows (at least one), the n-th with probability proportional to n^-`exponent`; 60
    /// bytes each; all `maps` maps have the flow as the key.
    pub fn zipf(flows: u32, exponent: f64, maps: usize, packets: u64, seed: u64) -> Flows {
        let flows = flows.clamp(1, MAX_FLOWS);
        Flows {
            popularity: Weighted::by_rank(flows as usize, exponent),
            rng: SplitMix64::new(mix(seed)),
            len_bytes: 60,
            maps: vec![None; maps],
            remaining: packets,
        }
    }

    /// Packets of a single flow.
    pub fn single(maps: usize, packets: u64) -> Flows {
        Flows::zipf(1, 0.0, maps, packets, 0)
    }

    /// Sets the packet length.
    #[must_use]
    pub fn with_len_bytes(mut self, len_bytes: u32) -> Flows {
        self.len_bytes = len_bytes;
        self
    }

    /// Makes all flows use one key in a map.
    #[must_use]
    pub fn with_shared(mut self, map: usize, key: u64) -> Flows {
        if let Some(shared) = self.maps.get_mut(map) {
            *shared = Some(key);
        }
        self
    }
}

impl Arrivals for Flows {
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError> {
        if self.remaining == 0 {
            return Ok(false);
        }
        self.remaining -= 1;
        let key = mix(self.popularity.draw(&mut self.rng) as u64);
        packet.time_ns = 0;
        packet.len_bytes = self.len_bytes;
        packet.leaving_bytes = self.len_bytes;
        packet.uses = u64::MAX;
        packet.writes = u64::MAX;
        packet.keys.clear();
        packet.keys.extend(self.maps.iter().map(|shared| shared.unwrap_or(key)));
        Ok(true)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn flows_follow_their_rank() {
        let mut flows = Flows::zipf(100, 1.0, 2, 200_000, 7).with_shared(1, 5);
        let mut packet = Arrival::default();
        let mut found = [0.0f64; 100];
        while flows.next(&mut packet).unwrap() {
            let rank = (0..100).find(|rank| mix(*rank) == packet.keys[0]).unwrap();
            found[rank as usize] += 1.0;
            assert_eq!(packet.keys[1], 5);
        }
        let all: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for (rank, found) in (1..).zip(found) {
            let expected = 200_000.0 / (f64::from(rank) * all);
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {found}, expected {expected}");
        }
    }

    #[test]
    fn one_flow_has_one_key() {
        let mut flows = Flows::single(1, 3);
        let mut packet = Arrival::default();
        let mut keys = Vec::new();
        while flows.next(&mut packet).unwrap() {
            keys.push(packet.keys[0]);
        }
        assert_eq!(keys, [mix(0); 3]);
    }
}
