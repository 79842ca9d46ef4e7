// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of use of the rows of an LRU table against its twin, operation by operation.

use std::collections::VecDeque;
use std::path::PathBuf;

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};
use flowloom_state::Recency;

use crate::common::{Bench, block_path, build};

const ROWS: u32 = 12;

pub(crate) fn build_lru(test: &str, path: impl Fn(&str) -> PathBuf) -> Option<Model> {
    let files = ["prim/fl_ram_dual", "prim/fl_ram_forward", "table/fl_lru"].map(path);
    let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    build(test, &Design::new("fl_lru", &files).parameter("Rows", ROWS))
}

/// What a run reached.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) operations: u64,
    pub(crate) evictions: u64,
    /// Evictions that wait for the operation before them.
    pub(crate) close: u64,
    pub(crate) replacements: u64,
    /// Times the list became empty.
    pub(crate) empty: u64,
}

impl std::ops::AddAssign for Reached {
    fn add_assign(&mut self, other: Reached) {
        self.operations += other.operations;
        self.evictions += other.evictions;
        self.close += other.close;
        self.replacements += other.replacements;
        self.empty += other.empty;
    }
}

/// One operation: the inputs that are high, a row, and the row that is appended.
struct Operation {
    unlink: bool,
    evict: bool,
    replace: bool,
    append: bool,
    row: u32,
    to: u32,
}

/// Draws an operation and makes it in the twin.
fn draw(rng: &mut SplitMix64, twin: &mut Recency, bias: u64) -> Option<Operation> {
    let row = rng.below(ROWS.into()) as u32;
    let other = rng.below(ROWS.into()) as u32;
    let (is_known, free) = (twin.contains(row), !twin.contains(other));
    let none = Operation { unlink: false, evict: false, replace: false, append: false, row, to: row };
    match rng.below(8) {
        0 if is_known => {
            twin.remove(row);
            Some(Operation { unlink: true, ..none })
        }
        1 if is_known && free => {
            twin.replace(row, other);
            Some(Operation { replace: true, to: other, ..none })
        }
        choice if choice < 2 + bias => {
            // An eviction, mostly with a row that takes its place.
            twin.oldest()?;
            let append = !is_known && rng.percent(90);
            twin.evict();
            if append {
                twin.touch(row);
            }
            Some(Operation { evict: true, append, ..none })
        }
        _ => {
            twin.touch(row);
            Some(Operation { unlink: is_known, append: true, ..none })
        }
    }
}

/// One run. Panics at the first difference.
pub(crate) fn run_lru(model: &Model, seed: u64) -> Reached {
    let mut rng = SplitMix64::new(seed);
    let mut bench = Bench::of_table(model, seed as u32);
    let (mut twin, mut reached) = (Recency::new(ROWS), Reached::default());
    let mut victims: VecDeque<u32> = VecDeque::new();
    let (mut bias, mut gaps) = (1, 0);
    // The cycle in which the last operation reads its rows. An eviction waits until the operation before it has
    // written.
    let mut last_read = 0;
    for cycle in 0..4000 {
        if cycle % 200 == 0 {
            bias = rng.below(5);
            gaps = [0, 0, 30, 70][rng.below(4) as usize];
        }
        // In the end everything is evicted.
        let ends = cycle >= 3900;
        let oldest = twin.oldest();
        let operation = match (cycle < last_read, ends) {
            (true, _) => None,
            (false, true) => twin.evict().map(|row| Operation {
                unlink: false,
                evict: true,
                replace: false,
                append: false,
                row,
                to: row,
            }),
            (false, false) if rng.percent(gaps) => None,
            (false, false) => draw(&mut rng, &mut twin, bias),
        };
        for name in ["valid_i", "unlink_i", "evict_i", "replace_i", "append_i"] {
            bench.set(name, 0);
        }
        if let Some(Operation { unlink, evict, replace, append, row, to }) = operation {
            bench.set_all([
                ("valid_i", 1),
                ("unlink_i", unlink.into()),
                ("evict_i", evict.into()),
                ("replace_i", replace.into()),
                ("append_i", append.into()),
                ("row_i", row.into()),
                ("to_i", to.into()),
            ]);
            if evict {
                victims.push_back(oldest.expect("evicted"));
            }
            reached.operations += 1;
            reached.evictions += u64::from(evict);
            let waits = evict && last_read == cycle;
            last_read = cycle + 1 + u64::from(waits);
            reached.close += u64::from(waits);
            reached.replacements += u64::from(replace);
            reached.empty += u64::from(twin.oldest().is_none());
        }
        bench.cycle();
        if bench.get("victim_valid_o") == 1 {
            let expected = victims.pop_front().expect("a row is evicted without an eviction");
            assert_eq!(bench.get("victim_o"), u64::from(expected), "seed {seed}, cycle {cycle}: the evicted row");
        }
        // The row is known after one cycle, or after two.
        assert!(victims.len() <= 2, "seed {seed}, cycle {cycle}: an eviction has no row");
    }
    assert!(victims.is_empty(), "seed {seed}: evictions without a row");
    reached
}

#[test]
fn rows_are_evicted_in_the_order_of_their_use() {
    let Some(model) = build_lru("rows_are_evicted_in_the_order_of_their_use", block_path) else { return };
    let mut all = Reached::default();
    for seed in 1..=40 {
        println!("seed {seed}");
        all += run_lru(&model, seed);
    }
    println!("{all:?}");
    assert!(all.evictions > 10_000 && all.close > 1000 && all.replacements > 1000 && all.empty > 40, "{all:?}");
}
