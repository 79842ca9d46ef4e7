//! Reassociation.
//!
//! **Goal.** Chains of sums, differences and gates as trees in which what comes late is added last.
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
//! selection where that is no later, or a tree of choices ([`choices`]) where that is earlier. Sums, differences and comparisons of a selection whose condition comes late are made of each
//! of its values, and selected.
//!
//! **Limits.** Chains of more than 128 terms are left alone, and so are sums that would come out as the negative of a number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{choices, rebuilt, same};
use crate::build::Dataflow;
use crate::delay::{Arrivals, Delays, Tenths};
use crate::graph::{Binary, Graph, Id, Kind, Node};

/// The most terms of a chain.
const MOST_TERMS: usize = 128;
/// The most conditions of a selection.
const MOST_CONDITIONS: usize = 16;

/// So many tenths of a level a tree of choices is to gain.
const LEAST_GAIN: Tenths = 3;

/// Sums of so few terms are made again where that is earlier.
const FEW_TERMS: usize = 4;
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
            Kind::Binary(op @ (Binary::And | Binary::Or | Binary::Xor | Binary::Add | Binary::Sub)) => {
                let tree = trees.tree(graph, op, node);
                trees.ahead(graph, tree)
            }
            Kind::Select => trees.flat(graph, node),
            Kind::Compare(_) => {
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

fn is_plus_or_minus(op: Binary) -> bool {
    matches!(op, Binary::Add | Binary::Sub)
}

impl Trees<'_> {
    fn time(&mut self, graph: &Graph, id: Id) -> Tenths {
        let blocks = &self.blocks;
        self.arrivals.of(graph, self.delays, id, |id| blocks.get(id.index()).copied().unwrap_or(0))
    }

    fn tree(&mut self, graph: &mut Graph, op: Binary, node: Node) -> Id {
        let bits = node.bits;
        let is_sum = matches!(op, Binary::Add | Binary::Sub);
        let signed = |args: &[Id], op: Binary, is_less: bool| {
            let second = is_less != (op == Binary::Sub);
            [(args[0], is_less), (args[1], second)]
        };
        let mut terms: Vec<(Id, bool)> = Vec::new();
        let mut work: Vec<(Id, bool)> = signed(&node.args, op, false).to_vec();
        while let Some((term, is_less)) = work.pop() {
            let inner = graph.node(term);
            let own = self.own.get(term.index()).copied().unwrap_or(false);
            let count = terms.len() + work.len();
            // Gates cost little twice, and so do short sums.
            let is_free = own || if is_sum { count < FEW_TERMS } else { bits == 1 };
            match inner.kind {
                Kind::Binary(other) if is_free && (other == op || is_sum && is_plus_or_minus(other)) => {
                    work.extend(signed(&inner.args, other, is_less));
                }
                _ => terms.push((term, is_less)),
            }
            if count > MOST_TERMS {
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
        let mut heap: BinaryHeap<Reverse<(Tenths, Id, bool)>> =
            terms.into_iter().map(|(term, is_less)| Reverse((self.time(graph, term), term, is_less))).collect();
        while heap.len() > 1
            && let (Some(Reverse((_, first, a))), Some(Reverse((_, second, b)))) = (heap.pop(), heap.pop())
        {
            let (both, is_less) = match (a, b) {
                (false, true) => (graph.binary(Binary::Sub, first, second), false),
                (true, false) => (graph.binary(Binary::Sub, second, first), false),
                _ => {
                    let plus = if is_sum { Binary::Add } else { op };
                    (graph.make(Kind::Binary(plus), vec![first.min(second), first.max(second)], bits), a)
                }
            };
            self.own.resize(graph.nodes().len().max(self.own.len()), false);
            self.own[both.index()] = true;
            heap.push(Reverse((self.time(graph, both), both, is_less)));
        }
        match heap.pop() {
            Some(Reverse((time, tree, false))) if time < before => tree,
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
        let mut best = chain;
        if parts.len() != graph.node(chain).args.len() && parts.len() <= 2 * MOST_CONDITIONS {
            let flat = graph.select(parts);
            if self.time(graph, flat) <= self.time(graph, chain) {
                best = flat;
            }
        }
        self.chosen(graph, best)
    }

    /// Choices one inside the other as a tree.
    fn chosen(&mut self, graph: &mut Graph, id: Id) -> Id {
        if graph.node(id).kind != Kind::Select {
            return id;
        }
        let own = &self.own;
        // A bit costs little to choose twice.
        let may_enter = |graph: &Graph, id: Id| graph.bits(id) == 1 || own.get(id.index()).copied().unwrap_or(false);
        let chain = choices::chain(graph, id, &may_enter);
        let before = self.time(graph, id);
        let delays = self.delays;
        let tree = choices::tree(graph, delays, &chain, &mut |graph, id| self.time(graph, id), (before, LEAST_GAIN));
        tree.filter(|tree| self.time(graph, *tree) < before).unwrap_or(id)
    }
}
