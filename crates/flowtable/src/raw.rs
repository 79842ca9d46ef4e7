// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table as compiled code sees it, and the search of a key.
//!
//! ```text
//!  hash:  upper 32 bits × buckets >> 32 ──► home bucket
//!         lower 32 bits: tag ▒▒▒▒▒▒▒░░░░░░░░░░  word: ▒ tag  ░ slot
//! ```
//!
//! A tag is never 0: a hash whose tag would be 0 has 1 in place of it. A free word is 0.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers, and called from compiled code")]

use std::fmt;
use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::hash::{self, Seed};
use crate::prefetch::prefetch;
use crate::scan::{self, Baseline, Scan};
use crate::table::Slot;

/// The words of a bucket.
pub(crate) const WORDS: usize = 15;
/// The words of a bucket and its record, in the size of a word.
pub(crate) const STEP: u32 = 16;
/// No place in the index.
const NOWHERE: u32 = u32::MAX;
const LINE_BYTES: usize = 64;
/// The buckets after the home bucket in which a candidate is looked for ahead.
const MAX_PREFETCHED_BUCKETS: usize = 2;
/// The most bytes of an entry that are prefetched.
pub(crate) const PREFETCHED_BYTES: u32 = 256;

/// A line of the index.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Bucket {
    /// Tags and slots; 0 is free.
    pub words: [u32; WORDS],
    /// The number of words whose home this is and that are in later buckets. It stays at its greatest number.
    pub spilled: u16,
    /// The distance in buckets beyond which there is none of them. At its greatest number, they may be anywhere.
    pub reach: u16,
}

impl Bucket {
    /// The number of words.
    pub const WORDS: usize = WORDS;
    /// For compiled code: where a bucket has its reach.
    pub const REACH_OFFSET: usize = offset_of!(Bucket, reach);
}

/// Addresses and constants of a table. None of them changes while the table exists.
///
/// # Layout
/// - Home bucket of a hash: `buckets[((hash >> 32) * bucket_count) >> 32]`.
/// - Tag of a hash: `hash as u32 & !slot_mask`, or `slot_mask + 1` if that is 0.
/// - Candidates: the words of the bucket with `word & !slot_mask == tag`; their slot is `word & slot_mask`.
/// - Entry of a slot: `entries + slot * stride_bytes`, the key first; its value is `value_at_bytes` after it, aligned
///   to 8 bytes.
/// - One of the candidates at most has the key; compare all bytes.
/// - A key that no candidate has is absent if `reach` of the home bucket is 0. Otherwise call the lookup function.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawTable {
    /// The index.
    pub buckets: *mut Bucket,
    /// The entry of slot 0.
    pub entries: *mut u8,
    /// The seed of the hash: `hash = fold(fold(a ^ seed[0], b ^ seed[1]), seed[2])` for a key of 16 bytes (a, b) in
    /// little-endian order, where `fold` is the exclusive or of both halves of the product.
    pub seed: [u64; 3],
    /// The number of buckets.
    pub bucket_count: u64,
    /// The bits of a word that are the slot.
    pub slot_mask: u32,
    /// The bytes from entry to entry.
    pub stride_bytes: u32,
    /// The bytes from the beginning of an entry to its value.
    pub value_at_bytes: u32,
    /// The bytes of a key.
    pub key_bytes: u32,
    /// The bytes of an entry that are prefetched.
    pub prefetch_bytes: u32,
    /// The logarithm of the bytes of a block.
    pub mark_shift: u32,
    /// By block of entries, a byte that is not 0 if values in it may change before the end of the run: the block of an
    /// entry is its offset from `entries`, shifted right by `mark_shift`.
    pub marks: *mut u8,
}

/// A hash, and where its key is expected. It is only a hint: an operation with an old probe has the same result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Probe {
    pub(crate) hash: u64,
    /// The place of the candidate in the index: 16 times the bucket, plus the word. It is of a word, not of a record.
    pub(crate) place: u32,
    /// The candidate's word, 0 if there is none.
    pub(crate) word: u32,
}

impl Probe {
    /// The probe of no key.
    pub const NONE: Probe = Probe { hash: 0, place: 0, word: 0 };

    /// For compiled code: where a probe has the hash.
    pub const HASH_OFFSET: usize = offset_of!(Probe, hash);
    /// For compiled code: where a probe has the place of the candidate, a number of words from the first bucket.
    pub const PLACE_OFFSET: usize = offset_of!(Probe, place);
    /// For compiled code: where a probe has the word of the candidate, 0 if there is none. If the index still has the
    /// word in its place, the slot is used.
    pub const WORD_OFFSET: usize = offset_of!(Probe, word);

    /// The hash of the key.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether the key may be after its home bucket, where no wave has looked yet.
    #[inline(always)]
    pub(crate) fn is_spilled(&self) -> bool {
        self.word == 0 && self.place != NOWHERE
    }
}

/// A word of the index that has been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: u32,
    pub(crate) slot: Slot,
}

impl fmt::Debug for RawTable {
    /// Without the seed, which no sender of packets may know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket_count, slot_mask, stride_bytes, key_bytes, .. } = self;
        let mut fields = f.debug_struct("RawTable");
        fields.field("bucket_count", bucket_count).field("slot_mask", slot_mask);
        fields.field("stride_bytes", stride_bytes).field("key_bytes", key_bytes).finish_non_exhaustive()
    }
}

/// A key that is looked for.
pub(crate) trait Key: Copy {
    /// Whether it is the key at an address.
    ///
    /// # Safety
    /// The address is that of an entry, and the key has the bytes of the table's keys.
    unsafe fn is_at(self, entry: *const u8) -> bool;

    /// The result of [`RawTable::search_spilled`].
    ///
    /// # Safety
    /// The key has the bytes of the table's keys.
    unsafe fn search_spilled(self, table: &RawTable, hash: u64) -> u32;
}

impl Key for &[u8] {
    #[inline(always)]
    unsafe fn is_at(self, entry: *const u8) -> bool {
        // SAFETY: an entry begins with a key, which has as many bytes.
        unsafe { hash::is_key(entry, self) }
    }

    #[inline(always)]
    unsafe fn search_spilled(self, table: &RawTable, hash: u64) -> u32 {
        // SAFETY: the caller's.
        unsafe { table.search_spilled(hash, self.as_ptr()) }
    }
}

/// A key of [`hash::WORD_KEY_BYTES`] in registers: its words, and its length in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordKey {
    pub(crate) words: [u64; 2],
    pub(crate) len: usize,
}

impl Key for WordKey {
    #[inline(always)]
    unsafe fn is_at(self, entry: *const u8) -> bool {
        // SAFETY: an entry begins with a key, which has as many bytes.
        unsafe { hash::is_words(entry, self.len, self.words) }
    }

    #[inline(always)]
    unsafe fn search_spilled(self, table: &RawTable, hash: u64) -> u32 {
        // In registers: a key that is passed by its address would be stored in every lookup.
        let [first, last] = self.words;
        // SAFETY: the caller's.
        unsafe { search_spilled_words(table, hash, first, last, self.len) }
    }
}

/// # Safety
/// That of [`Key::search_spilled`].
#[cold]
#[inline(never)]
unsafe fn search_spilled_words(table: &RawTable, hash: u64, first: u64, last: u64, len: usize) -> u32 {
    let (mut bytes, part) = ([0; 16], if len >= 8 { 8 } else { 4 });
    bytes[..part].copy_from_slice(&first.to_le_bytes()[..part]);
    bytes[len - part..len].copy_from_slice(&last.to_le_bytes()[..part]);
    // SAFETY: the key has the table's bytes.
    unsafe { table.search_spilled(hash, bytes.as_ptr()) }
}

/// The home bucket and the tag of a hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location {
    pub(crate) home: usize,
    pub(crate) tag: u32,
}

impl RawTable {
    #[inline(always)]
    pub(crate) fn seed(&self) -> &Seed {
        &self.seed
    }

    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.bucket_count) >> 32) as usize
    }

    #[inline(always)]
    pub(crate) fn tag(&self, hash: u64) -> u32 {
        let tag = hash as u32 & !self.slot_mask;
        if tag == 0 { self.slot_mask + 1 } else { tag }
    }

    #[inline(always)]
    pub(crate) fn locate(&self, hash: u64) -> Location {
        Location { home: self.home(hash), tag: self.tag(hash) }
    }

    /// The bucket at a distance after `home`.
    #[inline]
    pub(crate) fn after(&self, home: usize, distance: usize) -> usize {
        let bucket = home + distance;
        if bucket < self.bucket_count as usize { bucket } else { bucket - self.bucket_count as usize }
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, bucket: usize) -> &Bucket {
        debug_assert!(bucket < self.bucket_count as usize);
        // SAFETY: all callers pass a number below the number of buckets: one of `home` or `after`.
        unsafe { &*self.buckets.add(bucket) }
    }

    #[inline(always)]
    pub(crate) fn word(&self, place: u32) -> u32 {
        debug_assert!(u64::from(place / STEP) < self.bucket_count);
        // SAFETY: all callers pass a place in a bucket of the table.
        unsafe { *self.buckets.cast::<u32>().add(place as usize) }
    }

    #[inline(always)]
    pub(crate) fn entry(&self, slot: Slot) -> *mut u8 {
        // The address is only used for slots of the table.
        self.entries.wrapping_add(slot as usize * self.stride_bytes as usize)
    }

    #[inline(always)]
    pub(crate) fn value(&self, slot: Slot) -> *mut u8 {
        self.entry(slot).wrapping_add(self.value_at_bytes as usize)
    }

    /// Wave 1: the hash of a key, and its line of the index.
    #[inline(always)]
    pub(crate) fn probe_ahead(&self, key: &[u8]) -> Probe {
        self.probe_hash_ahead(hash::hash(&self.seed, key))
    }

    #[inline(always)]
    pub(crate) fn probe_hash_ahead(&self, hash: u64) -> Probe {
        let home = self.home(hash);
        prefetch(self.buckets.wrapping_add(home));
        Probe { hash, place: home as u32 * STEP, word: 0 }
    }

    /// Wave 2: the first candidate in the home bucket is most likely the entry of the key. Without one, the next bucket
    /// is prefetched if words of this one are there.
    ///
    /// # Safety
    /// The processor has the instructions of `S`.
    #[inline(always)]
    pub(crate) unsafe fn prefetch_entry<S: Scan>(&self, probe: &mut Probe) -> Option<Slot> {
        let home = self.home(probe.hash);
        // SAFETY: the caller has chosen instructions of the processor.
        let candidates = unsafe { S::equal(self.bucket(home), self.tag(probe.hash), self.slot_mask) };
        if candidates == 0 {
            (probe.place, probe.word) = (NOWHERE, 0);
            if self.bucket(home).reach > 0 {
                probe.place = home as u32 * STEP;
                prefetch(self.buckets.wrapping_add(self.after(home, 1)));
            }
            return None;
        }
        if candidates & (candidates - 1) != 0 {
            self.prefetch_others(home, candidates);
        }
        Some(self.expect(probe, home, candidates))
    }

    /// As [`RawTable::prefetch_entry`] if the home bucket has one candidate; otherwise does nothing, and returns false.
    ///
    /// # Safety
    /// The processor has the instructions of `S`, and the probe is of [`RawTable::probe_hash_ahead`] of this table.
    #[inline(always)]
    pub(crate) unsafe fn prefetch_only_entry<S: Scan>(&self, probe: &mut Probe) -> bool {
        let home = (probe.place / STEP) as usize;
        debug_assert_eq!(home, self.home(probe.hash));
        // SAFETY: the caller has chosen instructions of the processor.
        let candidates = unsafe { S::equal(self.bucket(home), self.tag(probe.hash), self.slot_mask) };
        if !candidates.is_power_of_two() {
            return false;
        }
        self.expect(probe, home, candidates);
        true
    }

    /// The entries of the candidates after the first one.
    #[cold]
    #[inline(never)]
    fn prefetch_others(&self, bucket: usize, candidates: u32) {
        let mut others = candidates & (candidates - 1);
        while others != 0 {
            let word = self.word(bucket as u32 * STEP + others.trailing_zeros());
            prefetch(self.entry(word & self.slot_mask));
            others &= others - 1;
        }
    }

    /// Wave 3, for keys without a candidate in a home bucket whose words are in others, too.
    #[inline(always)]
    pub(crate) fn prefetch_spilled(&self, probe: &mut Probe) -> Option<Slot> {
        if probe.is_spilled() { self.expect_spilled(probe) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn expect_spilled(&self, probe: &mut Probe) -> Option<Slot> {
        let home = self.home(probe.hash);
        (1..=self.reach(home).min(MAX_PREFETCHED_BUCKETS)).find_map(|distance| {
            let bucket = self.after(home, distance);
            let candidates = scan::equal(self.bucket(bucket), self.tag(probe.hash), self.slot_mask);
            (candidates != 0).then(|| self.expect(probe, bucket, candidates))
        })
    }

    /// Expects the key at the first candidate, and prefetches its entry.
    #[inline(always)]
    fn expect(&self, probe: &mut Probe, bucket: usize, candidates: u32) -> Slot {
        probe.place = bucket as u32 * STEP + candidates.trailing_zeros();
        probe.word = self.word(probe.place);
        let slot = probe.word & self.slot_mask;
        let entry = self.entry(slot);
        prefetch(entry);
        let bytes = self.prefetch_bytes as usize;
        // Entries of a power of 2 lie within one line; a second prefetch of it would cost as much as the first.
        if bytes & (bytes - 1) != 0 {
            prefetch(entry.wrapping_add(bytes - 1));
        }
        if bytes > LINE_BYTES {
            self.prefetch_lines(entry);
        }
        slot
    }

    /// The lines of a long entry after its first one.
    #[inline(never)]
    fn prefetch_lines(&self, entry: *mut u8) {
        for at in (LINE_BYTES..self.prefetch_bytes as usize).step_by(LINE_BYTES) {
            prefetch(entry.wrapping_add(at));
        }
    }

    /// The word of the key, by its probe if it is still right.
    ///
    /// # Safety
    /// The key has the bytes of the table's keys.
    #[inline(always)]
    pub(crate) unsafe fn find(&self, probe: Probe, key: &[u8]) -> Option<Found> {
        // SAFETY: the caller's.
        unsafe {
            match self.expected(probe, key) {
                // `or_else` would be a call.
                None => self.search::<Baseline>(self.locate(probe.hash), probe.hash, key),
                found => found,
            }
        }
    }

    /// The word of the key, if it is at the place of a probe, of whatever key and table.
    ///
    /// # Safety
    /// The key has the bytes of the table's keys.
    #[inline(always)]
    pub(crate) unsafe fn expected(&self, probe: Probe, key: impl Key) -> Option<Found> {
        if probe.word == 0 || u64::from(probe.place / STEP) >= self.bucket_count {
            return None;
        }
        let slot = probe.word & self.slot_mask;
        // The word is still in the index, so its slot is used; a key is in the index once.
        let is_there = self.word(probe.place) == probe.word
            // SAFETY: a used slot has a key.
            && unsafe { key.is_at(self.entry(slot)) };
        is_there.then_some(Found { place: probe.place, slot })
    }

    /// The word of the key.
    ///
    /// # Safety
    /// The key has the bytes of the table's keys, and the processor the instructions of `S`.
    #[inline(always)]
    pub(crate) unsafe fn search<S: Scan>(&self, location: Location, hash: u64, key: impl Key) -> Option<Found> {
        let Location { home, tag } = location;
        // SAFETY: the caller's.
        if let Some(found) = unsafe { self.search_bucket::<S>(home, tag, key) } {
            return Some(found);
        }
        if self.bucket(home).reach == 0 {
            return None;
        }
        // SAFETY: the caller's.
        let place = unsafe { key.search_spilled(self, hash) };
        (place != NOWHERE).then(|| Found { place, slot: self.word(place) & self.slot_mask })
    }

    /// # Safety
    /// The key has the bytes of the table's keys, and the processor the instructions of `S`.
    #[inline(always)]
    unsafe fn search_bucket<S: Scan>(&self, bucket: usize, tag: u32, key: impl Key) -> Option<Found> {
        // SAFETY: the caller's.
        let mut candidates = unsafe { S::equal(self.bucket(bucket), tag, self.slot_mask) };
        while candidates != 0 {
            let place = bucket as u32 * STEP + candidates.trailing_zeros();
            let slot = self.word(place) & self.slot_mask;
            // SAFETY: a word that is not free has a used slot, and the key has the table's bytes.
            if unsafe { key.is_at(self.entry(slot)) } {
                return Some(Found { place, slot });
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// The place of the key after its home bucket, or [`NOWHERE`]: a number, since a call that returns it in a register
    /// costs the loops around it nothing.
    ///
    /// # Safety
    /// The key has the bytes of the table's keys.
    #[cold]
    #[inline(never)]
    unsafe fn search_spilled(&self, hash: u64, key: *const u8) -> u32 {
        let Location { home, tag } = self.locate(hash);
        // SAFETY: the caller's.
        let key = unsafe { std::slice::from_raw_parts(key, self.key_bytes as usize) };
        let mut buckets = (1..=self.reach(home)).map(|distance| self.after(home, distance));
        // SAFETY: the caller's, and all processors have the baseline.
        let found = buckets.find_map(|bucket| unsafe { self.search_bucket::<Baseline>(bucket, tag, key) });
        found.map_or(NOWHERE, |found| found.place)
    }

    pub(crate) fn reach(&self, home: usize) -> usize {
        match self.bucket(home).reach {
            u16::MAX => self.bucket_count as usize - 1,
            reach => reach.into(),
        }
    }
}
