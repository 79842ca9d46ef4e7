// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bit for each slot: whether it has an entry.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers")]

use crate::table::Slot;

const BITS: u32 = u64::BITS;

/// The slots that have entries.
#[derive(Debug)]
pub(crate) struct Live {
    words: *mut u64,
    slots: u32,
}

impl Live {
    /// The words for a number of slots.
    pub(crate) fn words(slots: u32) -> u64 {
        slots.div_ceil(BITS).into()
    }

    /// # Safety
    /// `words` are the words for these slots, zeros, and nothing else refers to them.
    pub(crate) unsafe fn new(words: *mut u64, slots: u32) -> Live {
        Live { words, slots }
    }

    /// The word of a slot below `slots`.
    #[inline(always)]
    fn word(&self, slot: Slot) -> *mut u64 {
        debug_assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.words.wrapping_add((slot / BITS) as usize)
    }

    #[inline]
    pub(crate) fn contains(&self, slot: Slot) -> bool {
        // SAFETY: the slot is one of those that have a word.
        slot < self.slots && unsafe { *self.word(slot) } >> (slot % BITS) & 1 != 0
    }

    /// Adds a slot, which is one of the table.
    #[inline(always)]
    pub(crate) fn insert(&mut self, slot: Slot) {
        // SAFETY: the table passes slots that it has made, so the slot has a word.
        unsafe { *self.word(slot) |= 1 << (slot % BITS) };
    }

    /// Removes a slot, which is one of the table.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: Slot) {
        // SAFETY: as above.
        unsafe { *self.word(slot) &= !(1 << (slot % BITS)) };
    }

    /// The first slot with an entry from `slot` on, and below `end`.
    pub(crate) fn next(&self, slot: Slot, end: Slot) -> Option<Slot> {
        let end = end.min(self.slots);
        let mut slot = slot;
        while slot < end {
            // SAFETY: the slot has a word.
            let word = unsafe { *self.word(slot) } >> (slot % BITS);
            if word != 0 {
                return Some(slot + word.trailing_zeros()).filter(|slot| *slot < end);
            }
            slot = (slot / BITS + 1) * BITS;
        }
        None
    }

    /// Removes all slots below `end`.
    pub(crate) fn clear(&mut self, end: Slot) {
        // SAFETY: these are words of slots.
        unsafe { self.words.write_bytes(0, Live::words(end.min(self.slots)) as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_in_order() {
        let mut words = [0_u64; 4];
        // SAFETY: 200 slots have 4 words.
        let mut live = unsafe { Live::new(words.as_mut_ptr(), 200) };
        for slot in [0, 1, 63, 64, 128, 130, 199] {
            live.insert(slot);
        }
        live.remove(1);
        let next = |from, end| live.next(from, end);
        assert_eq!([next(0, 200), next(1, 200), next(64, 200)], [Some(0), Some(63), Some(64)]);
        assert_eq!([next(65, 128), next(65, 131), next(129, 200)], [None, Some(128), Some(130)]);
        assert_eq!([next(199, 300), next(200, 300)], [Some(199), None]);
        assert!(live.contains(64) && !live.contains(65) && !live.contains(1000));
        live.clear(200);
        assert_eq!(live.next(0, 200), None);
    }
}
