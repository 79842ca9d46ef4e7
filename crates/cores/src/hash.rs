// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash that spreads flows: a sum of the words of the key, each with a factor.
//!
//! ```text
//!  symmetric:  a src + a dst + b sport + b dport + c proto      the same if both pairs are exchanged
//!  otherwise:  a src + b dst + c sport + d dport + e proto
//! ```
//!
//! A word takes a load and a multiplication, a constant nothing. The sum is mixed once ([`core_of`]).

/// The most words of a key.
pub(crate) const MAX_WORDS: usize = 64;

/// The factors of words.
const FACTORS: [u64; MAX_WORDS] = factors();

/// The output of SplitMix64, as `random` computes it.
const fn mixed(state: u64) -> u64 {
    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

const fn factors() -> [u64; MAX_WORDS] {
    let mut factors = [0; MAX_WORDS];
    let mut at = 0;
    while at < factors.len() {
        // Odd, so that all bits of the word count.
        factors[at] = mixed((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        at += 1;
    }
    factors
}

/// A hash as a function of the words of a key: by word, its factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Factors(Vec<u64>);

impl Factors {
    /// A hash of words, by word the one that takes its place in the other direction, or itself; the hash is the same
    /// for both directions. At most [`MAX_WORDS`] words.
    pub(crate) fn new(partners: &[usize]) -> Factors {
        let of = |(word, partner): (usize, &usize)| FACTORS[word.min(*partner)];
        Factors(partners.iter().enumerate().map(of).collect())
    }

    pub(crate) fn factors(&self) -> &[u64] {
        &self.0
    }

    /// The hash of a key, of which a word is `value(word)`.
    pub(crate) fn hash(&self, value: impl Fn(usize) -> u64) -> u64 {
        let term = |(word, factor): (usize, &u64)| factor.wrapping_mul(value(word));
        self.0.iter().enumerate().map(term).fold(0, u64::wrapping_add)
    }
}

/// The core of a hash.
#[inline]
pub fn core_of(hash: u64, cores: usize) -> usize {
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * cores as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_get_equal_shares() {
        for (partners, cores) in [(&[1, 0][..], 2), (&[1, 0], 3), (&[0, 1], 8), (&[0, 1, 2], 2)] {
            let factors = Factors::new(partners);
            let mut packets = vec![0_u32; cores];
            for flow in 0..30_000_u64 {
                // Addresses that differ in their last byte, in network order.
                let words = [(flow & 0xff) << 24 | 0x0a, (flow >> 8) << 24 | 0xc0, 17];
                packets[core_of(factors.hash(|at| words[at]), cores)] += 1;
            }
            let share = 30_000 / cores as u32;
            assert!(packets.iter().all(|count| count.abs_diff(share) < share / 10), "{partners:?} {packets:?}");
        }
    }

    #[test]
    fn values_at_regular_distances_spread_as_well() {
        let factors = Factors::new(&[1, 0, 3, 2, 4]);
        for word in 0..5 {
            for bit in 0..48 {
                let core = |step: u64| core_of(factors.hash(|at| if at == word { 5 + (step << bit) } else { 77 }), 2);
                let ones: usize = (0..4096).map(core).sum();
                assert!(ones.abs_diff(2048) < 300, "word {word} bit {bit}: {ones}");
            }
        }
    }

    #[test]
    fn all_words_count_and_partners_may_change_places() {
        let words = [3_u64, 5, 7, 11, 13];
        for (partners, is_symmetric) in [([2, 1, 0, 4, 3], true), ([0, 1, 2, 3, 4], false)] {
            let factors = Factors::new(&partners);
            let hash = factors.hash(|at| words[at]);
            let exchanged = [2, 1, 0, 4, 3];
            assert_eq!(hash == factors.hash(|at| words[exchanged[at]]), is_symmetric);
            for changed in 0..words.len() {
                let other = factors.hash(|at| if at == changed { words[at] ^ 64 } else { words[at] });
                assert_ne!(hash, other, "word {changed}");
            }
        }
    }
}
