// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocation of slots: a stack of free ones, then the next that was never used.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers")]

use crate::live::Live;
use crate::prefetch::prefetch;
use crate::raw::RawTable;
use crate::table::Slot;

/// Free slots, used slots, and the spare one.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The free slots, the one freed last at the end.
    stack: *mut Slot,
    free: u32,
    /// The slots used so far are those below.
    made: u32,
    slots: u32,
    /// The slot kept apart, if any.
    pub(crate) spare: Option<Slot>,
    pub(crate) live: Live,
}

impl Slots {
    /// # Safety
    /// `stack` has room for `slots` slots, and nothing else refers to it.
    pub(crate) unsafe fn new(stack: *mut Slot, slots: u32, live: Live) -> Slots {
        Slots { stack, free: 0, made: 0, slots, spare: None, live }
    }

    /// The slots used so far are those below.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// The slot freed last, or the next that was never used.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Slot {
        if self.free > 0 {
            self.free -= 1;
            // SAFETY: there are that many slots on the stack.
            unsafe { *self.stack.add(self.free as usize) }
        } else {
            self.next_unused()
        }
    }

    /// The spare slot, or the next that was never used.
    #[inline(always)]
    pub(crate) fn take_spare(&mut self) -> Slot {
        match self.spare.take() {
            Some(spare) => spare,
            None => self.next_unused(),
        }
    }

    #[inline(always)]
    fn next_unused(&mut self) -> Slot {
        // There is one slot more than entries, so that this is a bug.
        if self.made == self.slots {
            exhausted();
        }
        self.made += 1;
        self.made - 1
    }

    /// Adds a slot to the free ones.
    #[inline(always)]
    pub(crate) fn release(&mut self, slot: Slot) {
        if self.free == self.slots {
            exhausted();
        }
        // SAFETY: there is room for all slots.
        unsafe { *self.stack.add(self.free as usize) = slot };
        self.free += 1;
    }

    /// Prefetches the entry of the slot that a new key gets after `others` other ones.
    #[inline(always)]
    pub(crate) fn prefetch(&self, raw: &RawTable, others: u32) {
        if let Some(at) = self.free.checked_sub(others + 1) {
            // SAFETY: there are more slots on the stack.
            prefetch(raw.entry(unsafe { *self.stack.add(at as usize) }));
        }
    }

    /// The free slots, the one freed last at the end.
    pub(crate) fn free(&self) -> &[Slot] {
        // SAFETY: there are that many slots on the stack, and they are not changed meanwhile.
        unsafe { std::slice::from_raw_parts(self.stack, self.free as usize) }
    }

    pub(crate) fn clear(&mut self) {
        self.live.clear(self.made);
        (self.free, self.made, self.spare) = (0, 0, None);
    }
}

#[cold]
#[inline(never)]
fn exhausted() -> ! {
    unreachable!("more slots are used or free than there are");
}
