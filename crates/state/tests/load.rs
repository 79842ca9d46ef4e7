// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load and moves of an insertion.

use flowloom_random::{Draw, SplitMix64};
use flowloom_state::{Cuckoo, Parameters, RandomWalk, RowHash, Step};

/// A table with the bytes of an IPv4 5-tuple as key.
pub(crate) fn table(rows: u32, seed: u64) -> Cuckoo {
    let entries = rows * 4;
    Cuckoo::new(Parameters { rows, seed, ..Parameters::for_entries(entries, 13, 0) }).unwrap()
}

/// A random key. Random ones repeat about never.
pub(crate) fn key(rng: &mut SplitMix64) -> [u8; 13] {
    let (a, b) = (rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes());
    std::array::from_fn(|at| if at < 8 { a[at] } else { b[at - 8] })
}

/// What one insertion costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    pub(crate) moves: u32,
    pub(crate) steps: u32,
}

/// Inserts a key and runs the engine until the stash is empty, for `most_steps` at most. None if it is not.
pub(crate) fn insert(table: &mut Cuckoo, key: &[u8], most_steps: u32) -> Option<Cost> {
    table.insert(key).ok()?;
    let mut cost = Cost { moves: 0, steps: 0 };
    while table.stash_len() > 0 {
        if cost.steps == most_steps {
            return None;
        }
        cost.steps += 1;
        cost.moves += u32::from(matches!(table.step(), Step::Moved(_) | Step::Exchanged { .. }));
    }
    Some(cost)
}

/// Inserts random keys until `load` of all places are used.
pub(crate) fn fill(table: &mut Cuckoo, load: f64, rng: &mut SplitMix64) {
    let count = (f64::from(table.parameters().rows * 4) * load) as usize;
    while table.len() < count {
        assert!(insert(table, &key(rng), 100_000).is_some(), "no place at {} of {count}", table.len());
    }
}

/// The value below which half of the sorted ones are, the 99th percentile, and the largest.
pub(crate) fn quantiles(mut values: Vec<u32>) -> [u32; 3] {
    values.sort_unstable();
    [values.len() / 2, values.len() * 99 / 100, values.len() - 1].map(|at| values[at])
}

#[test]
fn a_table_is_filled_to_97_percent() {
    let mut rng = SplitMix64::new(1);
    let mut table = table(4096, 1);
    fill(&mut table, 0.97, &mut rng);
    table.check_invariants();
}

#[test]
fn sequential_keys_fill_a_table_as_well() {
    let mut table = table(1024, 1);
    for number in 0..3891u32 {
        let mut key = [0; 13];
        key[..4].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
        assert!(insert(&mut table, &key, 100_000).is_some(), "{number}");
    }
}

#[test]
fn half_of_the_insertions_at_95_percent_move_few_entries() {
    let mut rng = SplitMix64::new(2);
    let mut table = table(4096, 2);
    fill(&mut table, 0.95, &mut rng);
    let costs: Vec<u32> = (0..50).map(|_| insert(&mut table, &key(&mut rng), 100_000).unwrap().moves).collect();
    assert!(quantiles(costs)[0] <= 10);
}

#[test]
fn a_random_walk_moves_more() {
    let mut rng = SplitMix64::new(3);
    let mut walk = RandomWalk::new(RowHash::new(13, 1024, 3), 3);
    for _ in 0..3891 {
        walk.insert(&key(&mut rng), 100_000).unwrap();
    }
    let moves: Vec<u32> = (0..40).map(|_| walk.insert(&key(&mut rng), 100_000).unwrap()).collect();
    assert!(quantiles(moves)[0] > 10);
    assert_eq!(RandomWalk::new(RowHash::new(1, 1, 1), 1).insert(&[1], 0), Some(0));
}
