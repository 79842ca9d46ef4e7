// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simplification of values under a path condition.
//!
//! ```text
//!   r1 = select v4 1 v5 2 0      on a path with v5 and not v4: 2
//! ```
//!
//! At a join point the conditions that distinguish the paths are lost, so values are simplified once before it.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::builder::Builder;
use super::state::{Byte, Region, SLOT_BYTES, State, Value};
use crate::bdd::Bdd;
use crate::graph::{Id, Kind};

impl Builder<'_> {
    pub(super) fn simplified_state(&mut self, mut state: State, path: Bdd) -> State {
        let present = std::mem::replace(&mut self.path, path);
        let mut known = FxHashMap::default();
        for frame in &mut state.frames {
            for register in &mut frame.registers {
                *register = match std::mem::replace(register, Value::Nothing) {
                    Value::Number(id) => Value::Number(self.narrowed(id, path, &mut known)),
                    other => self.simplified(other),
                };
            }
            let starts: Vec<i64> = frame.stack.keys().copied().collect();
            for at in starts {
                match frame.stack.get(&at).cloned() {
                    Some(Byte::Bits(id)) => {
                        let id = self.narrowed(id, path, &mut known);
                        frame.stack.insert(at, Byte::Bits(id));
                    }
                    Some(Byte::Of(places, 0)) if places.len() > 1 => {
                        let simplified = self.simplified(Value::Address(Rc::clone(&places)));
                        for number in 0..SLOT_BYTES as u8 {
                            let Some(byte) = frame.stack.get_mut(&(at + i64::from(number))) else { continue };
                            if *byte != Byte::Of(Rc::clone(&places), number) {
                                continue;
                            }
                            *byte = match &simplified {
                                Value::Number(id) => Byte::Bits(self.graph.slice(*id, 8 * u16::from(number), 8)),
                                Value::Address(places) => Byte::Of(Rc::clone(places), number),
                                Value::Nothing | Value::Low(_) => Byte::Nothing,
                            };
                        }
                    }
                    _ => {}
                }
            }
        }
        state.head = self.narrowed(state.head, path, &mut known);
        state.meta = self.narrowed(state.meta, path, &mut known);
        self.path = present;
        state
    }

    /// A select between constants without the arms that the path condition excludes.
    pub(super) fn narrowed(&mut self, id: Id, path: Bdd, known: &mut FxHashMap<Id, Id>) -> Id {
        if self.graph.node(id).kind != Kind::Select || !self.graph.selects_numbers(id) {
            return id;
        }
        if let Some(known) = known.get(&id) {
            return *known;
        }
        let narrowed = self.narrowed_select(id, path);
        known.insert(id, narrowed);
        narrowed
    }

    fn narrowed_select(&mut self, id: Id, path: Bdd) -> Id {
        let node = self.graph.node(id).clone();
        if node.kind != Kind::Select {
            return id;
        }
        let [pairs @ .., last] = node.args.as_slice() else { return id };
        let (mut rest, mut parts) = (path, Vec::new());
        for pair in pairs.chunks_exact(2) {
            let condition = self.conditions.of(&self.graph, pair[0]);
            let here = self.conditions.and(rest, condition);
            if here == Bdd::FALSE {
                continue;
            }
            let value = self.narrowed_select(pair[1], here);
            if here == rest {
                parts.push(value);
                return self.graph.select(parts);
            }
            let not = self.conditions.not(condition);
            rest = self.conditions.and(rest, not);
            parts.extend([pair[0], value]);
        }
        parts.push(self.narrowed_select(*last, rest));
        self.graph.select(parts)
    }

    /// Simplifies a value under the current path condition.
    pub(super) fn simplified(&mut self, value: Value) -> Value {
        let Value::Address(places) = &value else { return value };
        if places.len() == 1 && !matches!(places[0].1.region, Region::Number(_)) {
            return value;
        }
        let mut here = Vec::new();
        for (condition, place) in places.iter() {
            if self.conditions.and(self.path, *condition) != Bdd::FALSE {
                here.push((*condition, *place));
            }
        }
        if let [(condition, _)] = here.as_mut_slice() {
            *condition = Bdd::TRUE;
        }
        let is_number = here.iter().any(|(_, place)| matches!(place.region, Region::Number(_)));
        let zero = self.graph.number(0, 64);
        let numbers: Option<Vec<(Bdd, Id)>> = here
            .iter()
            .map(|(condition, place)| match place.region {
                Region::Number(id) => Some((*condition, id)),
                Region::Null => Some((*condition, zero)),
                _ => None,
            })
            .collect();
        match numbers {
            Some(numbers) if is_number => Value::Number(self.mux(&numbers, self.path)),
            _ if here.len() == places.len() => value,
            _ => Value::Address(here.into()),
        }
    }
}
