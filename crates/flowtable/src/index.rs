// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the index: words are added, changed and removed.
//!
//! A word whose home bucket is full is in the next bucket with room. The home bucket counts such words, and keeps their
//! greatest distance in buckets while it has any: a search goes no further. A word never moves.
//!
//! # Cost
//! There are 15 words for every 12 entries of the capacity. When the table is full, 3% of the words are beyond their
//! home bucket; at 80% load, 0.8%.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers")]

use crate::raw::{Bucket, Found, Location, RawTable, STEP, WORDS};
use crate::scan;
use crate::table::Slot;

/// The entries of the capacity for each bucket.
const ENTRIES_A_BUCKET: u32 = 12;
/// The bits of a tag that are always there.
const MIN_TAG_BITS: u32 = 4;

/// The most entries of a table.
pub(crate) const MAX_ENTRIES: u32 = (1 << (u32::BITS - MIN_TAG_BITS)) - 4;

/// The buckets for a capacity.
pub(crate) fn buckets(entries: u32) -> u64 {
    entries.div_ceil(ENTRIES_A_BUCKET).max(1).into()
}

/// The bits of a word that number `slots` slots.
pub(crate) fn slot_mask(slots: u32) -> u32 {
    u32::MAX >> (slots.max(2) - 1).leading_zeros()
}

impl RawTable {
    #[inline(always)]
    fn set_word(&mut self, place: u32, word: u32) {
        debug_assert!(u64::from(place / STEP) < self.bucket_count && place % STEP < WORDS as u32);
        // SAFETY: all callers pass a place that was found in a bucket of the table.
        unsafe { *self.buckets.cast::<u32>().add(place as usize) = word };
    }

    #[inline(always)]
    fn bucket_mut(&mut self, bucket: usize) -> &mut Bucket {
        debug_assert!(bucket < self.bucket_count as usize);
        // SAFETY: all callers pass a number below the number of buckets: one of `home` or `after`.
        unsafe { &mut *self.buckets.add(bucket) }
    }

    /// A bit for each free word of the home bucket.
    #[inline(always)]
    pub(crate) fn vacant(&self, location: Location) -> u32 {
        scan::equal(self.bucket(location.home), 0, 0)
    }

    /// Adds a slot; `vacant` are the free words of its home bucket. There must be room, which there is for as many
    /// entries as the index was made for.
    #[inline(always)]
    pub(crate) fn insert(&mut self, location: Location, vacant: u32, slot: Slot) {
        let Location { home, tag } = location;
        if vacant == 0 {
            self.insert_spilled(home, tag | slot);
        } else {
            self.set_word(home as u32 * STEP + vacant.trailing_zeros(), tag | slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_spilled(&mut self, home: usize, word: u32) {
        for distance in 1..self.bucket_count as usize {
            let at = self.after(home, distance);
            let bucket = self.bucket_mut(at);
            let Some(free) = bucket.words.iter_mut().find(|word| **word == 0) else { continue };
            *free = word;
            let home = self.bucket_mut(home);
            home.spilled = home.spilled.saturating_add(1);
            home.reach = home.reach.max(u16::try_from(distance).unwrap_or(u16::MAX));
            return;
        }
        unreachable!("the index has more words than the table has entries");
    }

    /// Changes the slot of a word.
    #[inline(always)]
    pub(crate) fn replace(&mut self, place: u32, slot: Slot) {
        self.set_word(place, self.word(place) & !self.slot_mask | slot);
    }

    /// Removes a word of this hash.
    #[inline(always)]
    pub(crate) fn remove(&mut self, hash: u64, found: Found) {
        self.set_word(found.place, 0);
        let home = self.home(hash);
        if (found.place / STEP) as usize != home {
            self.bucket_mut(home).forget_spilled();
        }
    }

    pub(crate) fn clear(&mut self) {
        // SAFETY: the buckets are a part of the mapping, and zeros are empty buckets.
        unsafe { self.buckets.write_bytes(0, self.bucket_count as usize) };
    }

    /// Panics unless the overflow records of all buckets fit the words; `hash_of` gives the hash of a slot's key.
    pub(crate) fn check_invariants(&self, hash_of: impl Fn(Slot) -> u64) {
        let buckets = self.bucket_count as usize;
        let mut spilled = vec![0_usize; buckets];
        for bucket in 0..buckets {
            for word in self.bucket(bucket).words.into_iter().filter(|word| *word != 0) {
                let hash = hash_of(word & self.slot_mask);
                let home = self.home(hash);
                assert_eq!(word & !self.slot_mask, self.tag(hash));
                if home != bucket {
                    spilled[home] += 1;
                    let distance = if bucket > home { bucket - home } else { bucket + buckets - home };
                    assert!(distance <= self.reach(home), "{bucket} is out of reach of {home}");
                }
            }
        }
        for (bucket, spilled) in spilled.into_iter().enumerate() {
            let bucket = self.bucket(bucket);
            let counted = usize::from(bucket.spilled);
            assert!(counted == spilled || bucket.spilled == u16::MAX && spilled >= counted);
            assert!(spilled > 0 || bucket.spilled == u16::MAX || bucket.reach == 0);
        }
    }

    /// The number of words that are used.
    pub(crate) fn words(&self) -> usize {
        let buckets = 0..self.bucket_count as usize;
        buckets.map(|bucket| WORDS - scan::equal(self.bucket(bucket), 0, 0).count_ones() as usize).sum()
    }
}

impl Bucket {
    /// A word whose home this is has been removed from another bucket.
    #[cold]
    fn forget_spilled(&mut self) {
        // A count at its greatest number may be too small, so it stays.
        if self.spilled != u16::MAX {
            self.spilled = self.spilled.saturating_sub(1);
            if self.spilled == 0 {
                self.reach = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::TableError;
    use crate::raw::Probe;
    use crate::table::{Allocation, FlowTable, Layout};

    const ENTRIES: u32 = 1000;

    fn table() -> Result<FlowTable, TableError> {
        let layout = Layout { key_bytes: 4, value_bytes: 4, entries: ENTRIES, allocation: Allocation::OnDemand };
        FlowTable::new(layout)
    }

    /// Chosen hashes in place of the keys' own.
    fn probe(hash: u64) -> Probe {
        Probe { hash, ..Probe::default() }
    }

    /// Hashes with one home bucket, the last one, so that words wrap around; among them a tag of 0.
    #[test]
    fn words_without_room_at_home_are_found_and_removed() -> Result<(), TableError> {
        let mut table = table()?;
        let hash = |number: u32| u64::MAX << 32 | u64::from(number % 3) << 30;
        let find = |table: &FlowTable, number: u32| table.lookup(probe(hash(number)), &number.to_le_bytes());
        for number in 0..ENTRIES {
            assert_eq!(table.put(probe(hash(number)), &number.to_le_bytes()), Some(number));
        }
        table.raw().check_invariants(hash);
        assert!((0..ENTRIES).all(|number| find(&table, number) == Some(number)));
        for number in (0..ENTRIES).filter(|number| number % 7 != 0) {
            assert_eq!(table.remove(probe(hash(number)), &number.to_le_bytes()), Some(number));
            assert_eq!(find(&table, number), None);
        }
        table.raw().check_invariants(hash);
        assert!((0..ENTRIES).all(|number| find(&table, number).is_some() == (number % 7 == 0)));
        for number in (0..ENTRIES).filter(|number| number % 7 == 0) {
            assert!(table.remove(probe(hash(number)), &number.to_le_bytes()).is_some());
        }
        table.raw().check_invariants(hash);
        assert_eq!((table.raw().words(), table.len()), (0, 0));
        Ok(())
    }

    /// More words beyond one bucket than its record can count: the count stays, and all words are found.
    #[test]
    fn words_beyond_the_count_are_found() -> Result<(), TableError> {
        let mut table = table()?;
        let hash = |number: u32| u64::from(number) << 20;
        let last = 99;
        for number in 0..=last {
            if number == 50 {
                // As if it had counted tens of thousands.
                // SAFETY: the index has a first bucket, and nothing else refers to it.
                #[allow(unsafe_code, reason = "no test adds tens of thousands of words to one bucket")]
                unsafe {
                    (*table.raw().buckets).spilled = u16::MAX - 1;
                }
            }
            assert!(table.put(probe(hash(number)), &number.to_le_bytes()).is_some());
        }
        assert_eq!(table.raw().bucket(0).spilled, u16::MAX);
        for number in 0..last {
            assert!(table.remove(probe(hash(number)), &number.to_le_bytes()).is_some());
        }
        assert!(table.lookup(probe(hash(last)), &last.to_le_bytes()).is_some());
        Ok(())
    }

    #[test]
    fn masks_number_all_slots() {
        assert_eq!([1, 2, 3, 4, 5].map(slot_mask), [1, 1, 3, 3, 7]);
        assert_eq!(slot_mask(MAX_ENTRIES + 1), (1 << 28) - 1);
    }
}
