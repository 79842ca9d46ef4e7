// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sharing of lookup ports.
//!
//! **Goal.** One lookup instead of two where no packet needs both, or where both have the same key: each lookup costs a
//! port of a table.
//!
//! ```text
//!   v5 = call map_lookup_elem if v1 (key v2)         v8 = select v1 v2 v3
//!   v6 = call map_lookup_elem if not v1 (key v3)     v9 = call map_lookup_elem if 1 (key v8)
//! ```
//!
//! **Steps.** Lookups of the same key become one if no entry is added or removed between them. Of two lookups whose
//! predicates are mutually exclusive, the first one and its users move down to the second one; a select chooses the key
//! by the predicate. In a map that packets only read they stay separate if the select would lengthen the critical path;
//! where packets write, a second port would need the writes of both.
//!
//! Where packets insert or delete by several keys of which each packet needs one, all calls take a selected key first
//! (`shared_keys`).
//!
//! **Before.** Predicates are still the path conditions: speculation comes later.
//!
//! **Limits.** Lookups that depend on each other stay separate, as do those between which conflicting effects would be
//! reordered. Once [`MAX_VISITED`] nodes and pairs were visited, the remaining lookups stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::pass::{remade, same};
use flowloom_ir::{Dataflow, Graph, Id, Kind, Node, Predicates, Touch, mistranslations};

use super::shared_keys;
use crate::critical_path::depth;
use crate::target::Target;

/// The budget of visited nodes and pairs, over all pairs.
const MAX_VISITED: usize = 2_000_000;

pub(super) fn run(dataflow: &Dataflow, target: &Target) -> Dataflow {
    let merged = run_within(dataflow, target, MAX_VISITED);
    // Where packets insert or delete by several keys, the lookups alone do not decide: all calls share a key, if they
    // can.
    let mut shared = None;
    for map in shared_keys::maps_with_keys(&merged) {
        let before = shared.as_ref().unwrap_or(dataflow);
        shared = shared_keys::run(before, map).filter(|after| mistranslations(before, after).is_empty()).or(shared);
    }
    shared.map_or(merged, |shared| run_within(&shared, target, MAX_VISITED))
}

fn run_within(dataflow: &Dataflow, target: &Target, mut visits: usize) -> Dataflow {
    // A merge that only saves a port of a written map has to pass the validator: the predicates of several merges
    // together may exclude less than those of each.
    let original = dataflow;
    let mut dataflow = dataflow.clone();
    let mut predicates = Predicates::new(&dataflow.graph);
    let mut left_alone = BTreeSet::new();
    let deepest = depth(&dataflow, target);
    // Each merge renumbers the nodes, so the predicates are computed anew.
    while let Some((pair, merged)) = next_pair(&dataflow, &mut predicates, &left_alone, &mut visits) {
        // A merge compares the effects between the two, rebuilds the graph, and computes its conditions anew.
        let Some(left) = visits.checked_sub(dataflow.graph.nodes().len()) else { break };
        visits = left;
        match merge(&dataflow, pair, merged, &mut predicates) {
            Some(fewer)
                if depth(&fewer, target) <= deepest
                    || is_written(&dataflow, pair[0]) && mistranslations(original, &fewer).is_empty() =>
            {
                dataflow = fewer;
                predicates = Predicates::new(&dataflow.graph);
                left_alone.clear();
            }
            _ => {
                left_alone.insert(pair);
            }
        }
    }
    dataflow
}

/// Whether packets change the map of a lookup.
fn is_written(dataflow: &Dataflow, lookup: Id) -> bool {
    let map = dataflow.access(lookup).and_then(|access| access.map);
    let writes = |id: Id| dataflow.access(id).is_some_and(|access| access.map == map && access.changes());
    map.is_some() && dataflow.graph.ids().any(writes)
}

/// How two lookups are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merged {
    /// Both have the same key.
    Same,
    /// Their predicates are mutually exclusive.
    Exclusive,
}

fn next_pair(
    dataflow: &Dataflow,
    predicates: &mut Predicates,
    left_alone: &BTreeSet<[Id; 2]>,
    visits: &mut usize,
) -> Option<([Id; 2], Merged)> {
    let graph = &dataflow.graph;
    let lookups: Vec<Id> =
        graph.ids().filter(|id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Lookup)).collect();
    for (place, first) in lookups.iter().enumerate() {
        for second in &lookups[place + 1..] {
            *visits = visits.checked_sub(1)?;
            let (a, b) = (graph.node(*first), graph.node(*second));
            if a.kind != b.kind || left_alone.contains(&[*first, *second]) {
                continue;
            }
            if a.args[1..] == b.args[1..] {
                return Some(([*first, *second], Merged::Same));
            }
            if predicates.exclude(graph, a.args[0], b.args[0]) {
                return Some(([*first, *second], Merged::Exclusive));
            }
        }
    }
    None
}

/// Merges two lookups, if that is legal.
fn merge(
    dataflow: &Dataflow,
    [first, second]: [Id; 2],
    merged: Merged,
    predicates: &mut Predicates,
) -> Option<Dataflow> {
    let graph = &dataflow.graph;
    let map = dataflow.access(first)?.map?;
    let between = || graph.ids().skip(first.index() + 1).take(second.index() - first.index() - 1);
    match merged {
        Merged::Same => {
            // The result is the same unless the second lookup happens after a change of the map. Where the map
            // remembers the order of uses, no other use may happen between the two.
            let remembers_use = dataflow.remembers_use(map);
            let changes = between().any(|id| {
                dataflow.access(id).is_some_and(|access| {
                    access.map == Some(map)
                        && (matches!(access.touch, Touch::Update | Touch::Delete | Touch::Evict)
                            || remembers_use && access.touch == Touch::Lookup)
                        && !predicates.exclude(graph, graph.node(id).args[0], graph.node(second).args[0])
                })
            });
            if changes {
                return None;
            }
            // The merged lookup has to happen if either does.
            let is_within = graph.node(second).args[0] == graph.node(first).args[0]
                || predicates.implies(graph, graph.node(second).args[0], graph.node(first).args[0])
                || graph.node(second).args[0] < first && !dataflow.remembers_use(map);
            is_within.then(|| moved(dataflow, &graph.ids().collect::<Vec<_>>(), [first, second], merged))
        }
        Merged::Exclusive => {
            let mut behind = BTreeSet::from([first]);
            for id in between() {
                if graph.node(id).args.iter().any(|arg| behind.contains(arg)) {
                    behind.insert(id);
                }
            }
            if graph.node(second).args.iter().any(|arg| behind.contains(arg)) {
                return None;
            }
            let keeps = between().filter(|id| !behind.contains(id));
            let late: Vec<Id> = behind.iter().copied().filter(|id| dataflow.access(*id).is_some()).collect();
            let crossed = keeps
                .filter(|id| dataflow.access(*id).is_some())
                .any(|kept| late.iter().any(|late| *late < kept && conflict(dataflow, *late, kept, predicates)));
            if crossed {
                return None;
            }
            let mut order: Vec<Id> = graph.ids().filter(|id| *id < second && !behind.contains(id)).collect();
            order.push(second);
            order.extend(behind.iter().copied().filter(|id| *id != first));
            order.extend(graph.ids().filter(|id| *id > second));
            Some(moved(dataflow, &order, [first, second], merged))
        }
    }
}

/// Whether two effects must keep their order.
fn conflict(dataflow: &Dataflow, a: Id, b: Id, predicates: &mut Predicates) -> bool {
    let args = |id: Id| dataflow.graph.node(id).args[0];
    dataflow.conflict(a, b) && !predicates.exclude(&dataflow.graph, args(a), args(b))
}

/// The graph in a new order of nodes, with two lookups merged.
fn moved(dataflow: &Dataflow, order: &[Id], [first, second]: [Id; 2], merged: Merged) -> Dataflow {
    let old = &dataflow.graph;
    let mut graph = Graph::default();
    let mut places: BTreeMap<Id, Id> = BTreeMap::new();
    for id in order {
        let mut node: Node = old.node(*id).clone();
        let mapped = |places: &BTreeMap<Id, Id>, id: &Id| places[id];
        node.args.iter_mut().for_each(|arg| *arg = mapped(&places, arg));
        graph.at(old.insn(*id));
        if *id == second && merged == Merged::Same {
            let known = mapped(&places, &first);
            places.insert(second, known);
            continue;
        }
        if *id == first && merged == Merged::Same && old.node(second).args[0] < first {
            // On any path.
            let other = mapped(&places, &old.node(second).args[0]);
            node.args[0] = graph.or(node.args[0], other);
        }
        if *id == second && merged == Merged::Exclusive {
            let other: Vec<Id> = old.node(first).args.iter().map(|arg| mapped(&places, arg)).collect();
            let condition = other[0];
            for (own, other) in node.args.iter_mut().zip(&other).skip(1) {
                *own = graph.select(vec![condition, *other, *own]);
            }
            node.args[0] = graph.or(node.args[0], condition);
            let new = same(&mut graph, node);
            places.insert(first, new);
            places.insert(second, new);
            continue;
        }
        let new = match node.kind {
            Kind::Effect(effect) => graph.effect(effect, node.args, node.bits),
            kind => graph.make(kind, node.args, node.bits),
        };
        places.insert(*id, new);
    }
    remade(dataflow, graph, |id| places.get(&id).copied())
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    /// The same entry is looked up twice.
    const TWICE: &str = "program twice
map 0 values array key 4 value 8 entries 16
call 0 map_lookup_elem map 0, read 4
v0 1 @0 const 0x1
v1 8 @0 byte 0
v2 8 @0 const 0x0
v3 64 @0 const 0x0
v4 64 @0 call 0 if v0: v1 v2 v2 v2
v5 8 @1 load b if v0: v4 v3
v6 64 @2 call 0 if v0: v1 v2 v2 v2
v7 8 @3 load b if v0: v6 v3
v8 16 @4 const 0x0
v9 32 @4 concat v5 v7 v8
v10 32 @5 const 0x0
v11 1 @5 const 0x0
verdict v9
head v10
tail v10
slow v11
";

    #[test]
    fn lookups_beyond_the_budget_are_not_merged() {
        let dataflow: Dataflow = TWICE.parse().unwrap_or_else(|error| panic!("{error}"));
        let lookups = |visits| {
            let merged = run_within(&dataflow, &Target::default(), visits);
            let is_lookup = |id: &Id| merged.access(*id).is_some_and(|access| access.touch == Touch::Lookup);
            merged.graph.ids().filter(is_lookup).count()
        };
        assert_eq!(lookups(MAX_VISITED), 1, "one lookup serves both");
        assert_eq!(lookups(0), 2, "no pair is visited");
        assert_eq!(lookups(1), 2, "a pair, and no merging");
    }
}
