//! Synthetic traffic of flows: a flow number for each packet, generated from a seed.

use super::PredictError;
use super::arrival::{Arrival, Arrivals, mixed};

/// The most flows: their table has 8 bytes each.
const MOST_FLOWS: u32 = 1 << 28;

/// Packets of flows whose popularity follows Zipf's law. All have one length and arrive at the given pace.
///
/// Every packet reads and writes every map, with its flow as the key.
///
/// # Source
/// The alias method: Walker, "An efficient method for generating discrete random variables with general distributions",
/// ACM TOMS 3(3), 1977; built as Vose proposed.
#[derive(Debug, Clone)]
pub struct Flows {
    /// By flow, its own share of its cell, in units of 2^-32, and the flow that has the rest.
    cells: Vec<(u32, u32)>,
    state: u64,
    len_bytes: u32,
    /// The constant key of a map that all flows share.
    maps: Vec<Option<u64>>,
    left: u64,
}

impl Flows {
    /// `packets` packets of `flows` flows (at least one), the n-th with probability proportional to n^-`exponent`; 60
    /// bytes each; all `maps` maps have the flow as the key.
    pub fn zipf(flows: u32, exponent: f64, maps: usize, packets: u64, seed: u64) -> Flows {
        let flows = flows.clamp(1, MOST_FLOWS);
        Flows {
            cells: cells(flows, exponent),
            state: mixed(seed),
            len_bytes: 60,
            maps: vec![None; maps],
            left: packets,
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

    fn draw(&mut self) -> u32 {
        let bits = mixed(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let cell = ((bits >> 32) * self.cells.len() as u64) >> 32;
        let (own, other) = self.cells[cell as usize];
        if bits as u32 > own { other } else { cell as u32 }
    }
}

impl Arrivals for Flows {
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let key = mixed(u64::from(self.draw()));
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

fn cells(flows: u32, exponent: f64) -> Vec<(u32, u32)> {
    let weights: Vec<f64> = (1..=flows).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let scale = f64::from(flows) / weights.iter().rev().sum::<f64>();
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
    let mut cells: Vec<(u32, u32)> = (0..flows).map(|flow| (u32::MAX, flow)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..shares.len()).partition(|&flow| shares[flow] < 1.0);
    while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
        small.pop();
        cells[poor] = ((shares[poor] * 4_294_967_296.0) as u32, rich as u32);
        shares[rich] -= 1.0 - shares[poor];
        if shares[rich] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    cells
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn flows_come_by_their_rank() {
        let mut flows = Flows::zipf(100, 1.0, 2, 200_000, 7).with_shared(1, 5);
        let mut packet = Arrival::default();
        let mut found = [0.0f64; 100];
        while flows.next(&mut packet).unwrap() {
            let rank = (0..100).find(|rank| mixed(*rank) == packet.keys[0]).unwrap();
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
    fn one_flow_is_one_key() {
        let mut flows = Flows::single(1, 3);
        let mut packet = Arrival::default();
        let mut keys = Vec::new();
        while flows.next(&mut packet).unwrap() {
            keys.push(packet.keys[0]);
        }
        assert_eq!(keys, [mixed(0); 3]);
    }
}
