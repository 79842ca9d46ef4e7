// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables that maps are built on, so that engines share the operations of maps.
//!
//! | backing | keys | values |
//! | --- | --- | --- |
//! | [`Standard`], of the interpreter | tables of the standard library | vectors and pages |
//! | that of machine code | tables that hide memory latency | memory that never moves |
//!
//! A map decides what happens: flags, the order of checks, errors, evictions. A backing only stores.

use std::convert::Infallible;

use flowloom_engine::SnapshotError;
use flowloom_isa::MapDef;

use super::keyed::Keyed;
use super::values::Values;

/// The allocation and eviction of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Entries are allocated on demand.
    OnDemand,
    /// One slot is kept apart, for values that replace others.
    Preallocated,
    /// The least recently used entry is evicted.
    Lru,
}

/// The tables of an engine.
pub trait Backing: std::fmt::Debug {
    /// Keys and their slots.
    type Keys: Keys;
    /// The values.
    type Cells: Cells;
    /// A failure to allocate.
    type Error: Into<SnapshotError>;

    /// The values of an array, all of them zeros, or its initial ones; each entry has `cpus` cells.
    ///
    /// # Errors
    /// There is no memory.
    fn array(def: &MapDef, cpus: u32) -> Result<Self::Cells, Self::Error>;

    /// A table without entries; each slot has `cpus` cells.
    ///
    /// # Errors
    /// There is no memory.
    fn table(def: &MapDef, cpus: u32, kind: Kind) -> Result<(Self::Keys, Self::Cells), Self::Error>;

    /// Values of slots that the map numbers itself, below or above its entries; each slot has `cpus` cells.
    ///
    /// # Errors
    /// There is no memory.
    fn cells(def: &MapDef, cpus: u32) -> Result<Self::Cells, Self::Error>;
}

/// The number in values by which entries are evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// The bytes of the number, which is little-endian.
    pub field: std::ops::Range<usize>,
    /// True if it is signed.
    pub is_signed: bool,
    /// True if the greatest number is evicted first.
    pub is_highest: bool,
}

impl Rank {
    /// The rank of a value that contains the field: the least is evicted first.
    pub fn of(&self, value: &[u8]) -> i128 {
        let mut bytes = [0; 8];
        bytes[..self.field.len()].copy_from_slice(&value[self.field.clone()]);
        let shift = 64 - 8 * self.field.len() as u32;
        let number = u64::from_le_bytes(bytes) << shift;
        let number = if self.is_signed { i128::from(number as i64 >> shift) } else { i128::from(number >> shift) };
        if self.is_highest { -number } else { number }
    }
}

/// Keys and their slots. The slot of a deleted entry is reused by the next one.
#[allow(clippy::len_without_is_empty, reason = "no map asks")]
pub trait Keys: std::fmt::Debug {
    /// The number of keys.
    fn len(&self) -> usize;
    /// The slot of a key.
    fn slot(&self, key: &[u8]) -> Option<u32>;
    /// Marks an entry as used, in LRU tables.
    fn touch(&mut self, key: &[u8]);
    /// Marks an entry as used, in LRU tables, and returns its slot.
    fn used(&mut self, key: &[u8]) -> Option<u32> {
        self.touch(key);
        self.slot(key)
    }
    /// Keys and slots, unordered.
    fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], u32)> + '_>;
    /// Visits the keys whose slots are at least `from` and less than `from + most`; returns the slot after them, or
    /// `None` if no slot follows.
    fn visit(&self, from: u32, most: u32, visitor: &mut dyn FnMut(&[u8], u32)) -> Option<u32> {
        let end = from.saturating_add(most);
        let mut follows = false;
        for (key, slot) in self.iter() {
            follows |= slot >= end;
            if (from..end).contains(&slot) {
                visitor(key, slot);
            }
        }
        follows.then_some(end)
    }
    /// The least recently used entry, of LRU tables.
    fn oldest(&self) -> Option<Box<[u8]>>;
    /// The entry of the least rank, of several the one with the least key. `rank_of` gives the rank of a slot; tables
    /// that know their values need no visit of all.
    fn least(&mut self, _rank: &Rank, rank_of: &dyn Fn(u32) -> i128) -> Option<Box<[u8]>> {
        self.iter().map(|(key, slot)| (rank_of(slot), key)).min().map(|(_, key)| key.into())
    }
    /// The run has ended: addresses of values are used no more.
    fn end_run(&mut self) {}
    /// A slot for the key, whether it is new or replaces its old one. There is room.
    fn put(&mut self, key: &[u8]) -> u32;
    /// Removes the key; returns its slot.
    fn remove(&mut self, key: &[u8]) -> Option<u32>;
    /// Keeps the entries whose slots satisfy `keep`.
    fn retain(&mut self, keep: &mut dyn FnMut(u32) -> bool);
    /// As [`Keys::retain`], for the entries whose slots are at least `from` and less than `from + most`; returns the slot
    /// after them, or `None` if no slot follows. Tables that have no order of slots do all at once.
    fn retain_some(&mut self, _from: u32, _most: u32, keep: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.retain(keep);
        None
    }
    /// Panics unless every slot is used exactly once.
    fn check_invariants(&self);
}

/// The cells of values. An entry has a slot: one cell, or one for each CPU.
#[allow(clippy::len_without_is_empty, reason = "no map asks")]
pub trait Cells: std::fmt::Debug {
    /// Gives the cells below a number storage.
    fn grow(&mut self, cells: u32);
    /// The bytes of a cell; `None` if it does not exist.
    fn get(&self, cell: u64) -> Option<&[u8]>;
    /// The bytes of a cell, mutable; `None` if it does not exist or has no room.
    fn get_mut(&mut self, cell: u64) -> Option<&mut [u8]>;
    /// Whether an existing cell may be written.
    fn has_room(&self, cell: u64) -> bool;
    /// Whether the cell has no storage yet, so that it reads as zeros.
    fn is_untouched(&self, cell: u64) -> bool;
    /// Whether entries that were not written may be missing in [`Cells::entries`].
    fn is_paged(&self) -> bool;
    /// All entries of an array that have storage, ascending, with their bytes on all CPUs.
    fn entries(&self, cpus: u32) -> Box<dyn Iterator<Item = (u32, &[u8])> + '_>;
    /// The bytes of a slot on all CPUs; empty if it does not exist.
    fn slot(&self, slot: u32, cpus: u32) -> &[u8];
    /// The bytes of a slot on all CPUs, mutable; empty if it does not exist.
    fn slot_mut(&mut self, slot: u32, cpus: u32) -> &mut [u8];
    /// The size of all cells in bytes.
    fn len(&self) -> u64;
}

/// Tables of the standard library: obviously right.
#[derive(Debug)]
pub struct Standard;

impl Backing for Standard {
    type Keys = Keyed;
    type Cells = Values;
    type Error = Infallible;

    fn array(def: &MapDef, cpus: u32) -> Result<Values, Infallible> {
        Ok(match &def.initial {
            Some(initial) => Values::flat(def.value_bytes, initial.clone()),
            None => Values::zeros(def.value_bytes, def.max_entries, cpus),
        })
    }

    fn table(def: &MapDef, _: u32, kind: Kind) -> Result<(Keyed, Values), Infallible> {
        Ok((Keyed::new(kind), Values::flat(def.value_bytes, Vec::new())))
    }

    fn cells(def: &MapDef, _: u32) -> Result<Values, Infallible> {
        Ok(Values::flat(def.value_bytes, Vec::new()))
    }
}
