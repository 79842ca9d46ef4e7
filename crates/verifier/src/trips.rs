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

use flowloom_isa::op::Op;

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
    pub fn follow(&mut self, at: usize, op: Option<Op>, to: Loop) -> Option<u64> {
        // Functions may be laid out in any order.
        let is_jump = !matches!(op, Some(Op::Call { .. } | Op::CallLocal { .. } | Op::Exit));
        let known = self.0.iter().position(|(known, _)| *known == to);
        match (is_jump && to.head <= at, known) {
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
