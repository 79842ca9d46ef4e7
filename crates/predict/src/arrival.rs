// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets as the model sees them: no bytes, only what determines their timing.

use super::error::PredictError;
use super::known::Known;

/// A packet on arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The arrival time on the clock of the capture.
    pub time_ns: u64,
    /// The length without the frame check sequence.
    pub len_bytes: u32,
    /// The length on departure; 0 if it is dropped.
    pub leaving_bytes: u32,
    /// A bit mask of the maps of [`Timing::maps`](crate::Timing::maps) that it accesses.
    pub uses: u64,
    /// A bit mask of those that it writes.
    pub writes: u64,
    /// By map, a hash of its key there, 0 for none; packets with equal hashes count as having the same key.
    pub keys: Vec<u64>,
}

/// A source of packets.
pub trait Arrivals {
    /// Writes the next packet into `packet`, whose memory is reused; returns whether there was one.
    ///
    /// # Errors
    /// The packets cannot be read or generated.
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError>;

    /// How the keys of a map, and the writes to its entries, are determined.
    fn known(&self, _map: usize) -> Known {
        Known::Flows
    }

    /// How verdicts and departing lengths are determined.
    fn known_verdict(&self) -> Known {
        Known::Flows
    }
}
