// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variable packet offsets as one-hot cursors.
//!
//! **Goal.** No adders, shifters or comparators where a program follows headers of variable length. A pipeline sees the
//! first bytes of a packet, so that a header can be at few offsets only; a one-hot encoding says which.
//!
//! ```text
//!   v5 = add v4 (concat 000 v3)      p18 = or (and p14 (eq v3 1)) (and p10 (eq v3 2))      one bit an offset
//!   v6 = bytes 1 v5                  v6 = or (and p18 byte 19) (and p14 byte 15) ...
//!   v7 = sbelow v0 (add v5 8)        v7 = not (or (and p18 (not (sbelow v0 26))) ...)
//!   v8 = eq v6 17                    v8 = or (and p18 (eq byte 19 17)) ...
//! ```
//!
//! **Steps.** First comes the bit that decides whether the program accesses bytes beyond the window, which has to be
//! known before any effect. Then a load becomes an AND-OR mux of the bytes at all offsets. Comparisons of loaded bytes
//! and of offsets are pushed through the mux: they are done for each offset before it is known which one applies.
//!
//! **Before.** [`Reach`](crate::Reach) lists all accesses and comparisons of offsets with their path conditions.
//! **After.** `Ending::slow` is the bit that sends a packet to the slow path; every effect has its complement in its
//! predicate.
//!
//! **Limits.** Offsets that are results of effects, and those with more than [`places::MAX_PLACES`] possible values,
//! stay numbers.

mod places;

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{largest, remade, same};
use crate::dataflow::{Dataflow, Reach, Reaching};
use crate::graph::{Binary, Compare, Graph, Id, Input, Kind, Node};
use places::{Places, any};

/// The distance past the window to which ends of headers are tracked, so that the length check of a packet is exact.
const BEHIND_BYTES: u64 = 32;

/// Nodes of offsets that effects give or choose, which are followed for an access; beyond it the greatest offset
/// counts.
const MAX_OFFSETS: u32 = 64;

/// Replaces variable packet offsets by one-hot cursors. The window is `window_bytes`, or larger where constant offsets
/// exceed it, in words of `word_bytes`.
pub fn run(dataflow: &Dataflow, word_bytes: u16, window_bytes: u32) -> Dataflow {
    let used = dataflow.used();
    let is_used = |reach: &&Reach| used.contains(&reach.by.subject()) && used.contains(&reach.when);
    let reaches: Vec<Reach> = dataflow.reaches.iter().filter(is_used).copied().collect();
    let mut pass = Pass::new(dataflow, &reaches, word_bytes, window_bytes);
    let first = pass.cone(&reaches);
    first.iter().for_each(|id| pass.node(*id, None));
    let slow = pass.slow(&reaches);
    used.difference(&first).for_each(|id| pass.node(*id, Some(slow)));
    let Pass { graph, new, .. } = pass;
    let mut made = remade(dataflow, graph, |id| new[id.index()]);
    made.ending.slow = slow;
    made.reaches = Vec::new();
    made
}

/// Whether a node is the length of the packet as received.
fn is_length(graph: &Graph, id: Id) -> bool {
    let node = graph.node(id);
    match node.kind {
        Kind::Input(Input::Length) => true,
        Kind::Concat => is_length(graph, node.args[0]) && graph.as_const(node.args[1]) == Some(0),
        _ => false,
    }
}

struct Pass<'a> {
    old: &'a Dataflow,
    graph: Graph,
    new: Vec<Option<Id>>,
    places: Places,
    /// The size of the window in bytes.
    window: u64,
    /// The base offsets of accesses, by their old ids.
    bases: FxHashSet<Id>,
    /// By old id, whether a node depends on an effect, and its maximum.
    is_late: Vec<bool>,
    largest: Vec<u64>,
    /// The comparisons, by their old ids, with the path conditions under which they matter.
    tests: FxHashMap<Id, Id>,
    /// Comparisons that bytes beyond the window decide, with the path conditions under which they matter, by their old
    /// ids.
    missed: Vec<(Id, Id)>,
}

impl<'a> Pass<'a> {
    fn new(old: &'a Dataflow, reaches: &[Reach], word_bytes: u16, window_bytes: u32) -> Pass<'a> {
        let last = old.graph.nodes().iter().filter_map(|node| match node.kind {
            Kind::Input(Input::Byte(at)) => Some(u64::from(at) + 1),
            _ => None,
        });
        let word = u64::from(word_bytes);
        let window = last.max().unwrap_or(0).div_ceil(word) * word;
        let (mut bases, mut tests) = (FxHashSet::default(), FxHashMap::default());
        let is_late = of_effects(&old.graph);
        for reach in reaches {
            match reach.by {
                Reaching::Access { base, .. } if is_late[base.index()] => {}
                Reaching::Access { base, .. } => {
                    bases.insert(base);
                }
                Reaching::Test(test) => {
                    tests.insert(test, reach.when);
                }
            }
        }
        Pass {
            old,
            graph: Graph::default(),
            new: vec![None; old.graph.nodes().len()],
            places: Places::default(),
            window: window.max(window_bytes.into()),
            bases,
            is_late,
            largest: largest(old),
            tests,
            missed: Vec::new(),
        }
    }

    /// The nodes from which the slow-path bit is computed.
    fn cone(&self, reaches: &[Reach]) -> BTreeSet<Id> {
        let mut cone = BTreeSet::new();
        let (graph, length) = (&self.old.graph, self.old.ending.tail);
        let mut work: Vec<Id> = reaches.iter().map(|reach| reach.when).collect();
        let mut parts = BTreeSet::new();
        reaches.iter().for_each(|reach| self.early_parts(reach.by.subject(), &mut parts));
        work.extend(parts.into_iter().filter(|id| !self.is_late[id.index()]));
        work.extend((!reaches.is_empty() && is_length(graph, length)).then_some(length));
        while let Some(id) = work.pop() {
            if cone.insert(id) {
                work.extend(&graph.node(id).args);
            }
        }
        cone
    }

    /// The new node for an old one, for use by its users.
    fn made(&self, id: Id) -> Id {
        self.new[id.index()].expect("an argument is made before its users")
    }

    fn node(&mut self, id: Id, slow: Option<Id>) {
        let mut node = self.old.graph.node(id).clone();
        let base = node.args.first().copied();
        node.args.iter_mut().for_each(|arg| *arg = self.made(*arg));
        self.graph.at(self.old.graph.insn(id));
        let new = match node.kind {
            // An offset before the first byte is not among those tracked; short packets are in the window as a whole
            // anyway.
            Kind::Bytes { ahead }
                if base.is_some_and(|base| self.bases.contains(&base))
                    && self.places.largest(&self.graph, node.args[0]) <= i32::MAX as u64 =>
            {
                self.muxed(ahead, node)
            }
            Kind::Compare(how) => self.compared(id, how, node),
            Kind::Binary(_) => {
                let computed = self.places.computed(&mut self.graph, &node);
                computed.unwrap_or_else(|| same(&mut self.graph, node))
            }
            Kind::Effect(_) => {
                let is_idle = self.old.access(id).is_none_or(|access| self.old.is_idle(access));
                if let Some(slow) = slow.filter(|_| !is_idle) {
                    let fast = self.graph.not(slow);
                    node.args[0] = self.graph.and(node.args[0], fast);
                }
                same(&mut self.graph, node)
            }
            _ => same(&mut self.graph, node),
        };
        self.new[id.index()] = Some(new);
    }

    /// Bytes at a variable offset: an AND-OR mux over the possible offsets.
    fn muxed(&mut self, ahead: i32, node: Node) -> Id {
        let graph = &mut self.graph;
        let Some(all) = self.places.within(graph, node.args[0], self.window) else { return same(graph, node) };
        let bytes = i64::from(node.bits / 8);
        let mut parts = Vec::new();
        for (place, bit) in all.iter() {
            let at = *place as i64 + i64::from(ahead);
            if at + bytes > self.window as i64 {
                continue;
            }
            let bytes = (0..bytes).map(|number| graph.byte(at + number)).collect();
            parts.push((*bit, graph.concat(bytes)));
        }
        self.places.muxed(graph, node.args[0], parts, node.bits)
    }

    fn compared(&mut self, id: Id, how: Compare, node: Node) -> Id {
        let Pass { graph, places, .. } = self;
        if let Some(bit) = places.compared_cases(graph, how, &node.args) {
            return bit;
        }
        let when = self.tests.get(&id).copied();
        let most = self.window + BEHIND_BYTES;
        match places.compared_places(graph, how, &node.args, (most, when.is_some())) {
            Some((bit, missed)) => {
                self.missed.extend(missed.zip(when));
                bit
            }
            None => same(graph, node),
        }
    }

    /// The bit that an access that ends `end` bytes after an offset is within the window.
    fn is_inside(&mut self, base: Id, end: i64) -> Id {
        let graph = &mut self.graph;
        // The start of the packet may have moved before its first byte.
        if starts_before(graph, base) {
            let node = graph.node(base).clone();
            if let Some(offset) = graph.as_const(base) {
                return graph.number(u64::from(i64::from(offset as i32) + end <= self.window as i64), 1);
            }
            let last = node.args.len() - 1;
            let parts = node.args.iter().enumerate().map(|(place, arg)| match place != last && place % 2 == 0 {
                true => *arg,
                false => self.is_inside(*arg, end),
            });
            let parts = parts.collect();
            return self.graph.select(parts);
        }
        match self.places.within(graph, base, self.window) {
            Some(all) => {
                let all = all.iter().filter(|(place, _)| *place as i64 + end <= self.window as i64);
                let bits = all.map(|(_, bit)| *bit).collect();
                any(graph, bits)
            }
            None => {
                let limit = graph.number((self.window as i64 - end + 1).max(0) as u64, 32);
                graph.compare(Compare::Below, base, limit)
            }
        }
    }

    /// The nodes that depend on no effect and from which [`Pass::is_inside_early`] is computed.
    fn early_parts(&self, base: Id, seen: &mut BTreeSet<Id>) {
        if !seen.insert(base) || !self.is_late[base.index()] {
            return;
        }
        let node = self.old.graph.node(base);
        if matches!(node.kind, Kind::Select | Kind::Binary(Binary::Add)) {
            node.args.iter().for_each(|arg| self.early_parts(*arg, seen));
        }
    }

    /// A bit, computed without effects, that implies that an access is within the window: where an effect chooses among
    /// offsets, all of them count; where it gives one, the greatest. The base offset is the sum of some old nodes.
    fn is_inside_early(&mut self, mut terms: Vec<Id>, end: i64, left: &mut u32) -> Id {
        let Some(place) = terms.iter().position(|term| self.is_late[term.index()]) else {
            let sum = terms.iter().map(|term| self.made(*term)).collect::<Vec<_>>();
            let sum = sum.into_iter().reduce(|sum, term| self.graph.binary(Binary::Add, sum, term));
            let sum = sum.unwrap_or_else(|| self.graph.number(0, 32));
            return self.is_inside(sum, end);
        };
        let node = self.old.graph.node(terms[place]).clone();
        *left = left.saturating_sub(1);
        match node.kind {
            Kind::Binary(Binary::Add) if *left > 0 => {
                terms.remove(place);
                terms.extend(node.args);
                self.is_inside_early(terms, end, left)
            }
            Kind::Select if *left > 0 => {
                let is_arm = |place: usize| place % 2 == 1 || place + 1 == node.args.len();
                let conditions =
                    |node: &Node| node.args.iter().step_by(2).copied().take(node.args.len() / 2).collect::<Vec<_>>();
                let chosen = conditions(&node);
                let arms: Vec<usize> = (0..node.args.len()).filter(|place| is_arm(*place)).collect();
                let inside = arms.iter().map(|arm| {
                    // What the same conditions choose is chosen alike.
                    let arm_of = |term: &Id| {
                        let other = self.old.graph.node(*term);
                        let is_alike = other.kind == Kind::Select && conditions(other) == chosen;
                        if is_alike { other.args[*arm] } else { *term }
                    };
                    let terms = terms.iter().map(arm_of).collect();
                    self.is_inside_early(terms, end, left)
                });
                let inside: Vec<Id> = inside.collect();
                if chosen.iter().any(|condition| self.is_late[condition.index()]) {
                    let outside = inside.iter().map(|bit| self.graph.not(*bit)).collect();
                    let outside = any(&mut self.graph, outside);
                    return self.graph.not(outside);
                }
                let chosen = chosen.iter().map(|condition| self.made(*condition)).collect::<Vec<_>>();
                let mut parts: Vec<Id> = chosen.into_iter().zip(&inside).flat_map(|(when, bit)| [when, *bit]).collect();
                parts.extend(inside.last());
                self.graph.select(parts)
            }
            _ => {
                let most = terms.iter().map(|term| self.largest[term.index()]).fold(0, u64::saturating_add);
                let end = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(end);
                self.graph.number((end <= self.window as i64).into(), 1)
            }
        }
    }

    /// The bit that sends a packet to the slow path.
    fn slow(&mut self, reaches: &[Reach]) -> Id {
        let mut beyond = Vec::new();
        for reach in reaches {
            let Reaching::Access { base, end } = reach.by else { continue };
            let when = self.made(reach.when);
            let inside = self.is_inside_early(vec![base], end, &mut { MAX_OFFSETS });
            let outside = self.graph.not(inside);
            beyond.push(self.graph.and(when, outside));
        }
        let beyond = any(&mut self.graph, beyond);
        let tail = self.old.ending.tail;
        let beyond = match self.new[tail.index()].filter(|_| is_length(&self.old.graph, tail)) {
            // A packet that ends within the window is visible as a whole.
            Some(length) => {
                let window = self.graph.number(self.window, 32);
                let is_longer = self.graph.compare(Compare::Below, window, length);
                self.graph.and(is_longer, beyond)
            }
            None => beyond,
        };
        let missed: Vec<(Id, Id)> = std::mem::take(&mut self.missed);
        let missed = missed.into_iter().map(|(missed, when)| {
            let when = self.made(when);
            self.graph.and(missed, when)
        });
        let all = missed.chain([beyond]).collect();
        any(&mut self.graph, all)
    }
}

/// By node, whether it depends on an effect.
fn of_effects(graph: &Graph) -> Vec<bool> {
    let mut effects: Vec<bool> = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids() {
        let node = graph.node(id);
        let is_effect = matches!(node.kind, Kind::Effect(_) | Kind::Input(Input::Only(_)));
        effects.push(is_effect || node.args.iter().any(|arg| effects[arg.index()]));
    }
    effects
}

/// Whether an offset is a negative constant, or selected from some.
fn starts_before(graph: &Graph, offset: Id) -> bool {
    let node = graph.node(offset);
    let is_negative = |id: Id| graph.as_const(id).is_some_and(|offset| (offset as i32) < 0);
    is_negative(offset) || node.kind == Kind::Select && node.args.iter().skip(1).any(|arg| is_negative(*arg))
}
