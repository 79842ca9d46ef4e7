// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recorded choices of an engine.

use flowloom_random::{Draw, GOLDEN_GAMMA, SplitMix64};

use crate::outcome::Verdict;

/// The random 32-bit words of a packet, which repeat after that.
pub const RANDOM_WORDS: usize = 8;

/// The choices for a packet: with equal choices, every engine has to produce the same outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choices {
    /// The arrival time in nanoseconds; never before that of an earlier packet of the run.
    pub now_ns: u64,
    /// The random values that the function draws, in order, repeated cyclically.
    pub random: [u32; RANDOM_WORDS],
    /// The CPU number that the function reads.
    pub cpu: u32,
}

impl Choices {
    /// The choices for packet number `index` of a run with `seed`: the random values depend on these two alone.
    pub fn seeded(now_ns: u64, seed: u64, index: u64) -> Choices {
        // A generator for each packet, so that any packet can be repeated alone.
        let mut rng = SplitMix64::new(seed ^ index.wrapping_mul(GOLDEN_GAMMA));
        let random = std::array::from_fn(|_| (rng.next_u64() >> 32) as u32);
        Choices { now_ns, random, cpu: 0 }
    }
}

/// A whole run in its serial order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// For each packet in serial order: its index in the input, the choices, the verdict.
    pub entries: Vec<(u64, Choices, Verdict)>,
}
