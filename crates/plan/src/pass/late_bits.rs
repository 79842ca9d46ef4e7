// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of many bits of which some arrive late.
//!
//! **Goal.** A bit that arrives last passes one gate, not a whole tree of LUTs.
//!
//! ```text
//!   v7 = eq (concat v1 … v6) 0      v6 arrives late      v8 = eq (concat v1 … v5) 0
//!                                                        v9 = and v8 (not v6)
//! ```
//!
//! **Steps.** On near-critical paths, the latest parts of a comparison with a constant are compared by themselves, as
//! many of them as make the result earliest.
//!
//! **Limits.** The planner may no longer prove that two predicates exclude each other: a test is one variable for it,
//! its parts are several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flowloom_ir::pass::{dead_code, rebuilt, same};
use flowloom_ir::{Compare, Dataflow, Graph, Id, Kind};

use super::shannon::critical;
use crate::critical_path::Arrivals;
use crate::target::{Target, Tenths};

/// The most parts that are compared by themselves.
const MAX_LATE: usize = 8;
/// The least gain in tenths of a level.
const MIN_GAIN: Tenths = 3;

pub(super) fn run(dataflow: &Dataflow, target: &Target) -> Dataflow {
    let critical = critical(dataflow, target);
    let mut late = Late { target, arrivals: Arrivals::default() };
    let earlier = rebuilt(dataflow, |graph, id, node| {
        let plain = same(graph, node);
        late.arrivals.set_block(graph, plain, (dataflow, id), target);
        if critical[id.index()] { late.compared_last(graph, plain) } else { plain }
    });
    dead_code(&earlier)
}

struct Late<'a> {
    target: &'a Target,
    arrivals: Arrivals,
}

impl Late<'_> {
    fn time(&mut self, graph: &Graph, id: Id) -> Tenths {
        self.arrivals.of(graph, self.target, id)
    }

    /// Compares the latest parts of a test by themselves, if that is earlier.
    fn compared_last(&mut self, graph: &mut Graph, id: Id) -> Id {
        let node = graph.node(id).clone();
        let &[whole, constant] = node.args.as_slice() else { return id };
        let is_joined = graph.node(whole).kind == Kind::Concat;
        let Some(value) = graph.as_const(constant).filter(|_| node.kind == Kind::Compare(Compare::Equal) && is_joined)
        else {
            return id;
        };
        let (mut parts, mut at) = (Vec::new(), 0);
        for part in graph.node(whole).args.clone() {
            let bits = graph.bits(part);
            let own = graph.number(value >> at, bits);
            parts.push((self.time(graph, part), part, own));
            at += bits;
        }
        parts.sort_by_key(|(time, part, _)| (Reverse(*time), *part));
        let mut best = (self.time(graph, id).saturating_sub(MIN_GAIN), id);
        let mut tests: Vec<(Tenths, Id)> = Vec::new();
        for count in 1..parts.len().min(MAX_LATE + 1) {
            let (_, part, own) = parts[count - 1];
            let test = graph.compare(Compare::Equal, part, own);
            let test = self.literal(graph, test);
            tests.push((self.time(graph, test), test));
            let (ids, values): (Vec<Id>, Vec<Id>) = parts[count..].iter().map(|(_, part, own)| (*part, *own)).unzip();
            let (rest, values) = (graph.concat(ids), graph.concat(values));
            let rest = graph.compare(Compare::Equal, rest, values);
            let rest = self.literal(graph, rest);
            let all = tests.iter().copied().chain([(self.time(graph, rest), rest)]).collect();
            let both = self.all_of(graph, all);
            let time = self.time(graph, both);
            if time < best.0 {
                best = (time, both);
            }
        }
        best.1
    }

    /// A comparison of one bit as the bit or its complement.
    fn literal(&mut self, graph: &mut Graph, test: Id) -> Id {
        let node = graph.node(test).clone();
        match (node.kind, node.args.as_slice()) {
            (Kind::Compare(Compare::Equal), &[bit, value]) if graph.bits(bit) == 1 => match graph.as_const(value) {
                Some(0) => graph.not(bit),
                Some(_) => bit,
                None => test,
            },
            _ => test,
        }
    }

    /// The AND of bits, the earliest first.
    fn all_of(&mut self, graph: &mut Graph, bits: Vec<(Tenths, Id)>) -> Id {
        let mut heap: BinaryHeap<Reverse<(Tenths, Id)>> = bits.into_iter().map(Reverse).collect();
        loop {
            match (heap.pop(), heap.pop()) {
                (Some(Reverse((_, a))), Some(Reverse((_, b)))) => {
                    let both = graph.and(a, b);
                    heap.push(Reverse((self.time(graph, both), both)));
                }
                (Some(Reverse((_, last))), None) => return last,
                (None, _) => return graph.number(1, 1),
            }
        }
    }
}
