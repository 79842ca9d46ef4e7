// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array of values, with keys, places and the free list.

use std::collections::VecDeque;

use super::{Location, Parameters, Slot};

/// Keys, values and places by slot; slots that are free or rest.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    key_bytes: usize,
    value_bytes: usize,
    keys: Vec<u8>,
    values: Vec<u8>,
    locations: Vec<Option<Location>>,
    /// Free slots in the order of their release, each with the first cycle in which it may be used.
    free: VecDeque<(Slot, u64)>,
    rest_cycles: u64,
    now: u64,
}

impl Slots {
    /// As many slots as the table has entries, and one more for each cycle of rest: a cycle frees one slot at most.
    pub(super) fn new(parameters: &Parameters) -> Slots {
        let count = parameters.entries + parameters.rest_cycles;
        let (key_bytes, value_bytes) = (parameters.key_bytes as usize, parameters.value_bytes as usize);
        Slots {
            key_bytes,
            value_bytes,
            keys: vec![0; key_bytes * count as usize],
            values: vec![0; value_bytes * count as usize],
            locations: vec![None; count as usize],
            free: (0..count).map(|index| (Slot(index), 0)).collect(),
            rest_cycles: parameters.rest_cycles.into(),
            now: 0,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.locations.len() as u32
    }

    pub(super) fn stored(&self) -> usize {
        self.locations.len() - self.free.len()
    }

    /// Cycles pass.
    pub(super) fn pass_cycles(&mut self, cycles: u64) {
        self.now += cycles;
    }

    /// Takes the slot that has been free for longest, unless it rests.
    pub(super) fn allocate(&mut self, key: &[u8], location: Location) -> Option<Slot> {
        let (slot, _) = *self.free.front().filter(|&&(_, from)| from <= self.now)?;
        self.free.pop_front();
        let at = slot.index();
        self.keys[at * self.key_bytes..][..self.key_bytes].copy_from_slice(key);
        self.value_mut(slot).fill(0);
        self.locations[at] = Some(location);
        Some(slot)
    }

    pub(super) fn free(&mut self, slot: Slot) {
        self.locations[slot.index()] = None;
        self.free.push_back((slot, self.now + self.rest_cycles));
    }

    pub(super) fn key(&self, slot: Slot) -> &[u8] {
        &self.keys[slot.index() * self.key_bytes..][..self.key_bytes]
    }

    pub(super) fn value(&self, slot: Slot) -> &[u8] {
        &self.values[slot.index() * self.value_bytes..][..self.value_bytes]
    }

    pub(super) fn value_mut(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.values[slot.index() * self.value_bytes..][..self.value_bytes]
    }

    pub(super) fn location(&self, slot: Slot) -> Option<Location> {
        self.locations[slot.index()]
    }

    pub(super) fn set_location(&mut self, slot: Slot, location: Location) {
        self.locations[slot.index()] = Some(location);
    }

    /// Checks that each slot is either free or stored.
    pub(super) fn check_invariants(&self) {
        let mut free = vec![false; self.locations.len()];
        for &(slot, _) in &self.free {
            assert!(!std::mem::replace(&mut free[slot.index()], true), "{slot:?} is free twice");
            assert!(self.location(slot).is_none(), "{slot:?} is free and stored");
        }
        let neither = (0..free.len()).find(|&index| !free[index] && self.locations[index].is_none());
        assert_eq!(neither, None, "a slot is neither free nor stored");
    }
}
