// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dominator tree of the blocks walked so far. Each iteration of a loop and each inlined call has blocks of its
//! own.
//!
//! ```text
//!   0 ─► 1 ─► 3 ─► 4        block 0 is the immediate dominator of 3; if no path leaves 0 for elsewhere, block 3 also
//!    └─► 2 ─┘               postdominates 0, and its condition is that of 0
//! ```

use crate::bdd::Bdd;

#[derive(Debug)]
struct Block {
    /// The immediate dominator.
    idom: usize,
    /// A farther dominator, for jumps in the search of common dominators [Myers 1983].
    jump: usize,
    depth: u32,
    condition: Bdd,
    /// Over all blocks that paths leave this subtree for: the least depth of their immediate dominators.
    least_depth_out: u32,
}

/// All blocks; the first one is the entry.
#[derive(Debug)]
pub(super) struct Blocks(Vec<Block>);

pub(super) const FIRST: usize = 0;

impl Blocks {
    pub(super) fn new() -> Blocks {
        Blocks(vec![Block { idom: 0, jump: 0, depth: 1, condition: Bdd::TRUE, least_depth_out: u32::MAX }])
    }

    pub(super) fn add(&mut self, idom: usize, condition: Bdd) -> usize {
        let (jump, farther) = (self.0[idom].jump, self.0[self.0[idom].jump].jump);
        let [here, there, yonder] = [idom, jump, farther].map(|block| self.0[block].depth);
        let jump = if here - there == there - yonder { farther } else { idom };
        self.0.push(Block { idom, jump, depth: here + 1, condition, least_depth_out: u32::MAX });
        self.0.len() - 1
    }

    pub(super) fn condition(&self, block: usize) -> Bdd {
        self.0[block].condition
    }

    /// The nearest common dominator of two blocks.
    pub(super) fn common_dominator(&self, one: usize, other: usize) -> usize {
        let depth = self.0[one].depth.min(self.0[other].depth);
        let (mut one, mut other) = (self.ancestor(one, depth), self.ancestor(other, depth));
        while one != other {
            let is_far = self.0[one].jump != self.0[other].jump;
            let up = |block: &Block| if is_far { block.jump } else { block.idom };
            (one, other) = (up(&self.0[one]), up(&self.0[other]));
        }
        one
    }

    fn ancestor(&self, mut block: usize, depth: u32) -> usize {
        while self.0[block].depth > depth {
            let jump = self.0[block].jump;
            block = if self.0[jump].depth >= depth { jump } else { self.0[block].idom };
        }
        block
    }

    /// The child of `idom` in the dominator tree that dominates this block; `None` for `idom` itself.
    pub(super) fn child_towards(&self, block: usize, idom: usize) -> Option<usize> {
        (block != idom).then(|| self.ancestor(block, self.0[idom].depth + 1))
    }

    pub(super) fn is_dominated_by(&self, block: usize, idom: usize) -> bool {
        self.ancestor(block, self.0[idom].depth) == idom
    }

    /// Records an edge out of a block, to a block whose immediate dominator is `idom`, or to the exit.
    pub(super) fn add_edge(&mut self, mut block: usize, idom: Option<usize>) {
        let depth = idom.map_or(0, |idom| self.0[idom].depth);
        while self.0[block].depth > depth && self.0[block].least_depth_out > depth {
            self.0[block].least_depth_out = depth;
            block = self.0[block].idom;
        }
    }

    /// Whether a path through this block has left for a block that it does not dominate.
    pub(super) fn has_edges_out(&self, block: usize) -> bool {
        self.0[block].least_depth_out < self.0[block].depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_dominators_and_edges_out_of_a_subtree() {
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
            assert_eq!(blocks.common_dominator(side[8], *block), expected);
            assert_eq!(blocks.is_dominated_by(side[8], *block), place <= 16);
        }
        let elsewhere = |blocks: &Blocks, all: &[usize]| -> Vec<usize> {
            all.iter().copied().filter(|block| blocks.has_edges_out(*block)).collect()
        };
        // Out of the side into a block after number 7 of the line.
        blocks.add_edge(side[3], Some(line[7]));
        assert_eq!(elsewhere(&blocks, &side), side[..=3]);
        assert_eq!(elsewhere(&blocks, &line), line[8..=16]);
        blocks.add_edge(side[5], None);
        assert_eq!(elsewhere(&blocks, &side), side[..=5]);
        assert!(elsewhere(&blocks, &line) == line[..=16] && blocks.has_edges_out(FIRST));
    }
}
