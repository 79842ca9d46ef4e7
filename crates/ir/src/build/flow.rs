// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bits that tell the paths into a join point apart, by as few tests as possible.
//!
//! ```text
//!   if kind goto v6            At the join point `kind` alone tells the paths apart: the length checks passed on both,
//!   v4: if short goto out      or they would not meet. Path conditions, which contain every test, lose this once they
//!       goto both              become bits of their own.
//!   v6: if short goto out
//!   both:
//! ```
//!
//! **Steps.** Backwards from the join point to its immediate dominator: the test at the end of a block matters if both
//! of its edges lead to the join point.

use std::collections::{BTreeMap, BTreeSet};

use super::builder::Builder;
use crate::graph::Id;

/// The most blocks between dominator and join point.
const MAX_BLOCKS: usize = 600;

/// A tested bit, and the value that takes the edge.
pub(super) type Test = Option<(Id, bool)>;
/// By block, the tests on the edges that lead to the join point.
type OutEdges = BTreeMap<usize, Vec<Test>>;

/// An edge into a block: its source, and the test at the end of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) test: Test,
}

/// The blocks in the order in which they were walked.
#[derive(Debug, Default)]
pub(super) struct Flow {
    into: Vec<Vec<Edge>>,
    /// By block, the immediate dominator and the depth in the dominator tree.
    idom: Vec<(usize, usize)>,
}

impl Flow {
    pub(super) fn add(&mut self, into: Vec<Edge>) -> usize {
        // The entry has no incoming edges.
        let into = if self.into.is_empty() { Vec::new() } else { into };
        let idom = self.common(&into);
        let depth = self.idom.get(idom).map_or(0, |(_, depth)| depth + 1);
        self.into.push(into);
        self.idom.push((idom, depth));
        self.into.len() - 1
    }

    fn common(&self, into: &[Edge]) -> usize {
        into.iter().map(|edge| edge.from).reduce(|one, other| self.common_of(one, other)).unwrap_or(0)
    }

    fn common_of(&self, mut one: usize, mut other: usize) -> usize {
        while one != other {
            let later = if self.idom[one].1 >= self.idom[other].1 { &mut one } else { &mut other };
            *later = self.idom[*later].0;
        }
        one
    }

    /// The blocks between these edges and the dominator, without the dominator.
    fn between(&self, into: &[Edge], idom: usize) -> Option<Vec<usize>> {
        let mut found = BTreeSet::new();
        let mut work: Vec<usize> = into.iter().map(|edge| edge.from).collect();
        while let Some(block) = work.pop() {
            if block != idom && found.insert(block) {
                work.extend(self.into[block].iter().map(|edge| edge.from));
                if found.len() > MAX_BLOCKS {
                    return None;
                }
            }
        }
        Some(found.into_iter().collect())
    }
}

impl Builder<'_> {
    /// For each edge into a join point, a bit that it was taken, given that one of them was.
    pub(super) fn edge_bits(&mut self, into: &[Edge]) -> Option<Vec<Id>> {
        let idom = self.flow.common(into);
        let between = self.flow.between(into, idom)?;
        // The edges of each block towards the join point.
        let mut out_edges = OutEdges::new();
        for edge in between.iter().flat_map(|block| &self.flow.into[*block]).chain(into) {
            out_edges.entry(edge.from).or_default().push(edge.test);
        }
        let is_decided = |tests: &Vec<Test>| match tests.as_slice() {
            [_] => true,
            [Some((a, x)), Some((b, y))] => a == b && x != y,
            _ => false,
        };
        if !out_edges.values().all(is_decided) {
            return None;
        }
        let mut bits = BTreeMap::from([(idom, self.graph.number(1, 1))]);
        for block in between {
            let into = self.flow.into[block].clone();
            let parts: Option<Vec<Id>> = into.iter().map(|edge| self.edge_bit(&out_edges, &bits, edge)).collect();
            let mut any = self.graph.number(0, 1);
            for part in parts? {
                any = self.graph.or(any, part);
            }
            bits.insert(block, any);
        }
        into.iter().map(|edge| self.edge_bit(&out_edges, &bits, edge)).collect()
    }

    fn edge_bit(&mut self, out_edges: &OutEdges, bits: &BTreeMap<usize, Id>, edge: &Edge) -> Option<Id> {
        let from = *bits.get(&edge.from)?;
        let tests = out_edges.get(&edge.from)?;
        Some(match edge.test.filter(|_| tests.len() > 1) {
            Some((test, true)) => self.graph.and(from, test),
            Some((test, false)) => {
                let not = self.graph.not(test);
                self.graph.and(from, not)
            }
            None => from,
        })
    }
}
