//! Counters.
//!
//! **Goal.** A value that is only added to is added to by one effect, inside of its table: whoever counts in the same entry, in the
//! same packet or in the next one, comes to the same in any order.
//!
//! ```text
//!   v5 = load.dw if v1 v4 + 8
//!   v6 = add v5 v2
//!   store.dw if v3 v4 + 8 v6        atomic add.dw if v3 v4 + 8 v2
//! ```
//!
//! **Steps.** A load whose value nobody uses but one sum, the sum used by nobody but one store to where the load was from, and no
//! other write to that map between the two.
//!
//! **Limits.** Values of 32 and 64 bits: what atomic operations are there for.

use std::collections::BTreeMap;

use flowloom_bpf::op::{AtomicOp, Size};

use super::{rebuilt, same};
use crate::build::Dataflow;
use crate::graph::{Binary, Effect, Graph, Id, Kind};

pub(super) fn run(dataflow: &Dataflow) -> Dataflow {
    let users = users(dataflow);
    rebuilt(dataflow, |graph, id, node| {
        let Kind::Effect(Effect::Store(size)) = node.kind else { return same(graph, node) };
        let Some(amount) = added(dataflow, &users, id, size) else { return same(graph, node) };
        // What is added lies before the sum, so it has been made.
        let Some(amount) = summand(graph, node.args[3], amount) else { return same(graph, node) };
        let zero = graph.number(0, 64);
        let amount = graph.fit(amount, 64);
        let args = vec![node.args[0], node.args[1], node.args[2], amount, zero];
        graph.effect(Effect::Atomic(AtomicOp::Add { fetch: false }, size), args, 64)
    })
}

/// Which of the two terms of the new sum is what is added.
fn summand(graph: &Graph, sum: Id, place: usize) -> Option<Id> {
    let node = graph.node(sum);
    (node.kind == Kind::Binary(Binary::Add)).then(|| node.args[place])
}

/// Who uses each node; the ending uses what it names.
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

/// The place in the stored sum of what is added to what a store finds, if that is all it does.
fn added(dataflow: &Dataflow, users: &BTreeMap<Id, Vec<Option<Id>>>, store: Id, size: Size) -> Option<usize> {
    let graph = &dataflow.graph;
    let only = |id: Id, user: Id| users.get(&id).is_some_and(|all| all.as_slice() == [Some(user)]);
    let node = graph.node(store);
    if !matches!(size, Size::W | Size::Dw) {
        return None;
    }
    let sum = node.args[3];
    if graph.node(sum).kind != Kind::Binary(Binary::Add) || !only(sum, store) {
        return None;
    }
    let terms = &graph.node(sum).args;
    let is_own = |term: Id| {
        let load = graph.node(term);
        load.kind == Kind::Effect(Effect::Load(size)) && load.args[1..] == node.args[1..3] && only(term, sum)
    };
    let place = (0..2).find(|place| is_own(terms[*place]) && terms[0] != terms[1])?;
    let load = terms[place];
    let map = dataflow.access(store)?.map;
    let between = graph.ids().skip_while(|id| *id <= load).take_while(|id| *id < store);
    let untouched = between.into_iter().all(|id| {
        dataflow.access(id).is_none_or(|access| !access.writes() || access.map != map)
    });
    untouched.then_some(1 - place)
}
