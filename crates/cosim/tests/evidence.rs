// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the blocks. Start with `make evidence`.

use crate::common::block_path;
use crate::cuckoo::{build_narrow, run_narrow};
use crate::faults::{FAULTS, find};

/// The cuckoo table in SystemVerilog and its twin agree in every cycle of 2,000 runs of 12,000 cycles each: results, slots,
/// counts, and each step of the engine. Each fault of a list, planted in the blocks, makes them differ. Prints the steps
/// and the first difference of each fault.
#[test]
#[ignore = "minutes"]
fn evidence_cuckoo_rtl() {
    let Some(model) = build_narrow("evidence_cuckoo_rtl", block_path) else { return };
    let mut steps = [0u64; 7];
    for seed in 1..=2000 {
        let reached = run_narrow(&model, seed);
        steps.iter_mut().zip(reached.steps).for_each(|(sum, steps)| *sum += u64::from(steps));
    }
    println!("2000 runs of 12000 cycles agree");
    for (name, steps) in ["selected", "searched", "moved", "exchanged", "placed", "given up"].iter().zip(&steps[1..]) {
        println!("{name:10} {steps:8}");
    }
    for fault in FAULTS {
        let found = find(fault, 400);
        println!("{}: {}", fault.name, found.as_deref().unwrap_or("not found"));
        assert!(found.is_some(), "{} is not found", fault.name);
    }
}
