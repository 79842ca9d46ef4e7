// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contexts of an element, with the next victim of its policy at hand.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use crate::context::{Aging, Context};
use crate::layout::RecordLayout;
use crate::model::Stateful;

/// Contexts by key.
///
/// If the element evicts, an index orders the contexts for eviction, so that a new flow in a full table takes
/// logarithmic time. Under `reject` there is no index.
#[derive(Debug, Clone, Default)]
pub(super) struct Contexts {
    by_key: BTreeMap<Vec<u8>, Context>,
    /// By eviction order, then key.
    by_eviction_rank: BTreeSet<(i128, Vec<u8>)>,
}

impl Contexts {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Context> {
        self.by_key.get(key)
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, Vec<u8>, Context> {
        self.by_key.iter()
    }

    /// Stores a context under a key, replacing the old one.
    pub(super) fn put(&mut self, stateful: &Stateful, key: &[u8], context: Context) {
        let eviction_rank = context.eviction_rank(stateful);
        let old = match self.by_key.get_mut(key) {
            Some(place) => std::mem::replace(place, context).eviction_rank(stateful),
            None => {
                self.by_key.insert(key.to_vec(), context);
                None
            }
        };
        if old != eviction_rank {
            self.by_eviction_rank.extend(eviction_rank.map(|eviction_rank| (eviction_rank, key.to_vec())));
            if let Some(old) = old {
                self.by_eviction_rank.remove(&(old, key.to_vec()));
            }
        }
    }

    pub(super) fn remove(&mut self, stateful: &Stateful, key: &[u8]) {
        if let Some(eviction_rank) = self.by_key.remove(key).and_then(|context| context.eviction_rank(stateful)) {
            self.by_eviction_rank.remove(&(eviction_rank, key.to_vec()));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Contexts::default();
    }

    /// Ages every context to `now_ns`; expired ones are removed.
    pub(super) fn sweep(&mut self, stateful: &Stateful, layout: &RecordLayout, now_ns: u64) {
        let by_eviction_rank = &mut self.by_eviction_rank;
        self.by_key.retain(|key, context| {
            // Aging changes neither registers nor the time of the last packet, which determine the eviction order.
            let stays = !matches!(context.age(stateful, layout, now_ns), Aging::Expired(_));
            if let (false, Some(eviction_rank)) = (stays, context.eviction_rank(stateful)) {
                by_eviction_rank.remove(&(eviction_rank, key.clone()));
            }
            stays
        });
    }

    /// The key of the context that the policy evicts, if any.
    pub(super) fn victim(&self) -> Option<&Vec<u8>> {
        self.by_eviction_rank.first().map(|(_, key)| key)
    }

    /// Checks that the index has every context that can be evicted, at its current position.
    ///
    /// # Panics
    /// If not: the machine itself is wrong.
    pub(super) fn check_invariants(&self, stateful: &Stateful) {
        let eviction_rank =
            self.by_key.iter().filter_map(|(key, context)| Some((context.eviction_rank(stateful)?, key.clone())));
        assert_eq!(eviction_rank.collect::<BTreeSet<_>>(), self.by_eviction_rank);
    }
}
