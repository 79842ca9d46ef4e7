// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loops of a function, and an order of its blocks in which each loop is contiguous.
//!
//! ```text
//!   0 ─► 1 ─► 2 ─► 4        blocks 1, 2, 3 are a loop with header 1
//!        ▲    │             order: 0, 1, 2, 3, 4
//!        └─ 3 ◄┘
//! ```
//!
//! A loop is entered at its header alone (the control flow graph is reducible). Without its back edges, the body of a
//! loop has the same property [Havlak 1997].

use std::collections::BTreeSet;

use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use rustc_hash::FxHashMap;

/// The position of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spot {
    /// Its index in the order of the blocks.
    pub order: u32,
    /// The headers of the loops around it, the outermost first, by their index in the order.
    pub nest: Vec<u32>,
}

/// An irreducible loop: one with two entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoEntries {
    /// The first instructions of both entries.
    pub entries: [usize; 2],
}

/// The blocks of a function, by their first instruction.
#[derive(Debug, Default)]
pub struct Shape {
    spots: FxHashMap<usize, Spot>,
}

/// Whether an instruction ends a basic block.
pub fn ends(op: Op) -> bool {
    matches!(
        op,
        Op::Exit
            | Op::Jump { .. }
            | Op::JumpLong { .. }
            | Op::Branch { .. }
            | Op::MayGoto { .. }
            | Op::CallLocal { .. }
            | Op::Call { helper: helper::LOOP | helper::FOR_EACH_MAP_ELEM | helper::TAIL_CALL }
    )
}

impl Shape {
    /// The blocks of the function that begins at `entry`, over the edges that `is_feasible` accepts.
    ///
    /// # Errors
    /// A loop with two entries.
    pub fn of(
        code: &[Option<Op>],
        entry: usize,
        is_feasible: impl Fn(usize, usize) -> bool,
    ) -> Result<Shape, TwoEntries> {
        let (mut starts, mut seen, mut work) = (BTreeSet::from([entry]), BTreeSet::new(), vec![entry]);
        while let Some(at) = work.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(op) = code.get(at).copied().flatten() else { continue };
            for next in op.successors(at).filter(|next| is_feasible(at, *next)) {
                if ends(op) {
                    starts.insert(next);
                }
                work.push(next);
            }
        }
        // A block ends where control falls through into a jump target.
        let blocks: Vec<usize> = starts.into_iter().collect();
        let number: FxHashMap<usize, usize> =
            blocks.iter().enumerate().map(|(number, start)| (*start, number)).collect();
        let edges: Vec<Vec<usize>> = blocks
            .iter()
            .map(|start| {
                let mut at = *start;
                loop {
                    let Some(op) = code.get(at).copied().flatten() else { return Vec::new() };
                    let next = at + op.slots();
                    if ends(op) || number.contains_key(&next) {
                        let all = op.successors(at).filter(|next| is_feasible(at, *next));
                        return all.filter_map(|next| number.get(&next).copied()).collect();
                    }
                    at = next;
                }
            })
            .collect();
        let first = number[&entry];
        let mut arranged = Arranged { blocks: &blocks, edges: &edges, cut: BTreeSet::new(), shape: Shape::default() };
        arranged.arrange(&(0..blocks.len()).collect(), first, &[])?;
        Ok(arranged.shape)
    }

    /// The position of the block that begins at this instruction, if one does.
    pub fn spot(&self, at: usize) -> Option<&Spot> {
        self.spots.get(&at)
    }
}

struct Arranged<'a> {
    blocks: &'a [usize],
    edges: &'a [Vec<usize>],
    /// Loop headers whose back edges are left out.
    cut: BTreeSet<usize>,
    shape: Shape,
}

impl Arranged<'_> {
    fn arrange(&mut self, part: &BTreeSet<usize>, entry: usize, nest: &[u32]) -> Result<(), TwoEntries> {
        for component in self.components(part) {
            let is_loop = component.len() > 1 || self.edges_in(component[0], part).any(|next| next == component[0]);
            let order = self.shape.spots.len() as u32;
            if !is_loop {
                let spot = Spot { order, nest: nest.to_vec() };
                self.shape.spots.insert(self.blocks[component[0]], spot);
                continue;
            }
            let inside: BTreeSet<usize> = component.iter().copied().collect();
            let from_outside = |block: &usize| {
                *block == entry
                    || part
                        .iter()
                        .any(|from| !inside.contains(from) && self.edges_in(*from, part).any(|to| to == *block))
            };
            let entries: Vec<usize> = inside.iter().copied().filter(from_outside).collect();
            let [head] = entries.as_slice() else {
                let of = |place: usize| entries.get(place).map_or(0, |block| self.blocks[*block]);
                return Err(TwoEntries { entries: [of(0), of(1)] });
            };
            self.cut.insert(*head);
            let nest: Vec<u32> = nest.iter().copied().chain([order]).collect();
            self.arrange(&inside, *head, &nest)?;
        }
        Ok(())
    }

    fn edges_in<'b>(&'b self, from: usize, part: &'b BTreeSet<usize>) -> impl Iterator<Item = usize> + 'b {
        self.edges[from].iter().copied().filter(|to| part.contains(to) && !self.cut.contains(to))
    }

    /// The strongly connected components of a part of the graph in topological order [Sharir 1981].
    fn components(&self, part: &BTreeSet<usize>) -> Vec<Vec<usize>> {
        let (mut finished, mut seen) = (Vec::new(), BTreeSet::new());
        for start in part {
            let mut work = vec![(*start, false)];
            while let Some((block, is_done)) = work.pop() {
                if is_done {
                    finished.push(block);
                } else if seen.insert(block) {
                    work.push((block, true));
                    work.extend(self.edges_in(block, part).map(|next| (next, false)));
                }
            }
        }
        let mut back: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for from in part {
            self.edges_in(*from, part).for_each(|to| back.entry(to).or_default().push(*from));
        }
        let (mut components, mut taken) = (Vec::new(), BTreeSet::new());
        for start in finished.into_iter().rev() {
            let (mut component, mut work) = (Vec::new(), vec![start]);
            while let Some(block) = work.pop() {
                if taken.insert(block) {
                    component.push(block);
                    work.extend(back.get(&block).into_iter().flatten());
                }
            }
            if !component.is_empty() {
                components.push(component);
            }
        }
        components
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::asm;

    fn code(text: &str) -> Vec<Option<Op>> {
        let insns = asm::assemble(text, &[]).unwrap();
        flowloom_isa::decoded(&flowloom_isa::Program { insns, ..Default::default() }).unwrap()
    }

    #[test]
    fn loops_stand_together() {
        let nested = code(
            "r1 = 0\nouter: r2 = 0\ninner: r2 += 1\nif r2 < 4 goto inner\nr1 += 1\nif r1 < 3 goto outer\nr0 = 2\nexit",
        );
        let shape = Shape::of(&nested, 0, |_, _| true).unwrap();
        let spot = |at| shape.spot(at).cloned().unwrap();
        assert_eq!(spot(0), Spot { order: 0, nest: vec![] });
        assert_eq!(spot(1), Spot { order: 1, nest: vec![1] });
        assert_eq!(spot(2), Spot { order: 2, nest: vec![1, 2] });
        assert_eq!(spot(4), Spot { order: 3, nest: vec![1] });
        assert_eq!(spot(6), Spot { order: 4, nest: vec![] });
    }

    #[test]
    fn a_loop_with_two_entries_is_refused() {
        let text = "if r1 == 0 goto b\na: r2 += 1\ngoto b\nb: r2 += 2\nif r2 < 9 goto a\nr0 = 2\nexit";
        assert_eq!(Shape::of(&code(text), 0, |_, _| true).unwrap_err(), TwoEntries { entries: [1, 3] });
    }
}
