// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash unit: the rows of a key in the four banks.

use flowloom_random::{Draw, SplitMix64};

/// Banks of a table: the places in which a key may be stored, besides the stash.
pub const WAYS: usize = 4;

/// Four hash functions of keys of a fixed length.
///
/// ```text
///  key ─► XOR of columns (H3) ─► left, right ─► 4 rounds ─► 4 hashes ─► x rows, integer part ─► 4 rows
/// ```
///
/// 1. Each bit of `left` and `right` is the parity of the key bits that a random mask selects: a tree of XOR gates.
/// 2. A round is `(left, right) := (right ^ (left <<< 1 & left <<< 8) ^ left <<< 2, left)`: one level of LUTs.
/// 3. Each half holds two hashes. A hash times the number of rows, without the fraction, is the row; for a power of two
///    that is a slice.
///
/// The rounds are necessary: a linear hash maps cosets of key bits to cosets of rows, and 3,891 consecutive addresses
/// did not fit into 4,096 places.
///
/// # Source
/// H3: Carter, Wegman, "Universal classes of hash functions", JCSS 18(2), 1979. Rounds: Beaulieu et al., "The SIMON and
/// SPECK families of lightweight block ciphers", 2013, without keys.
#[derive(Debug, Clone)]
pub struct RowHash {
    rows: u32,
    hash_bits: u32,
    /// The XOR of the columns that each value of each byte of the key selects: `left` below, `right` above.
    columns: Vec<[u128; 256]>,
}

impl RowHash {
    /// Rounds after the linear part: two for each half.
    const ROUNDS: u32 = 4;
    /// Hash bits beyond those of a row, where rows are not a power of two: rows differ by 1/16 in probability at most.
    const SPARE_BITS: u32 = 4;
    /// The rotations of a round differ in a half of at least twice this width.
    const MIN_BITS: u32 = 8;

    /// Creates the functions of a seed. `rows` is at least 1 and at most 2^28.
    pub fn new(key_bytes: usize, rows: u32, seed: u64) -> RowHash {
        let row_bits = u32::BITS - (rows - 1).leading_zeros();
        let spare_bits = if rows.is_power_of_two() { 0 } else { Self::SPARE_BITS };
        let hash_bits = (row_bits + spare_bits).max(Self::MIN_BITS);
        let half = u128::from(u64::MAX >> (u64::BITS - 2 * hash_bits));
        let mut rng = SplitMix64::new(seed);
        let mut column = || (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())) & (half << 64 | half);
        let columns = (0..key_bytes)
            .map(|_| {
                let bits: [u128; 8] = std::array::from_fn(|_| column());
                std::array::from_fn(|byte| {
                    (0..8).filter(|bit| byte >> bit & 1 == 1).fold(0, |sum, bit| sum ^ bits[bit])
                })
            })
            .collect();
        RowHash { rows, hash_bits, columns }
    }

    /// Rows of each bank.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Bits of each of the four hashes.
    pub fn hash_bits(&self) -> u32 {
        self.hash_bits
    }

    /// The bits of `left` and `right` that a bit of the key inverts. Bits count from the lowest one of the first byte.
    ///
    /// # Panics
    /// If the key has no such bit.
    pub fn column(&self, bit: usize) -> (u64, u64) {
        halves(self.columns[bit / 8][1 << (bit % 8)])
    }

    /// The row of a key in each bank.
    #[inline]
    pub fn rows_of(&self, key: &[u8]) -> [u32; WAYS] {
        debug_assert_eq!(key.len(), self.columns.len());
        let sum = key.iter().zip(&self.columns).fold(0, |sum, (&byte, column)| sum ^ column[usize::from(byte)]);
        let (mut left, mut right) = halves(sum);
        for _ in 0..Self::ROUNDS {
            let mixed = right ^ (self.rotate(left, 1) & self.rotate(left, 8)) ^ self.rotate(left, 2);
            (left, right) = (mixed, left);
        }
        let mask = (1 << self.hash_bits) - 1;
        [left, left >> self.hash_bits, right, right >> self.hash_bits]
            .map(|hash| (((hash & mask) * u64::from(self.rows)) >> self.hash_bits) as u32)
    }

    /// Rotates a half to the left.
    fn rotate(&self, half: u64, bits: u32) -> u64 {
        let width = 2 * self.hash_bits;
        (half << bits | half >> (width - bits)) & (u64::MAX >> (u64::BITS - width))
    }
}

/// `left` and `right` of a sum of columns.
fn halves(sum: u128) -> (u64, u64) {
    (sum as u64, (sum >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a key by the definition, bit by bit, as the hardware computes them.
    fn by_bits(hash: &RowHash, key: &[u8]) -> [u32; WAYS] {
        let (bits, width) = (hash.hash_bits() as usize, 2 * hash.hash_bits() as usize);
        let selected: Vec<usize> = (0..8 * key.len()).filter(|bit| key[bit / 8] >> (bit % 8) & 1 == 1).collect();
        let parity = |of: &dyn Fn(usize) -> u64| selected.iter().fold(0, |sum, &bit| sum ^ of(bit)) == 1;
        let mut left: Vec<bool> = (0..width).map(|at| parity(&|bit| hash.column(bit).0 >> at & 1)).collect();
        let mut right: Vec<bool> = (0..width).map(|at| parity(&|bit| hash.column(bit).1 >> at & 1)).collect();
        for _ in 0..4 {
            let from = |at: usize, distance: usize| left[(at + width - distance) % width];
            let mixed = (0..width).map(|at| right[at] ^ (from(at, 1) & from(at, 8)) ^ from(at, 2)).collect();
            right = std::mem::replace(&mut left, mixed);
        }
        std::array::from_fn(|way| {
            let half = if way < 2 { &left } else { &right };
            let sum = half[way % 2 * bits..][..bits].iter().rev().fold(0u64, |sum, &bit| sum << 1 | u64::from(bit));
            ((sum * u64::from(hash.rows())) >> bits) as u32
        })
    }

    #[test]
    fn rows_are_used_evenly_whatever_their_number() {
        for rows in [1, 2, 3, 1000, 1024, 17_247] {
            let hash = RowHash::new(4, rows, 1);
            let mut hits = vec![[0u32; WAYS]; rows as usize];
            for number in 0..rows * 64 {
                for (way, row) in hash.rows_of(&number.to_be_bytes()).into_iter().enumerate() {
                    hits[row as usize][way] += 1;
                }
            }
            for (row, ways) in hits.iter().enumerate() {
                assert!(ways.iter().all(|hits| (20..=160).contains(hits)), "{rows} rows: row {row} has {ways:?}");
            }
        }
    }

    #[test]
    fn rows_are_those_of_the_definition() {
        let mut rng = SplitMix64::new(7);
        for rows in [1, 3, 512, 1000, 17_247, 1 << 28] {
            let hash = RowHash::new(13, rows, 5);
            for _ in 0..100 {
                let key: [u8; 13] = std::array::from_fn(|_| rng.next_u64() as u8);
                assert_eq!(hash.rows_of(&key), by_bits(&hash, &key), "{rows} rows, {key:?}");
            }
        }
    }

    /// Keys that have all places in common under one seed, more than a table has room for, have as few of them in common
    /// under others as other keys.
    #[test]
    fn keys_that_collide_under_one_seed_do_not_under_others() {
        let rows = 16;
        let of = |seed: u64, key: u32| RowHash::new(4, rows, seed).rows_of(&key.to_be_bytes());
        for seed in 1..=3 {
            let hash = RowHash::new(4, rows, seed);
            let aim = hash.rows_of(&[0; 4]);
            // One key in 2^16 is among them.
            let own: Vec<u32> =
                (0..1 << 22).filter(|key: &u32| hash.rows_of(&key.to_be_bytes()) == aim).take(16).collect();
            assert!(own.len() > 12, "seed {seed}: {} keys", own.len());
            for other in [seed + 1, seed + 2, seed ^ 1 << 63, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)] {
                let mut places: Vec<_> = own.iter().map(|key| of(other, *key)).collect();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), own.len(), "seeds {seed} and {other}");
                for way in 0..WAYS {
                    let most = (0..rows).map(|row| places.iter().filter(|rows| rows[way] == row).count()).max();
                    assert!(most <= Some(7), "seeds {seed} and {other}, way {way}: {most:?} keys in one row");
                }
            }
        }
    }

    /// What is in tables of others, in simulations and in evidence: the functions of a seed never change.
    #[test]
    fn rows_of_a_seed_never_change() {
        assert_eq!(RowHash::new(3, 1024, 5).rows_of(&[0x81, 0, 0x10]), [696, 286, 343, 26]);
    }
}
