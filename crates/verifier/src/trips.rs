// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trip counts: how often the back edges of loops are taken. Only counted here:
//! `walk.rs` bounds the instructions walked, `checkpoints.rs` keeps the maximum over all paths for `Proof::loops`.
//!
//! A loop is identified by its header, the target of a back edge. Entering the header from outside resets the count:
//!
//! ```text
//!   r1 = 0                              the header of the inner loop is `inner`
//!   outer: r2 = 0
//!   inner: r2 += 1                      from above: 0
//!          if r2 < 5 goto inner         1, 2, 3, 4
//!   r1 += 1
//!   if r1 < 3 goto outer
//! ```
//!
//! Addresses do not tell a back edge: compilers also lay out code so that a loop is entered by a jump to a lower
//! address, and iterates by falling through into its header.

use flowloom_isa::op::Op;

/// The back edges of the functions of a program: the edges that lead to an ancestor in the depth-first spanning tree.
/// Where each loop is entered at one instruction (the control flow graph is reducible), they are the same for any tree
/// [Hecht and Ullman 1974].
#[derive(Debug, Clone, Default)]
pub struct BackEdges {
    /// By instruction, when the depth-first search entered and left it.
    entered: Vec<usize>,
    left: Vec<usize>,
}

impl BackEdges {
    /// Linear in the code.
    pub fn of(code: &[Option<Op>], is_feasible: impl Fn(usize, usize) -> bool) -> BackEdges {
        const NEW: usize = usize::MAX;
        let called = code.iter().enumerate().filter_map(|(at, op)| match op {
            Some(op @ (Op::CallLocal { .. } | Op::LoadFunc { .. })) => {
                usize::try_from(at as i64 + 1 + op.distance()?).ok()
            }
            _ => None,
        });
        let mut edges = BackEdges { entered: vec![NEW; code.len()], left: vec![NEW; code.len()] };
        let (mut time, mut work) = (0, Vec::new());
        // What no function begins with is walked last: it is not reached, or only on edges that are not feasible.
        for entry in std::iter::once(0).chain(called).chain(0..code.len()) {
            work.push((entry, false));
            while let Some((at, is_over)) = work.pop() {
                let Some(entered) = edges.entered.get_mut(at) else { continue };
                if is_over {
                    edges.left[at] = time;
                } else if *entered == NEW {
                    *entered = time;
                    work.push((at, true));
                    let nexts = code[at].into_iter().flat_map(|op| op.successors(at));
                    work.extend(nexts.filter(|next| is_feasible(at, *next)).map(|next| (next, false)));
                } else {
                    continue;
                }
                time += 1;
            }
        }
        edges
    }

    /// Whether an edge is a back edge.
    pub fn has(&self, from: usize, to: usize) -> bool {
        let times = |at: usize| Some((*self.entered.get(at)?, *self.left.get(at)?));
        let (Some(from), Some(to)) = (times(from), times(to)) else { return false };
        to.0 <= from.0 && from.1 <= to.1
    }

    /// Whether control that goes from one instruction to another takes a back edge; a function returns to the successor
    /// of its call.
    pub fn are_taken(&self, code: &[Option<Op>], at: usize, next: usize) -> bool {
        let op = |at: usize| code.get(at).copied().flatten();
        let from = if op(at) == Some(Op::Exit) { next.checked_sub(1) } else { Some(at) };
        from.is_some_and(|from| {
            op(from).is_some_and(|op| op.successors(from).any(|successor| successor == next)) && self.has(from, next)
        })
    }
}

/// A loop that a path is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// The call depth of its function.
    pub depth: usize,
    /// Its header.
    pub head: usize,
}

/// Trip counts, by loop.
#[derive(Debug, Clone, Default)]
pub struct Trips(Vec<(Loop, u64)>);

impl Trips {
    /// The trip count of a loop.
    pub fn of(&self, wanted: Loop) -> u64 {
        self.0.iter().find(|(known, _)| *known == wanted).map_or(0, |(_, trips)| *trips)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Loop, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Raises the trip count of a loop to at least `trips`.
    pub fn raise(&mut self, which: Loop, trips: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == which) {
            Some((_, most)) => *most = (*most).max(trips),
            None => self.0.push((which, trips)),
        }
    }

    /// Follows an edge to a possible loop header. If that enters the loop anew, returns the trip count of the time
    /// before.
    pub fn follow(&mut self, is_back_edge: bool, to: Loop) -> Option<u64> {
        let known = self.0.iter().position(|(known, _)| *known == to);
        match (is_back_edge, known) {
            (true, Some(place)) => self.0[place].1 += 1,
            (true, None) => self.0.push((to, 1)),
            (false, Some(place)) => return Some(self.0.swap_remove(place).1),
            (false, None) => {}
        }
        None
    }

    /// A function returns: removes the loops of deeper calls.
    pub fn leave(&mut self, depth: usize) -> Vec<(Loop, u64)> {
        if self.0.iter().all(|(known, _)| known.depth <= depth) {
            return Vec::new();
        }
        let (left, rest) = std::mem::take(&mut self.0).into_iter().partition(|(known, _)| known.depth > depth);
        self.0 = rest;
        left
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::{Program, asm};

    /// The back edges among all edges, by the slots of both ends.
    fn back_edges(text: &str) -> Vec<(usize, usize)> {
        let insns = asm::assemble(text, &[]).unwrap();
        let code = flowloom_isa::decoded(&Program { insns, ..Program::default() }).unwrap();
        let edges = BackEdges::of(&code, |_, _| true);
        let all = (0..code.len())
            .flat_map(|at| code[at].into_iter().flat_map(move |op| op.successors(at)).map(move |to| (at, to)));
        all.filter(|(from, to)| edges.has(*from, *to)).collect()
    }

    #[test]
    fn back_edges_do_not_depend_on_the_layout() {
        let nested = "r1 = 0\nouter: r2 = 0\ninner: r2 += 1\nif r2 < 5 goto inner\nr1 += 1\nif r1 < 3 goto outer\nexit";
        assert_eq!(back_edges(nested), [(3, 2), (5, 1)]);
        let itself = "r1 = 9\nagain: if r1 s> 9 goto again\nexit";
        assert_eq!(back_edges(itself), [(1, 1)]);
        // The header is entered from a higher address, and from a lower one in each further iteration.
        let entered_back =
            "goto enter\nlow: r2 += 1\nhead: r1 += 1\nif r1 < 5 goto low\nexit\nenter: r1 = 0\ngoto head";
        assert_eq!(back_edges(entered_back), [(1, 2)]);
        // Two paths that meet.
        let paths = "if r1 == 0 goto other\nr2 = 1\ngoto met\nother: r2 = 2\nmet: r0 = r2\nexit";
        assert_eq!(back_edges(paths), []);
        // Code not executed before, at a lower address.
        let no_loop = "goto last\nfirst: r0 = 2\nexit\nlast: goto first";
        assert_eq!(back_edges(no_loop), []);
        // A function that begins with the header of a loop, called in a loop.
        let called = "r6 = 0\nagain: call f\nr6 += 1\nif r6 < 3 goto again\nexit\nf: r1 += 1\nif r1 < 4 goto f\nexit";
        assert_eq!(back_edges(called), [(3, 1), (6, 5)]);
    }
}
