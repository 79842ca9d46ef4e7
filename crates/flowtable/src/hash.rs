// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keyed hash, and the comparison of keys.
//!
//! The hash is of the wyhash family: each 16 bytes of the key are mixed by a multiplication of 64 by 64 bits whose
//! halves are combined (`fold`), under a secret seed. All functions depend on the length of the key only through
//! `key.len()`: where the caller knows it at compile time, they are straight-line code.
//!
//! ```text
//!  state = seed[0]
//!  for 16 bytes (a, b) while more than 16 remain: state = fold(a ^ state, b ^ seed[1])
//!  the last 16 bytes (a, b), which may overlap:   state = fold(a ^ state, b ^ seed[1])
//!  hash = fold(state, seed[2])
//! ```
//!
//! A key of 8 to 15 bytes has its first and last 8 bytes as a and b, one of 4 to 7 its first and last 4 bytes; a
//! shorter one its first, middle and last byte as both.
#![allow(unsafe_code, reason = "unaligned reads within keys whose length is checked outside of the loops")]

use std::hash::{BuildHasher, RandomState};

/// The secret of a table's hash.
pub(crate) type Seed = [u64; 3];

/// A seed from the randomness of the operating system.
pub(crate) fn random_seed() -> Seed {
    let state = RandomState::new();
    expand([state.hash_one(0_u64), state.hash_one(1_u64), state.hash_one(2_u64)])
}

/// A reproducible seed.
pub(crate) fn fixed_seed(seed: u64) -> Seed {
    // Odd constants without structure: the digits of pi.
    let first = fold(seed ^ 0x243f_6a88_85a3_08d3, 0xa409_3822_299f_31d1);
    let second = fold(first ^ 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1);
    expand([first, second, fold(second ^ 0x082e_fa98_ec4e_6c89, 0xa409_3822_299f_31d1)])
}

/// Makes the last factor odd and large: a multiplication by it then loses nothing.
fn expand([first, second, third]: Seed) -> Seed {
    [first, second, third | 1 << 63 | 1]
}

/// Both halves of the product of 128 bits, combined.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// # Safety
/// 8 bytes at `at` are readable.
#[inline(always)]
unsafe fn read_u64(at: *const u8) -> u64 {
    // SAFETY: the caller's.
    u64::from_le(unsafe { at.cast::<u64>().read_unaligned() })
}

/// # Safety
/// 4 bytes at `at` are readable.
#[inline(always)]
unsafe fn read_u32(at: *const u8) -> u32 {
    // SAFETY: the caller's.
    u32::from_le(unsafe { at.cast::<u32>().read_unaligned() })
}

/// The hash of a key.
#[inline(always)]
pub(crate) fn hash(seed: &Seed, key: &[u8]) -> u64 {
    let (at, len) = (key.as_ptr(), key.len());
    let mut state = seed[0];
    let (a, b);
    // SAFETY: every read is within the key, as the branch on its length says.
    unsafe {
        if len > 16 {
            let mut start = 0;
            while len - start > 16 {
                state = fold(read_u64(at.add(start)) ^ state, read_u64(at.add(start + 8)) ^ seed[1]);
                start += 16;
            }
            (a, b) = (read_u64(at.add(len - 16)), read_u64(at.add(len - 8)));
        } else if len >= 8 {
            (a, b) = (read_u64(at), read_u64(at.add(len - 8)));
        } else if len >= 4 {
            (a, b) = (read_u32(at).into(), read_u32(at.add(len - 4)).into());
        } else if len > 0 {
            a = u64::from(*at) | u64::from(*at.add(len / 2)) << 8 | u64::from(*at.add(len - 1)) << 16;
            b = a;
        } else {
            (a, b) = (0, 0);
        }
    }
    fold(fold(a ^ state, b ^ seed[1]), seed[2])
}

/// For compiled code: the words of a key of `len` bytes, at least 4, by their first bytes, in the pairs (a, b) that the
/// hash mixes one after the other; words of 8 bytes, or of 4 if the key is shorter than 8.
///
/// ```text
///  state = seed[0]; for each pair: state = fold(a ^ state, b ^ seed[1]); hash = fold(state, seed[2])
/// ```
pub fn hashed_pairs(len: u32) -> Vec<[u32; 2]> {
    let word_bytes = if len >= 8 { 8 } else { 4 };
    let whole = (0..len.saturating_sub(16)).step_by(16).map(|start| [start, start + 8]);
    let last = len.saturating_sub(16);
    whole.chain([[last, len - word_bytes]]).collect()
}

/// The bytes of keys that two words determine.
pub(crate) const WORD_KEY_BYTES: std::ops::RangeInclusive<u32> = 4..=16;

/// The hash of a key of [`WORD_KEY_BYTES`], by its words: its first and its last 8 bytes, or 4 if it is shorter than 8.
#[inline(always)]
pub(crate) fn hash_words(seed: &Seed, [a, b]: [u64; 2]) -> u64 {
    fold(fold(a ^ seed[0], b ^ seed[1]), seed[2])
}

/// Whether the bytes at `at` are the key of `len` bytes with these words.
///
/// # Safety
/// `len` bytes at `at` are readable, at least 4 and at most 16.
#[inline(always)]
pub(crate) unsafe fn is_words(at: *const u8, len: usize, [a, b]: [u64; 2]) -> bool {
    // SAFETY: every read is within the key, as the branch on its length says.
    unsafe {
        if len >= 8 {
            (read_u64(at) ^ a) | (read_u64(at.add(len - 8)) ^ b) == 0
        } else {
            (u64::from(read_u32(at)) ^ a) | (u64::from(read_u32(at.add(len - 4))) ^ b) == 0
        }
    }
}

/// Whether the bytes at `at` are the key.
///
/// # Safety
/// `key.len()` bytes at `at` are readable.
#[inline(always)]
pub(crate) unsafe fn is_key(at: *const u8, key: &[u8]) -> bool {
    let (other, len) = (key.as_ptr(), key.len());
    // SAFETY: both sides have `len` bytes, and every read is within them, as the branch on the length says.
    unsafe {
        let differs_u64 = |start: usize| read_u64(at.add(start)) ^ read_u64(other.add(start));
        let differs_u32 = |start: usize| read_u32(at.add(start)) ^ read_u32(other.add(start));
        if len > 16 {
            let mut start = 0;
            while len - start > 16 {
                if differs_u64(start) | differs_u64(start + 8) != 0 {
                    return false;
                }
                start += 16;
            }
            differs_u64(len - 16) | differs_u64(len - 8) == 0
        } else if len >= 8 {
            differs_u64(0) | differs_u64(len - 8) == 0
        } else if len >= 4 {
            differs_u32(0) | differs_u32(len - 4) == 0
        } else {
            (0..len).all(|byte| *at.add(byte) == *other.add(byte))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_differ_in_every_byte() {
        for len in 1..=100 {
            let key: Vec<u8> = (0..len).map(|byte| (byte * 7) as u8).collect();
            let seed = fixed_seed(len as u64);
            // SAFETY: both have the same length.
            assert!(unsafe { is_key(key.as_ptr(), &key) });
            for byte in 0..len {
                let mut other = key.clone();
                other[byte] ^= 0x10;
                // SAFETY: both have the same length.
                assert!(!unsafe { is_key(other.as_ptr(), &key) }, "byte {byte} of {len}");
                assert_ne!(hash(&seed, &key), hash(&seed, &other), "byte {byte} of {len}");
            }
        }
    }

    /// As compiled code computes it.
    #[test]
    fn pairs_of_words_give_the_hash() {
        for len in 4..100_usize {
            let key: Vec<u8> = (0..len as u8).map(|byte| byte.wrapping_mul(37)).collect();
            let seed = fixed_seed(len as u64);
            let word = |start: u32| {
                let bytes = &key[start as usize..(start as usize + if len < 8 { 4 } else { 8 })];
                bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            let mix = |state, [a, b]: [u32; 2]| fold(word(a) ^ state, word(b) ^ seed[1]);
            let state = hashed_pairs(len as u32).into_iter().fold(seed[0], mix);
            assert_eq!(fold(state, seed[2]), hash(&seed, &key), "{len} bytes");
        }
    }

    #[test]
    fn random_seeds_differ() {
        assert_ne!(random_seed(), random_seed());
        assert_ne!(fixed_seed(1), fixed_seed(2));
    }

    /// Keys that count in one place, as addresses and ports do, fall into buckets as random ones: the sum of squares of
    /// the numbers of keys is that of a random function, within 6 standard deviations.
    #[test]
    fn counting_keys_spread_as_random_ones() {
        const BUCKETS: usize = 1 << 12;
        const KEYS: usize = 1 << 15;
        for len in [4, 8, 13, 16, 20, 40] {
            for (at, shift) in (0..len - 1).flat_map(|at| [(at, 0), (at, 3)]) {
                let seed = fixed_seed((len * 1000 + at) as u64);
                for part in [0, 20, 52] {
                    let mut found = vec![0_u64; BUCKETS];
                    for number in 0..KEYS {
                        let mut key = vec![0x11; len];
                        let bytes = ((number << shift) as u32).to_le_bytes();
                        let end = (at + 4).min(len);
                        key[at..end].copy_from_slice(&bytes[..end - at]);
                        // Only as many numbers as differ in the bytes that are there.
                        if end - at < 3 && number << shift >= 1 << (8 * (end - at)) {
                            break;
                        }
                        found[(hash(&seed, &key) >> part) as usize % BUCKETS] += 1;
                    }
                    let keys: u64 = found.iter().sum();
                    let pairs: u64 = found.iter().map(|count| count * count.saturating_sub(1) / 2).sum();
                    let expected = (keys * (keys - 1) / 2) as f64 / BUCKETS as f64;
                    let most = expected + 6.0 * expected.sqrt();
                    assert!((pairs as f64) < most, "{len} bytes, at {at}, << {shift}, >> {part}: {pairs}, {expected}");
                }
            }
        }
    }
}
