// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash map with pending keys against an ordinary map, packet by packet, with host accesses in between.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};
use flowloom_state::{Parameters, RowHash};

use crate::common::{Bench, build, columns, top};

const ENTRIES: u32 = 40;
/// Keys that the cuckoo table holds: those of the map, and those that leave it later.
const KEYS: u32 = ENTRIES + 64 + 32;
/// Rows of the values.
const ROWS: u64 = KEYS as u64 + 16 + 32;
const FILES: [&str; 11] = [
    "prim/fl_fifo",
    "prim/fl_ram",
    "prim/fl_ram_dual",
    "prim/fl_fifo_ram",
    "table/fl_hash",
    "table/fl_slots",
    "table/fl_cuckoo_engine",
    "table/fl_cuckoo",
    "table/fl_array",
    "table/fl_pending",
    "table/fl_hash_map",
];

pub(crate) fn build_hash_map(test: &str, path: impl Fn(&str) -> PathBuf) -> Option<Model> {
    build_with_delay(test, path, 0)
}

/// A hash map whose slice takes `delay` cycles more than one.
fn build_with_delay(test: &str, path: impl Fn(&str) -> PathBuf, delay: u32) -> Option<Model> {
    let parameters = Parameters::for_entries(KEYS, 2, 0);
    let hash = RowHash::new(2, parameters.rows, parameters.seed);
    let mut files: Vec<PathBuf> = FILES.iter().map(|name| path(name)).collect();
    files.push(top().join("crates/cosim/tests/hash_map/fl_hash_map_test.sv"));
    let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    let design = Design::new("fl_hash_map_test", &files)
        .parameter("HashBits", hash.hash_bits())
        .parameter("Rows", parameters.rows)
        .parameter("Columns", columns(&hash, 2))
        .parameter("Entries", ENTRIES)
        .parameter("Delay", delay);
    build(test, &design)
}

/// An access in flight: of a packet or of the host.
#[derive(Debug, Clone, Copy)]
struct Access {
    operation: u64,
    key: u64,
    value: u64,
}

/// The model: what an access finds, and whether an insertion is refused.
fn apply(map: &mut BTreeMap<u64, u64>, access: Access) -> (Option<u64>, bool) {
    let before = map.get(&access.key).copied();
    let is_full = map.len() as u32 == ENTRIES;
    match access.operation {
        1 if before.is_some() || !is_full => _ = map.insert(access.key, access.value),
        2 => _ = map.remove(&access.key),
        4 if before.is_none() && !is_full => _ = map.insert(access.key, access.value),
        5 if before.is_some() => _ = map.insert(access.key, access.value),
        3 if before.is_some() => _ = map.insert(access.key, (before.unwrap_or(0) + access.value) & 0xffff_ffff),
        _ => {}
    }
    (before, is_full)
}

/// What a run reached.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) packets: u64,
    pub(crate) present: u64,
    pub(crate) refused: u64,
    pub(crate) deleted: u64,
    pub(crate) host: u64,
}

impl std::ops::AddAssign for Reached {
    fn add_assign(&mut self, other: Reached) {
        self.packets += other.packets;
        self.present += other.present;
        self.refused += other.refused;
        self.deleted += other.deleted;
        self.host += other.host;
    }
}

/// One run: phases of few keys and many, of insertions and deletions. Panics at the first difference.
pub(crate) fn run_hash_map(model: &Model, seed: u64) -> Reached {
    run_with_delay(model, seed, 0)
}

/// One run of a hash map whose slice takes `delay` cycles more than one: packets of one key are as far apart as it needs, or
/// farther, and so are all packets while the map is nearly full.
fn run_with_delay(model: &Model, seed: u64, delay: u32) -> Reached {
    let mut rng = SplitMix64::new(seed);
    let mut bench = Bench::new(model.clone(), seed as u32);
    bench.reset();
    bench.cycle();
    while bench.get("ready_o") == 0 {
        bench.cycle();
    }
    let mut map = BTreeMap::new();
    let mut reached = Reached::default();
    let (mut packets, mut accesses) = (VecDeque::new(), VecDeque::new());
    let (mut idle, mut keys, mut bias, mut gaps, mut since_room) = (0u32, 4u64, 1u64, 0u64, 0u32);
    // The keys of the packets of the last cycles, the newest first.
    let mut recent: VecDeque<Option<u64>> = VecDeque::from(vec![None; delay as usize]);
    for cycle in 0..6000u32 {
        if cycle.is_multiple_of(300) {
            keys = [1, 2, 5, 60, 300, 60000][rng.next_u64() as usize % 6];
            bias = rng.next_u64() % 5;
            gaps = [0, 0, 1, 7][rng.next_u64() as usize % 4];
        }
        // One packet may follow after the room has ended.
        since_room = if bench.get("room_o") == 1 { 0 } else { since_room + 1 };
        let wants = since_room <= 1 && cycle < 5500 && rng.next_u64() % 8 >= gaps;
        let drawn = rng.next_u64() % 8;
        let operation = if drawn < bias { 1 } else { [0, 1, 2, 3][drawn as usize % 4] };
        let access = Access { operation, key: rng.next_u64() % keys, value: rng.next_u64() & 0xffff_ffff };
        let is_tight = bench.get("tight_o") == 1;
        let sends = wants && !recent.iter().flatten().any(|key| is_tight || *key == access.key);
        let operation = [0, 1, 2, 4, 5][rng.next_u64() as usize % 5];
        let host = Access { operation, key: rng.next_u64() % keys, value: rng.next_u64() & 0xffff_ffff };
        let asks = rng.next_u64().is_multiple_of(16) && cycle < 5500;
        for (name, value) in [
            ("valid_i", u64::from(sends)),
            ("operation_i", access.operation),
            ("key_i", access.key),
            ("value_i", access.value),
            ("host_valid_i", u64::from(asks)),
            ("host_operation_i", host.operation),
            ("host_key_i", host.key),
            ("host_value_i", host.value),
        ] {
            bench.set(name, value);
        }
        bench.cycle();
        recent.push_front(sends.then_some(access.key));
        recent.truncate(delay as usize);
        if sends {
            packets.push_back(access);
        }
        if asks && bench.get("host_ready_o") == 1 {
            accesses.push_back(host);
        }
        let place = || format!("seed {seed}, cycle {cycle}");
        if bench.get("valid_o") == 1 {
            let access = packets.pop_front().unwrap();
            let (before, is_full) = apply(&mut map, access);
            let found = (bench.get("present_o") == 1).then(|| bench.get("value_o"));
            assert_eq!(found, before, "{}, packet {access:?}", place());
            assert_eq!(bench.get("full_o") == 1, is_full, "{}, packet {access:?}: full", place());
            reached.packets += 1;
            reached.present += u64::from(before.is_some());
            reached.refused += u64::from(is_full && before.is_none() && access.operation == 1);
            reached.deleted += u64::from(before.is_some() && access.operation == 2);
            idle = 0;
        } else if bench.get("host_valid_o") == 1 {
            let access = accesses.pop_front().unwrap();
            let (before, is_full) = apply(&mut map, access);
            let found = (bench.get("host_present_o") == 1).then(|| bench.get("host_value_o"));
            assert_eq!(found, before, "{}, host {access:?}", place());
            let is_refused = matches!(access.operation, 1 | 4) && before.is_none() && is_full;
            assert_eq!(bench.get("host_full_o") == 1, is_refused, "{}, host {access:?}: full", place());
            reached.host += 1;
            idle = 0;
        } else {
            idle += 1;
        }
        assert!(idle < 500 || cycle >= 5500, "{}: nothing happens any more", place());
    }
    assert!(packets.is_empty() && accesses.is_empty(), "seed {seed}: accesses without an answer");
    assert_eq!(bench.get("count_o"), map.len() as u64, "seed {seed}: count");
    // The rows list the entries. Pending ones come first: the mover may still take them to another row.
    let mut listed = BTreeMap::new();
    let rows = ROWS + u64::from(delay);
    let (mut number, mut answers) = (0, 0);
    while answers < rows {
        bench.set("host_valid_i", u64::from(number < rows));
        bench.set("host_operation_i", 3);
        bench.set("host_key_i", (rows - 1).saturating_sub(number));
        bench.cycle();
        number += u64::from(number < rows && bench.get("host_ready_o") == 1);
        answers += bench.get("host_valid_o");
        if bench.get("host_valid_o") == 1 && bench.get("host_present_o") == 1 {
            let (key, value) = (bench.get("host_key_o"), bench.get("host_value_o"));
            let known = listed.insert(key, value);
            assert!(known.is_none_or(|known| known == value), "seed {seed}: key {key} has two values");
        }
    }
    assert_eq!(listed, map, "seed {seed}: entries");
    reached
}

#[test]
fn a_hash_map_is_an_ordinary_map_to_every_packet() {
    let Some(model) = build_hash_map("a_hash_map_is_an_ordinary_map_to_every_packet", crate::common::block_path) else {
        return;
    };
    let mut all = Reached::default();
    // The last one found a copy that was not made, taken for the row of an adopted entry.
    for seed in (1..=20).chain([219]) {
        all += run_hash_map(&model, seed);
    }
    println!("{all:?}");
    assert!(all.refused > 100 && all.deleted > 1000 && all.present > 10_000 && all.host > 300, "{all:?}");
}

#[test]
fn packets_apart_see_the_results_of_a_longer_slice() {
    let test = "packets_apart_see_the_results_of_a_longer_slice";
    for delay in [1, 3, 9] {
        let Some(model) = build_with_delay(test, crate::common::block_path, delay) else { return };
        let mut all = Reached::default();
        for seed in 1..=20 {
            all += run_with_delay(&model, seed, delay);
        }
        println!("delay {delay}: {all:?}");
        assert!(all.refused > 20 && all.deleted > 500 && all.host > 5, "delay {delay}: {all:?}");
    }
}
