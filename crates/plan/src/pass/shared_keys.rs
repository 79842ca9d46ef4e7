// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One key for all calls on a map, where no packet needs two.
//!
//! **Goal.** A table that packets write has one port for them, so all calls of a packet have to be by one key. Calls
//! whose predicates exclude each other have, with a select before them.
//!
//! ```text
//!   v5 = call map_lookup_elem if v1 (key v2)         v8 = select v1 v2 v3
//!   v6 = call map_update_elem if v4 (key v3)         v5 = call map_lookup_elem if v1 (key v8)
//!                                                    v6 = call map_update_elem if v4 (key v8)
//! ```
//!
//! **Steps.** The calls on a map are grouped by key. Each group but the last has a condition: the predicate of one of
//! its calls that those of all its others imply. If that condition excludes all calls of the other groups, the select
//! of the keys by the conditions takes the place of each key; the nodes that it needs move before the first call.
//!
//! **Limits.** Maps that packets insert into or delete from: lookups alone are merged (`lookups`). Keys and conditions
//! that depend on a call on the map stay, as do all keys of a map of which two groups may be needed by one packet.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::pass::{remade, same};
use flowloom_ir::{Dataflow, Graph, Id, Predicates, Touch};

/// The most groups of calls.
const MAX_GROUPS: usize = 8;
/// Where the key begins among the arguments of a call, after the predicate.
const KEY: usize = 1;

/// The maps that packets insert into or delete from, and access by several keys.
pub(super) fn maps_with_keys(dataflow: &Dataflow) -> Vec<u32> {
    let changed = dataflow.graph.ids().filter_map(|id| {
        let access = dataflow.access(id)?;
        matches!(access.touch, Touch::Update | Touch::Delete).then_some(access.map?)
    });
    let changed: BTreeSet<u32> = changed.collect();
    // The map that a map of maps gives is an argument as well, and may be another one for each call.
    let is_one_map = |map: &u32| dataflow.maps.get(*map as usize).is_some_and(|map| !map.kind.is_of_maps());
    let is_shareable = |map: &u32| is_one_map(map) && groups(dataflow, *map).is_some_and(|groups| groups.len() > 1);
    changed.into_iter().filter(is_shareable).collect()
}

/// The calls on a map by key, in program order; none if a key is not known.
fn groups(dataflow: &Dataflow, map: u32) -> Option<Vec<(Vec<Id>, Vec<Id>)>> {
    let mut groups: Vec<(Vec<Id>, Vec<Id>)> = Vec::new();
    for id in dataflow.graph.ids() {
        let Some(access) = dataflow.access(id).filter(|access| access.map == Some(map)) else { continue };
        match access.touch {
            Touch::Lookup | Touch::Update | Touch::Delete => {}
            Touch::Load | Touch::Store | Touch::Atomic => continue,
            _ => return None,
        }
        let key = dataflow.key(id)?.to_vec();
        match groups.iter_mut().find(|(own, _)| *own == key) {
            Some((_, calls)) => calls.push(id),
            None => groups.push((key, vec![id])),
        }
    }
    Some(groups)
}

/// The dataflow with one key for the calls on a map, if no packet needs two.
pub(super) fn run(dataflow: &Dataflow, map: u32) -> Option<Dataflow> {
    let graph = &dataflow.graph;
    let groups = groups(dataflow, map).filter(|groups| groups.len() <= MAX_GROUPS)?;
    let mut predicates = Predicates::new(graph);
    let predicate = |call: Id| graph.node(call).args[0];
    let (_, others) = groups.split_last()?;
    let mut conditions = Vec::new();
    for (place, (_, calls)) in others.iter().enumerate() {
        let implied = calls.iter().map(|call| predicate(*call)).find(|condition| {
            calls
                .iter()
                .all(|call| predicate(*call) == *condition || predicates.implies(graph, predicate(*call), *condition))
        })?;
        let foreign = groups.iter().enumerate().filter(|(other, _)| *other != place).flat_map(|(_, (_, calls))| calls);
        if foreign.into_iter().any(|call| !predicates.exclude(graph, implied, predicate(*call))) {
            return None;
        }
        conditions.push(implied);
    }
    let calls: BTreeSet<Id> = groups.iter().flat_map(|(_, calls)| calls.iter().copied()).collect();
    let first = *calls.first()?;
    // What the select needs, as far as it is not there before the first call.
    let mut moved = BTreeSet::new();
    let mut work: Vec<Id> = groups.iter().flat_map(|(key, _)| key.iter().copied()).chain(conditions.clone()).collect();
    while let Some(id) = work.pop() {
        if id < first || !moved.insert(id) {
            continue;
        }
        if dataflow.access(id).is_some() {
            return None;
        }
        work.extend(&graph.node(id).args);
    }
    let before = graph.ids().filter(|id| *id < first);
    let after = graph.ids().filter(|id| *id >= first && !moved.contains(id));
    let order: Vec<Id> = before.chain(moved.iter().copied()).chain(after).collect();
    Some(rebuilt(dataflow, &order, &groups, &conditions, &calls))
}

fn rebuilt(
    dataflow: &Dataflow,
    order: &[Id],
    groups: &[(Vec<Id>, Vec<Id>)],
    conditions: &[Id],
    calls: &BTreeSet<Id>,
) -> Dataflow {
    let old = &dataflow.graph;
    let mut graph = Graph::default();
    let mut places: BTreeMap<Id, Id> = BTreeMap::new();
    let mut key: Option<Vec<Id>> = None;
    for id in order {
        let mut node = old.node(*id).clone();
        node.args.iter_mut().for_each(|arg| *arg = places[arg]);
        graph.at(old.insn(*id));
        if calls.contains(id) {
            let key = key.get_or_insert_with(|| {
                let bytes = 0..groups[0].0.len();
                let select = |at: usize| {
                    let mut args = Vec::new();
                    for (place, (key, _)) in groups.iter().enumerate() {
                        args.extend(conditions.get(place).map(|condition| places[condition]));
                        args.push(places[&key[at]]);
                    }
                    graph.select(args)
                };
                bytes.map(select).collect()
            });
            node.args[KEY..KEY + key.len()].copy_from_slice(key);
        }
        places.insert(*id, same(&mut graph, node));
    }
    remade(dataflow, graph, |id| places.get(&id).copied())
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    /// An insertion by one key, a deletion by another one.
    const EITHER: &str = "program either
map 0 values hash key 1 value 1 entries 16
call 0 map_update_elem map 0, read 1, read 1, number
call 1 map_delete_elem map 0, read 1
v0 1 @0 const 0x1
v1 8 @0 byte 0
v2 8 @0 byte 1
v3 1 @0 eq v1 v2
v4 1 @0 not v3
v5 64 @0 const 0x0
v6 64 @1 call 0 if v3: v1 v2 v5
v7 8 @2 slice 0 v6
v8 64 @3 call 1 if v4: v2
v9 32 @4 slice 0 v8
v10 32 @5 const 0x0
v11 1 @5 const 0x0
verdict v9
head v10
tail v10
slow v11
";

    fn dataflow(text: &str) -> Dataflow {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn exclusive_calls_share_a_key() {
        let dataflow = dataflow(EITHER);
        assert_eq!(maps_with_keys(&dataflow), [0]);
        let shared = run(&dataflow, 0).unwrap_or_else(|| panic!("no packet needs both keys"));
        assert_eq!(maps_with_keys(&shared), [] as [u32; 0]);
        assert_eq!(flowloom_ir::mistranslations(&dataflow, &shared), []);
        let selects = |id: &Id| shared.graph.node(*id).kind == flowloom_ir::Kind::Select;
        assert_eq!(shared.graph.ids().filter(selects).count(), 1, "{shared}");
    }

    #[test]
    fn calls_that_one_packet_makes_keep_their_keys() {
        let both = dataflow(&EITHER.replace("call 1 if v4", "call 1 if v0"));
        assert_eq!(run(&both, 0).map(|shared| shared.to_string()), None);
        // The key of the deletion is the result of the insertion.
        let after = EITHER.replace("call 1 if v4: v2", "call 1 if v4: v7");
        assert_eq!(run(&dataflow(&after), 0).map(|shared| shared.to_string()), None);
    }
}
