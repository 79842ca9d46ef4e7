// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contexts of an element, with the next victim of its policy and the next deadline at hand.
//!
//! A packet costs one hash lookup. Both orders are kept lazily: an entry of an order may stand too early, never too
//! late. So a packet that postpones a deadline or raises a rank leaves the order alone, and the entry moves when it
//! comes first: each move is paid for by a packet since the last one. Only [`Contexts::iter`] visits all contexts.

mod key;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use foldhash::quality::RandomState;

use crate::context::{Aging, Context};
use crate::layout::{NO_DEADLINE, RecordLayout};
use crate::model::Stateful;
pub(super) use key::KeyBytes;

/// The index of a stored context, valid until it is removed.
pub(super) type Slot = usize;

/// A stored context.
#[derive(Debug, Clone)]
struct Stored {
    key: KeyBytes,
    context: Context,
    /// Whether a packet has looked it up; false for a preloaded or restored context at first.
    is_looked_up: bool,
    /// Its time in `by_deadline`, not after its earliest deadline; [`NO_DEADLINE`] if it is not there.
    filed_deadline_ns: u64,
    /// Its rank in `by_eviction_rank`, not above its eviction rank; `None` if it is not there.
    filed_eviction_rank: Option<i128>,
}

/// Contexts by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Contexts {
    by_key: HashMap<KeyBytes, Slot, RandomState>,
    slots: Vec<Option<Stored>>,
    free_slots: Vec<Slot>,
    /// By filed deadline, then slot.
    by_deadline: BTreeSet<(u64, Slot)>,
    /// By filed eviction rank, then key. Empty under the policy `reject`.
    by_eviction_rank: BTreeMap<(i128, KeyBytes), Slot>,
}

impl Contexts {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        self.by_key.get(key).copied()
    }

    /// The context in a slot.
    pub(super) fn get(&self, slot: Slot) -> &Context {
        &self.stored(slot).context
    }

    #[allow(clippy::expect_used, reason = "a slot is in use until its context is removed")]
    fn stored(&self, slot: Slot) -> &Stored {
        self.slots[slot].as_ref().expect("the slot is in use")
    }

    #[allow(clippy::expect_used, reason = "a slot is in use until its context is removed")]
    fn stored_mut(&mut self, slot: Slot) -> &mut Stored {
        self.slots[slot].as_mut().expect("the slot is in use")
    }

    /// The contexts, unordered.
    pub(super) fn unordered(&self) -> impl Iterator<Item = (&[u8], &Context)> {
        self.slots.iter().flatten().map(|stored| (stored.key.as_ref(), &stored.context))
    }

    /// The contexts in the order of their keys.
    ///
    /// # Cost
    /// Sorts them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Context)> {
        let mut contexts: Vec<_> = self.unordered().collect();
        contexts.sort_unstable_by_key(|(key, _)| *key);
        contexts.into_iter()
    }

    /// Marks a context as looked up; returns whether it was not before.
    pub(super) fn mark_looked_up(&mut self, slot: Slot) -> bool {
        !std::mem::replace(&mut self.stored_mut(slot).is_looked_up, true)
    }

    /// Stores a context under a key that a packet has looked up and that has none.
    pub(super) fn insert(&mut self, stateful: &Stateful, layout: &RecordLayout, key: &[u8], context: &Context) {
        let slot = self.place(key, context);
        self.stored_mut(slot).is_looked_up = true;
        self.file(stateful, layout, slot);
    }

    /// Stores a context under a key before any packet, replacing the old one.
    pub(super) fn preload(&mut self, stateful: &Stateful, layout: &RecordLayout, key: &[u8], context: &Context) {
        match self.find(key) {
            Some(slot) => self.set(stateful, layout, slot, context),
            None => {
                let slot = self.place(key, context);
                self.file(stateful, layout, slot);
            }
        }
    }

    /// Stores a context under a key that has none, in neither order yet.
    fn place(&mut self, key: &[u8], context: &Context) -> Slot {
        let key = KeyBytes::from(key);
        let stored = Stored {
            key: key.clone(),
            context: context.clone(),
            is_looked_up: false,
            filed_deadline_ns: NO_DEADLINE,
            filed_eviction_rank: None,
        };
        let slot = self.free_slots.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(Some(stored));
        } else {
            self.slots[slot] = Some(stored);
        }
        self.by_key.insert(key, slot);
        slot
    }

    /// Replaces a context.
    pub(super) fn set(&mut self, stateful: &Stateful, layout: &RecordLayout, slot: Slot, context: &Context) {
        self.stored_mut(slot).context.copy_from(context);
        self.file(stateful, layout, slot);
    }

    /// A packet at `now_ns` has found the context: ages it and restarts its idle timer. An expired one is removed.
    pub(super) fn meet(&mut self, stateful: &Stateful, layout: &RecordLayout, slot: Slot, now_ns: u64) -> Aging {
        let context = &mut self.stored_mut(slot).context;
        let aging = context.age(stateful, layout, now_ns);
        if matches!(aging, Aging::Expired(_)) {
            self.remove(slot);
        } else {
            context.touch(layout, now_ns);
            self.file(stateful, layout, slot);
        }
        aging
    }

    /// Moves a context that stands too late in an order.
    fn file(&mut self, stateful: &Stateful, layout: &RecordLayout, slot: Slot) {
        let stored = self.stored(slot);
        if stored.context.earliest_deadline_ns(layout) < stored.filed_deadline_ns {
            self.file_deadline(layout, slot);
        }
        let stored = self.stored(slot);
        let rank = stored.context.eviction_rank(stateful);
        if rank.is_some_and(|rank| stored.filed_eviction_rank.is_none_or(|filed| rank < filed)) {
            self.file_eviction_rank(slot, rank);
        }
    }

    /// Moves a context to its place by deadline.
    fn file_deadline(&mut self, layout: &RecordLayout, slot: Slot) {
        let stored = self.stored_mut(slot);
        let deadline_ns = stored.context.earliest_deadline_ns(layout);
        let old_ns = std::mem::replace(&mut stored.filed_deadline_ns, deadline_ns);
        if old_ns != NO_DEADLINE {
            self.by_deadline.remove(&(old_ns, slot));
        }
        if deadline_ns != NO_DEADLINE {
            self.by_deadline.insert((deadline_ns, slot));
        }
    }

    /// Moves a context to its place by eviction rank.
    fn file_eviction_rank(&mut self, slot: Slot, rank: Option<i128>) {
        let stored = self.stored_mut(slot);
        let key = stored.key.clone();
        if let Some(old) = std::mem::replace(&mut stored.filed_eviction_rank, rank) {
            self.by_eviction_rank.remove(&(old, key.clone()));
        }
        if let Some(rank) = rank {
            self.by_eviction_rank.insert((rank, key), slot);
        }
    }

    /// Removes a context.
    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(stored) = self.slots[slot].take() else { return };
        self.by_key.remove(&stored.key);
        self.by_deadline.remove(&(stored.filed_deadline_ns, slot));
        if let Some(rank) = stored.filed_eviction_rank {
            self.by_eviction_rank.remove(&(rank, stored.key));
        }
        self.free_slots.push(slot);
    }

    pub(super) fn clear(&mut self) {
        *self = Contexts::default();
    }

    /// Ages every context to `now_ns`; expired ones are removed.
    ///
    /// # Cost
    /// Visits the contexts whose filed deadlines have passed.
    pub(super) fn sweep(&mut self, stateful: &Stateful, layout: &RecordLayout, now_ns: u64) {
        while let Some(&(filed_ns, slot)) = self.by_deadline.first()
            && filed_ns <= now_ns
        {
            // Aging changes neither registers nor the time of the last packet, which determine the eviction order.
            match self.stored_mut(slot).context.age(stateful, layout, now_ns) {
                Aging::Expired(_) => self.remove(slot),
                Aging::Live | Aging::Succeeded(_) => self.file_deadline(layout, slot),
            }
        }
    }

    /// The context that the policy evicts, if any.
    pub(super) fn victim(&mut self, stateful: &Stateful) -> Option<Slot> {
        loop {
            let ((filed, _), &slot) = self.by_eviction_rank.first_key_value()?;
            let rank = self.get(slot).eviction_rank(stateful);
            // All others stand after the first one, and have at least the ranks by which they stand.
            if rank == Some(*filed) {
                return Some(slot);
            }
            self.file_eviction_rank(slot, rank);
        }
    }

    /// Checks that keys, slots and both orders belong together, and that no context stands too late in an order.
    ///
    /// # Panics
    /// If not: the machine itself is wrong.
    pub(super) fn check_invariants(&self, stateful: &Stateful, layout: &RecordLayout) {
        let (mut deadlines, mut ranks) = (0, 0);
        let free_slots: HashSet<Slot> = self.free_slots.iter().copied().collect();
        for (slot, stored) in self.slots.iter().enumerate() {
            let Some(stored) = stored else {
                assert!(free_slots.contains(&slot), "slot {slot} is neither in use nor free");
                continue;
            };
            assert_eq!(self.by_key.get(stored.key.as_ref()), Some(&slot), "the key leads elsewhere");
            let deadline_ns = stored.context.earliest_deadline_ns(layout);
            assert!(stored.filed_deadline_ns <= deadline_ns, "slot {slot} stands after its deadline");
            if stored.filed_deadline_ns != NO_DEADLINE {
                assert!(self.by_deadline.contains(&(stored.filed_deadline_ns, slot)), "slot {slot} has no deadline");
                deadlines += 1;
            }
            let rank = stored.context.eviction_rank(stateful);
            assert_eq!(stored.filed_eviction_rank.is_some(), rank.is_some(), "slot {slot} cannot be evicted");
            if let Some(filed) = stored.filed_eviction_rank {
                assert!(Some(filed) <= rank, "slot {slot} stands after its eviction rank");
                assert_eq!(self.by_eviction_rank.get(&(filed, stored.key.clone())), Some(&slot));
                ranks += 1;
            }
        }
        assert_eq!(self.slots.len(), self.by_key.len() + free_slots.len(), "free slots");
        assert_eq!(self.by_deadline.len(), deadlines, "contexts by deadline");
        assert_eq!(self.by_eviction_rank.len(), ranks, "contexts by eviction rank");
    }
}

#[cfg(test)]
mod tests;
