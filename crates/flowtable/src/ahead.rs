// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Probes, and operations on many keys, whose cache misses are overlapped.
//!
//! The waves of different groups of keys alternate. Prefetches of a group follow each other at once: a processor does
//! not go far beyond a prefetch whose page it has to look up, but looks several pages up at once.
//!
//! ```text
//!  step i:  group i      prefetch the rest
//!           group i + 2  hash the keys, prefetch their lines of the index
//!           group i + 1  prefetch the entries
//!           group i      visit the keys
//! ```
#![allow(unsafe_code, reason = "functions for instructions that not all processors have")]

use crate::hash;
use crate::raw::{Probe, RawTable};
#[cfg(target_arch = "x86_64")]
use crate::scan::{Avx512, has_avx512};
use crate::scan::{Baseline, Scan};
use crate::table::{FlowTable, Slot};

/// The keys of a group: in the time that they take, a line arrives from memory.
const GROUP: usize = 64;
/// The groups between the first wave and the visit.
const LEAD: usize = 2;
/// The new keys of a batch before one, on the average: how many is not known where keys are prefetched one by one.
const NEW_AHEAD: u32 = 16;
/// The size of tables that stay in the caches of a core, in bytes.
const CACHED_BYTES: u64 = 256 << 10;

impl FlowTable {
    /// The probe of a key, for this table only.
    #[inline(always)]
    pub fn probe(&self, key: &[u8]) -> Probe {
        Probe { hash: hash::hash(self.raw.seed(), key), place: 0, word: 0 }
    }

    /// The probe of a key, whose line of the index is prefetched: wave 1 of a batch.
    #[inline(always)]
    pub fn probe_ahead(&self, key: &[u8]) -> Probe {
        self.raw.probe_ahead(key)
    }

    /// Finds the entry that the key most likely has, and prefetches it: wave 2 of a batch.
    #[inline(always)]
    pub fn prefetch_entry(&self, probe: &mut Probe) {
        // SAFETY: all processors have the baseline.
        unsafe { self.prefetch_entry_with::<Baseline>(&self.raw, probe, NEW_AHEAD) };
    }

    /// [`FlowTable::prefetch_entry`] for a key with this number of new keys before it. Returns whether the key most
    /// likely is in the table. `raw` is that of this table: a loop has a copy, whose fields stay in registers.
    ///
    /// # Safety
    /// The processor has the instructions of `S`.
    #[inline(always)]
    unsafe fn prefetch_entry_with<S: Scan>(&self, raw: &RawTable, probe: &mut Probe, new_before: u32) -> bool {
        // SAFETY: the caller's.
        let slot = unsafe { raw.prefetch_entry::<S>(probe) };
        match slot {
            Some(slot) => self.prefetch_link(slot),
            None => self.slots.prefetch(raw, new_before),
        }
        slot.is_some()
    }

    /// Prefetches what wave 2 could not know: the entries of the few keys whose home bucket had no room, and the
    /// neighbours in the order of uses. Wave 3 of a batch.
    #[inline(always)]
    pub fn prefetch_rest(&self, probe: &mut Probe) {
        if let Some(slot) = self.raw.prefetch_spilled(probe) {
            self.prefetch_link(slot);
        }
        if let (Some(recency), 1..) = (&self.recency, probe.word) {
            recency.prefetch_neighbours(probe.word & self.raw.slot_mask);
        }
    }

    #[inline(always)]
    fn prefetch_link(&self, slot: Slot) {
        if let Some(recency) = &self.recency {
            recency.prefetch(slot);
        }
    }

    /// All waves for adjacent keys.
    ///
    /// # Panics
    /// There are not as many keys as probes.
    pub fn probe_batch(&self, keys: &[u8], probes: &mut [Probe]) {
        assert_eq!(keys.len(), probes.len() * self.raw.key_bytes as usize, "bytes of keys");
        match self.raw.key_bytes {
            4 => self.waves::<4>(keys, probes),
            8 => self.waves::<8>(keys, probes),
            13 => self.waves::<13>(keys, probes),
            16 => self.waves::<16>(keys, probes),
            20 => self.waves::<20>(keys, probes),
            40 => self.waves::<40>(keys, probes),
            len => {
                for (key, probe) in keys.chunks_exact(len as usize).zip(probes.iter_mut()) {
                    *probe = self.probe_ahead(key);
                }
                self.later_waves(probes);
            }
        }
    }

    #[inline(always)]
    fn waves<const N: usize>(&self, keys: &[u8], probes: &mut [Probe]) {
        for (key, probe) in keys.as_chunks::<N>().0.iter().zip(probes.iter_mut()) {
            *probe = self.probe_ahead(key);
        }
        self.later_waves(probes);
    }

    #[inline(always)]
    fn later_waves(&self, probes: &mut [Probe]) {
        probes.iter_mut().for_each(|probe| self.prefetch_entry(probe));
        probes.iter_mut().for_each(|probe| self.prefetch_rest(probe));
    }

    /// Visits keys in order, each with a probe whose entry has been prefetched. A visit may change the table.
    ///
    /// ```
    /// # use flowloom_flowtable::{Allocation, FlowTable, Layout};
    /// # let layout = Layout { key_bytes: 4, value_bytes: 8, entries: 1000, allocation: Allocation::OnDemand };
    /// # let mut table = FlowTable::new(layout)?;
    /// table.visit_ahead(&[*b"flow", *b"next", *b"flow"], |table, probe, key| {
    ///     let slot = table.lookup(probe, key).or_else(|| table.put(probe, key)).expect("there is room");
    ///     table.value_mut(slot)[0] += 1;
    /// });
    /// assert_eq!(table.len(), 2);
    /// # Ok::<(), flowloom_flowtable::TableError>(())
    /// ```
    #[inline(always)]
    pub fn visit_ahead<K: AsRef<[u8]>>(&mut self, keys: &[K], mut visit: impl FnMut(&mut FlowTable, Probe, &K)) {
        let is_cached = self.bytes() <= CACHED_BYTES;
        let prefetch_group = prefetch_group_fn();
        let group = |number: usize| {
            let rest = keys.get(number * GROUP..).unwrap_or_default();
            &rest[..rest.len().min(GROUP)]
        };
        let mut probes = [[Probe::NONE; GROUP]; LEAD + 1];
        let mut marks = Marks::default();
        if !is_cached {
            hash_group(self, &mut probes[0], group(0));
            hash_group(self, &mut probes[1], group(1));
            // SAFETY: the processor has the instructions of the function.
            marks = unsafe { prefetch_group(self, &mut probes[0][..group(0).len()], 0) };
        }
        let mut at = 0;
        for number in 0..keys.len().div_ceil(GROUP) {
            let next = (at + 1) % (LEAD + 1);
            let keys = group(number);
            if is_cached {
                for (probe, key) in probes[at].iter_mut().zip(keys) {
                    *probe = self.probe(key.as_ref());
                }
            } else {
                while marks.later != 0 {
                    self.prefetch_rest(&mut probes[at][marks.later.trailing_zeros() as usize]);
                    marks.later &= marks.later - 1;
                }
                hash_group(self, &mut probes[(at + LEAD) % (LEAD + 1)], group(number + LEAD));
                // SAFETY: the processor has the instructions of the function.
                marks = unsafe { prefetch_group(self, &mut probes[next][..group(number + 1).len()], marks.new) };
            }
            for (probe, key) in probes[at].iter().zip(keys) {
                visit(self, *probe, key);
            }
            at = next;
        }
    }
}

/// Wave 1 for probes, each with its table; of a probe, only the hash is known ([`Probe::HASH_OFFSET`]).
#[inline(always)]
pub fn prefetch_homes<'a>(probes: impl Iterator<Item = (&'a FlowTable, &'a mut Probe)>) {
    for (table, probe) in probes {
        *probe = table.raw.probe_hash_ahead(probe.hash);
    }
}

/// [`FlowTable::prefetch_entry`] for probes, each with its table.
#[inline(always)]
pub fn prefetch_entries<'a>(probes: impl Iterator<Item = (&'a FlowTable, &'a mut Probe)>) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has the instructions.
        return unsafe { prefetch_avx512(probes) };
    }
    probes.for_each(|(table, probe)| table.prefetch_entry(probe));
}

/// # Safety
/// The processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,bmi1,bmi2")]
unsafe fn prefetch_avx512<'a>(probes: impl Iterator<Item = (&'a FlowTable, &'a mut Probe)>) {
    for (table, probe) in probes {
        // SAFETY: the caller's.
        unsafe { table.prefetch_entry_with::<Avx512>(&table.raw, probe, NEW_AHEAD) };
    }
}

/// The first wave for a group of keys. A function of its own has enough registers for the table's constants.
#[inline(never)]
fn hash_group<K: AsRef<[u8]>>(table: &FlowTable, probes: &mut [Probe; GROUP], keys: &[K]) {
    let raw = *table.raw;
    for (probe, key) in probes.iter_mut().zip(keys) {
        *probe = raw.probe_ahead(key.as_ref());
    }
}

/// What the second wave has found of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// The bits of the probes that need the third wave.
    later: u64,
    /// The number of keys that most likely are not in the table.
    new: u32,
}

/// The second wave for a group of keys. The group before, which has not been visited yet, has this number of new keys.
type PrefetchGroupFn = unsafe fn(&FlowTable, &mut [Probe], u32) -> Marks;

/// The fastest [`PrefetchGroupFn`] of the processor.
fn prefetch_group_fn() -> PrefetchGroupFn {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        return prefetch_group_avx512;
    }
    prefetch_group::<Baseline>
}

/// # Safety
/// The processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,bmi1,bmi2")]
unsafe fn prefetch_group_avx512(table: &FlowTable, probes: &mut [Probe], before: u32) -> Marks {
    // SAFETY: the caller's.
    unsafe { prefetch_group::<Avx512>(table, probes, before) }
}

/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
unsafe fn prefetch_group<S: Scan>(table: &FlowTable, probes: &mut [Probe], before: u32) -> Marks {
    // A copy, whose fields stay in registers while probes are written.
    let raw = *table.raw;
    let has_order = table.recency.is_some();
    let mut marks = Marks::default();
    // A closure would not be compiled for the instructions of `S`.
    for (number, probe) in probes.iter_mut().enumerate() {
        // SAFETY: the caller's.
        let is_there = unsafe { table.prefetch_entry_with::<S>(&raw, probe, before + marks.new) };
        marks.new += u32::from(!is_there);
        let is_later = if is_there { has_order } else { probe.is_spilled() };
        marks.later |= u64::from(is_later) << number;
    }
    marks
}
