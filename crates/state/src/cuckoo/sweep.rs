// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sweep: one slot a step is examined, so that expired entries are removed whether packets come or not.

use super::{Cuckoo, Slot};

impl Cuckoo {
    /// Examines the next slot and removes its entry if `expired` says so of its key and value. Returns the slot
    /// removed.
    ///
    /// Slots do not move, so each entry is examined once in [`Cuckoo::sweep_period`] calls.
    pub fn sweep(&mut self, expired: impl FnOnce(&[u8], &[u8]) -> bool) -> Option<Slot> {
        let slot = Slot(self.sweep_at);
        self.sweep_at = (self.sweep_at + 1) % self.slots.count();
        let stored = self.location(slot).is_some();
        if !stored || !expired(self.key(slot), self.value(slot)) {
            return None;
        }
        let key = self.key(slot).to_vec();
        self.delete(&key)
    }

    /// Calls of [`Cuckoo::sweep`] in which each slot is examined once.
    pub fn sweep_period(&self) -> u32 {
        self.slots.count()
    }
}
