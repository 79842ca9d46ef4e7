// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that are addresses of map entries: they cross boundaries as a hit flag and an index, not as addresses.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Compare, Dataflow, Effect, Id, Kind, Touch};

/// Nodes that are only used as addresses of entries, or compared with 0.
pub(super) fn entries(dataflow: &Dataflow, used: &BTreeSet<Id>) -> BTreeMap<Id, u32> {
    let graph = &dataflow.graph;
    let mut found: BTreeMap<Id, u32> = BTreeMap::new();
    for id in used {
        let Some(map) = dataflow.access(*id).and_then(|access| access.map) else { continue };
        if matches!(graph.node(*id).kind, Kind::Effect(Effect::Load(_) | Effect::Store(_) | Effect::Atomic(..))) {
            found.insert(graph.node(*id).args[1], map);
        }
        if matches!(dataflow.access(*id).map(|access| access.touch), Some(Touch::Lookup)) {
            found.insert(*id, map);
        }
    }
    for id in used.iter().rev() {
        if let (Kind::Select, Some(map)) = (graph.node(*id).kind, found.get(id).copied()) {
            for value in values(&graph.node(*id).args) {
                found.insert(value, map);
            }
        }
    }
    loop {
        let mut others: BTreeSet<Id> = BTreeSet::new();
        for id in used {
            let node = graph.node(*id);
            for (place, arg) in node.args.iter().enumerate() {
                let fine = match node.kind {
                    Kind::Effect(Effect::Load(_) | Effect::Store(_) | Effect::Atomic(..)) => place == 1,
                    Kind::Select => found.contains_key(id) && !is_condition(&node.args, place),
                    Kind::Compare(Compare::Equal) => node.args.iter().any(|arg| graph.as_const(*arg) == Some(0)),
                    _ => false,
                };
                if !fine && found.contains_key(arg) {
                    others.insert(*arg);
                }
            }
            if matches!(node.kind, Kind::Select) && !found.contains_key(id) {
                others.extend(values(&node.args).filter(|value| found.contains_key(value)));
            }
        }
        if others.is_empty() {
            return found;
        }
        found.retain(|id, _| !others.contains(id));
    }
}

/// Whether an argument of a select is one of its conditions.
fn is_condition(args: &[Id], place: usize) -> bool {
    place.is_multiple_of(2) && place + 1 < args.len()
}

/// The values of a select.
fn values(args: &[Id]) -> impl Iterator<Item = Id> + '_ {
    args.iter().enumerate().filter(|(place, _)| !is_condition(args, *place)).map(|(_, value)| *value)
}

/// The bits of an index into a map.
pub(super) fn index_bits(dataflow: &Dataflow, map: u32) -> u16 {
    let entries = dataflow.maps.get(map as usize).map_or(0, |map| map.max_entries);
    (u32::BITS - entries.saturating_sub(1).leading_zeros()) as u16
}
