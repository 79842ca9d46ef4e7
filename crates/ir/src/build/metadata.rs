// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata area before the packet. It moves along with the start of the packet, and does not leave with it.
//!
//! ```text
//!   meta ──► data_meta … data ──► packet … data_end
//! ```
//!
//! Its bytes are bytes of the packet at offsets before the start; its length is the difference of both starts.

use std::collections::BTreeMap;

use super::builder::Builder;
use super::call::{FIRST_HEAD, INVALID};
use super::offset::{OFFSET_BITS, Sum};
use super::state::State;
use crate::bdd::Bdd;
use crate::graph::{Compare, Id};
use crate::refusal::Reason;

/// The maximum length in bytes [Linux include/linux/skbuff.h].
const MAX_BYTES: u64 = 252;
/// -EACCES
const NO_ACCESS: u64 = -13i64 as u64;

impl Builder<'_> {
    /// Moves the start of the area: 0, or an error number [Linux net/core/filter.c].
    pub(super) fn adjust_meta(&mut self, state: &mut State) -> Result<Id, Reason> {
        let by = self.number_argument(state, 2)?;
        let by = self.graph.slice(by, 0, OFFSET_BITS);
        let by = self.sum_of(by);
        let (head, new) = (self.sum_of(state.head), self.sum_of(state.meta).plus(&by, 1));
        let len = self.offset(&head.plus(&new, -1));
        let new = self.offset(&new);
        let first = self.graph.number(FIRST_HEAD as u64, OFFSET_BITS);
        let zero = self.graph.number(0, OFFSET_BITS);
        let is_before = self.compared_anywhere(Compare::SignedBelow, new, first);
        let is_behind = self.compared_anywhere(Compare::SignedBelow, len, zero);
        let invalid = self.graph.or(is_before, is_behind);
        let (rest, none) = (self.graph.slice(len, 0, 2), self.graph.number(0, 2));
        let whole = self.compared_anywhere(Compare::Equal, rest, none);
        let most = self.graph.number(MAX_BYTES, OFFSET_BITS);
        let is_long = self.compared_anywhere(Compare::SignedBelow, most, len);
        let odd = self.graph.not(whole);
        let refused = self.graph.or(odd, is_long);
        state.meta = self.graph.select(vec![invalid, state.meta, refused, state.meta, new]);
        let errors = [INVALID, NO_ACCESS, 0].map(|error| self.graph.number(error, 64));
        Ok(self.graph.select(vec![invalid, errors[0], refused, errors[1], errors[2]]))
    }

    /// The length of the area; `None` if it is known to be empty.
    pub(super) fn metadata_bytes(&mut self, state: &State) -> Option<Sum> {
        if state.meta == state.head {
            return None;
        }
        let len = self.sum_of(state.head).plus(&self.sum_of(state.meta), -1);
        Some(len)
    }

    /// Moves the area along with the start of the packet.
    pub(super) fn move_metadata(&mut self, state: &mut State, new_head: Id, fine: Id) {
        let Some(len) = self.metadata_bytes(state) else {
            state.meta = new_head;
            return;
        };
        let (old, new) = (self.sum_of(state.head), self.sum_of(new_head));
        let len = self.offset(&len);
        let most = self.possible(len).and_then(|all| all.last().copied());
        let most = most.filter(|most| *most <= MAX_BYTES).unwrap_or(MAX_BYTES) as i64;
        let from = self.packet_place(&old.clone().plus(&Sum::of(-most), 1));
        let to = self.packet_place(&new.clone().plus(&Sum::of(-most), 1));
        self.note_access(self.path, from.moved, from.offset + most);
        self.note_access(self.path, to.moved, to.offset + most);
        let bytes = self.packet_bytes(state, from.moved, from.offset, most as usize);
        for (number, byte) in (0..).zip(bytes) {
            // The last bytes are present if any are.
            let least = self.graph.number((most - number - 1) as u64, OFFSET_BITS);
            let is_said = self.compared_anywhere(Compare::SignedBelow, least, len);
            let when = self.graph.and(fine, is_said);
            self.write_packet(state, to.moved, to.offset + number, &[byte], when);
        }
        let moved = self.sum_of(state.meta).plus(&new, 1).plus(&old, -1);
        state.meta = self.offset(&moved);
    }

    /// The start of the area at a join point.
    pub(super) fn joined_meta(&mut self, paths: &[(Bdd, State)], head: Id) -> Id {
        if paths.iter().all(|(_, state)| state.meta == state.head) {
            return head;
        }
        let starts: Vec<(Bdd, Id)> = paths.iter().map(|(condition, state)| (*condition, state.meta)).collect();
        self.mux(&starts, Bdd::TRUE)
    }

    /// The bytes that leave with the packet.
    pub(super) fn without_metadata(&self, state: &State) -> BTreeMap<i64, Id> {
        let mut packet = state.packet.clone();
        if let Some(head) = self.graph.as_const(state.head).filter(|_| state.meta != state.head) {
            packet.retain(|at, _| *at >= i64::from(head as i32));
        }
        packet
    }
}
