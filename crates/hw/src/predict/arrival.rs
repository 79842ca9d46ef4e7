//! Packets as they come to a pipeline: no bytes, only what decides when they pass.

use super::PredictError;
use super::known::Known;

/// A packet that comes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When, in the time of its capture.
    pub time_ns: u64,
    /// How long it is, without check sequence.
    pub len_bytes: u32,
    /// How long it leaves; 0 where it is dropped.
    pub leaving_bytes: u32,
    /// The maps of [`Timing::maps`](crate::Timing::maps) that it uses, a bit each.
    pub uses: u64,
    /// Those that it changes, a bit each.
    pub writes: u64,
    /// For each map a hash of the key that it uses there, 0 where there is none; packets with the same hash count as having the
    /// same key.
    pub keys: Vec<u64>,
}

/// Where packets come from.
pub trait Arrivals {
    /// The next packet, into one whose memory is used again; whether there was one.
    ///
    /// # Errors
    /// The packets cannot be read or made.
    fn next(&mut self, packet: &mut Arrival) -> Result<bool, PredictError>;

    /// How keys of a map, and changes of its entries, are known.
    fn known(&self, _map: usize) -> Known {
        Known::Flows
    }

    /// How it is known what leaves, and how long it is.
    fn known_verdict(&self) -> Known {
        Known::Flows
    }
}

/// Packets by number: 64 bits that look random, the same ones for the same number.
///
/// # Source
/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub(super) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
