// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dominator tree of the blocks walked so far. Each iteration of a loop and each inlined call has blocks of its
//! own.
//!
//! ```text
//!   0 ─► 1 ─► 3 ─► 4        block 0 is the immediate dominator of 3; if no path leaves 0 for elsewhere, block 3 also
//!    └─► 2 ─┘               postdominates 0, and its condition is that of 0
//! ```

use crate::bdd::Bdd;

/// A block.
#[derive(Debug)]
struct Block {
    /// The immediate dominator.
    before: usize,
    /// A farther dominator, for jumps in the search of common dominators [Myers 1983].
    far: usize,
    depth: u32,
    condition: Bdd,
    /// Over all blocks that paths leave this subtree for: the least depth of their immediate dominators.
    leads_to: u32,
}

/// All blocks; the first one is the entry.
#[derive(Debug)]
pub(super) struct Blocks(Vec<Block>);

/// The entry.
pub(super) const FIRST: usize = 0;

impl Blocks {
    pub(super) fn new() -> Blocks {
        Blocks(vec![Block { before: 0, far: 0, depth: 1, condition: Bdd::TRUE, leads_to: u32::MAX }])
    }

    /// Adds a block with the given immediate dominator.
    pub(super) fn add(&mut self, before: usize, condition: Bdd) -> usize {
        let (far, farther) = (self.0[before].far, self.0[self.0[before].far].far);
        let [here, there, yonder] = [before, far, farther].map(|block| self.0[block].depth);
        let far = if here - there == there - yonder { farther } else { before };
        self.0.push(Block { before, far, depth: here + 1, condition, leads_to: u32::MAX });
        self.0.len() - 1
    }

    pub(super) fn condition(&self, block: usize) -> Bdd {
        self.0[block].condition
    }

    /// The nearest common dominator of two blocks.
    pub(super) fn common(&self, one: usize, other: usize) -> usize {
        let depth = self.0[one].depth.min(self.0[other].depth);
        let (mut one, mut other) = (self.back_to(one, depth), self.back_to(other, depth));
        while one != other {
            let is_far = self.0[one].far != self.0[other].far;
            let back = |block: &Block| if is_far { block.far } else { block.before };
            (one, other) = (back(&self.0[one]), back(&self.0[other]));
        }
        one
    }

    fn back_to(&self, mut block: usize, depth: u32) -> usize {
        while self.0[block].depth > depth {
            let far = self.0[block].far;
            block = if self.0[far].depth >= depth { far } else { self.0[block].before };
        }
        block
    }

    /// The child of `before` in the dominator tree that dominates this block; `None` for `before` itself.
    pub(super) fn next_to(&self, block: usize, before: usize) -> Option<usize> {
        (block != before).then(|| self.back_to(block, self.0[before].depth + 1))
    }

    /// Whether one block dominates another.
    pub(super) fn leads_through(&self, block: usize, before: usize) -> bool {
        self.back_to(block, self.0[before].depth) == before
    }

    /// Records an edge out of a block, to a block whose immediate dominator is `before`, or to the exit.
    pub(super) fn leave(&mut self, mut block: usize, before: Option<usize>) {
        let depth = before.map_or(0, |before| self.0[before].depth);
        while self.0[block].depth > depth && self.0[block].leads_to > depth {
            self.0[block].leads_to = depth;
            block = self.0[block].before;
        }
    }

    /// Whether a path through this block has left for a block that it does not dominate.
    pub(super) fn leads_elsewhere(&self, block: usize) -> bool {
        self.0[block].leads_to < self.0[block].depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_lead_through_what_they_have_in_common() {
        let mut blocks = Blocks::new();
        let line: Vec<usize> = (0..40)
            .scan(FIRST, |last, _| {
                *last = blocks.add(*last, Bdd::TRUE);
                Some(*last)
            })
            .collect();
        let side: Vec<usize> = (0..9)
            .scan(line[16], |last, _| {
                *last = blocks.add(*last, Bdd::TRUE);
                Some(*last)
            })
            .collect();
        for (place, block) in line.iter().enumerate() {
            let expected = line[place.min(16)];
            assert_eq!(blocks.common(side[8], *block), expected);
            assert_eq!(blocks.leads_through(side[8], *block), place <= 16);
        }
        let elsewhere = |blocks: &Blocks, all: &[usize]| -> Vec<usize> {
            all.iter().copied().filter(|block| blocks.leads_elsewhere(*block)).collect()
        };
        // Out of the side into a block after number 7 of the line.
        blocks.leave(side[3], Some(line[7]));
        assert_eq!(elsewhere(&blocks, &side), side[..=3]);
        assert_eq!(elsewhere(&blocks, &line), line[8..=16]);
        blocks.leave(side[5], None);
        assert_eq!(elsewhere(&blocks, &side), side[..=5]);
        assert!(elsewhere(&blocks, &line) == line[..=16] && blocks.leads_elsewhere(FIRST));
    }
}
