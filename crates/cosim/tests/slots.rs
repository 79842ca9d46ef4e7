// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The free list of slots against a queue with times.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};

use crate::common::{Bench, block_path, build};

const SLOTS: u64 = 12;
const REST_CYCLES: u64 = 6;

/// The free list with the blocks at `path`; none without Verilator.
pub(crate) fn build_slots(test: &str, path: impl Fn(&str) -> PathBuf) -> Option<Model> {
    let files = ["prim/fl_ram", "prim/fl_fifo", "prim/fl_fifo_ram", "table/fl_slots"].map(path);
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    build(test, &Design::new("fl_slots", &files).parameter("Slots", SLOTS).parameter("RestCycles", REST_CYCLES))
}

/// Slots rest, and return in the order of their release; panics where they do not.
pub(crate) fn run_slots(model: &Model, seed: u64) {
    let mut bench = Bench::new(model.clone(), seed as u32);
    let mut rng = SplitMix64::new(seed);
    let mut free: VecDeque<(u64, u64)> = (0..SLOTS).map(|slot| (slot, 0)).collect();
    let (mut taken, mut empty) = (Vec::new(), 0);
    bench.reset();
    for cycle in 0..5000 {
        let takes = rng.below(16) < [12, 4, 16][cycle as usize / 64 % 3];
        let release = (!taken.is_empty() && rng.below(16) < [6, 12, 16][cycle as usize / 64 % 3])
            .then(|| taken.swap_remove(rng.below(taken.len() as u64) as usize));
        bench.set("slot_ready_i", takes.into());
        bench.set("release_i", release.is_some().into());
        bench.set("release_slot_i", release.unwrap_or(0));
        bench.cycle();
        let next = free.front().copied().filter(|&(_, from)| from <= cycle);
        assert_eq!(bench.get("slot_valid_o") == 1, next.is_some(), "seed {seed}, cycle {cycle}");
        empty += u32::from(next.is_none());
        if let Some((slot, _)) = next {
            assert_eq!(bench.get("slot_o"), slot, "seed {seed}, cycle {cycle}");
            if takes {
                taken.push(slot);
                free.pop_front();
            }
        }
        free.extend(release.map(|slot| (slot, cycle + REST_CYCLES)));
    }
    assert!(empty > 100, "{empty}");
}

#[test]
fn slots_rest_and_return_in_the_order_of_their_release() {
    if let Some(model) = build_slots("slots_rest_and_return_in_the_order_of_their_release", block_path) {
        run_slots(&model, 1);
    }
}
