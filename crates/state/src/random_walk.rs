// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The usual search of a cuckoo table: a random walk, to compare with.

use flowloom_random::{Draw, SplitMix64};

use crate::hash::{RowHash, WAYS};

/// A four-choice cuckoo table whose insertions walk at random: where a key's places are occupied, it takes one of them
/// and the entry from there goes on.
///
/// # Source
/// Fotakis, Pagh, Sanders, Spirakis, "Space efficient hash tables with worst case constant access time", 2005.
#[derive(Debug, Clone)]
pub struct RandomWalk {
    hash: RowHash,
    banks: [Vec<Option<Box<[u8]>>>; WAYS],
    rng: SplitMix64,
}

impl RandomWalk {
    /// Creates an empty table. The seed chooses the walks.
    pub fn new(hash: RowHash, seed: u64) -> RandomWalk {
        let rows = hash.rows() as usize;
        RandomWalk { hash, banks: std::array::from_fn(|_| vec![None; rows]), rng: SplitMix64::new(seed) }
    }

    /// Stores a key that is not stored yet. Returns the number of entries that moved; none if `most_moves` did not
    /// suffice, in which case the entry that moved last is lost.
    pub fn insert(&mut self, key: &[u8], most_moves: u32) -> Option<u32> {
        let mut key: Box<[u8]> = key.into();
        let mut from = None;
        for moves in 0..=most_moves {
            let rows = self.hash.rows_of(&key);
            if let Some(way) = (0..WAYS).find(|&way| self.banks[way][rows[way] as usize].is_none()) {
                self.banks[way][rows[way] as usize] = Some(key);
                return Some(moves);
            }
            // Not back to the place it comes from.
            let others: Vec<usize> = (0..WAYS).filter(|&way| Some(way) != from).collect();
            let way = others[self.rng.below(others.len() as u64) as usize];
            let evicted = self.banks[way][rows[way] as usize].replace(key)?;
            (key, from) = (evicted, Some(way));
        }
        None
    }

    /// Removes a key. Returns true if it was stored.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let rows = self.hash.rows_of(key);
        let mut places = self.banks.iter_mut().zip(rows).map(|(bank, row)| &mut bank[row as usize]);
        places.find(|place| place.as_deref() == Some(key)).is_some_and(|place| place.take().is_some())
    }
}
