// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State subsumption: whether a state is within one from which every path was verified, so that nothing new follows.
//!
//! Only live places distinguish states, and of numbers only precise ones. While paths from the old state are still
//! pending, both are incomplete: then every number counts that may be read at all ([`live`](super::live)). Ids are
//! names: they match if they are equal in the same places.

use super::marks::{Marks, Place};
use super::origin::Origins;
use super::stack::{Byte, Slot};
use super::state::State;
use super::value::{Address, Number, Region, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// By what is live and precise; all paths from the old state are verified.
    Settled,
    /// By everything that may be read, each number within the old one; paths from the old state are pending.
    Within,
    /// By everything that may be read, all of it equal: an infinite loop.
    Same,
}

/// A comparison of two states at an instruction.
pub(super) struct Comparison<'a> {
    origins: &'a Origins,
    mode: Mode,
    ids: Vec<(u32, u32)>,
}

impl Comparison<'_> {
    /// Whether `new` is within `old`, with the live places `live`.
    pub(super) fn is_within(origins: &Origins, mode: Mode, old: &State, live: &Marks, new: &State) -> bool {
        if old.at != new.at || old.frames.len() != new.frames.len() || old.held.len() != new.held.len() {
            return false;
        }
        let calls = old.frames.iter().zip(&new.frames);
        if calls.clone().any(|(old, new)| (old.call, old.callback) != (new.call, new.callback)) {
            return false;
        }
        let mut comparison = Comparison { origins, mode, ids: Vec::new() };
        let is_live = |place| live.has(place);
        for (frame, (old, new)) in calls.enumerate() {
            for number in 0..old.registers.len() {
                let (old, new) = (&old.registers[number], &new.registers[number]);
                if is_live(Place::Register { frame, number }) && !comparison.value(old, new) {
                    return false;
                }
            }
            // An uninitialised slot of the old stack was read as some number, if at all. The two may share a stack,
            // whose relations to the registers may differ all the same.
            let depth = old.stack.depth().max(new.stack.depth());
            for number in 0..depth {
                let (old, new) = (old.stack.slot(number), new.stack.slot(number));
                if is_live(Place::Slot { frame, number }) && !comparison.slot(old, new) {
                    return false;
                }
            }
        }
        let held = old.held.iter().zip(&new.held);
        if !held.clone().all(|(old, new)| comparison.id(old.reference, new.reference)) {
            return false;
        }
        match (old.locked, new.locked) {
            (None, None) => true,
            (Some(old), Some(new)) => old.region == new.region && comparison.id(old.id, new.id),
            _ => false,
        }
    }

    /// Whether two ids may name the same thing.
    fn id(&mut self, old: u32, new: u32) -> bool {
        if old == 0 || new == 0 {
            return old == new;
        }
        match self.ids.iter().find(|(known, name)| *known == old || *name == new) {
            Some(pair) => *pair == (old, new),
            None => {
                self.ids.push((old, new));
                true
            }
        }
    }

    fn value(&mut self, old: &Value, new: &Value) -> bool {
        match (old, new) {
            (Value::Unwritten, Value::Unwritten) => true,
            // A read of it would have been refused.
            (Value::Unwritten, _) => self.mode != Mode::Same,
            (Value::Number(old), Value::Number(new)) => self.number(old, new),
            (Value::Address(old), Value::Address(new)) => self.address(old, new),
            _ => false,
        }
    }

    fn number(&mut self, old: &Number, new: &Number) -> bool {
        // Remarks about an invalid address apply to this one too.
        let gone = old.was_address() || !new.was_address();
        match self.mode {
            Mode::Same => old.range == new.range,
            Mode::Settled if !self.origins.matters(old.origin) => gone,
            Mode::Settled | Mode::Within => {
                let links = match (old.link, new.link) {
                    (None, _) => true,
                    (Some(old), Some(new)) => old.plus == new.plus && self.id(old.family, new.family),
                    (Some(_), None) => false,
                };
                let rooms = match (old.room, new.room) {
                    (None, _) => true,
                    (Some(old), Some(new)) => old.fixed == new.fixed && self.id(old.id, new.id),
                    (Some(_), None) => false,
                };
                new.range.is_within(&old.range) && links && rooms && gone
            }
        }
    }

    fn address(&mut self, old: &Address, new: &Address) -> bool {
        let regions = match (old.to, new.to) {
            (Region::Record { reference: a, bytes: x }, Region::Record { reference: b, bytes: y }) => {
                x == y && self.id(a, b)
            }
            (a, b) => a == b,
        };
        let vars = match self.mode {
            Mode::Same => old.var == new.var,
            Mode::Settled | Mode::Within => new.var.is_within(&old.var),
        };
        let checked = match self.mode {
            Mode::Same => old.checked == new.checked,
            Mode::Settled | Mode::Within => old.checked <= new.checked,
        };
        regions && vars && checked && (old.fixed, old.nullable) == (new.fixed, new.nullable) && self.id(old.id, new.id)
    }

    fn slot(&mut self, old: &Slot, new: &Slot) -> bool {
        if self.mode == Mode::Same {
            return old.bytes == new.bytes && (old.whole().is_none() || self.value(&old.value, &new.value));
        }
        if let (Some((a, x)), Some((b, y))) = (old.whole(), new.whole())
            && x == y
        {
            if !self.value(&a, &b) {
                return false;
            }
        } else if old.is_address() {
            return false;
        } else if let Some((Value::Number(number), _)) = old.whole()
            && (self.mode == Mode::Within || self.origins.matters(number.origin))
        {
            return false;
        }
        let pairs = old.bytes.iter().zip(&new.bytes);
        // Bytes of an address are not bytes of a number.
        if new.is_address() && !old.is_address() {
            return false;
        }
        pairs.into_iter().all(|(old, new)| match (old, new) {
            (Byte::Zero, new) => *new == Byte::Zero,
            // Reads of uninitialised bytes are reported.
            (old, Byte::Unwritten) => *old == Byte::Unwritten,
            _ => true,
        })
    }
}
