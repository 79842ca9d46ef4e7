// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Occupancy of the stash under arrivals of new keys, with insertions of a fixed duration.

use crate::cuckoo::{Cuckoo, Parameters, Step};
use crate::error::{ParameterError, Refusal};

/// Duration of a move [FlowBlaze 4.2].
const MOVE_NS: f64 = 6.4;

/// A measurement of the stash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StashTest {
    /// Declared entries of the table.
    pub table_entries: u32,
    /// Entries of the stash.
    pub stash_entries: u32,
    /// Moves that each insertion takes, whatever its keys: each lasts 6.4 ns.
    pub moves: u32,
}

/// Results of a [`StashTest`].
#[derive(Debug, Clone, PartialEq)]
pub struct Occupancy {
    /// Keys that were inserted.
    pub inserted: u64,
    /// Arrivals of absent keys that found the stash full.
    pub refused: u64,
    /// Number of insertions after which 0, 1, 2 ... entries are in the stash.
    pub insertions: Vec<u64>,
    /// Share of the time until the last arrival in which the stash is empty, from 0 to 1.
    pub empty_share: f64,
}

impl Occupancy {
    /// The largest number of entries in the stash.
    pub fn max(&self) -> usize {
        self.insertions.iter().rposition(|&count| count > 0).unwrap_or(0)
    }
}

impl StashTest {
    /// Inserts each key that is not stored yet at its arrival, by way of the stash, as the paper's table does: one whose
    /// insertions find free places needs the stash less. Arrivals are times and keys, in the order of times; keys
    /// have `key_bytes`. Ends early when the table is full.
    ///
    /// # Errors
    /// If a table cannot have these sizes.
    pub fn run(
        self,
        key_bytes: u32,
        arrivals: impl IntoIterator<Item = (u64, Vec<u8>)>,
    ) -> Result<Occupancy, ParameterError> {
        let usual = Parameters::for_entries(self.table_entries, key_bytes, 0);
        let mut table = Cuckoo::new(Parameters { stash: self.stash_entries, ..usual })?;
        let insertion_ns = f64::from(self.moves) * MOVE_NS;
        let mut insertions = vec![0; self.stash_entries as usize + 1];
        let (mut inserted, mut refused) = (0, 0);
        // When the entry that is served is placed.
        let mut placed_ns: Option<f64> = None;
        let (mut now_ns, mut busy_ns) = (0.0, 0.0);
        for (time_ns, key) in arrivals {
            now_ns = time_ns as f64;
            while let Some(then_ns) = placed_ns.filter(|&then_ns| then_ns <= now_ns) {
                while !matches!(table.step(), Step::Placed(_)) {}
                busy_ns += insertion_ns;
                placed_ns = (table.stash_len() > 0).then_some(then_ns + insertion_ns);
            }
            if table.lookup(&key).is_some() {
                continue;
            }
            match table.insert_in_stash(&key) {
                Ok(_) => {
                    inserted += 1;
                    insertions[table.stash_len()] += 1;
                    placed_ns = placed_ns.or(Some(now_ns + insertion_ns));
                }
                Err(Refusal::Busy) => refused += 1,
                Err(Refusal::Full) => break,
            }
        }
        // The entry that is still served was begun an insertion before it would be placed.
        busy_ns += placed_ns.map_or(0.0, |then_ns| (now_ns - (then_ns - insertion_ns)).max(0.0));
        let empty_share = if now_ns > 0.0 { 1.0 - busy_ns / now_ns } else { 0.0 };
        Ok(Occupancy { inserted, refused, insertions, empty_share })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Keys that arrive 10 ns apart.
    fn every_10_ns(keys: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
        (0..keys).map(|number| (number * 10, number.to_be_bytes().to_vec()))
    }

    #[test]
    fn keys_that_come_as_fast_as_they_are_placed_need_one_entry() {
        let test = StashTest { table_entries: 1000, stash_entries: 2, moves: 1 };
        let found = test.run(8, every_10_ns(100)).unwrap();
        assert_eq!((found.inserted, found.refused, found.max(), found.insertions[1]), (100, 0, 1, 100));
        assert!((found.empty_share - 0.36).abs() < 1e-9, "6.4 of each 10 ns are busy: {found:?}");
    }

    /// An insertion takes 12.8 ns, so the number of entries grows by 0.28 with each arrival.
    #[test]
    fn keys_that_come_faster_fill_the_stash() {
        let test = StashTest { table_entries: 1000, stash_entries: 4, moves: 2 };
        let found = test.run(8, every_10_ns(100)).unwrap();
        assert!(found.max() == 4 && found.refused > 0 && found.empty_share < 1e-9, "{found:?}");
        let placed_by_the_end = (990.0 / 12.8_f64).floor() as u64;
        assert_eq!(found.inserted, placed_by_the_end + 4, "all others were refused: {found:?}");
        assert_eq!(found.inserted + found.refused, 100);
    }

    #[test]
    fn known_keys_are_not_inserted() {
        let test = StashTest { table_entries: 1000, stash_entries: 8, moves: 450 };
        let arrivals = (0..50u64).map(|number| (number * 10, (number % 5).to_be_bytes().to_vec()));
        let found = test.run(8, arrivals).unwrap();
        assert_eq!((found.inserted, found.refused, found.max()), (5, 0, 5));
    }

    #[test]
    fn a_full_table_ends_the_run() {
        let test = StashTest { table_entries: 3, stash_entries: 8, moves: 1 };
        assert_eq!(test.run(8, every_10_ns(100)).unwrap().inserted, 3);
    }
}
