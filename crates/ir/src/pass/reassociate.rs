//! Reassociation.
//!
//! **Goal.** Chains of sums and of gates as trees in which what comes late is added last.
//!
//! ```text
//!   v4 = add v3 v0        (((v0 + v1) + v2) + v3)      v4 = add v0 v1
//!   v5 = add v4 v1                                     v5 = add v2 v3
//!   v6 = add v5 v2                                     v6 = add v4 v5
//! ```
//!
//! **Steps.** A chain is followed back to its terms: through sums that nobody else uses, and through gates of single bits, whoever
//! uses them (a bit costs little to make twice). The two terms that are there first are put together, again and again
//! [Huffman 1952]; the tree stands where it is there before the chain. Selections whose last value is a selection are one
//! selection where that is no later. Sums, differences and comparisons of a selection whose condition comes late are made of each
//! of its values, and selected.
//!
//! **Limits.** Chains of more than 128 terms are left alone, and so are differences.

use std::collections::BinaryHeap;
use std::cmp::Reverse;

use super::{rebuilt, same};
use crate::build::Dataflow;
use crate::delay::{Arrivals, Delays, Tenths};
use crate::graph::{Binary, Graph, Id, Kind, Node};

/// The most terms of a chain.
const MOST_TERMS: usize = 128;
/// The most conditions of a selection.
const MOST_CONDITIONS: usize = 16;

/// The most conditions of a selection that something is done ahead of.
const MOST_AHEAD: usize = 2;

/// What is known while the graph is made anew.
struct Trees<'a> {
    delays: &'a Delays,
    arrivals: Arrivals,
    /// The stages of new nodes that are blocks.
    blocks: Vec<u32>,
    /// New nodes that are sums or selections with one user.
    own: Vec<bool>,
}

pub(super) fn run(dataflow: &Dataflow) -> Dataflow {
    let delays = Delays::first(crate::delay::CLOCK_MHZ);
    let mut users = vec![0_u32; dataflow.graph.nodes().len()];
    for id in dataflow.used() {
        dataflow.graph.node(id).args.iter().for_each(|arg| users[arg.index()] += 1);
    }
    dataflow.ending.nodes().for_each(|id| users[id.index()] += 1);
    let mut trees = Trees { delays: &delays, arrivals: Arrivals::default(), blocks: Vec::new(), own: Vec::new() };
    rebuilt(dataflow, |graph, id, node| {
        let stages = delays.block_stages(dataflow, id);
        let new = match node.kind {
            Kind::Binary(op @ (Binary::And | Binary::Or | Binary::Xor | Binary::Add)) => {
                let tree = trees.tree(graph, op, node);
                trees.ahead(graph, tree)
            }
            Kind::Select => trees.flat(graph, node),
            Kind::Binary(Binary::Sub) | Kind::Compare(_) => {
                let plain = same(graph, node);
                trees.ahead(graph, plain)
            }
            _ => same(graph, node),
        };
        trees.blocks.resize(graph.nodes().len().max(trees.blocks.len()), 0);
        trees.own.resize(graph.nodes().len().max(trees.own.len()), false);
        trees.blocks[new.index()] = stages;
        trees.own[new.index()] = users[id.index()] == 1;
        new
    })
}

impl Trees<'_> {
    fn time(&mut self, graph: &Graph, id: Id) -> Tenths {
        let blocks = &self.blocks;
        self.arrivals.of(graph, self.delays, id, |id| blocks.get(id.index()).copied().unwrap_or(0))
    }

    fn tree(&mut self, graph: &mut Graph, op: Binary, node: Node) -> Id {
        let bits = node.bits;
        let mut terms = Vec::new();
        let mut work = node.args.clone();
        while let Some(term) = work.pop() {
            let inner = graph.node(term);
            let is_free = self.own.get(term.index()).copied().unwrap_or(false) || (bits == 1 && op != Binary::Add);
            if inner.kind == Kind::Binary(op) && is_free {
                work.extend(&inner.args);
            } else {
                terms.push(term);
            }
            if terms.len() + work.len() > MOST_TERMS {
                return same(graph, node);
            }
        }
        if op == Binary::And || op == Binary::Or {
            terms.sort();
            terms.dedup();
        }
        if terms.len() <= 2 {
            return same(graph, node);
        }
        let chain = same(graph, node);
        let before = self.time(graph, chain);
        let mut heap: BinaryHeap<Reverse<(Tenths, Id)>> =
            terms.into_iter().map(|term| Reverse((self.time(graph, term), term))).collect();
        while let (Some(Reverse((_, first))), Some(Reverse((_, second)))) = (heap.pop(), heap.pop()) {
            let both = graph.make(Kind::Binary(op), vec![first.min(second), first.max(second)], bits);
            self.own.resize(graph.nodes().len().max(self.own.len()), false);
            self.own[both.index()] = true;
            heap.push(Reverse((self.time(graph, both), both)));
            if heap.len() == 1 {
                break;
            }
        }
        match heap.pop() {
            Some(Reverse((time, tree))) if time < before => tree,
            _ => chain,
        }
    }

    /// What is done with a selection, done with what it selects from, where the condition is what comes late.
    fn ahead(&mut self, graph: &mut Graph, plain: Id) -> Id {
        let node = graph.node(plain).clone();
        if !matches!(node.kind, Kind::Binary(Binary::Add | Binary::Sub) | Kind::Compare(_)) {
            return plain;
        }
        let chosen = (0..2).find(|place| {
            let arg = graph.node(node.args[*place]);
            arg.kind == Kind::Select && arg.args.len() <= 2 * MOST_AHEAD + 1
        });
        let Some(place) = chosen else { return plain };
        let mut parts = graph.node(node.args[place]).args.clone();
        let last = parts.len() - 1;
        for (at, part) in parts.iter_mut().enumerate() {
            if at == last || at % 2 == 1 {
                let mut args = node.args.clone();
                args[place] = *part;
                *part = graph.make(node.kind, args, node.bits);
            }
        }
        let other = graph.select(parts);
        if self.time(graph, other) < self.time(graph, plain) { other } else { plain }
    }

    /// A selection whose last value is a selection, as one.
    fn flat(&mut self, graph: &mut Graph, node: Node) -> Id {
        let mut parts = node.args.clone();
        while let Some(last) = parts.last().copied()
            && graph.node(last).kind == Kind::Select
            && self.own.get(last.index()).copied().unwrap_or(false)
        {
            parts.pop();
            parts.extend(&graph.node(last).args);
        }
        let chain = same(graph, node);
        if parts.len() == graph.node(chain).args.len() || parts.len() > 2 * MOST_CONDITIONS {
            return chain;
        }
        let flat = graph.select(parts);
        if self.time(graph, flat) <= self.time(graph, chain) { flat } else { chain }
    }
}
