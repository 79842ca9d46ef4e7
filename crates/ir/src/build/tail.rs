// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that are cut and grow again: bytes past the cut are zeros then.
//!
//! ```text
//!   received  |==================|        kept, up to the shortest end
//!   cut       |==========|
//!   grown     |==========|000000000|
//! ```
//!
//! As long as the end is moved once, bytes past it cannot be read. When it is moved again, all bytes past the current
//! end become zeros.

use super::builder::Builder;
use super::offset::{OFFSET_BITS, Sum};
use super::state::State;
use crate::bdd::Bdd;
use crate::graph::{Compare, Id, Input, Kind};

impl Builder<'_> {
    /// Drops the bytes past the packet's end.
    pub(super) fn clear_past_tail(&mut self, state: &mut State) {
        let tail = state.tail;
        let zero = self.graph.number(0, 8);
        for (at, byte) in &mut state.packet {
            let is_kept = self.is_before(None, *at, tail);
            *byte = self.graph.select(vec![is_kept, *byte, zero]);
        }
        for overlay in &mut state.overlays {
            for (at, laid) in &mut overlay.bytes {
                let is_kept = self.is_before(Some(overlay.base), *at, tail);
                laid.byte = self.graph.select(vec![is_kept, laid.byte, zero]);
            }
        }
        state.kept = Some(match state.kept {
            None => tail,
            Some(kept) => {
                let is_less = self.compared_anywhere(Compare::SignedBelow, tail, kept);
                self.graph.select(vec![is_less, tail, kept])
            }
        });
    }

    /// A byte of the packet as received, or zero if it was cut off.
    pub(super) fn received_byte(&mut self, state: &State, base: Option<Id>, at: i64) -> Id {
        let byte = self.original(base, at);
        let Some(kept) = state.kept else { return byte };
        let (is_kept, zero) = (self.is_before(base, at, kept), self.graph.number(0, 8));
        self.graph.select(vec![is_kept, byte, zero])
    }

    fn is_before(&mut self, base: Option<Id>, at: i64, end: Id) -> Id {
        let mut offset = Sum::of(at);
        if let Some(base) = base {
            offset = offset.plus(&self.sum_of(base), 1);
        }
        let offset = self.offset(&offset);
        self.compared_anywhere(Compare::SignedBelow, offset, end)
    }

    /// The offset up to which bytes are those received, at a join point; some paths may have kept all.
    pub(super) fn joined_kept(&mut self, paths: &[(Bdd, State)]) -> Option<Id> {
        paths.iter().find_map(|(_, state)| state.kept)?;
        let length = self.graph.make(Kind::Input(Input::Length), Vec::new(), 16);
        let length = self.graph.fit(length, OFFSET_BITS);
        let ends: Vec<(Bdd, Id)> =
            paths.iter().map(|(condition, state)| (*condition, state.kept.unwrap_or(length))).collect();
        Some(self.mux(&ends, Bdd::TRUE))
    }
}
