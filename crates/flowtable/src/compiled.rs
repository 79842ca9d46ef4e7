// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lookups for compiled code: functions of the C ABI, one for each common length of keys.
#![allow(unsafe_code, reason = "called from compiled code")]

use crate::ahead::prefetch_homes;
use crate::hash;
use crate::raw::{Probe, RawTable, WordKey};
#[cfg(target_arch = "x86_64")]
use crate::scan::{Avx512, has_avx512};
use crate::scan::{Baseline, Scan};
use crate::table::FlowTable;

/// Looks a key up: the address of its value, or null.
///
/// # Safety
/// The table is one of [`crate::FlowTable::raw`] that still exists and that no other thread changes; the key has as
/// many bytes as those of the table.
pub type LookupFn = unsafe extern "C" fn(table: *const RawTable, key: *const u8) -> *mut u8;

/// Looks a key up by its probe; otherwise as [`LookupFn`].
pub type ProbedLookupFn = unsafe extern "C" fn(table: *const RawTable, key: *const u8, probe: *const Probe) -> *mut u8;

/// Looks a key up, at the place of a probe first, which may be that of any key and table; otherwise as [`LookupFn`].
pub type HintedLookupFn = unsafe extern "C" fn(table: *const RawTable, key: *const u8, hint: *const Probe) -> *mut u8;

/// Looks up a key of 4 to 16 bytes that is in registers: its first and its last 8 bytes in little-endian order, or 4 if
/// it is shorter than 8. At the place of a hint first, as [`HintedLookupFn`]. The entry counts as used.
///
/// # Safety
/// The table exists, and nothing else refers to it during the call.
pub type WordLookupFn =
    unsafe extern "C" fn(table: *mut FlowTable, first: u64, last: u64, hint: *const Probe) -> *mut u8;

/// A key that is looked up soon: its table, null if there is none, and its probe, of which only the hash is known before
/// [`prefetch_ahead`].
#[derive(Debug)]
#[repr(C)]
pub struct Announcement {
    pub table: *const FlowTable,
    pub probe: Probe,
}

/// Prefetches the lines of the index of a group of keys, and the entries of another group, whose lines this function
/// prefetched a while ago. Of each group, there are `count` announcements, `step_bytes` apart.
///
/// It has no form for AVX-512, with which packets took 1 to 3 ns longer (functions of the benchmark, Emerald Rapids).
///
/// # Safety
/// All announcements exist, and each table is null or exists; nothing changes them during the call, nor the probes of
/// the second group since their lines were prefetched.
pub unsafe extern "C" fn prefetch_ahead(
    homes: *mut Announcement,
    entries: *mut Announcement,
    step_bytes: usize,
    count: usize,
) {
    // SAFETY: the caller's, and all processors have the baseline.
    unsafe {
        prefetch_homes((0..count).filter_map(|number| {
            let Announcement { table, probe } = &mut *homes.byte_add(number * step_bytes);
            Some((table.as_ref()?, probe))
        }));
        let announced = |number| entries.byte_add(number * step_bytes);
        // Mostly, all keys of a group have one table, whose constants stay in registers.
        let Some(usual) = (0..count).find_map(|number| (*announced(number)).table.as_ref()) else { return };
        let (raw, has_order) = (*usual.raw, usual.recency.is_some());
        for number in 0..count {
            let Announcement { table, probe } = &mut *announced(number);
            let Some(table) = table.as_ref() else { continue };
            if !std::ptr::eq(table, usual) || has_order || !raw.prefetch_only_entry::<Baseline>(probe) {
                prefetch_unusual_entry(table, probe);
            }
        }
    }
}

/// [`FlowTable::prefetch_entry`] out of line, so that the loop saves no registers for it.
#[cold]
#[inline(never)]
extern "C" fn prefetch_unusual_entry(table: &FlowTable, probe: &mut Probe) {
    table.prefetch_entry(probe);
}

/// Keys whose length is known when the table is made.
const ANY: usize = 0;

/// The instance of a function for the bytes of a key.
macro_rules! for_keys {
    ($key_bytes:expr, $function:ident $(, $further:literal)?) => {
        match $key_bytes {
            4 => $function::<4 $(, $further)?>,
            8 => $function::<8 $(, $further)?>,
            13 => $function::<13 $(, $further)?>,
            16 => $function::<16 $(, $further)?>,
            20 => $function::<20 $(, $further)?>,
            40 => $function::<40 $(, $further)?>,
            _ => $function::<ANY $(, $further)?>,
        }
    };
}

impl RawTable {
    /// The lookup for the table's keys and the processor.
    pub(crate) fn lookup_fn(&self) -> LookupFn {
        #[cfg(target_arch = "x86_64")]
        if has_avx512() {
            return for_keys!(self.key_bytes, lookup_avx512);
        }
        for_keys!(self.key_bytes, lookup)
    }

    /// The lookup with a hint for the table's keys and the processor.
    pub(crate) fn hinted_lookup_fn(&self) -> HintedLookupFn {
        #[cfg(target_arch = "x86_64")]
        if has_avx512() {
            return for_keys!(self.key_bytes, hinted_lookup_avx512);
        }
        for_keys!(self.key_bytes, hinted_lookup)
    }

    /// The lookup of keys in registers, for the table's keys and the processor, if they have 4 to 16 bytes.
    pub(crate) fn word_lookup_fn(&self, is_lru: bool) -> Option<WordLookupFn> {
        if !hash::WORD_KEY_BYTES.contains(&self.key_bytes) {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        if has_avx512() {
            return Some(match is_lru {
                true => for_keys!(self.key_bytes, word_lookup_avx512, true),
                false => for_keys!(self.key_bytes, word_lookup_avx512, false),
            });
        }
        Some(match is_lru {
            true => for_keys!(self.key_bytes, word_lookup, true),
            false => for_keys!(self.key_bytes, word_lookup, false),
        })
    }

    /// The lookup by a probe for the table's keys.
    pub(crate) fn probed_lookup_fn(&self) -> ProbedLookupFn {
        for_keys!(self.key_bytes, probed_lookup)
    }
}

/// # Safety
/// That of [`HintedLookupFn`]; the keys have `N` bytes, or any number for [`ANY`].
unsafe extern "C" fn hinted_lookup<const N: usize>(
    table: *const RawTable,
    key: *const u8,
    hint: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's, and all processors have the baseline.
    unsafe { hinted_lookup_with::<N, Baseline>(table, key, hint) }
}

/// # Safety
/// That of [`hinted_lookup`], and the processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,bmi1,bmi2")]
unsafe extern "C" fn hinted_lookup_avx512<const N: usize>(
    table: *const RawTable,
    key: *const u8,
    hint: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe { hinted_lookup_with::<N, Avx512>(table, key, hint) }
}

/// # Safety
/// That of [`hinted_lookup`], and the processor has the instructions of `S`.
#[inline(always)]
unsafe fn hinted_lookup_with<const N: usize, S: Scan>(
    table: *const RawTable,
    key: *const u8,
    hint: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe {
        let (raw, bytes) = arguments::<N>(table, key);
        match raw.expected(*hint, bytes) {
            Some(found) => raw.value(found.slot),
            None => lookup_with::<N, S>(table, key),
        }
    }
}

/// # Safety
/// That of [`WordLookupFn`]; the keys have `N` bytes, or any number for [`ANY`].
unsafe extern "C" fn word_lookup<const N: usize, const LRU: bool>(
    table: *mut FlowTable,
    first: u64,
    last: u64,
    hint: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's, and all processors have the baseline.
    unsafe { word_lookup_with::<N, LRU, Baseline>(table, [first, last], hint) }
}

/// # Safety
/// That of [`word_lookup`], and the processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,bmi1,bmi2")]
unsafe extern "C" fn word_lookup_avx512<const N: usize, const LRU: bool>(
    table: *mut FlowTable,
    first: u64,
    last: u64,
    hint: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe { word_lookup_with::<N, LRU, Avx512>(table, [first, last], hint) }
}

/// # Safety
/// That of [`word_lookup`], and the processor has the instructions of `S`.
#[inline(always)]
unsafe fn word_lookup_with<const N: usize, const LRU: bool, S: Scan>(
    table: *mut FlowTable,
    words: [u64; 2],
    hint: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe {
        let table = &mut *table;
        let raw = &*table.raw;
        let key = WordKey { words, len: if N == ANY { raw.key_bytes as usize } else { N } };
        let found = match raw.expected(*hint, key) {
            None => {
                let hash = hash::hash_words(&raw.seed, words);
                raw.search::<S>(raw.locate(hash), hash, key)
            }
            found => found,
        };
        let Some(found) = found else { return std::ptr::null_mut() };
        if LRU && let Some(recency) = &mut table.recency {
            recency.touch(found.slot);
        }
        table.raw.value(found.slot)
    }
}

/// # Safety
/// That of [`LookupFn`]; the keys have `N` bytes, or any number for [`ANY`].
unsafe extern "C" fn lookup<const N: usize>(table: *const RawTable, key: *const u8) -> *mut u8 {
    // SAFETY: the caller's, and all processors have the baseline.
    unsafe { lookup_with::<N, Baseline>(table, key) }
}

/// # Safety
/// That of [`lookup`], and the processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,bmi1,bmi2")]
unsafe extern "C" fn lookup_avx512<const N: usize>(table: *const RawTable, key: *const u8) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe { lookup_with::<N, Avx512>(table, key) }
}

/// # Safety
/// That of [`lookup`], and the processor has the instructions of `S`.
#[inline(always)]
unsafe fn lookup_with<const N: usize, S: Scan>(table: *const RawTable, key: *const u8) -> *mut u8 {
    // SAFETY: the caller's.
    let (table, key) = unsafe { arguments::<N>(table, key) };
    let hash = hash::hash(&table.seed, key);
    // SAFETY: the key has the table's bytes; the instructions are the caller's.
    let found = unsafe { table.search::<S>(table.locate(hash), hash, key) };
    found.map_or(std::ptr::null_mut(), |found| table.value(found.slot))
}

/// # Safety
/// That of [`ProbedLookupFn`]; the keys have `N` bytes, or any number for [`ANY`].
unsafe extern "C" fn probed_lookup<const N: usize>(
    table: *const RawTable,
    key: *const u8,
    probe: *const Probe,
) -> *mut u8 {
    // SAFETY: the caller's.
    let (table, key) = unsafe { arguments::<N>(table, key) };
    // SAFETY: the probe is one, and the key has the table's bytes.
    let found = unsafe { table.find(*probe, key) };
    found.map_or(std::ptr::null_mut(), |found| table.value(found.slot))
}

/// # Safety
/// That of [`LookupFn`]; the keys have `N` bytes, or any number for [`ANY`].
#[inline(always)]
unsafe fn arguments<'a, const N: usize>(table: *const RawTable, key: *const u8) -> (&'a RawTable, &'a [u8]) {
    // SAFETY: the caller's.
    unsafe {
        let table = &*table;
        let len = if N == ANY { table.key_bytes as usize } else { N };
        (table, std::slice::from_raw_parts(key, len))
    }
}
