// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the blocks. Start with `make evidence`.

use crate::common::block_path;
use crate::cuckoo::{build_narrow, run_narrow};
use crate::faults::{FAULTS, Fault, LPM_FAULTS, LRU_FAULTS, MAP_FAULTS, find};
use crate::hash_map::{LRU_SHAPES, NARROW, Reached, build_hash_map, build_with, run_hash_map, run_with};
use crate::{lpm, lru};

/// The part of a name that selects faults, which are tried alone then.
fn only() -> Option<String> {
    std::env::var("FLOWLOOM_FAULT").ok()
}

/// Prints the first difference that each fault makes in this number of runs, and fails if one makes none.
fn faults_are_found(faults: &[Fault], seeds: u64) {
    let only = only().unwrap_or_default();
    let selected: Vec<&Fault> = faults.iter().filter(|fault| fault.name.contains(&only)).collect();
    assert!(!selected.is_empty(), "no fault of this proof has `{only}` in its name");
    let mut missed = Vec::new();
    for fault in selected {
        let found = find(fault, seeds);
        println!("{}: {}", fault.name, found.as_deref().unwrap_or("not found"));
        missed.extend(found.is_none().then_some(fault.name));
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
}

/// The cuckoo table in SystemVerilog and its twin agree in every cycle of 2,000 runs of 12,000 cycles each: results,
/// slots, counts, and each step of the engine. Each fault of a list, planted in the blocks, makes them differ. Prints
/// the steps and the first difference of each fault. `FLOWLOOM_FAULT` selects faults alone, by a part of their names, as
/// in the other proofs of blocks.
#[test]
#[ignore = "minutes"]
fn evidence_cuckoo_rtl() {
    let Some(model) = build_narrow("evidence_cuckoo_rtl", block_path) else { return };
    if only().is_some() {
        return faults_are_found(FAULTS, 400);
    }
    let mut steps = [0u64; 7];
    for seed in 1..=2000 {
        let reached = run_narrow(&model, seed);
        steps.iter_mut().zip(reached.steps).for_each(|(sum, steps)| *sum += u64::from(steps));
    }
    println!("2000 runs of 12000 cycles agree");
    for (name, steps) in ["selected", "searched", "moved", "exchanged", "placed", "given up"].iter().zip(&steps[1..]) {
        println!("{name:10} {steps:8}");
    }
    faults_are_found(FAULTS, 400);
}

/// The hash map with pending keys is an ordinary map to every packet and to the host, in 300 runs of 6,000 cycles:
/// values, fullness, the number of entries, and the list of all of them, whatever the keys and where they share few
/// rows. Each fault of a list, planted in the map, in its pending keys or in its array, makes it differ. Prints what
/// the runs reached and the first difference of each fault.
#[test]
#[ignore = "minutes"]
fn evidence_hash_map() {
    let Some(model) = build_hash_map("evidence_hash_map", block_path) else { return };
    if only().is_some() {
        return faults_are_found(MAP_FAULTS, 300);
    }
    let mut all = Reached::default();
    for seed in 1..=300 {
        all += run_hash_map(&model, seed);
        all += run_with(&model, seed, NARROW);
    }
    let Reached { packets, present, refused, deleted, host, .. } = all;
    println!("300 runs of 6000 cycles agree, and 300 with few rows");
    for (name, count) in [
        ("packets", packets),
        ("found entries", present),
        ("refused insertions", refused),
        ("deletions", deleted),
        ("host accesses", host),
    ] {
        println!("{name:20} {count:8}");
    }
    faults_are_found(MAP_FAULTS, 300);
}

/// LRU maps in SystemVerilog, with slices of one stage and of three, are ordinary maps to every packet and to the host,
/// and evict the entry with the least recent use, in 200 runs of 6,000 cycles each: values, the number of entries, and
/// the list of all of them. The order of use agrees with its twin in 400 runs of 4,000 cycles. Each fault of a list,
/// planted in the order, in the map or in its evicted rows, makes them differ. Prints what the runs reached and the
/// first difference of each fault.
#[test]
#[ignore = "minutes"]
fn evidence_lru_map() {
    let Some(model) = lru::build_lru("evidence_lru_map", block_path) else { return };
    if only().is_some() {
        return faults_are_found(LRU_FAULTS, 100);
    }
    let mut order = lru::Reached::default();
    for seed in 1..=400 {
        order += lru::run_lru(&model, seed);
    }
    println!("400 runs of 4000 cycles of the order agree");
    for (name, count) in [
        ("operations", order.operations),
        ("evictions", order.evictions),
        ("evictions that wait", order.close),
        ("replacements", order.replacements),
        ("times without a row", order.empty),
    ] {
        println!("{name:20} {count:8}");
    }
    for shape in LRU_SHAPES {
        let Some(model) = build_with("evidence_lru_map", block_path, shape) else { return };
        let mut all = Reached::default();
        for seed in 1..=200 {
            all += run_with(&model, seed, shape);
        }
        println!("{shape:?}: 200 runs of 6000 cycles agree");
        for (name, count) in [
            ("packets", all.packets),
            ("found entries", all.present),
            ("evictions", all.evicted),
            ("deletions", all.deleted),
            ("host accesses", all.host),
        ] {
            println!("{name:20} {count:8}");
        }
        assert!(all.evicted > 10_000 && all.refused == 0, "{all:?}");
    }
    faults_are_found(LRU_FAULTS, 100);
}

/// Longest prefix match in SystemVerilog and its twin agree in 200 runs of 12,000 cycles: each packet sees the table
/// before or after a request of the host, the values, the number of prefixes, and the rows of all of them. Each fault
/// of a list, planted in the blocks, makes them differ. Prints what the runs reached and the first difference of each
/// fault.
#[test]
#[ignore = "minutes"]
fn evidence_lpm() {
    let Some(model) = lpm::build_lpm("evidence_lpm", block_path) else { return };
    if only().is_some() {
        return faults_are_found(LPM_FAULTS, 60);
    }
    let mut all = lpm::Reached::default();
    for seed in 1..=200 {
        all += lpm::run_lpm(&model, seed);
    }
    println!("200 runs of 12000 cycles agree");
    for (name, count) in [
        ("packets", all.packets),
        ("found entries", all.present),
        ("requests of the host", all.requests),
        ("refused insertions", all.refused),
        ("deletions", all.deleted),
        ("packets before a request in progress that concerns them", all.before),
        ("requests whose effect a packet saw before the answer", all.after),
        ("most ranges", all.most_ranges),
    ] {
        println!("{name:55} {count:8}");
    }
    faults_are_found(LPM_FAULTS, 60);
}
