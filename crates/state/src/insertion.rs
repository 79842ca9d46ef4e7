// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of insertions by load.

use flowloom_random::{Draw, SplitMix64};

use crate::cuckoo::{Cuckoo, Parameters, Step};
use crate::hash::{RowHash, WAYS};
use crate::random_walk::RandomWalk;

/// Bytes of the keys: an IPv4 5-tuple.
pub(crate) const KEY_BYTES: u32 = 13;
/// Steps after which an insertion counts as failed: more than any insertion up to 97% load takes.
pub(crate) const MAX_STEPS: u32 = 1_000_000;

/// Entries that an insertion moves, and steps of the engine until its key is in a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InsertionCost {
    /// Entries moved or exchanged.
    pub moves: u32,
    /// Steps, of which each is a read or a write; none if one of the key's places is free.
    pub steps: u32,
}

impl InsertionCost {
    /// Inserts a key and runs the engine until the stash is empty. `None` if the table refuses the key, or if the stash
    /// is not empty after `max_steps`.
    pub fn of(table: &mut Cuckoo, key: &[u8], max_steps: u32) -> Option<InsertionCost> {
        table.insert(key).ok()?;
        let mut cost = InsertionCost { moves: 0, steps: 0 };
        while table.stash_len() > 0 {
            if cost.steps == max_steps {
                return None;
            }
            cost.steps += 1;
            cost.moves += u32::from(matches!(table.step(), Step::Moved(_) | Step::Exchanged { .. }));
        }
        Some(cost)
    }
}

/// Median, 99th percentile and maximum of a set of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// The number at half of the sorted numbers.
    pub median: u32,
    /// The number at 99% of them.
    pub percentile_99: u32,
    /// The largest number.
    pub max: u32,
}

impl Quantiles {
    /// Quantiles of at least one number.
    ///
    /// # Panics
    /// If there is no number.
    pub fn of(mut numbers: Vec<u32>) -> Quantiles {
        numbers.sort_unstable();
        let [median, percentile_99, max] =
            [numbers.len() / 2, numbers.len() * 99 / 100, numbers.len() - 1].map(|at| numbers[at]);
        Quantiles { median, percentile_99, max }
    }
}

/// A measurement of insertions into tables that are filled with random keys to a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadTest {
    /// Rows of each of the four banks.
    pub rows: u32,
    /// Used share of the places, in percent.
    pub load_percent: u32,
    /// Number of tables, each with its own hash functions and keys. At least 1.
    pub tables: u32,
    /// Number of insertions in all, divided among the tables. At least the number of tables.
    pub insertions: u32,
}

/// Results of a [`LoadTest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadCosts {
    /// Moved entries, by the engine.
    pub moves: Quantiles,
    /// Steps of the engine.
    pub steps: Quantiles,
    /// Moved entries, by a random walk over tables of the same size and load.
    pub walk_moves: Quantiles,
}

impl LoadTest {
    /// Places of a table.
    pub fn places(self) -> u32 {
        self.rows * WAYS as u32
    }

    /// Number of stored keys at the load.
    pub fn entries(self) -> u32 {
        (u64::from(self.places()) * u64::from(self.load_percent) / 100) as u32
    }

    /// Measures the cost of each insertion; the key is removed before the next one.
    ///
    /// `None` if a key finds no place: the table does not reach the load.
    pub fn run(self) -> Option<LoadCosts> {
        let (mut moves, mut steps, mut walked) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 1..=u64::from(self.tables) {
            let mut rng = SplitMix64::new(seed);
            let mut table = random_table(self.rows, seed);
            fill(&mut table, self.entries(), &mut rng)?;
            let mut walk = RandomWalk::new(RowHash::new(KEY_BYTES as usize, self.rows, seed), seed);
            for _ in 0..self.entries() {
                walk.insert(&random_key(&mut rng), MAX_STEPS)?;
            }
            for _ in 0..self.insertions / self.tables {
                let key = random_key(&mut rng);
                let cost = InsertionCost::of(&mut table, &key, MAX_STEPS)?;
                moves.push(cost.moves);
                steps.push(cost.steps);
                table.delete(&key);
                walked.push(walk.insert(&key, MAX_STEPS)?);
                walk.delete(&key);
            }
            table.check_invariants();
        }
        Some(LoadCosts { moves: Quantiles::of(moves), steps: Quantiles::of(steps), walk_moves: Quantiles::of(walked) })
    }
}

/// An empty table of as many entries as places, for keys of an IPv4 5-tuple's length.
pub(crate) fn random_table(rows: u32, seed: u64) -> Cuckoo {
    let usual = Parameters::for_entries(rows * WAYS as u32, KEY_BYTES, 0);
    Cuckoo::new(Parameters { rows, seed, ..usual }).expect("a table may have these sizes")
}

/// A random key. Repetitions are as good as impossible.
pub(crate) fn random_key(rng: &mut SplitMix64) -> [u8; KEY_BYTES as usize] {
    let (a, b) = (rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes());
    std::array::from_fn(|at| if at < 8 { a[at] } else { b[at - 8] })
}

/// Inserts random keys until `entries` are stored. `None` if one finds no place.
fn fill(table: &mut Cuckoo, entries: u32, rng: &mut SplitMix64) -> Option<()> {
    while table.len() < entries as usize {
        InsertionCost::of(table, &random_key(rng), MAX_STEPS)?;
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_filled_to_97_percent() {
        let mut table = random_table(4096, 1);
        fill(&mut table, 4096 * 4 * 97 / 100, &mut SplitMix64::new(1)).unwrap();
        table.check_invariants();
    }

    #[test]
    fn sequential_keys_fill_a_table_as_well() {
        let mut table = random_table(1024, 1);
        for number in 0..3891u32 {
            let mut key = [0; 13];
            key[..4].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
            assert!(InsertionCost::of(&mut table, &key, 100_000).is_some(), "{number}");
        }
    }

    #[test]
    fn half_of_the_insertions_at_95_percent_move_few_entries() {
        let costs = LoadTest { rows: 4096, load_percent: 95, tables: 2, insertions: 100 }.run().unwrap();
        assert!(costs.moves.median <= 10 && costs.moves.median < costs.walk_moves.median, "{costs:?}");
        let least_steps = costs.moves.median + 3;
        assert!(costs.steps.median >= least_steps, "selection, a read and a write each count: {costs:?}");
        let loose = LoadTest { rows: 4096, load_percent: 50, tables: 2, insertions: 100 }.run().unwrap();
        assert!(loose.walk_moves.median == 0 && loose.moves.max <= costs.moves.max, "{loose:?}");
    }

    #[test]
    fn a_load_that_a_table_does_not_reach_has_no_result() {
        assert_eq!(LoadTest { rows: 16, load_percent: 100, tables: 1, insertions: 1 }.run(), None);
        // A free place is taken at once.
        let cost = InsertionCost::of(&mut random_table(16, 1), &[7; 13], 0);
        assert_eq!(cost, Some(InsertionCost { moves: 0, steps: 0 }));
        // With all four taken: selection, two reads or more, moves, and the write.
        let mut table = random_table(16, 1);
        let mut keys = (0..u64::MAX).map(|number| {
            let mut key = [0; 13];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        });
        let key = keys
            .find(|key| {
                let mut before = table.clone();
                table.insert(key).unwrap();
                let is_taken = table.stash_len() > 0;
                if is_taken {
                    std::mem::swap(&mut table, &mut before);
                }
                is_taken
            })
            .unwrap();
        let cost = |max_steps| InsertionCost::of(&mut table.clone(), &key, max_steps);
        let found = cost(1000).unwrap();
        assert!(found.moves > 0 && found.steps >= found.moves + 4, "{found:?}");
        assert_eq!((cost(found.steps - 1), cost(found.steps)), (None, Some(found)));
    }

    #[test]
    fn quantiles_are_numbers_of_the_set() {
        let of_100 = Quantiles::of((0..100).rev().collect());
        assert_eq!(of_100, Quantiles { median: 50, percentile_99: 99, max: 99 });
        assert_eq!(Quantiles::of(vec![7]), Quantiles { median: 7, percentile_99: 7, max: 7 });
    }
}
