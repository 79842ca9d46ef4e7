// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trees of muxes from nested selects: a part of reassociation ([`super::reassociate`]), which also splits selects that
//! are too wide for a stage.
//!
//! ```text
//!   c0 ? a0 : (c1 ? a1 : (c2 ? a2 : a3))           c0 | c1 ? (c0 ? a0 : a1) : (c2 ? a2 : a3)
//! ```
//!
//! Neighbours are combined, the earliest ones first: an input that arrives late passes few muxes. The priority of the
//! conditions is preserved.

use flowloom_ir::{Graph, Id, Kind};

use crate::target::{Target, Tenths};

/// The most muxes of a chain.
const MAX_MUXES: usize = 24;

/// A run of neighbouring inputs: the OR of their conditions (none for the last run, which is the default), and the
/// selected value.
#[derive(Debug, Clone, Copy)]
struct Run {
    when: Option<Id>,
    value: Id,
    /// The arrival times of both.
    when_time: Tenths,
    value_time: Tenths,
}

impl Run {
    fn time(&self) -> Tenths {
        self.when_time.max(self.value_time)
    }
}

/// The inputs of nested selects in priority order, the default last. `may_enter` decides which inner selects are
/// flattened.
pub(super) fn chain(graph: &mut Graph, id: Id, may_enter: &dyn Fn(&Graph, Id) -> bool) -> Vec<(Option<Id>, Id)> {
    let (mut all, mut next) = (Vec::new(), id);
    loop {
        let node = graph.node(next).clone();
        let Some((last, pairs)) = node.args.split_last().filter(|_| all.len() + node.args.len() / 2 < MAX_MUXES) else {
            break;
        };
        let is_inside = |graph: &Graph, id: Id| graph.node(id).kind == Kind::Select && may_enter(graph, id);
        if let [when, value] = pairs
            && is_inside(graph, *value)
            && !is_inside(graph, *last)
        {
            all.push((Some(graph.not(*when)), *last));
            next = *value;
            continue;
        }
        all.extend(pairs.chunks_exact(2).map(|pair| (Some(pair[0]), pair[1])));
        next = *last;
        if !is_inside(graph, next) {
            break;
        }
    }
    all.push((None, next));
    all
}

/// Combines the inputs of a chain that arrives at `before`. `None` unless the tree is earlier by `gain`.
pub(super) fn tree(
    graph: &mut Graph,
    target: &Target,
    chain: &[(Option<Id>, Id)],
    time: &mut dyn FnMut(&Graph, Id) -> Tenths,
    (before, gain): (Tenths, Tenths),
) -> Option<Id> {
    let mut runs: Vec<Run> = Vec::new();
    for (when, value) in chain {
        let when_time = when.map_or(0, |when| time(graph, when));
        runs.push(Run { when: *when, value: *value, when_time, value_time: time(graph, *value) });
    }
    let both = |a: &Run, b: &Run| Run {
        when_time: if b.when.is_some() { a.when_time.max(b.when_time) + target.gate } else { 0 },
        value_time: a.time().max(b.value_time) + target.mux,
        ..*b
    };
    // The order of merges is found from the arrival times before any node is made.
    let mut order = Vec::new();
    let mut timed = runs.clone();
    while timed.len() > 1 {
        let pairs = timed.windows(2).map(|pair| both(&pair[0], &pair[1]));
        let (place, run) = pairs.enumerate().min_by_key(|(place, run)| (run.time(), *place))?;
        order.push(place);
        timed[place] = run;
        timed.remove(place + 1);
    }
    if timed.first()?.time() + gain > before {
        return None;
    }
    for place in order {
        let (a, b) = (runs[place], runs[place + 1]);
        let when_a = a.when?;
        let when = b.when.map(|when| graph.or(when_a, when));
        runs[place] = Run { when, value: graph.select(vec![when_a, a.value, b.value]), ..both(&a, &b) };
        runs.remove(place + 1);
    }
    runs.first().map(|run| run.value)
}
