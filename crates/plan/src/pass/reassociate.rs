// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reassociation and tree-height reduction.
//!
//! **Goal.** Chains of adders, subtractors and gates become trees in which the latest operand is added last.
//!
//! ```text
//!   v4 = add v3 v0        (((v0 + v1) + v2) + v3)      v4 = add v0 v1
//!   v5 = add v4 v1                                     v5 = add v2 v3
//!   v6 = add v5 v2                                     v6 = add v4 v5
//! ```
//!
//! **Steps.** A chain is followed back to its terms: through adders with a single user, and through one-bit gates with
//! any number of users (a bit is cheap to duplicate). The two earliest terms are combined repeatedly [Huffman 1952];
//! the tree replaces the chain if it arrives earlier. Nested selects become one select if that is no later, or a tree
//! of muxes ([`mux_trees`]) if that is earlier. A select of more than 16 conditions becomes a select of selects, so
//! that each fits into a stage. Adders, subtractors and comparisons of a select whose condition arrives late move into
//! its arms. An ordered comparison of a wide sum becomes the sign of another sum, from whose early terms the limit is
//! subtracted.
//!
//! **Limits.** Chains of more than 128 terms stay as they are, as do sums that would become the negative of a value.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flowloom_ir::pass::{rebuilt, same};
use flowloom_ir::{Binary, Compare, Dataflow, Graph, Id, Kind, Node};

use super::mux_trees;
use crate::critical_path::Arrivals;
use crate::target::{Target, Tenths};

/// The most terms of a chain.
const MAX_TERMS: usize = 128;
/// The most conditions of a select.
const MAX_CONDITIONS: usize = 16;

/// The least gain of a tree of muxes, in tenths of a level.
const MIN_GAIN: Tenths = 3;

/// Adders of at most this many terms are duplicated if the tree is earlier.
const FEW_TERMS: usize = 4;
/// The width from which on a second sum is worth its area to compare by its sign.
const WIDE_BITS: u16 = 33;
/// The most conditions of a select into whose arms an operation is moved.
const MAX_AHEAD: usize = 2;

struct Trees<'a> {
    target: &'a Target,
    arrivals: Arrivals,
    /// Whether a new node has a single user.
    own: Vec<bool>,
}

pub(super) fn run(dataflow: &Dataflow, target: &Target) -> Dataflow {
    let mut users = vec![0_u32; dataflow.graph.nodes().len()];
    for id in dataflow.used() {
        dataflow.graph.node(id).args.iter().for_each(|arg| users[arg.index()] += 1);
    }
    dataflow.ending.nodes().chain(dataflow.wanted.values().copied()).for_each(|id| users[id.index()] += 1);
    let mut trees = Trees { target, arrivals: Arrivals::default(), own: Vec::new() };
    rebuilt(dataflow, |graph, id, node| {
        let new = match node.kind {
            Kind::Binary(op @ (Binary::And | Binary::Or | Binary::Xor | Binary::Add | Binary::Sub)) => {
                let tree = trees.tree(graph, op, node);
                trees.ahead(graph, tree)
            }
            Kind::Select => trees.flat(graph, node),
            Kind::Compare(_) => {
                let plain = same(graph, node);
                let by_sign = trees.by_sign(graph, plain);
                trees.ahead(graph, by_sign)
            }
            _ => same(graph, node),
        };
        trees.arrivals.set_block(graph, new, (dataflow, id), target);
        trees.own.resize(graph.nodes().len().max(trees.own.len()), false);
        trees.own[new.index()] = users[id.index()] == 1;
        new
    })
}

fn is_plus_or_minus(op: Binary) -> bool {
    matches!(op, Binary::Add | Binary::Sub)
}

/// Splits a wide select into selects of neighbouring conditions and a select of these.
fn split_wide_select(graph: &mut Graph, mut parts: Vec<Id>) -> Id {
    while parts.len() > 2 * MAX_CONDITIONS + 1
        && let Some((last, pairs)) = parts.split_last()
    {
        let conditions = pairs.len() / 2;
        let size = conditions.div_ceil(conditions.div_ceil(MAX_CONDITIONS));
        let mut outer: Vec<Id> = Vec::new();
        for group in pairs.chunks(2 * size) {
            let when = any(graph, group.iter().step_by(2).copied().collect());
            // If one of the group's conditions holds and none but the last can, it is the last.
            let mut inner = group.to_vec();
            inner.remove(inner.len() - 2);
            outer.extend([when, graph.select(inner)]);
        }
        outer.push(*last);
        parts = outer;
    }
    graph.select(parts)
}

/// The OR of conditions as a balanced tree.
fn any(graph: &mut Graph, mut conditions: Vec<Id>) -> Id {
    while conditions.len() > 1 {
        let pairs = conditions.chunks(2);
        conditions = pairs.map(|pair| pair.iter().copied().reduce(|a, b| graph.or(a, b)).unwrap_or(pair[0])).collect();
    }
    conditions.pop().unwrap_or_else(|| graph.number(0, 1))
}

impl Trees<'_> {
    fn time(&mut self, graph: &Graph, id: Id) -> Tenths {
        self.arrivals.of(graph, self.target, id)
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
            // Gates and short sums are cheap to duplicate.
            let is_free = own || if is_sum { count < FEW_TERMS } else { bits == 1 };
            match inner.kind {
                Kind::Binary(other) if is_free && (other == op || is_sum && is_plus_or_minus(other)) => {
                    work.extend(signed(&inner.args, other, is_less));
                }
                _ => terms.push((term, is_less)),
            }
            if count > MAX_TERMS {
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

    /// Moves an operation on a select into its arms, if that is earlier.
    fn ahead(&mut self, graph: &mut Graph, plain: Id) -> Id {
        let node = graph.node(plain).clone();
        if !matches!(node.kind, Kind::Binary(Binary::Add | Binary::Sub) | Kind::Compare(_)) {
            return plain;
        }
        let chosen = (0..2).find(|place| {
            let arg = graph.node(node.args[*place]);
            arg.kind == Kind::Select && arg.args.len() <= 2 * MAX_AHEAD + 1
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

    /// Compares a sum by the sign of another sum, if that is earlier: the limit is subtracted from the early terms.
    ///
    /// ```text
    ///   (a - b) < c        a and c arrive early        sign(a - b) and sign(c) differ, or the sign of (a - c) - b
    /// ```
    fn by_sign(&mut self, graph: &mut Graph, plain: Id) -> Id {
        let node = graph.node(plain).clone();
        let &[first, second] = node.args.as_slice() else { return plain };
        let bits = graph.bits(first);
        let is_sum = |id: Id| matches!(graph.node(id).kind, Kind::Binary(Binary::Add | Binary::Sub));
        let is_ordered = matches!(node.kind, Kind::Compare(Compare::Below | Compare::SignedBelow));
        if !is_ordered || !is_sum(first) && !is_sum(second) || bits < WIDE_BITS {
            return plain;
        }
        let difference = Node { kind: Kind::Binary(Binary::Sub), args: vec![first, second], bits };
        let difference = self.tree(graph, Binary::Sub, difference);
        let [sign, other, less] = [first, second, difference].map(|id| graph.slice(id, bits - 1, 1));
        let differ = graph.binary(Binary::Xor, sign, other);
        let is_signed = node.kind == Kind::Compare(Compare::SignedBelow);
        let by_sign = graph.select(vec![differ, if is_signed { sign } else { other }, less]);
        let is_earlier = self.time(graph, by_sign) + self.target.level <= self.time(graph, plain);
        if is_earlier { by_sign } else { plain }
    }

    fn flat(&mut self, graph: &mut Graph, node: Node) -> Id {
        let mut parts = node.args.clone();
        while let Some(last) = parts.last().copied()
            && graph.node(last).kind == Kind::Select
            && self.own.get(last.index()).copied().unwrap_or(false)
        {
            parts.pop();
            parts.extend(&graph.node(last).args);
        }
        if node.args.len() > 2 * MAX_CONDITIONS + 1 {
            return split_wide_select(graph, node.args);
        }
        let chain = same(graph, node);
        let mut best = chain;
        if parts.len() != graph.node(chain).args.len() && parts.len() <= 2 * MAX_CONDITIONS {
            let flat = graph.select(parts);
            if self.time(graph, flat) <= self.time(graph, chain) {
                best = flat;
            }
        }
        self.chosen(graph, best)
    }

    /// Turns nested selects into a tree of muxes, if that is earlier.
    fn chosen(&mut self, graph: &mut Graph, id: Id) -> Id {
        if graph.node(id).kind != Kind::Select {
            return id;
        }
        let own = &self.own;
        // A one-bit select is cheap to duplicate.
        let may_enter = |graph: &Graph, id: Id| graph.bits(id) == 1 || own.get(id.index()).copied().unwrap_or(false);
        let chain = mux_trees::chain(graph, id, &may_enter);
        let before = self.time(graph, id);
        let target = self.target;
        let tree = mux_trees::tree(graph, target, &chain, &mut |graph, id| self.time(graph, id), (before, MIN_GAIN));
        tree.filter(|tree| self.time(graph, *tree) < before).unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowloom_ir::Input;
    use flowloom_ir::apply;

    /// Condition `i` is the low bit of byte `i`, and its value is 1000 + `i`.
    fn conditions(graph: &mut Graph, count: i64) -> Vec<Id> {
        let mut parts = Vec::new();
        for at in 0..count {
            let byte = graph.byte(at);
            let value = graph.number(1000 + at as u64, 16);
            parts.extend([graph.slice(byte, 0, 1), value]);
        }
        parts.push(graph.number(1, 16));
        parts
    }

    /// Evaluates a node for a packet in which only these bytes are odd.
    fn value(graph: &Graph, id: Id, odd: [u16; 2]) -> u64 {
        evaluated(graph, id, |at| u64::from(odd.contains(&at)))
    }

    fn evaluated(graph: &Graph, id: Id, byte: impl Fn(u16) -> u64) -> u64 {
        let mut values: Vec<u64> = Vec::new();
        for node in graph.nodes() {
            let args: Vec<u64> = node.args.iter().map(|arg| values[arg.index()]).collect();
            let widths: Vec<u16> = node.args.iter().map(|arg| graph.bits(*arg)).collect();
            values.push(match node.kind {
                Kind::Input(Input::Byte(at)) => byte(at),
                kind => apply(kind, &args, &widths, node.bits),
            });
        }
        values[id.index()]
    }

    #[test]
    fn a_wide_select_fits_stages_and_takes_the_first_true_condition() {
        for count in [17, 33, 100, 256, 257, 600] {
            let mut graph = Graph::default();
            let parts = conditions(&mut graph, count);
            let id = split_wide_select(&mut graph, parts);
            let selections = graph.nodes().iter().filter(|node| node.kind == Kind::Select);
            let widest = selections.map(|node| node.args.len() / 2).max();
            assert!(widest <= Some(MAX_CONDITIONS), "{count}: {widest:?}");
            let count = count as u16;
            for first in 0..count {
                for second in [first, (first + 1).min(count - 1), count - 1] {
                    assert_eq!(
                        value(&graph, id, [second, first]),
                        1000 + u64::from(first),
                        "{count}: {first} {second}"
                    );
                }
            }
            assert_eq!(value(&graph, id, [count, count]), 1);
        }
    }

    /// A comparison of a sum by the sign of another one: every order of terms, with limits around the edges.
    #[test]
    fn a_sum_is_compared_by_the_sign_of_another() {
        const EDGES: [u64; 7] = [0, 1, 2, (1 << 39) - 1, 1 << 39, (1 << 39) + 1, (1 << 40) - 1];
        let target = Target::default();
        for (op, how) in [Binary::Add, Binary::Sub]
            .into_iter()
            .flat_map(|op| [Compare::Below, Compare::SignedBelow].map(move |how| (op, how)))
        {
            for (is_late, is_first) in [(0, true), (0, false), (1, true), (1, false)] {
                let mut graph = Graph::default();
                // The words of these bytes arrive in stage 0, and in stage 3 for the late term.
                let mut number = |first: i64| {
                    let bytes = (0..5).map(|at| graph.byte(first + at)).collect();
                    graph.concat(bytes)
                };
                let places = [[192, 0], [0, 192]][is_late];
                let (a, b, limit) = (number(places[0]), number(places[1]), number(8));
                let sum = graph.binary(op, a, b);
                let args = if is_first { vec![sum, limit] } else { vec![limit, sum] };
                let plain = graph.make(Kind::Compare(how), args, 1);
                let mut trees = Trees { target: &target, arrivals: Arrivals::default(), own: Vec::new() };
                let by_sign = trees.by_sign(&mut graph, plain);
                assert_ne!(by_sign, plain, "{op:?} {how:?}");
                for (x, y, z) in EDGES.iter().flat_map(|x| EDGES.iter().flat_map(move |y| EDGES.map(|z| (*x, *y, z)))) {
                    let byte = |at: u16| match i64::from(at) {
                        at if (8..13).contains(&at) => z >> (8 * (at - 8)) & 255,
                        at if (places[0]..places[0] + 5).contains(&at) => x >> (8 * (at - places[0])) & 255,
                        at => y >> (8 * (at - places[1])) & 255,
                    };
                    let [plain, other] = [plain, by_sign].map(|id| evaluated(&graph, id, byte));
                    assert_eq!(plain, other, "{op:?} {how:?}: {x:#x} {y:#x} {z:#x}, sum first: {is_first}");
                }
            }
        }
    }
}
