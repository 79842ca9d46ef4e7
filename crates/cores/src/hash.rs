// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash that spreads flows: a sum over words, so that a symmetric form is the sum of two orders of the words.

/// The most words of a key.
pub(crate) const MAX_WORDS: usize = 64;

/// By word, what it is combined with and multiplied by.
const KEYS: [(u64, u64); MAX_WORDS] = keys();

/// The output of SplitMix64, as `random` computes it.
const fn mixed(state: u64) -> u64 {
    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

const fn keys() -> [(u64, u64); MAX_WORDS] {
    let mut keys = [(0, 0); MAX_WORDS];
    let mut at = 0;
    while at < MAX_WORDS {
        let seed = (2 * at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        keys[at] = (mixed(seed), mixed(seed ^ 0x5555_5555_5555_5555) | 1);
        at += 1;
    }
    keys
}

/// The part of word number `at`, which is below [`MAX_WORDS`].
#[inline]
pub(crate) fn word(at: usize, value: u64) -> u64 {
    let (with, by) = KEYS[at % MAX_WORDS];
    let product = u128::from(value ^ with) * u128::from(by);
    product as u64 ^ (product >> 64) as u64
}

/// The core of a hash.
#[inline]
pub(crate) fn core_of(hash: u64, cores: usize) -> usize {
    let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * cores as u64) >> 32) as usize
}

/// A little-endian number of at most 8 bytes.
#[inline]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_get_equal_shares() {
        for cores in [2, 3, 8] {
            let mut packets = vec![0_u32; cores];
            for flow in 0..30_000_u64 {
                packets[core_of(word(0, flow).wrapping_add(word(1, flow >> 8)), cores)] += 1;
            }
            let share = 30_000 / cores as u32;
            assert!(packets.iter().all(|count| count.abs_diff(share) < share / 10), "{packets:?}");
        }
    }
}
