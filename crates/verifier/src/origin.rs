// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Precision tracking: the numbers that safety depends on, and those that they were computed from.
//!
//! Goal: two states that differ in a number are equivalent unless the number is precise: it became part of an address
//! or a length, or decided a branch. This is only known later, so every number keeps its origin, and marking one marks
//! all that it was computed from.
//!
//! ```text
//!   r1 = *(u8 *)(r6 + 0)     a
//!   r2 = r1                  a
//!   r2 <<= 2                 b ◄ a
//!   r7 += r2                 marks b, and so a: where r1 was still in a register, it is precise there too
//! ```
//!
//! A copy of a number in another register or slot has an origin of its own, derived from that of the number: marking
//! one copy does not mark the others. The same holds in time: numbers get new origins at checkpoints, so that what a
//! number decides before a checkpoint does not make it precise after it. The kernel's verifier tracks precision by
//! state and place likewise.
//!
//! Invariant: a marked number has marked parents only. Nodes are never freed; there are at most a few for each walked
//! instruction and for each register of a checkpoint, of 20 bytes.
//!
//! # Source
//! [Linux kernel/bpf/verifier.c `mark_chain_precision`]

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin(u32);

#[derive(Debug, Clone, Copy)]
struct Node {
    parents: [u32; 2],
    /// The number that this one is a copy of, through any number of copies; itself if it is not a copy.
    root: u32,
    matters: bool,
    is_copied: bool,
}

/// No parent.
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct Origins {
    nodes: Vec<Node>,
    /// By number in an iteration, the numbers that take its place in the next one.
    iterations: HashMap<u32, Vec<u32>>,
    work: Vec<u32>,
}

impl Origins {
    /// A number without parents: a constant, or a value loaded from memory.
    pub(super) fn fresh(&mut self) -> Origin {
        self.node([NONE; 2])
    }

    /// A number computed from one or two others.
    pub(super) fn made_from(&mut self, one: Origin, other: Option<Origin>) -> Origin {
        self.node([one.0, other.map_or(NONE, |other| other.0)])
    }

    fn node(&mut self, parents: [u32; 2]) -> Origin {
        let number = self.nodes.len() as u32;
        self.nodes.push(Node { parents, root: number, matters: false, is_copied: false });
        Origin(number)
    }

    /// A copy of a number in another register or slot, or in a later state.
    pub(super) fn copy(&mut self, origin: Origin) -> Origin {
        let copy = self.node([origin.0, NONE]);
        if let Some(node) = self.nodes.get_mut(origin.0 as usize) {
            node.is_copied = true;
            let root = node.root;
            self.nodes[copy.0 as usize].root = root;
        }
        copy
    }

    /// Whether the number is precise so far, or has a copy.
    pub(super) fn is_used(&self, origin: Origin) -> bool {
        self.nodes.get(origin.0 as usize).is_some_and(|node| node.matters || node.is_copied)
    }

    /// Whether the number or any copy of it is precise so far.
    pub(super) fn any_copy_matters(&self, origin: Origin) -> bool {
        // Marking a copy marks the original.
        self.nodes.get(origin.0 as usize).is_some_and(|node| self.matters(Origin(node.root)))
    }

    /// Marks a number precise, and all that it was computed from.
    pub(super) fn mark(&mut self, origin: Origin) {
        self.work.push(origin.0);
        while let Some(at) = self.work.pop() {
            let Some(node) = self.nodes.get_mut(at as usize).filter(|node| !node.matters) else { continue };
            node.matters = true;
            self.work.extend(node.parents.iter().filter(|parent| **parent != NONE));
            self.work.extend(self.iterations.get(&at).into_iter().flatten());
        }
    }

    /// An iteration begins with `again` where the first one began with `first`: both are precise, or neither.
    pub(super) fn carry_over(&mut self, first: Origin, again: Origin) {
        if first == again {
            return;
        }
        if self.matters(first) {
            self.mark(again);
        } else {
            self.iterations.entry(first.0).or_default().push(again.0);
        }
    }

    /// Whether the number is precise so far.
    pub(super) fn matters(&self, origin: Origin) -> bool {
        self.nodes.get(origin.0 as usize).is_some_and(|node| node.matters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_number_was_made_from_matters_with_it() {
        let mut origins = Origins::default();
        let (a, b, c) = (origins.fresh(), origins.fresh(), origins.fresh());
        let sum = origins.made_from(a, Some(b));
        let shifted = origins.made_from(sum, None);
        let other = origins.made_from(sum, Some(c));
        origins.mark(shifted);
        assert_eq!([a, b, sum, shifted].map(|origin| origins.matters(origin)), [true; 4]);
        assert_eq!([c, other].map(|origin| origins.matters(origin)), [false; 2]);
        origins.mark(other);
        assert!(origins.matters(c));
    }

    #[test]
    fn copies_matter_by_themselves() {
        let mut origins = Origins::default();
        let first = origins.fresh();
        let (one, other) = (origins.copy(first), origins.copy(first));
        let later = origins.copy(other);
        let sum = origins.made_from(one, None);
        origins.mark(sum);
        assert_eq!([first, one, other, later].map(|origin| origins.matters(origin)), [true, true, false, false]);
        assert_eq!([first, one, other, later].map(|origin| origins.any_copy_matters(origin)), [true; 4]);
        assert_eq!([first, one, other, later].map(|origin| origins.is_used(origin)), [true, true, true, false]);
        assert!(origins.any_copy_matters(sum) && !origins.is_used(later));
    }

    #[test]
    fn what_comes_round_matters_with_what_it_becomes() {
        let mut origins = Origins::default();
        let first = origins.fresh();
        let again = origins.made_from(first, None);
        let (other, later) = (origins.fresh(), origins.fresh());
        origins.carry_over(first, again);
        origins.carry_over(other, later);
        assert!(!origins.matters(again));
        origins.mark(first);
        assert!(origins.matters(again) && !origins.matters(later));
        origins.mark(other);
        assert!(origins.matters(later));
        let last = origins.fresh();
        origins.carry_over(other, last);
        assert!(origins.matters(last));
    }

    #[test]
    fn long_chains_take_no_stack() {
        let mut origins = Origins::default();
        let first = origins.fresh();
        let last = (0..1_000_000).fold(first, |origin, _| origins.made_from(origin, None));
        origins.mark(last);
        assert!(origins.matters(first));
    }
}
