// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a construction, and its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flowloom_isa::Program;
use flowloom_isa::op::Op;
use flowloom_verifier::Proof;
use rustc_hash::FxHashMap;

use super::dominators::Blocks;
use super::flow::{Edge, Flow};
use super::headers::Headers;
use super::linked::Linked;
use super::offset::{Span, Sum};
use super::state::State;
use crate::bdd::{Bdd, Conditions};
use crate::dataflow::Pattern;
use crate::graph::{Graph, Id};
use crate::live::Live;
use crate::shape::Shape;

/// The most instructions after unrolling and inlining.
pub(super) const MAX_WALKED: usize = 100_000;
/// The most BDD nodes of all path conditions.
pub(super) const MAX_TESTS: usize = 2_000_000;
/// The most nodes of the graph during construction.
pub(super) const MAX_NODES: usize = 1_000_000;
/// The most comparisons of packet offsets known only at run time.
pub(super) const MAX_COMPARISONS: usize = 200_000;

/// The budget of a construction, in counted work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) nodes: usize,
    pub(super) comparisons: usize,
    pub(super) tests: usize,
}

pub(super) const LIMITS: Limits = Limits { nodes: MAX_NODES, comparisons: MAX_COMPARISONS, tests: MAX_TESTS };
/// The most maps or records that paths may choose from for one call.
pub(super) const MAX_CHOICES: usize = 16;
/// The most bytes of memory given to one call, in all.
pub(super) const MAX_BYTES: usize = 512;

/// A block that waits to be walked.
pub(super) struct Arrival {
    pub(super) at: usize,
    pub(super) iterations: Vec<(u32, u32)>,
    pub(super) paths: Vec<Path>,
}

/// A path into a block, or to the exit.
pub(super) struct Path {
    pub(super) condition: Bdd,
    pub(super) state: State,
    /// The block that it comes from.
    pub(super) from: usize,
    pub(super) edge: Edge,
    /// The bit that this path was taken, given that one of those at the join point was.
    pub(super) taken: Option<Id>,
}

pub(super) struct Builder<'a> {
    pub(super) program: &'a Program,
    /// The program with the targets of its tail calls.
    pub(super) linked: &'a Linked,
    pub(super) code: &'a [Option<Op>],
    pub(super) live: Live,
    pub(super) proof: &'a Proof,
    pub(super) graph: Graph,
    pub(super) conditions: Conditions,
    pub(super) shapes: FxHashMap<usize, Rc<Shape>>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) work: BTreeMap<Vec<u32>, Arrival>,
    /// The paths that have ended; the result of each is in `r0`.
    pub(super) ends: Vec<Path>,
    pub(super) blocks: Blocks,
    pub(super) flow: Flow,
    /// The edges of the current block.
    pub(super) edge: Edge,
    /// Bits that are BDD variables whatever they are made of.
    pub(super) opaque: FxHashMap<Id, Bdd>,
    pub(super) parsed_headers: Headers,
    pub(super) block: usize,
    /// A memo table of the possible values of nodes.
    pub(super) value_sets: FxHashMap<Id, Option<BTreeSet<u64>>>,
    /// Memo tables of nodes as sums, of their ranges, and of which sums are 0.
    pub(super) sums: FxHashMap<Id, Sum>,
    pub(super) spans: FxHashMap<Id, Span>,
    pub(super) zeros: FxHashMap<Sum, Id>,
    /// The budget of comparisons inside of selects for the current comparison.
    pub(super) comparisons_left: usize,
    pub(super) reached: Reached,
    /// The current depth of recursion over nodes.
    pub(super) depth: usize,
    /// The condition of the current block.
    pub(super) path: Bdd,
    pub(super) walked: usize,
    pub(super) first_tail_call: Option<usize>,
    /// The current instruction.
    pub(super) at: usize,
    pub(super) limits: Limits,
}

#[derive(Debug, Default)]
pub(super) struct Reached {
    /// By base: the path conditions of accesses, and the greatest end.
    pub(super) accesses: BTreeMap<Id, (Bdd, i64)>,
    /// Comparisons of offsets, and their path conditions.
    pub(super) tests: BTreeMap<Id, Bdd>,
    /// Comparisons of other numbers.
    pub(super) others: BTreeSet<Id>,
}
