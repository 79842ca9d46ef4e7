// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow tables: lookups that add to a counter, and insertions, beside `rte_hash` and hashbrown.
//!
//! All tables have the same capacity and the same entries; 16-byte keys, 16-byte values. Keys are looked up in a random
//! order, all with equal probability.
//!
//! # Fairness
//! - The capacity is the greatest that hashbrown holds in its power of 2 of buckets, 7/8: less memory for the same
//!   capacity it cannot have. 85% of its buckets are used, as are of `rte_hash`'s; of ours, 97%.
//! - All tables are on huge pages and resident before the first round.
//! - `rte_hash` looks up in bulks, after which its values are prefetched. Its largest bulk is 64.
//! - Times are those of the thread on the processor.
//! - Tables are cleared outside of the measured time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;

use flowloom_flowtable::{Allocation, FlowTable, Layout, Probe, RawTable};
use flowloom_random::{Draw, SplitMix64};

use crate::error::BenchError;
use crate::measure::{Clock, Comparison, Contender, Times, by_turns, resident_bytes};
use crate::rte_hash::{Dpdk, RteHash};

pub(crate) const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 16;
/// The share of a size that is used.
const LOAD: f64 = 0.85;
/// The batch whose buckets and entries are loaded ahead, as many keys as in `rte_hash`'s bulks.
const BATCH: usize = 32;
/// The ways of our lookups.
const OURS: usize = 4;
/// The lookups of a round.
const LOOKUPS: usize = 1 << 21;
/// The keys of a round of insertions into an empty table, at least.
const INSERTIONS: u64 = 1 << 20;

type Key = [u8; KEY_BYTES];
type Peer = HashMap<Key, [u8; VALUE_BYTES], foldhash::fast::RandomState>;

/// Our table and the counters in it.
struct Ours(FlowTable);

impl Ours {
    fn new(capacity: u32) -> Result<Ours, BenchError> {
        let (key_bytes, value_bytes) = (KEY_BYTES as u32, VALUE_BYTES as u32);
        let layout = Layout { key_bytes, value_bytes, entries: capacity, allocation: Allocation::OnDemand };
        Ok(Ours(FlowTable::new(layout)?))
    }

    /// Counts keys one by one; returns the number of absent ones.
    fn count(&mut self, keys: &[Key]) -> u64 {
        let mut absent = 0;
        for key in keys {
            let probe = self.0.probe(key);
            absent += add(&mut self.0, probe, key);
        }
        absent
    }

    /// Counts keys one by one, as compiled code does.
    #[allow(unsafe_code, reason = "the lookup of compiled code")]
    fn count_compiled(&mut self, keys: &[Key]) -> u64 {
        let (table, lookup): (*const RawTable, _) = (self.0.raw(), self.0.lookup_fn());
        let mut absent = 0;
        for key in keys {
            // SAFETY: the table is borrowed, and its keys have these bytes.
            let value = unsafe { lookup(table, key.as_ptr()) };
            if value.is_null() {
                absent += 1;
            } else {
                // SAFETY: a value is 16 bytes, aligned to 8.
                unsafe { *value.cast::<u64>() += 1 };
            }
        }
        absent
    }

    /// Counts keys in batches, each loaded in waves ahead.
    fn count_batches(&mut self, keys: &[Key]) -> u64 {
        let mut absent = 0;
        let mut probes = [Probe::default(); BATCH];
        for batch in keys.chunks(BATCH) {
            for (key, probe) in batch.iter().zip(&mut probes) {
                *probe = self.0.probe_ahead(key);
            }
            for probe in &mut probes[..batch.len()] {
                self.0.prefetch_entry(probe);
            }
            for probe in &mut probes[..batch.len()] {
                self.0.prefetch_rest(probe);
            }
            for (key, probe) in batch.iter().zip(&probes) {
                absent += add(&mut self.0, *probe, key);
            }
        }
        absent
    }

    /// Counts keys whose waves alternate.
    fn count_ahead(&mut self, keys: &[Key]) -> u64 {
        let mut absent = 0;
        self.0.visit_ahead(keys, |table, probe, key| absent += add(table, probe, key));
        absent
    }

    /// Inserts keys whose waves alternate; returns the number of those without room.
    fn insert_ahead(&mut self, keys: &[Key]) -> u64 {
        let mut refused = 0;
        self.0.visit_ahead(keys, |table, probe, key| {
            refused += u64::from(table.put_value(probe, key, &[0; VALUE_BYTES]).is_none());
        });
        refused
    }
}

/// Adds to the counter of a key; returns the number of absent ones.
#[inline(always)]
fn add(table: &mut FlowTable, probe: Probe, key: &Key) -> u64 {
    let Some(counter) = table.lookup_value(probe, key).and_then(|value| value.first_chunk_mut()) else { return 1 };
    *counter = (u64::from_le_bytes(*counter) + 1).to_le_bytes();
    0
}

/// Keys that all differ.
fn keys(count: usize, seed: u64) -> Vec<Key> {
    let mut rng = SplitMix64::new(seed);
    let key = |number: usize| {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        key[8..].copy_from_slice(&(number as u64).to_le_bytes());
        key
    };
    (0..count).map(key).collect()
}

fn counted(keys: &[Key], absent: u64, name: &str) -> Result<u64, BenchError> {
    match absent {
        0 => Ok(keys.len() as u64),
        _ => Err(BenchError::Wrong { what: format!("{name}: {absent} of {} keys are not there", keys.len()) }),
    }
}

/// All comparisons of tables.
pub(crate) fn run(dpdk: Option<&Dpdk>, rounds: usize, sizes: &[u32]) -> Result<Vec<Comparison>, BenchError> {
    let mut found = Vec::new();
    for &size in sizes {
        let (capacity, entries) = (size / 8 * 7, (f64::from(size) * LOAD) as usize);
        let present = keys(entries, size.into());
        let mut rng = SplitMix64::new(7);
        let asked: Vec<Key> = (0..LOOKUPS).map(|_| present[rng.below(entries as u64) as usize]).collect();
        found.extend(lookups(dpdk, rounds, capacity, &present, &asked)?);
        found.extend(insertions(dpdk, rounds, capacity, &present)?);
    }
    Ok(found)
}

fn filled<'a>(
    dpdk: Option<&'a Dpdk>,
    capacity: u32,
    present: &[Key],
) -> Result<(Ours, Peer, Option<RteHash<'a>>), BenchError> {
    let before = resident_bytes();
    let mut ours = Ours::new(capacity)?;
    counted(present, ours.insert_ahead(present), "flow table")?;
    let ours_bytes = resident_bytes() - before;
    let mut peer = Peer::with_capacity_and_hasher(capacity as usize, foldhash::fast::RandomState::default());
    peer.extend(present.iter().map(|key| (*key, [0; VALUE_BYTES])));
    // Control bytes and buckets.
    let buckets = u64::from(capacity) / 7 * 8;
    let peer_bytes = buckets * (1 + KEY_BYTES + VALUE_BYTES) as u64;
    let before = dpdk.map(Dpdk::bytes).transpose()?.unwrap_or(0);
    let mut rte = dpdk.map(|dpdk| dpdk.table(capacity)).transpose()?;
    if let Some(rte) = &mut rte {
        counted(present, rte.add(present)?, "rte_hash")?;
    }
    let rte_bytes = dpdk.map(Dpdk::bytes).transpose()?.unwrap_or(0) - before;
    let each = |bytes: u64| bytes as f64 / present.len() as f64;
    println!(
        "memory   {:>9}  flow table {:.1} bytes an entry resident, {:.1} mapped; hashbrown {:.1}; rte_hash {:.1}",
        present.len(),
        each(ours_bytes),
        each(ours.0.bytes()),
        each(peer_bytes),
        each(rte_bytes),
    );
    Ok((ours, peer, rte))
}

fn lookups(
    dpdk: Option<&Dpdk>,
    rounds: usize,
    capacity: u32,
    present: &[Key],
    asked: &[Key],
) -> Result<Vec<Comparison>, BenchError> {
    let (ours, mut peer, rte) = filled(dpdk, capacity, present)?;
    let (ours, rte) = (RefCell::new(ours), rte.map(RefCell::new));
    let table = |count: fn(&mut Ours, &[Key]) -> u64| {
        let ours = &ours;
        move |clock: &mut Clock| clock.time(|| counted(asked, count(&mut ours.borrow_mut(), asked), "flow table"))
    };
    let mut contenders: Vec<Contender<'_>> = vec![
        ("flow table, ahead", Box::new(table(Ours::count_ahead))),
        ("flow table, batches of 32", Box::new(table(Ours::count_batches))),
        ("flow table, compiled", Box::new(table(Ours::count_compiled))),
        ("flow table, one by one", Box::new(table(Ours::count))),
        ("hashbrown", Box::new(|clock| clock.time(|| counted(asked, count_peer(&mut peer, asked), "hashbrown")))),
    ];
    if let Some(rte) = &rte {
        contenders.push((
            "rte_hash, bulks of 32",
            Box::new(|clock| clock.time(|| counted(asked, rte.borrow_mut().count_bulk(asked)?, "rte_hash"))),
        ));
        contenders.push((
            "rte_hash, bulks of 64",
            Box::new(|clock| clock.time(|| counted(asked, rte.borrow_mut().count_large_bulk(asked)?, "rte_hash"))),
        ));
        contenders.push((
            "rte_hash, one by one",
            Box::new(|clock| clock.time(|| counted(asked, rte.borrow_mut().count(asked)?, "rte_hash"))),
        ));
    }
    let times = by_turns(&mut contenders, rounds)?;
    let flows = present.len() as u64;
    Times::print("lookup", flows, &times);
    let (ours, peers) = times.split_at(OURS);
    Ok(ours[..2].iter().flat_map(|ours| peers.iter().map(|peer| ours.beside(peer, "table-lookup", flows))).collect())
}

/// Counts keys in hashbrown; returns the number of absent ones.
fn count_peer(peer: &mut Peer, keys: &[Key]) -> u64 {
    let mut absent = 0;
    for key in keys {
        match peer.get_mut(key).and_then(|value| value.first_chunk_mut()) {
            Some(counter) => *counter = (u64::from_le_bytes(*counter) + 1).to_le_bytes(),
            None => absent += 1,
        }
    }
    black_box(absent)
}

/// Fills tables that are cleared each time, so that no time of the system's allocator is measured.
fn insertions(
    dpdk: Option<&Dpdk>,
    rounds: usize,
    capacity: u32,
    present: &[Key],
) -> Result<Vec<Comparison>, BenchError> {
    let times = INSERTIONS.div_ceil(present.len() as u64);
    let mut ours = Ours::new(capacity)?;
    let mut peer = Peer::with_capacity_and_hasher(capacity as usize, foldhash::fast::RandomState::default());
    let mut contenders: Vec<Contender<'_>> = vec![
        (
            "flow table, ahead",
            Box::new(|clock| {
                (0..times).try_for_each(|_| {
                    ours.0.clear();
                    clock.time(|| counted(present, ours.insert_ahead(present), "flow table"))
                })
            }),
        ),
        (
            "hashbrown",
            Box::new(|clock| {
                (0..times).try_for_each(|_| {
                    peer.clear();
                    clock.time(|| {
                        for key in present {
                            peer.insert(*key, [0; VALUE_BYTES]);
                        }
                        black_box(&peer);
                        Ok(present.len() as u64)
                    })
                })
            }),
        ),
    ];
    if let Some(dpdk) = dpdk {
        let mut rte = dpdk.table(capacity)?;
        contenders.push((
            "rte_hash",
            Box::new(move |clock| {
                (0..times).try_for_each(|_| {
                    rte.clear()?;
                    clock.time(|| counted(present, rte.add(present)?, "rte_hash"))
                })
            }),
        ));
    }
    let times = by_turns(&mut contenders, rounds)?;
    let flows = present.len() as u64;
    Times::print("insert", flows, &times);
    Ok(times[1..].iter().map(|peer| times[0].beside(peer, "table-insert", flows)).collect())
}
