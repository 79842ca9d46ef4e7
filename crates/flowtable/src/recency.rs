// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of last uses: a doubly linked list through the slots, and the time of each slot's last use.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers")]

use crate::prefetch::prefetch;
use crate::table::Slot;

/// No slot.
const NONE: u32 = u32::MAX;

/// A slot in the list. Zeros are a slot that is not in the list.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Link {
    newer: u32,
    older: u32,
    /// The number of uses of the table up to the last one of this slot; 0 if it is not in the list.
    time: u64,
}

/// Slots in the order of their last use.
#[derive(Debug)]
pub(crate) struct Recency {
    /// By slot.
    links: *mut Link,
    slots: u32,
    newest: u32,
    oldest: u32,
    clock: u64,
}

impl Recency {
    /// # Safety
    /// `links` are `slots` links, zeros, and nothing else refers to them.
    pub(crate) unsafe fn new(links: *mut Link, slots: u32) -> Recency {
        Recency { links, slots, newest: NONE, oldest: NONE, clock: 0 }
    }

    #[inline(always)]
    fn link(&mut self, slot: Slot) -> &mut Link {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: there are as many links as slots.
        unsafe { &mut *self.links.add(slot as usize) }
    }

    fn read(&self, slot: Slot) -> Link {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: there are as many links as slots.
        unsafe { *self.links.add(slot as usize) }
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: Slot) {
        prefetch(self.links.wrapping_add(slot as usize));
    }

    /// The links that change when the slot is used or removed.
    #[inline]
    pub(crate) fn prefetch_neighbours(&self, slot: Slot) {
        // A probe of another table may have any slot.
        if slot >= self.slots {
            return;
        }
        let Link { newer, older, .. } = self.read(slot);
        for slot in [newer, older].into_iter().filter(|slot| *slot != NONE) {
            self.prefetch(slot);
        }
    }

    /// Makes a slot the newest.
    #[inline]
    pub(crate) fn touch(&mut self, slot: Slot) {
        self.clock += 1;
        let time = self.clock;
        if self.newest == slot {
            self.link(slot).time = time;
            return;
        }
        self.forget(slot);
        let older = self.newest;
        *self.link(slot) = Link { newer: NONE, older, time };
        match older {
            NONE => self.oldest = slot,
            newest => self.link(newest).newer = slot,
        }
        self.newest = slot;
    }

    /// Removes a slot, if it is there.
    #[inline]
    pub(crate) fn forget(&mut self, slot: Slot) {
        let link = self.link(slot);
        let Link { newer, older, time } = *link;
        if time == 0 {
            return;
        }
        link.time = 0;
        match newer {
            NONE => self.newest = older,
            newer => self.link(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.link(older).newer = newer,
        }
    }

    pub(crate) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The slots used after a time, newest use first, with the times of their last uses.
    pub(crate) fn used_since(&self, time: u64) -> impl Iterator<Item = (u64, Slot)> {
        let mut slot = self.newest;
        std::iter::from_fn(move || {
            let found = (slot != NONE).then_some(slot)?;
            let link = self.read(found);
            slot = link.older;
            (link.time > time).then_some((link.time, found))
        })
    }

    /// Removes all slots; those below `made` have been used.
    pub(crate) fn clear(&mut self, made: u32) {
        // SAFETY: there are as many links as slots, and zeros are slots that are not in the list.
        unsafe { self.links.write_bytes(0, made.min(self.slots) as usize) };
        (self.newest, self.oldest) = (NONE, NONE);
    }

    /// Panics unless the list has `entries` slots and is the same in both directions, in the order of times.
    pub(crate) fn check_invariants(&self, entries: usize) {
        let (mut slot, mut newer, mut found, mut time) = (self.newest, NONE, 0, self.clock + 1);
        while slot != NONE {
            let link = self.read(slot);
            assert!(link.newer == newer && link.time < time && link.time > 0);
            (newer, slot, time) = (slot, link.older, link.time);
            found += 1;
            assert!(found <= entries);
        }
        assert_eq!((self.oldest, found), (newer, entries));
    }
}
