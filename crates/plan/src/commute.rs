// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commutation of the updates that packets make to a map.
//!
//! **Goal.** A scheduler may let packets overtake each other only where no effect before it depends on their order. For
//! updates this holds if they commute: whatever the inputs `x` and `y` of two packets are, `f_x(f_y(v)) = f_y(f_x(v))`
//! for all values `v` of the map, bit for bit at its full width. Then several cores may each keep values of their own
//! as well, which are summed when they are read ([`sums`]).

use std::collections::BTreeMap;

use flowloom_ir::{Binary, Dataflow, Effect, Id, Kind};
use flowloom_isa::op::AtomicOp;

use crate::tables::{Uses, uses};

/// The operators under which updates of a word commute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    /// Addition and subtraction modulo the size of the word.
    Add,
    Or,
    And,
    Xor,
}

/// An update of a word: `word = word op x`, with `x` independent of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update {
    /// The operator.
    pub operator: Operator,
    /// The offset of the word in the value, if it is a constant.
    pub offset: Option<u64>,
    /// The bytes of the word.
    pub bytes: u64,
}

/// By map that packets access, the updates that they make, if all of them commute and no packet observes the values:
/// their order does not matter, and neither does who makes them. `None` for other maps.
pub fn sums(dataflow: &Dataflow) -> BTreeMap<u32, Option<Vec<Update>>> {
    uses(dataflow).into_iter().map(|(map, uses)| (map, commuting(dataflow, &uses))).collect()
}

impl Update {
    fn commutes_with(&self, other: &Update) -> bool {
        let is_apart = match (self.offset, other.offset) {
            (Some(a), Some(b)) => a + self.bytes <= b || b + other.bytes <= a,
            _ => false,
        };
        let is_same_word = self.offset.is_some() && self.offset == other.offset && self.bytes == other.bytes;
        // A carry leaves the narrower of two words that overlap; bitwise operators have none.
        is_apart || self.operator == other.operator && (self.operator != Operator::Add || is_same_word)
    }
}

/// Whether all updates of a map by packets commute, and no packet observes its values.
///
/// True if and only if all of this holds; each condition is sufficient only together with the others:
///
/// 1. No entry is inserted, deleted or evicted, and lookups leave no trace (not an LRU map).
/// 2. Nothing but the updates depends on a loaded value or on the result of an atomic operation: no output, and no
///    predicate, address or operand of any effect.
/// 3. Each update is `word = word op x`, where `op` is addition, subtraction of `x`, `or`, `and` or `xor`, at the full
///    width of the word: an atomic operation, or a store of `load op x` with the load from the same address, of the
///    same size and under the same predicate (or under none). Between load and store, operations may be chained, and
///    bits above the word be added or dropped; bits of the word may not. So `v = (v & 255) + x` is none.
/// 4. Two updates of words that may overlap have the same operator; if it is addition, they have the same constant
///    offset and the same size.
pub(crate) fn commutes(dataflow: &Dataflow, uses: &Uses) -> bool {
    commuting(dataflow, uses).is_some()
}

/// The updates of a map, if they commute.
fn commuting(dataflow: &Dataflow, uses: &Uses) -> Option<Vec<Update>> {
    let graph = &dataflow.graph;
    let notes_use = |id: &Id| {
        let map = dataflow.access(*id).and_then(|access| access.map);
        map.is_some_and(|map| dataflow.remembers_use(map))
    };
    if !uses.entries.is_empty() || uses.lookups.iter().any(notes_use) {
        return None;
    }
    let mut is_dependent = vec![false; graph.nodes().len()];
    for id in graph.ids() {
        let is_source = uses.loads.contains(&id) || uses.atomics.contains(&id);
        is_dependent[id.index()] = is_source || graph.node(id).args.iter().any(|arg| is_dependent[arg.index()]);
    }
    if dataflow.ending.nodes().any(|id| is_dependent[id.index()]) {
        return None;
    }
    let updates = Updates { dataflow, uses, is_dependent };
    let mut all: Vec<Update> = Vec::new();
    for id in graph.ids().filter(|id| matches!(graph.node(*id).kind, Kind::Effect(_))) {
        let is_free = graph.node(id).args.iter().all(|arg| !updates.is_dependent[arg.index()]);
        let is_update = uses.stores.contains(&id) || uses.atomics.contains(&id);
        match updates.update(id) {
            Some(update) if is_update => all.push(update),
            None if is_free && !is_update => {}
            _ => return None,
        }
    }
    let is_commuting = |(at, update): (usize, &Update)| all[at..].iter().all(|other| update.commutes_with(other));
    all.iter().enumerate().all(is_commuting).then_some(all)
}

struct Updates<'a> {
    dataflow: &'a Dataflow,
    uses: &'a Uses,
    /// By node, whether it depends on the values of the map.
    is_dependent: Vec<bool>,
}

impl Updates<'_> {
    fn is_dependent(&self, id: Id) -> bool {
        self.is_dependent[id.index()]
    }

    /// The update that a store or an atomic operation makes.
    fn update(&self, id: Id) -> Option<Update> {
        let graph = &self.dataflow.graph;
        let node = graph.node(id);
        let (size, operator, free) = match node.kind {
            Kind::Effect(Effect::Atomic(op, size)) => (size, atomic(op)?, node.args.as_slice()),
            Kind::Effect(Effect::Store(size)) => {
                let bits = 8 * size.bytes() as u16;
                (size, self.operator(node.args[3], bits, id)??, &node.args[..3])
            }
            _ => return None,
        };
        let is_free = free.iter().all(|arg| !self.is_dependent(*arg));
        is_free.then_some(Update { operator, offset: graph.as_const(node.args[2]), bytes: size.bytes() as u64 })
    }

    /// The operator by which the low `bits` bits of a node come from the word that a store overwrites: `Some(None)` for
    /// the word itself, `None` if there is no single one.
    fn operator(&self, id: Id, bits: u16, store: Id) -> Option<Option<Operator>> {
        let graph = &self.dataflow.graph;
        let node = graph.node(id);
        if node.bits < bits {
            return None;
        }
        match (node.kind, node.args.as_slice()) {
            (Kind::Effect(Effect::Load(size)), [predicate, address @ ..]) => {
                let store = graph.node(store);
                let is_loaded = *predicate == store.args[0] || graph.as_const(*predicate) == Some(1);
                let is_word = self.uses.loads.contains(&id) && store.kind == Kind::Effect(Effect::Store(size));
                (is_word && is_loaded && *address == store.args[1..3]).then_some(None)
            }
            (Kind::Slice { low: 0 } | Kind::SignExtend, [inner]) | (Kind::Concat, [inner, ..]) => {
                self.operator(*inner, bits, store)
            }
            (Kind::Binary(op), [a, b]) => {
                let (word, own) = match (self.is_dependent(*a), self.is_dependent(*b), op) {
                    (true, false, Binary::Add | Binary::Sub) | (false, true, Binary::Add) => (a, Operator::Add),
                    (true, true, _) | (false, false, _) => return None,
                    (_, _, Binary::Or) => (a, Operator::Or),
                    (_, _, Binary::And) => (a, Operator::And),
                    (_, _, Binary::Xor) => (a, Operator::Xor),
                    _ => return None,
                };
                let word = if self.is_dependent(*word) { *word } else { *b };
                let inner = self.operator(word, bits, store)?;
                inner.is_none_or(|inner| inner == own).then_some(Some(own))
            }
            _ => None,
        }
    }
}

fn atomic(op: AtomicOp) -> Option<Operator> {
    match op {
        AtomicOp::Add { .. } => Some(Operator::Add),
        AtomicOp::Or { .. } => Some(Operator::Or),
        AtomicOp::And { .. } => Some(Operator::And),
        AtomicOp::Xor { .. } => Some(Operator::Xor),
        AtomicOp::Xchg | AtomicOp::CmpXchg => None,
    }
}

#[cfg(test)]
mod tests;
