// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Optimization passes that no target decides, one a file. Each preserves the semantics of the program and reduces
//! depth or area.
//!
//! A pass rebuilds the graph node by node in topological order ([`rebuilt`]), which removes dead nodes as well. Effects
//! keep their order unless a pass says otherwise: [`mistranslations`](crate::mistranslations) relates its result to its
//! input.

mod bits;
mod dead;
mod forward;
mod known;
mod one_hot;
mod rewriting;
mod speculate;

pub use bits::run as known_bits;
pub use dead::run as dead_code;
pub use forward::run as forward_stores;
pub(crate) use forward::{depends_on, differ};
pub use known::largest;
pub use one_hot::run as one_hot_offsets;
pub use rewriting::run as rewrite;
pub use speculate::run as speculate;

use crate::dataflow::{Dataflow, Reach};
use crate::graph::{Graph, Id, Kind, Node};

/// Rebuilds a dataflow without dead nodes. `make` returns the new node for an old one whose arguments have been
/// replaced already.
pub fn rebuilt(old: &Dataflow, mut make: impl FnMut(&mut Graph, Id, Node) -> Id) -> Dataflow {
    let used = old.used();
    let mut graph = Graph::default();
    let mut places: Vec<Option<Id>> = vec![None; old.graph.nodes().len()];
    for id in used {
        let mut node = old.graph.node(id).clone();
        for arg in &mut node.args {
            *arg = places[arg.index()].expect("an argument of a used node is used, and earlier than the node");
        }
        graph.at(old.graph.insn(id));
        places[id.index()] = Some(make(&mut graph, id, node));
    }
    remade(old, graph, |id| places[id.index()])
}

/// A dataflow with a new graph; `to` maps old ids to new ones.
pub fn remade(old: &Dataflow, graph: Graph, to: impl Fn(Id) -> Option<Id>) -> Dataflow {
    let waits = old.waits.iter().filter_map(|(read, writes)| {
        let writes = writes.iter().filter_map(|write| to(*write)).collect();
        to(*read).map(|read| (read, writes))
    });
    let wanted = old.wanted.iter().filter_map(|(lookup, when)| Some((to(*lookup)?, to(*when)?)));
    let reaches = old
        .reaches
        .iter()
        .filter_map(|reach| Some(Reach { when: to(reach.when)?, by: reach.by.about(to(reach.by.subject())?) }));
    Dataflow {
        name: old.name.clone(),
        graph,
        patterns: old.patterns.clone(),
        maps: old.maps.clone(),
        ending: old.ending.map(|id| to(id).expect("a node of the ending is used")),
        waits: waits.collect(),
        wanted: wanted.collect(),
        reaches: reaches.collect(),
    }
}

/// Adds an unchanged node.
pub fn same(graph: &mut Graph, node: Node) -> Id {
    match node.kind {
        Kind::Effect(effect) => graph.effect(effect, node.args, node.bits),
        kind => graph.make(kind, node.args, node.bits),
    }
}
