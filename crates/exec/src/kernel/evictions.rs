// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The evictions of LRU tables in the kernel: the keys that disappeared without being deleted.
//!
//! The kernel does not report them. So while a table has little room left, its keys are listed after each packet that
//! updated it, and compared with those before; the packet's own deletions are logged in the record
//! ([`crate::rewrite`]). A table with more room than a packet fills is not listed.

use std::collections::BTreeSet;
use std::io;

use flowloom_engine::{EngineError, Eviction};
use flowloom_isa::BPF_F_NO_COMMON_LRU;

use super::errors::system;
use super::state::KernelMap;
use crate::rewrite::Record;
use crate::rewrite::plan::{DELETIONS_LOGGED, LOGGED_DELETION, Plan};
use crate::sys::memory::Memory;

/// The bound on updates of a table by one packet while it is not watched.
const UPDATES_A_PACKET: usize = 1024;
/// The greatest batch in which the kernel moves free entries to a CPU's list.
const LOCAL_FREE_TARGET: u32 = 128;

/// A table.
#[derive(Debug)]
struct Watched {
    map: usize,
    max_entries: usize,
    /// The number of entries that may be free when it begins to evict.
    free: usize,
    /// An upper bound on its entries.
    at_most: usize,
    /// Its keys, while it is watched.
    keys: Option<BTreeSet<Vec<u8>>>,
}

/// The LRU tables.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    tables: Vec<Watched>,
    last: Vec<Eviction>,
}

/// The number of entries of a table that may be free when it begins to evict: those reserved by other CPUs, and less
/// than one more batch [Linux kernel/bpf/bpf_lru_list.c].
fn free_entries(max_entries: u32, flags: u32, cpus: u32) -> u32 {
    let cpus = cpus.max(1);
    if flags & BPF_F_NO_COMMON_LRU != 0 {
        // Each CPU has a part of its own.
        return max_entries.saturating_sub(max_entries / cpus);
    }
    (max_entries / cpus / 2).clamp(1, LOCAL_FREE_TARGET).saturating_mul(cpus).min(max_entries)
}

impl Evictions {
    pub(super) fn of(maps: &[KernelMap], cpus: u32) -> Evictions {
        let tables = maps.iter().map(|map| (map.index(), map.def())).filter(|(_, def)| def.kind.is_lru());
        let watched = tables.map(|(map, def)| Watched {
            map,
            max_entries: def.max_entries as usize,
            free: free_entries(def.max_entries, def.flags, cpus) as usize,
            at_most: 0,
            keys: None,
        });
        Evictions { tables: watched.collect(), last: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(super) fn last(&mut self) -> Vec<Eviction> {
        std::mem::take(&mut self.last)
    }

    /// The tables were written by others.
    pub(super) fn forget(&mut self) {
        for table in &mut self.tables {
            (table.at_most, table.keys) = (table.max_entries, None);
        }
    }

    /// Before a packet: lists the tables that it may fill.
    pub(super) fn before(&mut self, maps: &[KernelMap]) -> Result<(), EngineError> {
        self.last.clear();
        for table in &mut self.tables {
            if table.at_most + UPDATES_A_PACKET + table.free < table.max_entries {
                table.keys = None;
            } else if table.keys.is_none() {
                let Some(map) = maps.iter().find(|map| map.index() == table.map) else { continue };
                let keys = map.keys()?;
                table.at_most = keys.len();
                table.keys = Some(keys);
            }
        }
        Ok(())
    }

    /// After a packet: finds the keys that disappeared without being deleted.
    pub(super) fn after(
        &mut self,
        maps: &[KernelMap],
        plan: &Plan,
        record: &Record,
        memory: &Memory,
    ) -> Result<(), EngineError> {
        let (updates, deletions) = (record.updates() as usize, record.deletions());
        if updates == 0 && deletions == 0 {
            return Ok(());
        }
        for table in &mut self.tables {
            table.at_most = (table.at_most + updates).min(table.max_entries);
            let Some(map) = maps.iter().find(|map| map.index() == table.map) else { continue };
            let name = &map.def().name;
            let fails = |why: String| system(format!("determine the evictions of map `{name}`"), io::Error::other(why));
            let Some(before) = table.keys.take() else {
                if updates > UPDATES_A_PACKET && table.at_most + table.free >= table.max_entries {
                    return Err(fails(format!("{updates} updates by one packet, expected at most {UPDATES_A_PACKET}")));
                }
                continue;
            };
            let now = map.keys()?;
            let mut evicted: BTreeSet<Vec<u8>> = before.difference(&now).cloned().collect();
            if deletions > DELETIONS_LOGGED && !evicted.is_empty() {
                let limit = DELETIONS_LOGGED;
                let why = "the packet deletes from a map known only at run time, or logs more than";
                return Err(fails(format!("{why} {limit} entries")));
            }
            let key_bytes = map.def().key_bytes as usize;
            let logged = logged(plan, deletions, memory, table.map, key_bytes).map_err(|e| fails(e.to_string()))?;
            let mut there = before;
            for (what, key) in logged {
                if what == LOGGED_DELETION {
                    evicted.remove(&key);
                    there.remove(&key);
                } else if !there.insert(key.clone()) {
                    // It evicted an entry to make room for itself.
                    evicted.insert(key);
                }
            }
            let free_entries = table.free as u32;
            self.last.extend(evicted.into_iter().map(|key| Eviction { map: name.clone(), key, free_entries }));
            table.at_most = now.len();
            table.keys = Some(now);
        }
        Ok(())
    }
}

/// The logged operations of the packet on keys of a map, in order, as far as the log had room.
fn logged(plan: &Plan, count: u32, memory: &Memory, map: usize, key_bytes: usize) -> io::Result<Vec<(u32, Vec<u8>)>> {
    let mut found = Vec::new();
    let Some((log, entry_bytes)) = plan.deletions else { return Ok(found) };
    for number in 0..count.min(DELETIONS_LOGGED) {
        let at = (log + number * entry_bytes) as usize;
        let mut head = [0; 8];
        memory.read(at, &mut head)?;
        let [m0, m1, m2, m3, what @ ..] = head;
        if u32::from_ne_bytes([m0, m1, m2, m3]) as usize == map {
            let mut key = vec![0; key_bytes];
            memory.read(at + 8, &mut key)?;
            found.push((u32::from_ne_bytes(what), key));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_evict_while_other_cpus_have_free_entries() {
        assert_eq!([1, 4, 8, 100].map(|max| free_entries(max, 0, 2)), [1, 2, 4, 50]);
        assert_eq!([1000, 100_000].map(|max| free_entries(max, 0, 2)), [256, 256]);
        assert_eq!(free_entries(1000, BPF_F_NO_COMMON_LRU, 4), 750);
    }
}
