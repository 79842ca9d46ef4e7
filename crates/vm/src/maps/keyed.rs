// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hash tables: entries in slots.
//!
//! A slot is the unit of addresses. The slot of a deleted entry is reused by the next one, as by the kernel's
//! allocators on one CPU: a program that still holds the address then sees the new entry's value. A preallocated table
//! keeps one slot apart, for values that replace others.

use std::collections::{BTreeMap, HashMap};

use foldhash::quality::RandomState;

use super::backing::{Keys, Kind};

/// Keys and their slots.
#[derive(Debug, Clone, Default)]
pub struct Keyed {
    /// The seed of the hash is random: senders of packets can hardly choose keys that collide.
    slots: HashMap<Box<[u8]>, u32, RandomState>,
    /// Free slots, the one freed last at the end.
    free: Vec<u32>,
    /// The number of slots.
    made: u32,
    /// The slot kept apart, if any.
    spare: Option<Option<u32>>,
    uses: Option<Uses>,
}

/// The times of the last uses of entries, for LRU tables.
#[derive(Debug, Clone, Default)]
struct Uses {
    clock: u64,
    /// By slot.
    last: Vec<u64>,
    by_time: BTreeMap<u64, Box<[u8]>>,
}

impl Uses {
    fn note(&mut self, key: &[u8], slot: u32) {
        self.forget(slot);
        let slot = slot as usize;
        if self.last.len() <= slot {
            self.last.resize(slot + 1, 0);
        }
        self.clock += 1;
        self.last[slot] = self.clock;
        self.by_time.insert(self.clock, key.into());
    }

    fn forget(&mut self, slot: u32) {
        if let Some(time) = self.last.get_mut(slot as usize) {
            self.by_time.remove(time);
            *time = 0;
        }
    }
}

impl Keyed {
    pub(super) fn new(kind: Kind) -> Keyed {
        Keyed {
            uses: (kind == Kind::Lru).then(Uses::default),
            spare: (kind == Kind::Preallocated).then_some(None),
            ..Keyed::default()
        }
    }

    /// The entries used after a time, oldest use first, with the times of their last uses; for LRU tables.
    pub(super) fn used_since(&self, time: u64) -> Vec<(u64, Vec<u8>)> {
        let uses = self.uses.iter().flat_map(move |uses| uses.by_time.range(time.saturating_add(1)..));
        uses.map(|(time, key)| (*time, key.to_vec())).collect()
    }

    fn release(&mut self, slot: Option<u32>) {
        if let (Some(uses), Some(slot)) = (&mut self.uses, slot) {
            uses.forget(slot);
        }
        self.free.extend(slot);
    }
}

impl Keys for Keyed {
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, key: &[u8]) -> Option<u32> {
        self.slots.get(key).copied()
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], u32)> + '_> {
        Box::new(self.slots.iter().map(|(key, slot)| (&**key, *slot)))
    }

    fn touch(&mut self, key: &[u8]) {
        if self.uses.is_some() {
            self.used(key);
        }
    }

    fn used(&mut self, key: &[u8]) -> Option<u32> {
        let slot = self.slots.get(key).copied()?;
        if let Some(uses) = &mut self.uses {
            uses.note(key, slot);
        }
        Some(slot)
    }

    fn oldest(&self) -> Option<Box<[u8]>> {
        self.uses.as_ref()?.by_time.first_key_value().map(|(_, key)| key.clone())
    }

    fn put(&mut self, key: &[u8]) -> u32 {
        let replaced = self.slots.get_mut(key);
        let kept = match (&replaced, &mut self.spare) {
            (Some(_), Some(spare)) => spare.take(),
            _ => self.free.pop(),
        };
        let slot = kept.unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        });
        let old = replaced.map(|place| std::mem::replace(place, slot));
        match (old, &mut self.spare) {
            (None, _) => drop(self.slots.insert(key.into(), slot)),
            (Some(old), Some(spare)) => *spare = Some(old),
            (Some(_), None) => self.release(old),
        }
        if let Some(uses) = &mut self.uses {
            uses.note(key, slot);
        }
        slot
    }

    fn remove(&mut self, key: &[u8]) -> Option<u32> {
        let old = self.slots.remove(key);
        self.release(old);
        old
    }

    fn retain(&mut self, keep: &mut dyn FnMut(u32) -> bool) {
        let (free, uses) = (&mut self.free, &mut self.uses);
        self.slots.retain(|_, slot| {
            let stays = keep(*slot);
            if !stays {
                free.push(*slot);
                if let Some(uses) = uses {
                    uses.forget(*slot);
                }
            }
            stays
        });
    }

    fn check_invariants(&self) {
        let mut used: Vec<u32> = self.slots.values().chain(&self.free).copied().chain(self.spare.flatten()).collect();
        used.sort_unstable();
        assert_eq!(used, (0..self.made).collect::<Vec<_>>());
        if let Some(uses) = &self.uses {
            assert_eq!(uses.by_time.len(), self.slots.len());
            assert!(uses.by_time.iter().all(|(time, key)| uses.last[self.slots[key] as usize] == *time));
        }
    }
}
