// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash map with pending keys against an ordinary map, packet by packet, with host accesses in between.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};
use flowloom_state::{Parameters, Recency, RowHash};

use crate::common::{Bench, build, columns, top};

const ENTRIES: u32 = 40;
const PENDING: u32 = 32;
/// Their places are a few more than a map has entries.
const NARROW_ROWS: u32 = 12;
/// Keys that the cuckoo table holds: those of the map, and those that leave it later.
const KEYS: u32 = ENTRIES + 64 + PENDING;
/// Rows of the values.
const ROWS: u64 = (KEYS + 16 + PENDING) as u64;
const FILES: [&str; 14] = [
    "prim/fl_fifo",
    "prim/fl_ram",
    "prim/fl_ram_dual",
    "prim/fl_ram_forward",
    "prim/fl_fifo_ram",
    "table/fl_hash",
    "table/fl_slots",
    "table/fl_cuckoo_engine",
    "table/fl_cuckoo",
    "table/fl_array",
    "table/fl_pending",
    "table/fl_lru",
    "table/fl_evicted",
    "table/fl_hash_map",
];

pub(crate) fn build_hash_map(test: &str, path: impl Fn(&str) -> PathBuf) -> Option<Model> {
    build_with(test, path, Shape::default())
}

/// An LRU map as a program with a slice of several stages has it, and one with a slice of one stage.
pub(crate) const LRU_SHAPES: [Shape; 2] =
    [Shape { delay: 0, lru: true, narrow: false }, Shape { delay: 2, lru: true, narrow: false }];

/// A map whose keys share few rows of its cuckoo table: insertions are refused.
pub(crate) const NARROW: Shape = Shape { delay: 0, lru: false, narrow: true };

/// The shape of a map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The cycles that the slice takes more than one.
    delay: u32,
    /// Whether a full map evicts the entry with the least recent use.
    lru: bool,
    /// Whether keys are such that they have their places in the first [`NARROW_ROWS`] rows only.
    narrow: bool,
}

impl Shape {
    /// The cycles after a packet in which none with its key comes.
    fn hold_cycles(self) -> u32 {
        if self.lru && self.delay == 1 { 2 } else { self.delay }
    }

    /// The same for all packets, while packets on their way could fill the map.
    fn tight_cycles(self) -> u32 {
        if self.lru { self.hold_cycles().max(1) } else { self.delay }
    }
}

fn row_hash() -> RowHash {
    let Parameters { rows, seed, .. } = Parameters::for_entries(KEYS, 2, 0);
    RowHash::new(2, rows, seed)
}

/// The keys of a map of a shape.
fn keys_of(shape: Shape) -> Vec<u64> {
    let hash = row_hash();
    let is_fit = |key: &u16| hash.rows_of(&key.to_le_bytes()).iter().all(|row| *row < NARROW_ROWS);
    (0..60_000).filter(|key| !shape.narrow || is_fit(key)).map(u64::from).collect()
}

/// A hash map of a shape.
pub(crate) fn build_with(test: &str, path: impl Fn(&str) -> PathBuf, shape: Shape) -> Option<Model> {
    let hash = row_hash();
    let mut files: Vec<PathBuf> = FILES.iter().map(|name| path(name)).collect();
    files.push(top().join("crates/cosim/tests/hash_map/fl_hash_map_test.sv"));
    let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    let design = Design::new("fl_hash_map_test", &files)
        .parameter("HashBits", hash.hash_bits())
        .parameter("Rows", hash.rows())
        .parameter("Columns", columns(&hash, 2))
        .parameter("Entries", ENTRIES)
        .parameter("Lru", format!("1'b{}", u8::from(shape.lru)))
        .parameter("Delay", shape.delay);
    build(test, &design)
}

/// An access in flight: of a packet or of the host.
#[derive(Debug, Clone, Copy)]
struct Access {
    operation: u64,
    key: u64,
    value: u64,
    /// Of a packet: it looks its entry up, which is a use.
    touches: bool,
}

/// The model: an ordinary map, and the order of use of its keys.
struct Twin {
    map: BTreeMap<u64, u64>,
    order: Option<Recency>,
}

/// What an access finds.
struct Found {
    before: Option<u64>,
    is_full: bool,
    evicts: bool,
}

impl Twin {
    /// An access of a packet or of the host.
    fn apply(&mut self, access: Access, is_host: bool) -> Found {
        let Access { operation, key, value, touches } = access;
        let before = self.map.get(&key).copied();
        let is_full = self.map.len() as u32 == ENTRIES;
        let is_lru = self.order.is_some();
        let is_update = match operation {
            1 => true,
            4 => !is_host || before.is_none(),
            5 => before.is_some(),
            _ => false,
        };
        let updates = is_update && (before.is_some() || !is_full || is_lru);
        let evicts = updates && before.is_none() && is_full;
        if evicts && let Some(oldest) = self.order.as_mut().and_then(Recency::evict) {
            self.map.remove(&oldest.into());
        }
        if updates {
            self.map.insert(key, value);
        } else if let (3, Some(old)) = (operation, self.map.get_mut(&key)) {
            *old = (*old + value) & 0xffff_ffff;
        }
        if operation == 2 || (operation == 4 && !is_host) {
            self.map.remove(&key);
        }
        if let Some(order) = &mut self.order {
            match self.map.contains_key(&key) {
                false => _ = order.remove(key as u32),
                true if updates || touches => order.touch(key as u32),
                true => {}
            }
        }
        Found { before, is_full, evicts }
    }
}

/// What a run reached.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) packets: u64,
    pub(crate) present: u64,
    pub(crate) refused: u64,
    pub(crate) evicted: u64,
    pub(crate) deleted: u64,
    pub(crate) host: u64,
}

impl std::ops::AddAssign for Reached {
    fn add_assign(&mut self, other: Reached) {
        self.packets += other.packets;
        self.present += other.present;
        self.refused += other.refused;
        self.evicted += other.evicted;
        self.deleted += other.deleted;
        self.host += other.host;
    }
}

/// One run: phases of few keys and many, of insertions and deletions. Panics at the first difference.
pub(crate) fn run_hash_map(model: &Model, seed: u64) -> Reached {
    run_with(model, seed, Shape::default())
}

/// One run of a map of a shape: packets of one key are as far apart as it needs, or farther, and so are all packets
/// while the map is nearly full.
pub(crate) fn run_with(model: &Model, seed: u64, shape: Shape) -> Reached {
    let mut rng = SplitMix64::new(seed);
    let mut bench = Bench::of_table(model, seed as u32);
    let mut twin = Twin { map: BTreeMap::new(), order: shape.lru.then(|| Recency::new(1 << 16)) };
    let mut reached = Reached::default();
    let (mut packets, mut accesses) = (VecDeque::new(), VecDeque::new());
    let pool = keys_of(shape);
    let draw = |rng: &mut SplitMix64, keys: u64| pool[(rng.next_u64() % keys) as usize % pool.len()];
    let (mut idle, mut keys, mut bias, mut gaps, mut since_room) = (0u32, 4u64, 1u64, 0u64, 0u32);
    // The keys of the packets of the last cycles, the newest first.
    let mut recent: VecDeque<Option<u64>> = VecDeque::new();
    for cycle in 0..6000u32 {
        if cycle.is_multiple_of(300) {
            // Many keys, so that an LRU map evicts more entries than its cuckoo table has places.
            let drawn = [[1, 2, 5, 60, 300, 60000], [2, 5, 60, 300, 60000, 60000]];
            keys = drawn[usize::from(shape.lru)][rng.next_u64() as usize % 6];
            bias = rng.next_u64() % 5;
            gaps = [0, 0, 1, 7][rng.next_u64() as usize % 4];
        }
        // One packet may follow after the room has ended.
        since_room = if bench.get("room_o") == 1 { 0 } else { since_room + 1 };
        let wants = since_room <= 1 && cycle < 5500 && rng.next_u64() % 8 >= gaps;
        let drawn = rng.next_u64() % 8;
        let mut operation = if drawn < bias { 1 } else { [0, 1, 2, 3][drawn as usize % 4] };
        if shape.lru && operation == 2 && rng.percent(30) {
            operation = 4;
        }
        let (key, value) = (draw(&mut rng, keys), rng.next_u64() & 0xffff_ffff);
        let access = Access { operation, key, value, touches: shape.lru && rng.percent(50) };
        let is_tight = bench.get("tight_o") == 1;
        let is_held = |age: usize, key: u64| {
            (age < shape.hold_cycles() as usize && key == access.key)
                || (age < shape.tight_cycles() as usize && is_tight)
        };
        let holds = recent.iter().enumerate().any(|(age, key)| key.is_some_and(|key| is_held(age, key)));
        let sends = wants && !holds;
        let operation = [0, 1, 2, 4, 5][rng.next_u64() as usize % 5];
        let (key, value) = (draw(&mut rng, keys), rng.next_u64() & 0xffff_ffff);
        let host = Access { operation, key, value, touches: false };
        let asks = rng.next_u64().is_multiple_of(16) && cycle < 5500;
        bench.set_all([
            ("valid_i", u64::from(sends)),
            ("operation_i", access.operation),
            ("key_i", access.key),
            ("value_i", access.value),
            ("touch_i", u64::from(access.touches)),
            ("host_valid_i", u64::from(asks)),
            ("host_operation_i", host.operation),
            ("host_key_i", host.key),
            ("host_value_i", host.value),
        ]);
        bench.cycle();
        recent.push_front(sends.then_some(access.key));
        recent.truncate(shape.tight_cycles() as usize);
        if sends {
            packets.push_back(access);
        }
        if asks && bench.get("host_ready_o") == 1 {
            accesses.push_back(host);
        }
        let place = || format!("seed {seed}, cycle {cycle}");
        if bench.get("valid_o") == 1 {
            let access = packets.pop_front().unwrap();
            let Found { before, is_full, evicts } = twin.apply(access, false);
            let found = bench.found("present_o", "value_o");
            assert_eq!(found, before, "{}, packet {access:?}", place());
            assert_eq!(bench.get("full_o") == 1, is_full, "{}, packet {access:?}: full", place());
            reached.packets += 1;
            reached.present += u64::from(before.is_some());
            reached.refused += u64::from(is_full && before.is_none() && access.operation == 1 && !evicts);
            reached.evicted += u64::from(evicts);
            reached.deleted += u64::from(before.is_some() && access.operation == 2);
            idle = 0;
        } else if bench.get("host_valid_o") == 1 {
            let access = accesses.pop_front().unwrap();
            let Found { before, is_full, evicts } = twin.apply(access, true);
            let found = bench.found("host_present_o", "host_value_o");
            assert_eq!(found, before, "{}, host {access:?}", place());
            let is_refused = matches!(access.operation, 1 | 4) && before.is_none() && is_full && !evicts;
            assert_eq!(bench.get("host_full_o") == 1, is_refused, "{}, host {access:?}: full", place());
            reached.host += 1;
            reached.evicted += u64::from(evicts);
            idle = 0;
        } else {
            idle += 1;
        }
        assert!(idle < 500 || cycle >= 5500, "{}: nothing happens any more", place());
    }
    assert!(packets.is_empty() && accesses.is_empty(), "seed {seed}: accesses without an answer");
    assert_eq!(bench.get("count_o"), twin.map.len() as u64, "seed {seed}: count");
    // The rows list the entries. Those of pending keys come first: after so many cycles without a packet, all keys are in
    // the table.
    let mut listed = BTreeMap::new();
    let rows = ROWS + u64::from(shape.delay);
    for (number, row) in bench.list((0..rows).rev()).into_iter().enumerate() {
        let Some((key, value)) = row else { continue };
        assert!(number >= PENDING as usize, "seed {seed}: key {key} is still pending");
        let known = listed.insert(key, value);
        assert!(known.is_none_or(|known| known == value), "seed {seed}: key {key} has two values");
    }
    assert_eq!(listed, twin.map, "seed {seed}: entries");
    reached
}

#[test]
fn a_hash_map_is_an_ordinary_map_to_every_packet() {
    let Some(model) = build_hash_map("a_hash_map_is_an_ordinary_map_to_every_packet", crate::common::block_path) else {
        return;
    };
    let mut all = Reached::default();
    // The last one found a copy that was not made, taken for the row of an adopted entry.
    for seed in (1..=20).chain([288]) {
        all += run_hash_map(&model, seed);
    }
    println!("{all:?}");
    assert!(all.refused > 100 && all.deleted > 1000 && all.present > 10_000 && all.host > 300, "{all:?}");
}

#[test]
fn insertions_that_find_no_place_are_made_later() {
    let test = "insertions_that_find_no_place_are_made_later";
    let Some(model) = build_with(test, crate::common::block_path, NARROW) else { return };
    let mut all = Reached::default();
    for seed in 1..=10 {
        all += run_with(&model, seed, NARROW);
    }
    println!("{all:?}");
    assert!(all.refused > 50 && all.deleted > 500 && all.present > 5000 && all.host > 100, "{all:?}");
}

#[test]
fn packets_apart_see_the_results_of_a_longer_slice() {
    let test = "packets_apart_see_the_results_of_a_longer_slice";
    for delay in [1, 3, 9] {
        let shape = Shape { delay, ..Shape::default() };
        let Some(model) = build_with(test, crate::common::block_path, shape) else { return };
        let mut all = Reached::default();
        for seed in 1..=20 {
            all += run_with(&model, seed, shape);
        }
        println!("delay {delay}: {all:?}");
        assert!(all.refused > 20 && all.deleted > 500 && all.host > 5, "delay {delay}: {all:?}");
    }
}

#[test]
fn a_full_lru_map_evicts_the_entry_with_the_least_recent_use() {
    let test = "a_full_lru_map_evicts_the_entry_with_the_least_recent_use";
    for (delay, seeds) in [(0, 8), (1, 4), (2, 6), (5, 4)] {
        let shape = Shape { delay, lru: true, narrow: false };
        let Some(model) = build_with(test, crate::common::block_path, shape) else { return };
        let mut all = Reached::default();
        for seed in 1..=seeds {
            println!("delay {delay}, seed {seed}");
            all += run_with(&model, seed, shape);
        }
        println!("delay {delay}: {all:?}");
        assert!(
            all.evicted > 300 && all.refused == 0 && all.deleted > 50 && all.present > 500 && all.host > 40,
            "delay {delay}: {all:?}"
        );
    }
}
