// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations: effects on map values; a load and a store in private memory, the stack and reserved records.

use flowloom_isa::op::{AtomicOp, Reg, Size};

use super::builder::Builder;
use super::state::{Place, Region, State, Value, bits_of, places, set};
use crate::bdd::Bdd;
use crate::graph::{Binary, Compare, Effect, Graph, Id};
use crate::refusal::Reason;

impl Builder<'_> {
    pub(super) fn atomic(
        &mut self,
        path: Bdd,
        state: &mut State,
        (op, size): (AtomicOp, Size),
        (base, off): (Reg, i64),
        src: Reg,
    ) -> Result<(), Reason> {
        let places = places(self.value(state, base))?;
        let operand = self.number(state, src)?;
        let compared = if op == AtomicOp::CmpXchg { self.number(state, Reg::R0)? } else { self.graph.number(0, 64) };
        let mut found = Vec::new();
        let mut care = Bdd::FALSE;
        for (condition, place) in places.iter().filter(|(_, place)| place.region != Region::Null) {
            let here = self.conditions.and(path, *condition);
            let old = match place.region {
                Region::Stack(_) => {
                    self.in_private(path, state, (op, size), (*condition, place, off), [operand, compared])?
                }
                Region::Value { call, .. } if state.records.contains_key(&call) => {
                    self.in_private(path, state, (op, size), (*condition, place, off), [operand, compared])?
                }
                _ => {
                    let bit = self.conditions.node(&mut self.graph, here);
                    let [base, offset] = self.value_address(place, off)?;
                    let args = vec![bit, base, offset, operand, compared];
                    self.graph.effect(Effect::Atomic(op, size), args, 64)
                }
            };
            found.push((here, old));
            care = self.conditions.or(care, here);
        }
        let old = self.mux(&found, care);
        match op {
            AtomicOp::CmpXchg => set(state, Reg::R0, Value::Number(old)),
            AtomicOp::Xchg
            | AtomicOp::Add { fetch: true }
            | AtomicOp::Or { fetch: true }
            | AtomicOp::And { fetch: true }
            | AtomicOp::Xor { fetch: true } => set(state, src, Value::Number(old)),
            _ => {}
        }
        Ok(())
    }

    /// The old value, 64 bits. Private memory changes only on the paths whose address points to it.
    fn in_private(
        &mut self,
        path: Bdd,
        state: &mut State,
        (op, size): (AtomicOp, Size),
        (condition, place, off): (Bdd, &Place, i64),
        [operand, compared]: [Id; 2],
    ) -> Result<Id, Reason> {
        let here = self.conditions.and(path, condition);
        let bytes = self.load_bytes(here, state, &[(Bdd::TRUE, *place)], off, size.bytes())?;
        let old = self.graph.concat(bytes);
        let cut = [operand, compared].map(|id| self.graph.slice(id, 0, bits_of(size)));
        let new = changed(&mut self.graph, op, old, cut);
        let bytes: Vec<Id> = (0..size.bytes() as u16).map(|byte| self.graph.slice(new, 8 * byte, 8)).collect();
        self.store_bytes(path, state, &[(condition, *place)], off, &bytes, Some(size))?;
        Ok(self.graph.fit(old, 64))
    }
}

fn changed(graph: &mut Graph, op: AtomicOp, old: Id, [operand, compared]: [Id; 2]) -> Id {
    match op {
        AtomicOp::Add { .. } => graph.binary(Binary::Add, old, operand),
        AtomicOp::Or { .. } => graph.or(old, operand),
        AtomicOp::And { .. } => graph.and(old, operand),
        AtomicOp::Xor { .. } => graph.binary(Binary::Xor, old, operand),
        AtomicOp::Xchg => operand,
        AtomicOp::CmpXchg => {
            let is_same = graph.compare(Compare::Equal, old, compared);
            graph.select(vec![is_same, operand, old])
        }
    }
}
