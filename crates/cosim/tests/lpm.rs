// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Longest prefix match against its twin: each packet sees the table before or after the host's request in progress,
//! and once one has seen it after, all later ones do.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};
use flowloom_state::{Lpm, Prefix, Slot};

use crate::common::{Bench, build, top};

const ENTRIES: u32 = 24;
/// The bits of an address; a key is a length in 32 bits before it.
const WIDTH: u32 = 16;
const FILES: [&str; 6] =
    ["prim/fl_ram", "prim/fl_ram_dual", "table/fl_array", "table/fl_lpm_level", "table/fl_lpm_ranges", "table/fl_lpm"];

/// The usual table of the tests, with rows of two ranges: each level has several rows.
pub(crate) fn build_lpm(test: &str, path: impl Fn(&str) -> PathBuf) -> Option<Model> {
    build_with(test, path, ENTRIES, 2, 0)
}

fn build_with(test: &str, path: impl Fn(&str) -> PathBuf, entries: u32, fanout: u32, delay: u32) -> Option<Model> {
    let mut files: Vec<PathBuf> = FILES.iter().map(|name| path(name)).collect();
    files.push(top().join("crates/cosim/tests/lpm/fl_lpm_test.sv"));
    let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    let design = Design::new("fl_lpm_test", &files)
        .parameter("KeyBits", 32 + WIDTH)
        .parameter("Entries", entries)
        .parameter("Fanout", fanout)
        .parameter("Delay", delay);
    build(test, &design)
}

/// A key as the block takes it: the length, then the address with its first byte in the lowest bits.
fn key(prefix: Prefix) -> u64 {
    u64::from(prefix.bits) | u64::from((prefix.address as u16).swap_bytes()) << 32
}

/// A request of the host.
#[derive(Debug, Clone, Copy)]
struct Request {
    operation: u64,
    prefix: Prefix,
    value: u64,
}

/// The twin and the values of its slots.
#[derive(Debug, Clone)]
struct Table {
    prefixes: Lpm,
    values: BTreeMap<Slot, u64>,
}

impl Table {
    fn found(&self, slot: Option<Slot>) -> Option<u64> {
        slot.map(|slot| self.values[&slot])
    }

    /// The answer to a request: the value before it, and whether it is refused.
    fn apply(&mut self, request: Request) -> (Option<u64>, bool) {
        let own = self.prefixes.clone().remove(request.prefix);
        let is_known = request.prefix.bits <= WIDTH;
        match request.operation {
            4 if own.is_some() => (self.found(own), false),
            5 if own.is_none() && is_known => (None, false),
            0 => (self.found(self.prefixes.longest(request.prefix)), false),
            1 | 4 | 5 => match self.prefixes.insert(request.prefix) {
                Ok(slot) => (self.values.insert(slot, request.value), false),
                Err(_) => (None, true),
            },
            _ => (self.prefixes.remove(request.prefix).and_then(|slot| self.values.remove(&slot)), false),
        }
    }
}

/// A request in progress.
#[derive(Debug)]
struct Progress {
    asked: Request,
    /// Its answer, once a packet has seen the table after it.
    made: Option<(Option<u64>, bool)>,
    /// The slot that it concerns, and the values that were in it meanwhile.
    slot: Option<Slot>,
    values: Vec<u64>,
}

/// What a run reached.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) packets: u64,
    pub(crate) present: u64,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) deleted: u64,
    /// Packets that saw the table before a request in progress, and after it.
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) most_ranges: u64,
}

impl std::ops::AddAssign for Reached {
    fn add_assign(&mut self, other: Reached) {
        self.packets += other.packets;
        self.present += other.present;
        self.requests += other.requests;
        self.refused += other.refused;
        self.deleted += other.deleted;
        self.before += other.before;
        self.after += other.after;
        self.most_ranges = self.most_ranges.max(other.most_ranges);
    }
}

/// One run. Panics at the first difference.
pub(crate) fn run_lpm(model: &Model, seed: u64) -> Reached {
    run_with(model, seed, ENTRIES, 0)
}

fn run_with(model: &Model, seed: u64, entries: u32, delay: u32) -> Reached {
    let mut rng = SplitMix64::new(seed);
    let mut bench = Bench::of_table(model, seed as u32);
    let mut table = Table { prefixes: Lpm::new(entries, WIDTH / 8).unwrap(), values: BTreeMap::new() };
    let mut request: Option<Progress> = None;
    let mut packets: VecDeque<(u128, bool, u64)> = VecDeque::new();
    let mut reached = Reached::default();
    let (mut gaps, mut bias, mut free, mut since_packet, mut idle) = (0, 3, 16, u32::MAX / 2, 0);
    let cycles = 12_000;
    for cycle in 0..cycles {
        if cycle % 1500 == 0 {
            gaps = [1, 1, 2, 6][rng.below(4) as usize];
            bias = [2, 5, 7, 8][rng.below(4) as usize];
            // The bits in which addresses differ: with few, prefixes are often found again.
            free = [2, 4, 16][rng.below(3) as usize];
        }
        let draw = |rng: &mut SplitMix64| {
            let bits = rng.next_u64() as u16;
            u128::from(if free == 16 {
                bits
            } else {
                bits & !(u16::MAX >> free >> 1) | [0, u16::MAX >> free >> 1][usize::from(bits & 1)]
            })
        };
        let address = draw(&mut rng);
        let is_late = cycle > cycles - 1200;
        let sends = !is_late && (delay == 0 || since_packet >= delay + 4) && rng.below(8) >= gaps;
        let (adds, value) = (rng.percent(30), rng.next_u64() & 0xffff_ffff);
        // Some are longer than an address.
        let longest = WIDTH + u32::from(rng.percent(4));
        let bits = rng.below(u64::from(longest) + 1) as u32;
        // Half of the requests are for a prefix that exists.
        let known: Vec<Slot> = table.values.keys().copied().collect();
        let known = if rng.percent(50) { known.get(rng.below(known.len().max(1) as u64) as usize) } else { None };
        let prefix = Prefix { bits, address: draw(&mut rng) };
        let asked = Request {
            operation: if rng.below(8) < bias {
                [1, 1, 4, 5][rng.below(4) as usize]
            } else {
                [0, 2, 2][rng.below(3) as usize]
            },
            prefix: known.and_then(|slot| table.prefixes.prefix(*slot)).unwrap_or(prefix),
            value: rng.next_u64() & 0xffff_ffff,
        };
        let asks = !is_late && request.is_none() && rng.percent(20);
        bench.set_all([
            ("valid_i", u64::from(sends)),
            ("add_i", u64::from(adds)),
            // The length of a packet's key does not count.
            ("key_i", key(Prefix { bits: rng.next_u64() as u32, address })),
            ("value_i", value),
            ("host_valid_i", u64::from(asks)),
            ("host_operation_i", asked.operation),
            ("host_key_i", key(asked.prefix)),
            ("host_value_i", asked.value),
        ]);
        bench.cycle();
        since_packet = if sends { 1 } else { since_packet + 1 };
        let place = || format!("seed {seed}, cycle {cycle}");
        // A packet at the slice comes before what the host asks or is answered in the cycle.
        if sends {
            packets.push_back((address, adds, value));
        }
        if bench.get("valid_o") == 1 {
            let (address, adds, value) = packets.pop_front().unwrap();
            let found = bench.found("present_o", "value_o");
            if let Some(progress) = &mut request {
                let old = table.found(table.prefixes.lookup(address));
                let mut changed = table.clone();
                if progress.made.is_none() {
                    let answer = changed.apply(progress.asked);
                    let new = changed.found(changed.prefixes.lookup(address));
                    reached.before += u64::from(old != new && found == old);
                    if found != old {
                        (table, progress.made) = (changed, Some(answer));
                        reached.after += 1;
                    }
                }
            }
            let slot = table.prefixes.lookup(address);
            let expected = table.found(slot);
            assert_eq!(found, expected, "{}, address {address:04x}, during {request:x?}", place());
            if let (Some(slot), Some(old), true) = (slot, expected, adds) {
                table.values.insert(slot, (old + value) & 0xffff_ffff);
            }
            if let Some(progress) = &mut request {
                progress.values.extend(progress.slot.and_then(|slot| table.values.get(&slot)));
            }
            reached.packets += 1;
            reached.present += u64::from(found.is_some());
        }
        if asks && bench.get("host_ready_o") == 1 {
            let slot = table.prefixes.longest(asked.prefix);
            request = Some(Progress { asked, made: None, slot, values: table.found(slot).into_iter().collect() });
            idle = 0;
        } else if bench.get("host_valid_o") == 1 {
            let Progress { asked, made, values, .. } = request.take().unwrap();
            let (before, is_refused) = made.unwrap_or_else(|| table.apply(asked));
            let found = bench.found("host_present_o", "host_value_o");
            assert_eq!(found.is_some(), before.is_some(), "{}, host {asked:?}", place());
            // Packets may change a value after the host has read it, and before an entry is deleted.
            let is_known = found == before
                || ![1, 5].contains(&asked.operation) && found.is_none_or(|found| values.contains(&found));
            assert!(is_known, "{}, host {asked:?}: {found:x?}, expected {before:x?}", place());
            assert_eq!(bench.get("host_full_o") == 1, is_refused, "{}, host {asked:?}: refused", place());
            reached.requests += 1;
            reached.refused += u64::from(is_refused);
            reached.deleted += u64::from(asked.operation == 2 && before.is_some());
            reached.most_ranges = reached.most_ranges.max(table.prefixes.ranges().len() as u64);
        } else if request.is_none() {
            assert_eq!(bench.get("count_o"), table.prefixes.len() as u64, "{}: count", place());
        } else if request.is_some() {
            idle += 1;
            assert!(idle < 4000, "{}: no answer to {request:?}", place());
        }
    }
    assert!(packets.is_empty() && request.is_none(), "seed {seed}: requests without an answer");
    list(&mut bench, seed, entries, &table);
    reached
}

/// The rows list the entries, each in the slot of the twin.
fn list(bench: &mut Bench, seed: u64, entries: u32, table: &Table) {
    for (row, found) in bench.list(0..u64::from(entries)).into_iter().enumerate() {
        let entry = table.values.iter().find(|(slot, _)| slot.index() == row);
        let known = entry.map(|(slot, value)| (key(table.prefixes.prefix(*slot).unwrap()), *value));
        assert_eq!(found, known, "seed {seed}: row {row}");
    }
}

#[test]
fn each_packet_sees_the_table_before_or_after_a_request() {
    let test = "each_packet_sees_the_table_before_or_after_a_request";
    for (entries, fanout, delay) in [(ENTRIES, 2, 0), (ENTRIES, 8, 0), (ENTRIES, 4, 3), (1, 4, 0), (70, 2, 1)] {
        let Some(model) = build_with(test, crate::common::block_path, entries, fanout, delay) else { return };
        let mut all = Reached::default();
        for seed in 1..=6 {
            all += run_with(&model, seed, entries, delay);
        }
        println!("{entries} prefixes, rows of {fanout}, delay {delay}: {all:?}");
        assert!(all.refused > 0 || entries > ENTRIES, "{all:?}");
        assert!(all.deleted > 50 && all.before > 20 && all.after > 5 && all.present > 2000, "{all:?}");
        assert!(all.most_ranges > u64::from(entries.min(30)), "{all:?}");
    }
}
