// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load of a table at the first insertion that finds no place: 4-left hashing, to compare with, and the cuckoo table.

use flowloom_random::SplitMix64;

use crate::hash::{RowHash, WAYS};
use crate::insertion::{InsertionCost, KEY_BYTES, MAX_STEPS, Quantiles, random_key, random_table};

/// Occupancy of a 4-left table: four banks of buckets. A key has a bucket in each bank and is stored in the least
/// loaded one, the leftmost if there are several. No entry moves.
///
/// # Source
/// Vöcking, "How asymmetry helps load balancing", JACM 50(4), 2003; Broder, Mitzenmacher, "Using multiple hash
/// functions to improve IP lookups", INFOCOM 2001.
#[derive(Debug, Clone)]
pub struct FourLeft {
    hash: RowHash,
    bucket_places: u32,
    /// Keys of each bucket, by bank.
    buckets: [Vec<u32>; WAYS],
}

impl FourLeft {
    /// Creates an empty table, whose buckets have this number of places.
    pub fn new(hash: RowHash, bucket_places: u32) -> FourLeft {
        let rows = hash.rows() as usize;
        FourLeft { hash, bucket_places, buckets: std::array::from_fn(|_| vec![0; rows]) }
    }

    /// Inserts a key that is not stored yet. Returns false if its four buckets are full.
    pub fn insert(&mut self, key: &[u8]) -> bool {
        let rows = self.hash.rows_of(key);
        let places = self.buckets.iter_mut().zip(rows).map(|(bank, row)| &mut bank[row as usize]);
        // The first one of equal elements.
        match places.min_by_key(|keys| **keys) {
            Some(keys) if *keys < self.bucket_places => {
                *keys += 1;
                true
            }
            _ => false,
        }
    }
}

/// A measurement of the number of random keys that tables take before the first one finds no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillTest {
    /// Least number of places of a table; the smallest multiple that has banks of equal size is taken.
    pub places: u32,
    /// Number of tables, each with its own hash functions and keys. At least 1.
    pub tables: u32,
}

impl FillTest {
    /// Numbers of keys in 4-left tables with buckets of 1 place or more, and in a stash that takes this number of keys
    /// whose buckets are full.
    pub fn four_left(self, bucket_places: u32, stash: u32) -> Quantiles {
        let rows = self.places.div_ceil(WAYS as u32 * bucket_places);
        self.run(|seed| {
            let mut table = FourLeft::new(RowHash::new(KEY_BYTES as usize, rows, seed), bucket_places);
            let mut room = stash;
            move |key: &[u8]| {
                table.insert(key) || {
                    let has_room = room > 0;
                    room = room.saturating_sub(1);
                    has_room
                }
            }
        })
    }

    /// Numbers of keys in cuckoo tables without a limit below their places, the stash included. An insertion has no
    /// place if it takes more than 1,000,000 steps.
    pub fn cuckoo(self) -> Quantiles {
        self.run(|seed| {
            let mut table = random_table(self.places.div_ceil(WAYS as u32), seed);
            move |key: &[u8]| InsertionCost::of(&mut table, key, MAX_STEPS).is_some()
        })
    }

    fn run<T: FnMut(&[u8]) -> bool>(self, mut table: impl FnMut(u64) -> T) -> Quantiles {
        let keys = |seed| {
            let (mut insert, mut rng) = (table(seed), SplitMix64::new(seed));
            (0..u32::MAX).take_while(|_| insert(&random_key(&mut rng))).count() as u32
        };
        Quantiles::of((1..=u64::from(self.tables)).map(keys).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_to_the_leftmost_of_the_emptiest_buckets() {
        let mut table = FourLeft::new(RowHash::new(4, 8, 1), 3);
        let mut model = vec![[0u32; 8]; WAYS];
        let (mut stored, mut refused) = (0, 0);
        for number in 0..200u32 {
            let key = number.to_be_bytes();
            let rows = table.hash.rows_of(&key).map(|row| row as usize);
            let least = (0..WAYS).map(|way| model[way][rows[way]]).min();
            let way = (0..WAYS).find(|&way| Some(model[way][rows[way]]) == least);
            let is_inserted = table.insert(&key);
            assert_eq!(is_inserted, least < Some(3));
            match way {
                Some(way) if is_inserted => model[way][rows[way]] += 1,
                _ => refused += 1,
            }
            stored += u32::from(is_inserted);
            assert!(table.buckets.iter().zip(&model).all(|(bank, of)| bank[..] == of[..]), "key {number}");
        }
        assert!(stored > 80 && refused > 0, "{stored} stored, {refused} refused");
    }

    #[test]
    fn moves_fill_a_table_that_4_left_hashing_does_not() {
        let test = FillTest { places: 16_384, tables: 3 };
        let load = |keys: u32| f64::from(keys) / f64::from(test.places);
        let [cuckoo, one, eight] =
            [test.cuckoo(), test.four_left(1, 0), test.four_left(8, 0)].map(|keys| load(keys.median));
        assert!((0.96..1.0).contains(&cuckoo), "{cuckoo}");
        assert!(one < 0.5 && one + 0.3 < eight && eight + 0.02 < cuckoo, "{one} {eight}");
    }

    #[test]
    fn every_place_counts() {
        // In four banks of one bucket each, every key has all places.
        let keys = |stash: u32| FillTest { places: 8, tables: 2 }.four_left(2, stash);
        assert_eq!(keys(0), Quantiles { median: 8, percentile_99: 8, max: 8 });
        assert_eq!(keys(3), Quantiles { median: 11, percentile_99: 11, max: 11 });
    }
}
