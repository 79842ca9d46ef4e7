// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loops whose iterations need not be counted.
//!
//! **Goal.** A packet ends after a number of iterations, so that no program runs for ever. To count them costs an
//! addition in memory for each; most loops are short, by the proof.
//!
//! ```text
//!  for a in 0..100      10,000 with its inner loop: not counted, if the whole program is like that
//!    for b in 0..100       100
//!  loop(n, callback)    counts its iterations; what a callback does in one may be 64 iterations of its own
//! ```
//!
//! **Steps.** The weight of a loop is its bound times the greatest weight of the loops inside of it that are not
//! counted, in functions that it calls as well. A program all of whose loops weigh at most [`MOST_ALONE`], and which
//! has no callbacks, ends soon enough: nothing is counted. In other programs, loops of at most [`MOST_BETWEEN`] are not
//! counted, so that the limit on those that are bounds the run.
//!
//! **Limits.** Loops one after the other do not add up.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_verifier::trips::BackEdges;

/// The most iterations of a loop, with the loops inside of it, where nothing is counted.
const MOST_ALONE: u64 = 1 << 20;
/// The most iterations of a loop that are not counted where others are.
const MOST_BETWEEN: u64 = 64;

/// The headers of loops that need not be counted; `loops` are their bounds by the proof.
pub(crate) fn uncounted(code: &[Option<Op>], loops: &BTreeMap<usize, Option<u64>>) -> BTreeSet<usize> {
    if loops.is_empty() {
        return BTreeSet::new();
    }
    let inside = nested(code, loops);
    let light = |most: u64| {
        let mut order: Vec<usize> = loops.keys().copied().collect();
        order.sort_by_key(|header| inside[header].len());
        let mut weights: BTreeMap<usize, u64> = BTreeMap::new();
        for header in order {
            let inner = inside[&header].iter().filter_map(|inner| weights.get(inner)).max().copied().unwrap_or(1);
            let weight = loops[&header].map(|bound| bound.max(1).saturating_mul(inner));
            // Loops that contain one another, or themselves, are no loops of C: they are counted.
            let is_mutual = inside[&header].iter().any(|inner| inside[inner].contains(&header));
            if let Some(weight) = weight.filter(|weight| *weight <= most && !is_mutual) {
                weights.insert(header, weight);
            }
        }
        weights.into_keys().collect::<BTreeSet<usize>>()
    };
    let alone = light(MOST_ALONE);
    if alone.len() == loops.len() && !repeats(code) { alone } else { light(MOST_BETWEEN) }
}

/// True if the program has helpers that repeat a callback.
pub(crate) fn repeats(code: &[Option<Op>]) -> bool {
    code.iter().flatten().any(calls_back)
}

/// True if an operation calls a helper that repeats a callback.
pub(crate) fn calls_back(op: &Op) -> bool {
    matches!(op, Op::Call { helper: helper::LOOP | helper::FOR_EACH_MAP_ELEM })
}

/// By header, the headers of the loops inside of a loop, those of functions that it calls included.
fn nested(code: &[Option<Op>], loops: &BTreeMap<usize, Option<u64>>) -> BTreeMap<usize, BTreeSet<usize>> {
    let edges = BackEdges::of(code, |_, _| true);
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new(); code.len()];
    for (at, op) in code.iter().enumerate() {
        for next in op.iter().flat_map(|op| op.successors(at)).filter(|next| *next < code.len()) {
            predecessors[next].push(at);
        }
    }
    let inside = |header: usize| {
        let back = predecessors.get(header).into_iter().flatten().filter(|from| edges.has(**from, header));
        let mut body = BTreeSet::from([header]);
        let mut work: Vec<usize> = back.copied().collect();
        if work.is_empty() {
            // The proof, which leaves infeasible edges out, has found a loop that is none here: it may contain any.
            return loops.keys().copied().collect();
        }
        while let Some(at) = work.pop() {
            if body.insert(at) {
                work.extend(&predecessors[at]);
            }
        }
        let mut callees: Vec<usize> = body.iter().filter_map(|at| called(code, *at)).collect();
        let mut seen = BTreeSet::new();
        while let Some(at) = callees.pop() {
            if seen.insert(at) {
                callees.extend(code.get(at).into_iter().flatten().flat_map(|op| op.successors(at)));
                callees.extend(called(code, at));
            }
        }
        body.extend(seen);
        loops.keys().copied().filter(|other| *other != header && body.contains(other)).collect()
    };
    loops.keys().map(|header| (*header, inside(*header))).collect()
}

/// The function that an instruction calls, or whose address it takes.
fn called(code: &[Option<Op>], at: usize) -> Option<usize> {
    match code.get(at)?.as_ref()? {
        op @ (Op::CallLocal { .. } | Op::LoadFunc { .. }) => usize::try_from(at as i64 + 1 + op.distance()?).ok(),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::{Program, asm};

    /// The bounds of the loops that are not counted, of those with these bounds, by header, ascending.
    fn found(text: &str, bounds: &[u64]) -> Vec<u64> {
        let insns = asm::assemble(text, &[]).unwrap();
        let program = Program { section: "xdp".into(), insns, ..Program::default() };
        let code = flowloom_isa::decoded(&program).unwrap();
        let edges = BackEdges::of(&code, |_, _| true);
        let returns = |from: usize, at: usize| code[from].is_some_and(|op| op.successors(from).any(|next| next == at));
        let is_header = |at: &usize| (0..code.len()).any(|from| edges.has(from, *at) && returns(from, *at));
        let headers: Vec<usize> = (0..code.len()).filter(is_header).collect();
        assert_eq!(headers.len(), bounds.len(), "{text}");
        let loops: BTreeMap<usize, Option<u64>> = headers.into_iter().zip(bounds.iter().copied().map(Some)).collect();
        uncounted(&code, &loops).iter().filter_map(|at| loops[at]).collect()
    }

    const NEST: &str = "r1 = 0\nouter: r2 = 0\ninner: r2 += 1\nif r2 < 9 goto inner\nr1 += 1\nif r1 < 9 goto outer\n";

    #[test]
    fn loops_count_if_they_may_take_long_together() {
        let text = format!("{NEST}r0 = 2\nexit\n");
        assert_eq!(found(&text, &[99, 49]), [99, 49]);
        // More than a million: the inner loop is long as well.
        assert_eq!(found(&text, &[2000, 2001]), [0_u64; 0]);
        assert_eq!(found(&text, &[50_000, 60]), [60]);
    }

    #[test]
    fn callbacks_count_most_of_their_loops() {
        let call = "r1 = 1000\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\nr0 = 2\nexit\n";
        let text = format!("{call}f: {NEST}r0 = 0\nexit\n");
        assert_eq!(found(&text, &[4000, 4001]), [0_u64; 0]);
        assert_eq!(found(&text, &[4000, 40]), [40]);
        assert_eq!(found(&text, &[7, 8]), [7, 8]);
    }

    #[test]
    fn loops_of_callees_are_inside() {
        let text = "r6 = 0\nagain: call f\nr6 += 1\nif r6 < 9 goto again\nr0 = 2\nexit\n";
        let callee = "f: r1 = 0\non: r1 += 1\nif r1 < 9 goto on\nr0 = 0\nexit\n";
        assert_eq!(found(&format!("{text}{callee}"), &[3000, 3001]), [0_u64; 0]);
        assert_eq!(found(&format!("{text}{callee}"), &[3000, 10]), [3000, 10]);
    }
}
