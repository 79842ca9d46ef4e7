// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Visits of all entries, a number of slots at a time.

use crate::table::{FlowTable, Slot};

impl FlowTable {
    /// The slots of all entries, ascending.
    ///
    /// # Cost
    /// A bit for each slot used so far.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots_from(0)
    }

    /// The slots with entries from `from` on, ascending.
    ///
    /// # Cost
    /// A bit for each slot used so far, from `from` on.
    pub fn slots_from(&self, from: Slot) -> impl Iterator<Item = Slot> {
        let mut next = from;
        std::iter::from_fn(move || {
            let slot = self.slots.live.next(next, self.slots.made())?;
            next = slot + 1;
            Some(slot)
        })
    }

    /// Visits the entries of at most `count` slots from `cursor` on, ascending, and removes those for which `keep` does
    /// not hold; returns the cursor of the next call, `None` after the last slot. `keep` gets the slot, the key and the
    /// value.
    ///
    /// An entry that lives in one slot from the first call to the last is visited once. One that is replaced in between
    /// changes its slot: it may be visited twice or not at all.
    ///
    /// # Cost
    /// The entries of the slots in the order of memory, and for each that is removed what `remove` costs.
    pub fn sweep(
        &mut self,
        cursor: Slot,
        count: u32,
        mut keep: impl FnMut(Slot, &[u8], &mut [u8]) -> bool,
    ) -> Option<Slot> {
        let end = cursor.saturating_add(count);
        let mut next = cursor;
        while let Some(slot) = self.slots.live.next(next, end) {
            next = slot + 1;
            self.note_change(slot);
            let (key, value) = self.entry_mut(slot);
            if !keep(slot, key, value) {
                self.remove_slot(slot);
            }
        }
        (end < self.slots.made()).then_some(end)
    }

    /// Keeps the entries for which `keep` holds, ascending by slot.
    pub fn retain(&mut self, keep: impl FnMut(Slot, &[u8], &mut [u8]) -> bool) {
        self.sweep(0, u32::MAX, keep);
    }
}
