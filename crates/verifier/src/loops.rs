// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the counted loops are loops on the paths that were walked, and which of them are bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::proof::Proof;
use super::trips::BackEdges;
use flowloom_isa::op::Op;

/// By loop header, the `may_goto`s at which a path stopped counting after going through the loop.
pub(super) type Timed = BTreeMap<usize, BTreeSet<usize>>;

/// The budget of the search in steps for each instruction of the program.
const STEPS: usize = 64;

/// Keeps the trip counts of headers that lie on a cycle within one function. The trip count is unknown for a loop that
/// contains one of these instructions at which counting stopped.
///
/// Without edges that no path takes, a loop with several entries may have one left, and with it other back edges than
/// those counted. Such a loop is dropped.
pub(super) fn keep_loops(proof: &mut Proof, code: &[Option<Op>], counted: &BackEdges, timed: &Timed) {
    if proof.loops.is_empty() {
        return;
    }
    let on_cycles = on_cycles(code.len(), |at| nexts(proof, code, at));
    let before = predecessors(code.len(), |at| nexts(proof, code, at));
    let walked = BackEdges::of(code, |from, to| nexts(proof, code, from).any(|next| next == to));
    let are_counted =
        |head: usize| before[head].iter().all(|from| counted.has(*from, head) || !walked.has(*from, head));
    proof.loops.retain(|head, _| on_cycles.get(*head).copied().unwrap_or(false) && are_counted(*head));
    if timed.is_empty() {
        return;
    }
    let mut inside =
        Inside { back_edges: &walked, before: &before, seen: vec![usize::MAX; code.len()], steps: STEPS * code.len() };
    for (head, timed) in timed {
        if let Some(trips) = proof.loops.get_mut(head)
            && inside.has_any(*head, timed)
        {
            *trips = None;
        }
    }
}

/// The search for the instructions of loops: backwards from the back edges, without passing the header.
struct Inside<'a> {
    back_edges: &'a BackEdges,
    /// The predecessors of each instruction.
    before: &'a [Vec<usize>],
    /// By instruction, the header of the loop in which it was last visited.
    seen: Vec<usize>,
    /// The steps left.
    steps: usize,
}

impl Inside<'_> {
    /// Whether the loop contains one of the instructions; also `true` past the budget.
    fn has_any(&mut self, head: usize, wanted: &BTreeSet<usize>) -> bool {
        let is_back_edge = |from: &usize| self.back_edges.has(*from, head);
        let mut work: Vec<usize> = self.before[head].iter().copied().filter(is_back_edge).collect();
        self.seen[head] = head;
        let mut is_wanted = wanted.contains(&head);
        while let Some(at) = work.pop().filter(|_| !is_wanted) {
            if std::mem::replace(&mut self.seen[at], head) == head {
                continue;
            }
            is_wanted = wanted.contains(&at) || self.steps == 0;
            self.steps = self.steps.saturating_sub(1 + self.before[at].len());
            work.extend(&self.before[at]);
        }
        is_wanted
    }
}

/// Which instructions lie on a cycle of their function's control flow graph.
pub(super) fn repeated(code: &[Option<Op>]) -> Vec<bool> {
    on_cycles(code.len(), |at| successors(code, at, (true, true)))
}

/// The successors of an instruction on the paths that were walked.
fn nexts(proof: &Proof, code: &[Option<Op>], at: usize) -> impl Iterator<Item = usize> {
    let edges = proof.insns.get(at).map(|known| known.edges).unwrap_or_default();
    successors(code, at, (edges.jumps, edges.falls))
}

/// The successors of an instruction within its function, for a branch that jumps, falls through, or both; calls return.
pub(super) fn successors(code: &[Option<Op>], at: usize, branch: (bool, bool)) -> impl Iterator<Item = usize> {
    let op = code.get(at).copied().flatten();
    let (jumps, falls) = match op {
        Some(Op::Branch { .. }) => branch,
        Some(Op::MayGoto { .. }) => (true, true),
        Some(Op::Jump { .. } | Op::JumpLong { .. }) => (true, false),
        Some(Op::Exit) | None => (false, false),
        Some(_) => (false, true),
    };
    let target = op.filter(|_| jumps).and_then(|op| usize::try_from(at as i64 + 1 + op.distance()?).ok());
    target.into_iter().chain(op.filter(|_| falls).map(|op| at + op.slots()))
}

/// The predecessors of each node of a graph.
pub(super) fn predecessors<N: Iterator<Item = usize>>(count: usize, nexts: impl Fn(usize) -> N) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); count];
    for at in 0..count {
        nexts(at).for_each(|next| before.get_mut(next).into_iter().for_each(|before: &mut Vec<usize>| before.push(at)));
    }
    before
}

/// Which nodes of a graph lie on a cycle; linear in the graph [Tarjan 1972].
fn on_cycles<N: Iterator<Item = usize>>(count: usize, nexts: impl Fn(usize) -> N) -> Vec<bool> {
    const NEW: usize = usize::MAX;
    // By node: its index, and its lowlink.
    let (mut order, mut low) = (vec![NEW; count], vec![NEW; count]);
    let (mut on_stack, mut on_cycle) = (vec![false; count], vec![false; count]);
    let (mut stack, mut visits, mut time) = (Vec::new(), Vec::new(), 0);
    for root in 0..count {
        if order[root] != NEW {
            continue;
        }
        visits.push((root, None));
        while let Some((at, rest)) = visits.last_mut() {
            let at = *at;
            let rest = rest.get_or_insert_with(|| {
                (order[at], low[at], on_stack[at]) = (time, time, true);
                time += 1;
                stack.push(at);
                nexts(at)
            });
            if let Some(next) = rest.find(|next| *next < count) {
                on_cycle[at] |= next == at;
                if order[next] == NEW {
                    visits.push((next, None));
                } else if on_stack[next] {
                    low[at] = low[at].min(order[next]);
                }
                continue;
            }
            visits.pop();
            if let Some((before, _)) = visits.last() {
                low[*before] = low[*before].min(low[at]);
            }
            if low[at] == order[at] {
                let first = stack.iter().rposition(|node| *node == at).unwrap_or(0);
                let is_cycle = stack.len() - first > 1;
                for node in stack.drain(first..) {
                    on_stack[node] = false;
                    on_cycle[node] |= is_cycle;
                }
            }
        }
    }
    on_cycle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_on_cycles_are_found() {
        let graphs: [(&[&[usize]], &[usize]); 5] = [
            (&[&[1], &[2], &[]], &[]),
            (&[&[0]], &[0]),
            (&[&[1], &[2], &[1, 3], &[]], &[1, 2]),
            // A jump back to code not executed before: 0, 3, 1, 2.
            (&[&[3], &[2], &[], &[1]], &[]),
            (&[&[1, 3], &[2], &[0], &[4], &[5], &[4, 6], &[7]], &[0, 1, 2, 4, 5]),
        ];
        for (edges, expected) in graphs {
            let found = on_cycles(edges.len(), |at| edges[at].iter().copied());
            let found: Vec<usize> = (0..edges.len()).filter(|at| found[*at]).collect();
            assert_eq!(found, expected, "{edges:?}");
        }
    }

    /// On random graphs: whether each node is reachable from itself.
    #[test]
    fn as_a_walk_finds_them() {
        let mut random = 1u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for _ in 0..2000 {
            let count = 1 + draw(12);
            let edges: Vec<Vec<usize>> = (0..count).map(|_| (0..draw(3)).map(|_| draw(count)).collect()).collect();
            let found = on_cycles(count, |at| edges[at].iter().copied());
            for (start, is_found) in found.iter().enumerate() {
                let (mut seen, mut work) = (vec![false; count], edges[start].clone());
                while let Some(at) = work.pop() {
                    if !std::mem::replace(&mut seen[at], true) {
                        work.extend(&edges[at]);
                    }
                }
                assert_eq!(*is_found, seen[start], "node {start} of {edges:?}");
            }
        }
    }
}
