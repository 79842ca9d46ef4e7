// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeded, portable pseudorandom numbers.
//!
//! - [`SplitMix64`] is the generator; [`mix`] hashes one number with its output function.
//! - [`Xorshift64Star`] is the generator of stimulus and random functions.
//! - [`Draw`] draws numbers, items and permutations from either.
//! - [`Weighted`] draws items by weight in constant time.
//!
//! Goldens, evidence and bug reports refer to seeds: the sequence of a seed never changes.
//!
//! ```
//! use flowloom_random::{Draw, SplitMix64};
//!
//! let mut rng = SplitMix64::new(1_234_567);
//! assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
//! assert!(rng.below(6) < 6);
//! ```
#![forbid(unsafe_code)]

mod weighted;

pub use weighted::Weighted;

/// The increment of [`SplitMix64`]: 2^64 divided by the golden ratio.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes a number: the first output of [`SplitMix64`] with that seed.
#[inline]
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64.
///
/// # Source
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }
}

impl Draw for SplitMix64 {
    #[inline]
    fn next_u64(&mut self) -> u64 {
        let drawn = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        drawn
    }
}

/// xorshift64*, seeded through [`mix`].
///
/// # Source
/// Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", ACM TOMS 42(4), 2016.
#[derive(Debug, Clone)]
pub struct Xorshift64Star {
    state: u64,
}

impl Xorshift64Star {
    /// Creates a generator with this seed. Consecutive seeds have unrelated sequences.
    pub fn new(seed: u64) -> Xorshift64Star {
        // State 0 is a fixed point.
        Xorshift64Star { state: mix(seed) | 1 }
    }
}

impl Draw for Xorshift64Star {
    #[inline]
    fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// A pseudorandom number generator.
pub trait Draw {
    /// 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// 128 random bits.
    fn next_u128(&mut self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }

    /// A uniform number below `end`; 0 if `end` is 0.
    #[inline]
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A uniform index into a slice of this length; 0 if it is empty.
    fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A uniform number in `0.0..1.0`.
    fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// True with this probability in percent.
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// An exponentially distributed number with mean 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A random item of a slice; `None` if it is empty.
    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }

    /// A random item of an array, which is not empty by a compile-time check.
    fn one_of<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        const { assert!(N > 0) };
        from[self.index(N)]
    }

    /// Permutes a slice at random.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        // First outputs of the reference implementation for seed 1234567.
        let mut rng = SplitMix64::new(1_234_567);
        let first = [0; 3].map(|_| rng.next_u64());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert_eq!(mix(1_234_567), first[0]);
    }

    #[test]
    fn the_sequence_of_stimulus() {
        // Goldens and evidence depend on it.
        let mut rng = Xorshift64Star::new(1);
        assert_eq!([0; 2].map(|_| rng.next_u64()), [5_424_204_624_148_110_235, 15_555_979_849_632_202_484]);
    }

    #[test]
    fn numbers_below_reach_both_ends() {
        let mut rng = SplitMix64::new(1);
        let drawn = [0; 200].map(|_| rng.below(3));
        assert!((0..3).all(|n| drawn.contains(&n)) && drawn.iter().all(|&n| n < 3));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn numbers_are_exponential() {
        let mut rng = SplitMix64::new(3);
        let drawn: Vec<f64> = (0..100_000).map(|_| rng.exponential()).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let beyond = drawn.iter().filter(|x| **x > 2.0).count() as f64 / 1e5;
        assert!((mean - 1.0).abs() < 0.02 && (beyond - (-2.0f64).exp()).abs() < 0.005, "{mean} {beyond}");
        let mut items: Vec<u32> = (0..100).collect();
        rng.shuffle(&mut items);
        assert!(items[..10] != [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
