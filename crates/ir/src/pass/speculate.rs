// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speculation.
//!
//! **Goal.** Lookups and loads do not wait for the branches before them: the largest single reduction of depth.
//!
//! ```text
//!   v9 = call map_lookup_elem if v6 (…)      v9 = call map_lookup_elem if 1 (…)
//!   v10 = load if v8 v9 + 0                  v10 = load if 1 v9 + 0
//! ```
//!
//! **Steps.** The predicate of each effect without side effects becomes 1. In maps that packets write it is put aside
//! ([`Dataflow::wanted`]), also for changes of entries that happen only where the lookup does. A load through a failed
//! lookup gives 0. Loads of the same bytes become one, unless an entry of the map may be exchanged between them.
//!
//! **Before.** Stores are forwarded: a load has the value before all stores of the packet, or waits. The value of such
//! a node is used only under its predicate: no other path loads it.
//!
//! **Limits.** In an LRU map a lookup has a side effect, so it keeps its predicate. So does a load at an offset known
//! only at run time, because it may lie outside of the value.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::op::Size;
use rustc_hash::FxHashMap;

use super::{rebuilt, same};
use crate::access::{Access, Touch};
use crate::dataflow::Dataflow;
use crate::graph::{Effect, Graph, Id, Kind, Node};
use crate::predicates::Predicates;

pub fn run(dataflow: &Dataflow) -> Dataflow {
    let mut loads = Loads::default();
    let guards = guards(dataflow);
    // By guard, its new predicate; and what is put aside.
    let (mut whens, mut wanted) = (BTreeMap::new(), BTreeMap::new());
    let mut after = rebuilt(dataflow, |graph, id, mut node| {
        let Some(access) = dataflow.access(id) else { return same(graph, node) };
        if guards.get(&id) == Some(&id) {
            whens.insert(id, node.args[0]);
        }
        if dataflow.is_idle(access) && (access.touch != Touch::Load || graph.as_const(node.args[2]).is_some()) {
            node.args[0] = graph.number(1, 1);
        }
        let waits = dataflow.waits.contains_key(&id);
        let new = if waits { same(graph, node) } else { loads.merged(graph, access, node) };
        wanted.extend(guards.get(&id).and_then(|guard| whens.get(guard)).map(|when| (new, *when)));
        new
    });
    after.wanted = wanted;
    after
}

/// By access to the entries of a map that packets write, the lookup whose predicate holds wherever the access is made:
/// for a lookup itself, if that is not always; for a change of entries, one before it.
fn guards(dataflow: &Dataflow) -> BTreeMap<Id, Id> {
    let graph = &dataflow.graph;
    let accesses: Vec<(Id, Access)> = graph.ids().filter_map(|id| Some((id, dataflow.access(id)?))).collect();
    let changed: BTreeSet<u32> =
        accesses.iter().filter(|(_, access)| access.changes()).filter_map(|(_, access)| access.map).collect();
    let when = |id: Id| graph.node(id).args[0];
    let mut lookups: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    let mut guards = BTreeMap::new();
    let mut predicates = None;
    for (id, access) in accesses {
        let Some(map) = access.map.filter(|map| changed.contains(map)) else { continue };
        match access.touch {
            Touch::Lookup if dataflow.is_idle(access) && graph.as_const(when(id)).is_none() => {
                lookups.entry(map).or_default().push(id);
                guards.insert(id, id);
            }
            Touch::Update | Touch::Delete | Touch::Evict => {
                let predicates = predicates.get_or_insert_with(|| Predicates::new(graph));
                let mut before = lookups.get(&map).into_iter().flatten();
                let guard = before.find(|lookup| predicates.implies(graph, when(id), when(**lookup)));
                guards.extend(guard.map(|guard| (id, *guard)));
            }
            _ => {}
        }
    }
    guards
}

/// The bytes of a load: size, base address and offset.
type Bytes = (Size, Id, Id);

/// Loads that do not depend on the path. They have the values before all stores of the packet.
#[derive(Default)]
struct Loads {
    known: FxHashMap<Bytes, Id>,
    of_map: BTreeMap<u32, Vec<Bytes>>,
}

impl Loads {
    /// Adds an access, or finds an equal load.
    fn merged(&mut self, graph: &mut Graph, access: Access, node: Node) -> Id {
        let Some(map) = access.map else { return same(graph, node) };
        match node.kind {
            Kind::Effect(Effect::Load(size)) if graph.as_const(node.args[0]) == Some(1) => {
                let bytes = (size, node.args[1], node.args[2]);
                if let Some(known) = self.known.get(&bytes) {
                    return *known;
                }
                let new = same(graph, node);
                self.known.insert(bytes, new);
                self.of_map.entry(map).or_default().push(bytes);
                new
            }
            _ => {
                if matches!(access.touch, Touch::Update | Touch::Delete | Touch::Evict) {
                    for bytes in self.of_map.remove(&map).into_iter().flatten() {
                        self.known.remove(&bytes);
                    }
                }
                same(graph, node)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    /// An entry is read twice, under other conditions; between `{}` and the second time it may change.
    const TWICE: &str = "program twice
map 0 values hash key 1 value 8 entries 16
call 0 map_lookup_elem map 0, read 1
call 1 map_delete_elem map 0, read 1
v0 1 @0 const 0x1
v1 8 @0 byte 0
v2 64 @0 const 0x0
v3 1 @0 slice 0 v1
v4 1 @0 not v3
v5 64 @1 call 0 if v0: v1
v6 8 @2 load b if v3: v5 v2
v7 8 @4 load b if v4: v5 v2
v8 16 @5 const 0x0
v9 32 @5 concat v6 v7 v8
v10 32 @6 const 0x0
v11 1 @6 const 0x0
verdict v9
head v10
tail v10
slow v11
";

    #[test]
    fn loads_of_the_same_bytes_are_one() {
        let loads = |text: &str| {
            let dataflow: Dataflow = text.parse().unwrap_or_else(|error| panic!("{error}"));
            let is_load = |node: &&Node| matches!(node.kind, Kind::Effect(Effect::Load(_)));
            run(&dataflow).graph.nodes().iter().filter(is_load).count()
        };
        assert_eq!(loads(TWICE), 1);
        let mut deleted = TWICE.to_owned();
        for number in (7..=11).rev() {
            deleted = deleted.replace(&format!("v{number}"), &format!("v{}", number + 1));
        }
        let deleted = deleted.replace("v8 8 @4", "v7 64 @3 call 1 if v3: v1\nv8 8 @4");
        assert_eq!(loads(&deleted), 2, "the entry may be another one");
    }
}
