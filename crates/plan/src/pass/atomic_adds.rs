// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic counters.
//!
//! **Goal.** A load, add and store of a value become one atomic add inside of the table: additions to the same entry,
//! by the same packet or the next one, commute.
//!
//! ```text
//!   v5 = load.dw if v1 v4 + 8
//!   v6 = add v5 v2
//!   store.dw if v3 v4 + 8 v6        atomic add.dw if v3 v4 + 8 v2
//! ```
//!
//! **Steps.** A load whose only user is one adder, the only users of the adder being stores to the address of the load,
//! with no other write to that map in between. After a join point the adder's operand is a select of loads: then the
//! predicate of each store has to imply the load from its own address.
//!
//! **Limits.** Values of 32 and 64 bits, as atomic operations have.

use std::collections::BTreeMap;

use flowloom_ir::pass::{rebuilt, same};
use flowloom_ir::{Binary, Dataflow, Effect, Id, Kind, Predicates};
use flowloom_isa::op::{AtomicOp, Size};

use crate::target::Target;

struct AtomicAdds<'a> {
    dataflow: &'a Dataflow,
    users: BTreeMap<Id, Vec<Option<Id>>>,
    predicates: Predicates,
}

pub(super) fn run(dataflow: &Dataflow, _: &Target) -> Dataflow {
    let mut counters = AtomicAdds { dataflow, users: users(dataflow), predicates: Predicates::new(&dataflow.graph) };
    let mut places: BTreeMap<Id, Id> = BTreeMap::new();
    rebuilt(dataflow, |graph, id, node| {
        let stored = match node.kind {
            Kind::Effect(Effect::Store(size)) => counters.added(id, size).map(|amount| (size, amount)),
            _ => None,
        };
        let Some((size, amount)) = stored else {
            let new = same(graph, node);
            places.insert(id, new);
            return new;
        };
        let amount = places[&amount];
        let zero = graph.number(0, 64);
        let amount = graph.fit(amount, 64);
        let args = vec![node.args[0], node.args[1], node.args[2], amount, zero];
        graph.effect(Effect::Atomic(AtomicOp::Add { fetch: false }, size), args, 64)
    })
}

/// The users of each node; `None` stands for the ending.
fn users(dataflow: &Dataflow) -> BTreeMap<Id, Vec<Option<Id>>> {
    let mut users: BTreeMap<Id, Vec<Option<Id>>> = BTreeMap::new();
    for id in dataflow.used() {
        for arg in &dataflow.graph.node(id).args {
            users.entry(*arg).or_default().push(Some(id));
        }
    }
    dataflow.ending.nodes().for_each(|id| users.entry(id).or_default().push(None));
    users
}

impl AtomicAdds<'_> {
    /// The addend of a store that only adds to the stored value.
    fn added(&mut self, store: Id, size: Size) -> Option<Id> {
        let graph = &self.dataflow.graph;
        if !matches!(size, Size::W | Size::Dw) {
            return None;
        }
        let sum = graph.node(store).args[3];
        let terms = &graph.node(sum).args;
        if graph.node(sum).kind != Kind::Binary(Binary::Add) || terms[0] == terms[1] || !self.is_only_stored(sum, size)
        {
            return None;
        }
        let place = (0..2).find(|place| self.is_found(terms[*place], sum, store, size))?;
        Some(terms[1 - place])
    }

    /// Whether an adder is used by stores only.
    fn is_only_stored(&self, sum: Id, size: Size) -> bool {
        self.users.get(&sum).is_some_and(|all| {
            all.iter().all(|user| {
                user.is_some_and(|user| {
                    let node = self.dataflow.graph.node(user);
                    node.kind == Kind::Effect(Effect::Store(size))
                        && node.args[3] == sum
                        && !node.args[..3].contains(&sum)
                })
            })
        })
    }

    /// Whether an operand is the value that the store overwrites, and has no other user.
    fn is_found(&mut self, term: Id, sum: Id, store: Id, size: Size) -> bool {
        let graph = &self.dataflow.graph;
        let only = |id: Id, user: Id| self.users.get(&id).is_some_and(|all| all.as_slice() == [Some(user)]);
        let is_load = |id: Id| graph.node(id).kind == Kind::Effect(Effect::Load(size));
        let is_own = |id: Id| is_load(id) && graph.node(id).args[1..] == graph.node(store).args[1..3];
        if !only(term, sum) {
            return false;
        }
        if is_own(term) {
            return self.is_untouched(term, store);
        }
        let node = graph.node(term);
        let (Kind::Select, Some((last, pairs))) = (node.kind, node.args.split_last()) else { return false };
        let values: Vec<Id> = pairs.chunks_exact(2).map(|pair| pair[1]).chain([*last]).collect();
        let conditions: Vec<Id> = pairs.chunks_exact(2).map(|pair| pair[0]).collect();
        let Some(own) = values.iter().position(|value| is_own(*value)) else { return false };
        if !values.iter().all(|value| is_load(*value) && only(*value, term)) {
            return false;
        }
        let predicate = graph.node(store).args[0];
        let before = conditions[..own].iter().all(|other| self.predicates.exclude(graph, predicate, *other));
        let chosen = conditions.get(own).is_none_or(|own| self.predicates.implies(graph, predicate, *own));
        before && chosen && self.is_untouched(values[own], store)
    }

    /// Whether this packet does not write the map between a load and a store.
    fn is_untouched(&mut self, load: Id, store: Id) -> bool {
        let dataflow = self.dataflow;
        let Some(own) = dataflow.access(store) else { return false };
        let predicate = dataflow.graph.node(store).args[0];
        dataflow.graph.ids().skip_while(|id| *id <= load).take_while(|id| *id < store).all(|id| {
            dataflow.access(id).is_none_or(|access| {
                let other = dataflow.graph.node(id).args[0];
                !access.writes() || access.map != own.map || self.predicates.exclude(&dataflow.graph, predicate, other)
            })
        })
    }
}
