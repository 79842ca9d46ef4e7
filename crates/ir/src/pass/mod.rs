//! Optimization passes, one a file. Each preserves the semantics of the program and reduces depth or area.
//!
//! A pass rebuilds the graph node by node in topological order ([`rebuilt`]), which removes dead nodes as well. Effects
//! keep their order unless a pass says otherwise.

mod bits;
mod calls;
mod choices;
mod counters;
mod cursors;
mod dead;
mod forward;
mod known;
mod late;
mod reassociate;
mod speculate;
mod wires;

pub use cursors::WINDOW_BYTES;
pub use known::largest;

use crate::build::{Dataflow, Reach};
use crate::graph::{Graph, Id, Kind, Node};

/// A pass.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The name.
    pub name: &'static str,
    /// The transformation, in a line.
    pub does: &'static str,
    /// The function.
    pub run: fn(&Dataflow) -> Dataflow,
}

/// All passes in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "dead-code", does: "leaves out what nobody uses", run: dead::run },
    Pass {
        name: "cursors",
        does: "counts on the places in the window that a header may be at, instead of with its offset",
        run: cursors::run,
    },
    Pass { name: "reassociation", does: "makes trees of chains of sums, gates and selections", run: reassociate::run },
    Pass { name: "known-bits", does: "computes no bit that is known or that nobody looks at", run: bits::run },
    Pass { name: "exclusive-calls", does: "lets lookups share a port that no packet needs both of", run: calls::run },
    Pass { name: "counters", does: "adds inside of the table to what is only added to", run: counters::run },
    Pass { name: "state-slices", does: "gives loads what the same packet has stored", run: forward::run },
    Pass {
        name: "speculation",
        does: "looks up and reads before it is known whether that is needed",
        run: speculate::run,
    },
    Pass { name: "reassociation", does: "makes trees of chains of sums, gates and selections", run: reassociate::run },
    Pass {
        name: "wires",
        does: "makes wires of what costs nothing in hardware, by rules that are proved",
        run: wires::run,
    },
    Pass { name: "late-tests", does: "computes both ways of a test that is there late, and chooses", run: late::run },
    Pass { name: "known-bits", does: "computes no bit that is known or that nobody looks at", run: bits::run },
];

/// The dataflow after all passes.
pub fn optimize(dataflow: &Dataflow) -> Dataflow {
    PASSES.iter().fold(dataflow.clone(), |dataflow, pass| (pass.run)(&dataflow))
}

/// The dataflow without dead nodes.
pub(crate) fn without_dead(dataflow: &Dataflow) -> Dataflow {
    dead::run(dataflow)
}

/// Rebuilds a dataflow without dead nodes. `make` returns the new node for an old one whose arguments have been
/// replaced already.
pub(crate) fn rebuilt(old: &Dataflow, mut make: impl FnMut(&mut Graph, Id, Node) -> Id) -> Dataflow {
    let used = old.used();
    let mut graph = Graph::default();
    let mut places: Vec<Option<Id>> = vec![None; old.graph.nodes().len()];
    let place = |places: &[Option<Id>], id: Id| places[id.index()].unwrap_or(Id(0));
    for id in used {
        let mut node = old.graph.node(id).clone();
        node.args.iter_mut().for_each(|arg| *arg = place(&places, *arg));
        graph.at(old.graph.insn(id));
        places[id.index()] = Some(make(&mut graph, id, node));
    }
    remade(old, graph, |id| places[id.index()])
}

/// A dataflow with a new graph; `to` maps old ids to new ones.
pub(crate) fn remade(old: &Dataflow, graph: Graph, to: impl Fn(Id) -> Option<Id>) -> Dataflow {
    let waits = old.waits.iter().filter_map(|(read, writes)| {
        let writes = writes.iter().filter_map(|write| to(*write)).collect();
        to(*read).map(|read| (read, writes))
    });
    let reaches = old
        .reaches
        .iter()
        .filter_map(|reach| Some(Reach { when: to(reach.when)?, by: reach.by.about(to(reach.by.subject())?) }));
    Dataflow {
        name: old.name.clone(),
        graph,
        patterns: old.patterns.clone(),
        maps: old.maps.clone(),
        ending: old.ending.map(|id| to(id).unwrap_or(Id(0))),
        waits: waits.collect(),
        reaches: reaches.collect(),
    }
}

/// Adds an unchanged node.
pub(crate) fn same(graph: &mut Graph, node: Node) -> Id {
    match node.kind {
        Kind::Effect(effect) => graph.effect(effect, node.args, node.bits),
        kind => graph.make(kind, node.args, node.bits),
    }
}
