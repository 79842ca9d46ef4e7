// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reserved ring buffer records: private to the packet until they are submitted, so their bytes are values.
//!
//! ```text
//!   r9 = ringbuf_reserve(ring, 16)      v5 = call ringbuf_reserve (ring, 16, 0)
//!   *(u32 *)(r9 + 0) = r1               (bytes 0 to 3 are v3)
//!   ringbuf_submit(r9)                  v7 = call ringbuf_submit (v5, 0, bytes 0 to 3: v3)
//! ```
//!
//! A record begins with the old bytes of the ring buffer. Submit and discard write only the bytes that the program has
//! stored; a load of a byte that it has not stored is an effect.
//!
//! **Limits.** Accesses at an offset known only at run time are bounded, like those of the stack.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::op::Size;

use super::builder::Builder;
use super::state::{Record, SLOT_BYTES, State};
use crate::bdd::Bdd;
use crate::dataflow::{Argument, Laid};
use crate::graph::{Effect, Id};

impl Builder<'_> {
    pub(super) fn record_byte(&mut self, path: Bdd, state: &State, call: Id, at: i64) -> Id {
        let laid = state.records.get(&call).and_then(|record| record.get(&at)).copied();
        match laid {
            Some(Laid { when, byte }) if self.graph.as_const(when) == Some(1) => byte,
            Some(Laid { when, byte }) => {
                let old = self.old_byte(path, call, at);
                self.graph.select(vec![when, byte, old])
            }
            None => self.old_byte(path, call, at),
        }
    }

    /// The byte that the ring buffer holds there.
    fn old_byte(&mut self, path: Bdd, call: Id, at: i64) -> Id {
        let bit = self.conditions.node(&mut self.graph, path);
        let offset = self.graph.number(at as u64, 64);
        self.graph.effect(Effect::Load(Size::B), vec![bit, call, offset], 8)
    }

    /// Stores a byte where a bit holds.
    pub(super) fn store_record_byte(&mut self, state: &mut State, call: Id, at: i64, bit: Id, byte: Id) {
        let Some(record) = state.records.get_mut(&call) else { return };
        let laid = match record.get(&at) {
            Some(before) if self.graph.as_const(bit) != Some(1) => {
                Laid { when: self.graph.or(before.when, bit), byte: self.graph.select(vec![bit, byte, before.byte]) }
            }
            _ => Laid { when: bit, byte },
        };
        record.insert(at, laid);
    }

    /// The stored bytes of a record as arguments of the call that gives it back.
    pub(super) fn record_arguments(&self, state: &State, call: Id) -> Vec<(Argument, [Id; 2])> {
        let record = state.records.get(&call).into_iter().flatten();
        record.map(|(at, laid)| (Argument::Stored(*at as u32), [laid.when, laid.byte])).collect()
    }

    /// The records at a join point: those that are reserved on any of the paths.
    pub(super) fn joined_records(&mut self, paths: &[(Bdd, State)]) -> BTreeMap<Id, Record> {
        let calls: BTreeSet<Id> = paths.iter().flat_map(|(_, state)| state.records.keys().copied()).collect();
        calls.into_iter().map(|call| (call, self.one_record(paths, call))).collect()
    }

    /// On a path that has not reserved the record, its bytes do not matter.
    fn one_record(&mut self, paths: &[(Bdd, State)], call: Id) -> Record {
        let held: Vec<(Bdd, &Record)> =
            paths.iter().filter_map(|(condition, state)| Some((*condition, state.records.get(&call)?))).collect();
        if let [(_, first), rest @ ..] = held.as_slice()
            && rest.iter().all(|(_, other)| other == first)
        {
            return (*first).clone();
        }
        let (no, zero) = (self.graph.number(0, 1), self.graph.number(0, 8));
        let offsets: BTreeSet<i64> = held.iter().flat_map(|(_, record)| record.keys().copied()).collect();
        let slots: BTreeSet<i64> = offsets.iter().map(|at| at.div_euclid(SLOT_BYTES)).collect();
        let mut joined = Record::new();
        for slot in slots {
            let own: Vec<i64> = offsets.range(slot * SLOT_BYTES..(slot + 1) * SLOT_BYTES).copied().collect();
            let stored = |record: &Record| own.iter().any(|at| record.contains_key(at));
            let bytes: Vec<(Bdd, Vec<Id>)> = held
                .iter()
                .filter(|(_, record)| stored(record))
                .map(|(condition, record)| {
                    (*condition, own.iter().map(|at| record.get(at).map_or(zero, |laid| laid.byte)).collect())
                })
                .collect();
            let bytes = self.joined_piece(&bytes);
            for (at, byte) in own.into_iter().zip(bytes) {
                let whens: Vec<(Bdd, Id)> = held
                    .iter()
                    .map(|(condition, record)| (*condition, record.get(&at).map_or(no, |laid| laid.when)))
                    .collect();
                let when = self.mux(&whens, Bdd::TRUE);
                joined.insert(at, Laid { when, byte });
            }
        }
        joined
    }
}
