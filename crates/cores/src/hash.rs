// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash that spreads flows: a sum of products, each of two words of the key.
//!
//! ```text
//!  symmetric:  (src ^ a)(dst ^ a) + (sport ^ b)(dport ^ b) + (proto ^ c) d      the same if both pairs are exchanged
//!  otherwise:  (src ^ a)(dst ^ b) + (sport ^ c)(dport ^ d) + (proto ^ e) f
//! ```
//!
//! A product is 128 bits wide, and its halves are combined. A product for each word, as a sum of independent hashes
//! needs, would double the time.

/// The most words of a key.
pub(crate) const MAX_WORDS: usize = 64;

/// What words are combined with: two for each word.
const KEYS: [u64; 2 * MAX_WORDS] = keys();

/// The output of SplitMix64, as `random` computes it.
const fn mixed(state: u64) -> u64 {
    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

const fn keys() -> [u64; 2 * MAX_WORDS] {
    let mut keys = [0; 2 * MAX_WORDS];
    let mut at = 0;
    while at < keys.len() {
        // Odd, so that a factor without a word keeps all bits of the other.
        keys[at] = mixed((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        at += 1;
    }
    keys
}

/// A factor: a word and what it is combined with, or the latter alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factor {
    pub(crate) word: Option<usize>,
    pub(crate) key: u64,
}

/// A hash as a function of the words of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Products(Vec<[Factor; 2]>);

impl Products {
    /// A hash of words, by word the one that takes its place in the other direction, or itself; the hash is the same for
    /// both directions. Words that are constant in most packets are combined with one another, so that their product
    /// is known. At most [`MAX_WORDS`] words.
    pub(crate) fn new(partners: &[usize], is_constant: impl Fn(usize) -> bool) -> Products {
        let mut keys = KEYS.iter().copied();
        let mut key = || keys.next().unwrap_or(1);
        let (mut products, mut alone) = (Vec::new(), Vec::new());
        for (word, partner) in partners.iter().enumerate() {
            if *partner > word {
                let key = key();
                products.push([word, *partner].map(|word| Factor { word: Some(word), key }));
            } else if *partner == word {
                alone.push(word);
            }
        }
        alone.sort_by_key(|word| is_constant(*word));
        for pair in alone.chunks(2) {
            products.push([0, 1].map(|at| Factor { word: pair.get(at).copied(), key: key() }));
        }
        Products(products)
    }

    pub(crate) fn factors(&self) -> &[[Factor; 2]] {
        &self.0
    }

    /// The hash of a key, of which a word is `value(word)`.
    pub(crate) fn hash(&self, value: impl Fn(usize) -> u64) -> u64 {
        let factor = |factor: Factor| factor.word.map_or(0, &value) ^ factor.key;
        self.0.iter().fold(0, |sum, [one, other]| sum.wrapping_add(product(factor(*one), factor(*other))))
    }
}

/// The combined halves of a product.
#[inline]
pub(crate) fn product(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// The core of a hash.
#[inline]
pub(crate) fn core_of(hash: u64, cores: usize) -> usize {
    let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * cores as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_get_equal_shares() {
        for (partners, cores) in [(&[1, 0][..], 2), (&[1, 0], 3), (&[0, 1], 8), (&[0, 1, 2], 2)] {
            let products = Products::new(partners, |_| false);
            let mut packets = vec![0_u32; cores];
            for flow in 0..30_000_u64 {
                // Addresses that differ in their last byte, in network order.
                let words = [(flow & 0xff) << 24 | 0x0a, (flow >> 8) << 24 | 0xc0, 17];
                packets[core_of(products.hash(|at| words[at]), cores)] += 1;
            }
            let share = 30_000 / cores as u32;
            assert!(packets.iter().all(|count| count.abs_diff(share) < share / 10), "{partners:?} {packets:?}");
        }
    }

    #[test]
    fn all_words_count_and_partners_may_change_places() {
        let words = [3_u64, 5, 7, 11, 13];
        for (partners, is_symmetric) in [([2, 1, 0, 4, 3], true), ([0, 1, 2, 3, 4], false)] {
            let products = Products::new(&partners, |word| word == 1);
            let hash = products.hash(|at| words[at]);
            let exchanged = [2, 1, 0, 4, 3];
            assert_eq!(hash == products.hash(|at| words[exchanged[at]]), is_symmetric);
            for changed in 0..words.len() {
                let other = products.hash(|at| if at == changed { words[at] ^ 64 } else { words[at] });
                assert_ne!(hash, other, "word {changed}");
            }
        }
    }
}
