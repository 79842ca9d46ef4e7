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
//! **Steps.** The predicate of each effect without side effects becomes 1. A load through a failed lookup gives 0.
//! Loads of the same bytes become one, unless an entry of the map may be exchanged between them.
//!
//! **Before.** The value of such a node is used only under its predicate: no other path loads it.
//!
//! **Limits.** In an LRU map a lookup has a side effect, so it keeps its predicate. So does a load at an offset known
//! only at run time, because it may lie outside of the value.

use std::collections::BTreeMap;

use flowloom_isa::op::Size;
use rustc_hash::FxHashMap;

use super::{rebuilt, same};
use crate::access::{Access, Touch};
use crate::dataflow::Dataflow;
use crate::graph::{Effect, Graph, Id, Kind, Node};

pub fn run(dataflow: &Dataflow) -> Dataflow {
    let mut loads = Loads::default();
    rebuilt(dataflow, |graph, id, mut node| {
        let Some(access) = dataflow.access(id) else { return same(graph, node) };
        if dataflow.is_idle(access) && (access.touch != Touch::Load || graph.as_const(node.args[2]).is_some()) {
            node.args[0] = graph.number(1, 1);
        }
        let waits = dataflow.waits.contains_key(&id);
        if waits { same(graph, node) } else { loads.merged(graph, access, node) }
    })
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
