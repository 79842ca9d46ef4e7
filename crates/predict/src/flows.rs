// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synthetic traffic of flows: a flow number for each packet, generated from a seed.

use flowloom_random::{SplitMix64, Weighted, mix};

use super::arrival::{Arrival, Arrivals};
use super::error::PredictError;

/// The most flows: their table has 8 bytes each.
const MAX_FLOWS: u32 = 1 << 28;
/// The length of a packet, the least of a frame without its check sequence.
const LEN_BYTES: u32 = 60;

/// Packets of flows whose popularity follows Zipf's law. All have one length and arrive at the given pace.
///
/// Every packet reads and writes every map, with its flow as the key.
#[derive(Debug, Clone)]
pub struct Flows {
    popularity: Weighted,
    rng: SplitMix64,
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
            maps: vec![None; maps],
            remaining: packets,
        }
    }

    /// Packets of a single flow.
    pub fn single(maps: usize, packets: u64) -> Flows {
        Flows::zipf(1, 0.0, maps, packets, 0)
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
        (packet.len_bytes, packet.leaving_bytes) = (LEN_BYTES, LEN_BYTES);
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

    /// The keys of all packets, by map.
    fn keys(mut flows: Flows) -> Vec<Vec<u64>> {
        let (mut packet, mut keys) = (Arrival::default(), Vec::new());
        while flows.next(&mut packet).unwrap() {
            keys.push(packet.keys.clone());
        }
        keys
    }

    #[test]
    fn keys_are_flows_or_shared() {
        let keys_of_two = keys(Flows::zipf(100, 1.0, 2, 1000, 7).with_shared(1, 5));
        assert_eq!(keys_of_two.len(), 1000);
        assert!(keys_of_two.iter().all(|keys| (0..100).any(|flow| keys[0] == mix(flow)) && keys[1] == 5));
        let most_popular = keys_of_two.iter().filter(|keys| keys[0] == mix(0)).count();
        // Its share is 1 / 5.187, the harmonic number of 100.
        assert!((150..240).contains(&most_popular), "{most_popular}");
        assert_eq!(keys(Flows::single(1, 3)), [[mix(0)]; 3]);
    }
}
