// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table.
#![allow(unsafe_code, reason = "entries are parts of a mapping, whose addresses compiled code holds")]

use crate::compiled::{HintedLookupFn, LookupFn, ProbedLookupFn, WordLookupFn};
use crate::error::TableError;
use crate::hash::{self, Seed};
use crate::index::{self, MAX_ENTRIES};
use crate::least::{self, Least};
use crate::live::Live;
use crate::memory::{Memory, Parts};
use crate::raw::{Bucket, PREFETCHED_BYTES, Probe, RawTable};
use crate::recency::{Link, Recency};
use crate::slots::Slots;

/// Keys and values are aligned to this, in bytes.
const ALIGN: u64 = 8;
const LINE_BYTES: u64 = 64;
/// The most bytes of a key: the stack of a program.
const MAX_KEY_BYTES: u32 = 512;

/// The number of an entry's place. It stays the same while the entry lives.
pub type Slot = u32;

/// Which slot an entry gets, and what is known of its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// An entry that replaces one of the same key gets the slot freed last, and frees the old one.
    OnDemand,
    /// One slot is kept apart: an entry that replaces another gets it, and the old slot is kept in its place.
    Preallocated,
    /// As on demand, with the order of last uses.
    LeastRecentlyUsed,
}

/// The sizes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The bytes of a key, 1 to 512.
    pub key_bytes: u32,
    /// The bytes of a value.
    pub value_bytes: u32,
    /// The most entries.
    pub entries: u32,
    /// The allocation of slots.
    pub allocation: Allocation,
}

/// A hash table from keys to slots, and the memory of the entries.
///
/// Operations take a [`Probe`] of their key, made by this table; with the probe of another key they find nothing, or
/// add an entry that is not found.
///
/// ```
/// use flowloom_flowtable::{Allocation, FlowTable, Layout};
///
/// let layout = Layout { key_bytes: 4, value_bytes: 8, entries: 1000, allocation: Allocation::OnDemand };
/// let mut table = FlowTable::new(layout)?;
/// let slot = table.put(table.probe(b"flow"), b"flow").expect("there is room");
/// table.value_mut(slot).copy_from_slice(&7_u64.to_le_bytes());
/// assert_eq!(table.lookup(table.probe(b"flow"), b"flow"), Some(slot));
///
/// // A batch: all keys are hashed, then all entries loaded, then looked up.
/// let mut probes = [b"flow", b"none"].map(|key| table.probe_ahead(key));
/// probes.iter_mut().for_each(|probe| table.prefetch_entry(probe));
/// assert_eq!(table.lookup(probes[1], b"none"), None);
/// # Ok::<(), flowloom_flowtable::TableError>(())
/// ```
#[derive(Debug)]
pub struct FlowTable {
    /// Boxed, so that its address stays valid when the table is moved.
    pub(crate) raw: Box<RawTable>,
    pub(crate) slots: Slots,
    pub(crate) recency: Option<Recency>,
    /// Once an entry was evicted by a field.
    pub(crate) least: Option<Box<Least>>,
    len: u32,
    layout: Layout,
    memory: Memory,
}

// SAFETY: the pointers are to the table's own mapping, and are written only through `&mut FlowTable`, or by compiled
// code whose caller vouches for it.
unsafe impl Send for FlowTable {}
// SAFETY: as above.
unsafe impl Sync for FlowTable {}

impl FlowTable {
    /// An empty table. Its hash has a random seed, so that senders of packets cannot choose keys that collide.
    ///
    /// # Errors
    /// The layout has too many entries, or keys of no or too many bytes, or there is no address space.
    pub fn new(layout: Layout) -> Result<FlowTable, TableError> {
        FlowTable::make(layout, hash::random_seed())
    }

    /// An empty table whose hash is reproducible: only for keys that no other party chooses.
    ///
    /// # Errors
    /// Those of [`FlowTable::new`].
    pub fn with_seed(layout: Layout, seed: u64) -> Result<FlowTable, TableError> {
        FlowTable::make(layout, hash::fixed_seed(seed))
    }

    fn make(layout: Layout, seed: Seed) -> Result<FlowTable, TableError> {
        let Layout { key_bytes, value_bytes, entries, allocation } = layout;
        if entries > MAX_ENTRIES {
            return Err(TableError::Entries { entries, most: MAX_ENTRIES });
        }
        if key_bytes == 0 || key_bytes > MAX_KEY_BYTES {
            return Err(TableError::Key { bytes: key_bytes, most: MAX_KEY_BYTES });
        }
        // One more than there are entries: a value is replaced in a slot of its own.
        let slots = entries + 1;
        let value_at = u64::from(key_bytes).next_multiple_of(ALIGN);
        let stride = stride_bytes(value_at + u64::from(value_bytes));
        let stride_bytes = u32::try_from(stride)
            .map_err(|_| TableError::Memory { bytes: stride, source: std::io::ErrorKind::OutOfMemory.into() })?;
        let bucket_count = index::buckets(entries);
        let is_lru = allocation == Allocation::LeastRecentlyUsed;
        let mut parts = Parts::default();
        let buckets_at = parts.add(bucket_count, size_of::<Bucket>() as u64);
        let live_at = parts.add(Live::words(slots), size_of::<u64>() as u64);
        let links_at = parts.add(if is_lru { slots.into() } else { 0 }, size_of::<Link>() as u64);
        let entries_at = parts.add(slots.into(), stride);
        let stack_at = parts.add(slots.into(), size_of::<Slot>() as u64);
        let marks_at = parts.add(least::blocks(slots, stride_bytes), 1);
        let mut memory = parts.map()?;
        let raw = RawTable {
            buckets: memory.part(buckets_at),
            entries: memory.part(entries_at),
            seed,
            bucket_count,
            slot_mask: index::slot_mask(slots),
            stride_bytes,
            value_at_bytes: value_at as u32,
            key_bytes,
            prefetch_bytes: stride_bytes.min(PREFETCHED_BYTES),
            mark_shift: least::block_shift(stride_bytes),
            marks: memory.part(marks_at),
        };
        // SAFETY: these parts have as many words, links and slots as there are slots, and no other users.
        let (slots, recency) = unsafe {
            let live = Live::new(memory.part(live_at), slots);
            let recency = is_lru.then(|| Recency::new(memory.part(links_at), slots));
            (Slots::new(memory.part(stack_at), slots, live), recency)
        };
        Ok(FlowTable { raw: Box::new(raw), slots, recency, least: None, len: 0, layout, memory })
    }

    /// The sizes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is room for no other key.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == self.layout.entries
    }

    /// The mapped memory in bytes, resident or not.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The table as compiled code sees it. The address and the contents stay the same while the table exists, also when
    /// it is moved.
    pub fn raw(&self) -> &RawTable {
        &self.raw
    }

    /// The fastest lookup of the table's keys, for compiled code. It does not mark the entry as used.
    pub fn lookup_fn(&self) -> LookupFn {
        self.raw.lookup_fn()
    }

    /// As [`FlowTable::lookup_fn`], with a hint.
    pub fn hinted_lookup_fn(&self) -> HintedLookupFn {
        self.raw.hinted_lookup_fn()
    }

    /// The fastest lookup of keys of 4 to 16 bytes, for compiled code that has them in registers; `None` for others. It
    /// marks the entry as used.
    pub fn word_lookup_fn(&self) -> Option<WordLookupFn> {
        self.raw.word_lookup_fn(self.recency.is_some())
    }

    /// As [`FlowTable::lookup_fn`], for a probe.
    pub fn probed_lookup_fn(&self) -> ProbedLookupFn {
        self.raw.probed_lookup_fn()
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// The key does not have the bytes of the layout.
    #[inline(always)]
    pub fn lookup(&self, probe: Probe, key: &[u8]) -> Option<Slot> {
        self.check(key);
        // SAFETY: the key has the table's bytes.
        unsafe { self.raw.find(probe, key) }.map(|found| found.slot)
    }

    /// The value of a key, mutable.
    ///
    /// # Panics
    /// The key does not have the bytes of the layout.
    #[inline(always)]
    pub fn lookup_value(&mut self, probe: Probe, key: &[u8]) -> Option<&mut [u8]> {
        let slot = self.lookup(probe, key)?;
        // SAFETY: the slot is one of the table, which is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(self.raw.value(slot), self.layout.value_bytes as usize) })
    }

    #[inline(always)]
    fn check(&self, key: &[u8]) {
        if key.len() != self.raw.key_bytes as usize {
            wrong_key(key.len());
        }
    }

    /// Panics if there is no such slot.
    #[inline(always)]
    pub(crate) fn check_slot(&self, slot: Slot) {
        if slot > self.layout.entries {
            wrong_slot(slot);
        }
    }

    /// The key in a slot.
    #[inline]
    pub fn key(&self, slot: Slot) -> &[u8] {
        self.check_slot(slot);
        // SAFETY: the slot is one of the table, and an entry begins with its key.
        unsafe { std::slice::from_raw_parts(self.raw.entry(slot), self.layout.key_bytes as usize) }
    }

    /// The value in a slot.
    #[inline]
    pub fn value(&self, slot: Slot) -> &[u8] {
        self.check_slot(slot);
        // SAFETY: the slot is one of the table, and an entry ends with its value.
        unsafe { std::slice::from_raw_parts(self.raw.value(slot), self.layout.value_bytes as usize) }
    }

    /// The value in a slot, mutable.
    #[inline]
    pub fn value_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.check_slot(slot);
        // SAFETY: as above, and the table is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.raw.value(slot), self.layout.value_bytes as usize) }
    }

    /// The address of the value in a slot. It stays valid while the table exists.
    #[inline]
    pub fn value_address(&self, slot: Slot) -> *mut u8 {
        self.check_slot(slot);
        self.raw.value(slot)
    }

    pub(crate) fn entry_mut(&mut self, slot: Slot) -> (&[u8], &mut [u8]) {
        self.check_slot(slot);
        let (key_bytes, value_bytes) = (self.layout.key_bytes as usize, self.layout.value_bytes as usize);
        // SAFETY: the slot is one of the table; the key and the value do not overlap; the table is borrowed.
        unsafe {
            let key = std::slice::from_raw_parts(self.raw.entry(slot), key_bytes);
            (key, std::slice::from_raw_parts_mut(self.raw.value(slot), value_bytes))
        }
    }

    /// Gives a key a slot, whether it is new or replaces its old one, and makes it the one used last. The bytes of the
    /// value are those of the slot's last entry. `None` if the key is new and the table is full.
    ///
    /// # Panics
    /// The key does not have the bytes of the layout.
    #[inline(always)]
    pub fn put(&mut self, probe: Probe, key: &[u8]) -> Option<Slot> {
        self.check(key);
        let location = self.raw.locate(probe.hash);
        // SAFETY: the key has the table's bytes.
        let old = unsafe { self.raw.find(probe, key) };
        let slot = match old {
            None => {
                if self.is_full() {
                    return None;
                }
                let vacant = self.raw.vacant(location);
                let slot = self.slots.take();
                self.raw.insert(location, vacant, slot);
                self.len += 1;
                slot
            }
            Some(old) => {
                let is_preallocated = self.layout.allocation == Allocation::Preallocated;
                let slot = if is_preallocated { self.slots.take_spare() } else { self.slots.take() };
                self.raw.replace(old.place, slot);
                if is_preallocated {
                    self.slots.live.remove(old.slot);
                    self.note_change(old.slot);
                    self.slots.spare = Some(old.slot);
                } else {
                    self.release(old.slot);
                }
                slot
            }
        };
        // SAFETY: the slot is one of the table, whose keys have these bytes; the key is borrowed, so it is not in it.
        unsafe { self.raw.entry(slot).copy_from_nonoverlapping(key.as_ptr(), key.len()) };
        self.slots.live.insert(slot);
        self.note_change(slot);
        if let Some(recency) = &mut self.recency {
            recency.touch(slot);
        }
        Some(slot)
    }

    /// As [`FlowTable::put`], with the bytes of the value.
    ///
    /// # Panics
    /// The key or the value does not have the bytes of the layout.
    #[inline(always)]
    pub fn put_value(&mut self, probe: Probe, key: &[u8], value: &[u8]) -> Option<Slot> {
        if value.len() != self.layout.value_bytes as usize {
            wrong_value(value.len());
        }
        let slot = self.put(probe, key)?;
        // SAFETY: the slot is one of the table, whose values have these bytes; the value is borrowed, so not in it.
        unsafe { self.raw.value(slot).copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        Some(slot)
    }

    /// Removes a key; returns the slot that it had.
    ///
    /// # Panics
    /// The key does not have the bytes of the layout.
    #[inline(always)]
    pub fn remove(&mut self, probe: Probe, key: &[u8]) -> Option<Slot> {
        self.check(key);
        // SAFETY: the key has the table's bytes.
        let found = unsafe { self.raw.find(probe, key) }?;
        self.raw.remove(probe.hash, found);
        self.len -= 1;
        self.release(found.slot);
        Some(found.slot)
    }

    /// Removes the entry of a slot.
    pub(crate) fn remove_slot(&mut self, slot: Slot) {
        let probe = self.probe(self.key(slot));
        // SAFETY: the key of a slot has the table's bytes.
        let found = unsafe { self.raw.find(probe, self.key(slot)) };
        if let Some(found) = found.filter(|found| found.slot == slot) {
            self.raw.remove(probe.hash, found);
            self.len -= 1;
            self.release(slot);
        }
    }

    #[inline(always)]
    fn release(&mut self, slot: Slot) {
        if let Some(recency) = &mut self.recency {
            recency.forget(slot);
        }
        self.slots.live.remove(slot);
        self.note_change(slot);
        self.slots.release(slot);
    }

    /// Marks an entry as the one used last, where uses are known. A slot without an entry is not marked.
    #[inline]
    pub fn touch(&mut self, slot: Slot) {
        if let Some(recency) = &mut self.recency
            && self.slots.live.contains(slot)
        {
            recency.touch(slot);
        }
    }

    /// The entry whose last use is the oldest, where uses are known.
    pub fn oldest(&self) -> Option<Slot> {
        self.recency.as_ref()?.oldest()
    }

    /// Removes the entry whose last use is the oldest, where uses are known; returns the slot that it had.
    pub fn evict_oldest(&mut self) -> Option<Slot> {
        let slot = self.oldest()?;
        self.remove_slot(slot);
        Some(slot)
    }

    /// The entries used after a time, newest use first, with the times of their last uses; none where uses are not
    /// known. The time is the number of uses of the table: each put and each touch of an entry is one.
    pub fn used_since(&self, time: u64) -> impl Iterator<Item = (u64, Slot)> {
        self.recency.iter().flat_map(move |recency| recency.used_since(time))
    }

    /// Removes all entries, and forgets which slots were used.
    pub fn clear(&mut self) {
        if let Some(recency) = &mut self.recency {
            recency.clear(self.slots.made());
        }
        self.forget_least();
        self.raw.clear();
        self.slots.clear();
        self.len = 0;
    }

    /// Panics unless every slot is used once and found by its key.
    pub fn check_invariants(&self) {
        self.raw.check_invariants(|slot| self.probe(self.key(slot)).hash);
        assert_eq!(self.raw.words(), self.len());
        let mut used: Vec<Slot> = self.slots().collect();
        assert_eq!(used.len(), self.len());
        for slot in &used {
            let key = self.key(*slot);
            assert_eq!(self.lookup(self.probe(key), key), Some(*slot));
        }
        used.extend(self.slots.free());
        used.extend(self.slots.spare);
        used.sort_unstable();
        assert!(used.iter().copied().eq(0..self.slots.made()), "slots {used:?} of {}", self.slots.made());
        if let Some(recency) = &self.recency {
            recency.check_invariants(self.len());
        }
    }
}

#[cold]
#[inline(never)]
#[allow(clippy::panic, reason = "a call against its documentation")]
fn wrong_key(bytes: usize) -> ! {
    panic!("key of {bytes} bytes, the table has others");
}

#[cold]
#[inline(never)]
#[allow(clippy::panic, reason = "a call against its documentation")]
fn wrong_value(bytes: usize) -> ! {
    panic!("value of {bytes} bytes, the table has others");
}

#[cold]
#[inline(never)]
#[allow(clippy::panic, reason = "a call against its documentation")]
fn wrong_slot(slot: Slot) -> ! {
    panic!("slot {slot}, the table has fewer");
}

/// The bytes from entry to entry: aligned, and such that entries lie within lines where that costs at most a third.
fn stride_bytes(entry_bytes: u64) -> u64 {
    let aligned = entry_bytes.next_multiple_of(ALIGN);
    let within = aligned.next_power_of_two();
    if within <= LINE_BYTES && 3 * within <= 4 * aligned { within } else { aligned }
}
