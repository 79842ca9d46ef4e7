// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shannon expansion by late-arriving bits.
//!
//! **Goal.** Only one mux after a test that arrives late: both outcomes are computed in the meantime.
//!
//! ```text
//!   v4 = and v3 v0        (v3 arrives late)        v4 = or v0 v1       (v3 is 1)
//!   v5 = or v4 v1                                  v5 = v1             (v3 is 0)
//!   v6 = select v2 v5 v1                           v6 = select v2 v4 v1 ...
//!                                                  v8 = select v3 v6 v1
//! ```
//!
//! **Steps.** On near-critical paths, gates and selects are followed back from each node to the latest bits. If that is
//! earlier, the node becomes a select by these bits between its cofactors [Shannon 1949]. Each node starts from the
//! result of the one before, so that the mux moves to the end of a chain. The pass is undone unless it shortens the
//! critical path by a level.
//!
//! **Limits.** Dataflow of more than [`MAX_OF_ALL`] nodes stays as it is. At most two bits at once, gates of single
//! bits only, and only paths within [`SLACK_STAGES`] stages of the critical path: the others have slack, and duplicated
//! logic takes area.

use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use flowloom_ir::pass::{rebuilt, same};
use flowloom_ir::{Binary, Dataflow, Graph, Id, Kind};

use crate::critical_path::{Arrivals, depth, times};
use crate::target::{Target, Tenths};

/// The slack past which paths are left alone, in stages.
const SLACK_STAGES: Tenths = 2;
/// The depth to which nodes are followed back, in levels.
const BACK_LEVELS: Tenths = 6;
/// The most nodes that are duplicated for one select.
const MAX_NODES: usize = 32;
/// Past this size there is neither area for duplicates nor time to search for them.
const MAX_OF_ALL: usize = 60_000;
/// The least gain in tenths of a level.
const MIN_GAIN: Tenths = 3;
/// The most bits to expand by.
const MAX_BITS: usize = 2;

pub(super) fn run(dataflow: &Dataflow, target: &Target) -> Dataflow {
    if dataflow.graph.nodes().len() > MAX_OF_ALL {
        return dataflow.clone();
    }
    let critical = critical(dataflow, target);
    let mut late = Late { target, arrivals: Arrivals::default() };
    let shorter = rebuilt(dataflow, |graph, id, node| {
        let plain = same(graph, node);
        late.arrivals.set_block(graph, plain, target.block_stages(dataflow, id));
        if critical[id.index()] { late.decided_last(graph, plain) } else { plain }
    });
    // Duplicated logic takes area, so it has to pay.
    let is_profitable = depth(&shorter, target) + target.level <= depth(dataflow, target);
    if is_profitable { shorter } else { dataflow.clone() }
}

/// The nodes on near-critical paths.
fn critical(dataflow: &Dataflow, target: &Target) -> Vec<bool> {
    let graph = &dataflow.graph;
    let ready = times(dataflow, target);
    let mut behind: Vec<Tenths> = vec![0; graph.nodes().len()];
    for id in graph.ids().rev() {
        let own = target.block_stages(dataflow, id) * target.stage + target.of(graph, id);
        let is_idle = dataflow.access(id).is_some_and(|access| dataflow.is_idle(access));
        let after = behind[id.index()] + own;
        for arg in graph.node(id).args.iter().skip(usize::from(is_idle)) {
            behind[arg.index()] = behind[arg.index()].max(after);
        }
    }
    let all: Vec<Tenths> = ready.iter().zip(&behind).map(|(ready, behind)| ready + behind).collect();
    let longest = all.iter().copied().max().unwrap_or(0);
    all.into_iter().map(|length| length + SLACK_STAGES * target.stage >= longest).collect()
}

struct Late<'a> {
    target: &'a Target,
    arrivals: Arrivals,
}

/// The cone that is duplicated: its nodes in topological order, and the single-bit inputs of its gates.
struct Cone {
    inside: FxHashSet<Id>,
    bits: Vec<(Tenths, Id)>,
}

impl Late<'_> {
    fn time(&mut self, graph: &Graph, id: Id) -> Tenths {
        self.arrivals.of(graph, self.target, id)
    }

    /// Expands a node by the latest of its bits.
    fn decided_last(&mut self, graph: &mut Graph, id: Id) -> Id {
        let mut best = (self.time(graph, id), id);
        if !is_gate(graph, id) && graph.node(id).kind != Kind::Select {
            return id;
        }
        let cone = self.cone(graph, id);
        let mut last: Vec<Id> = Vec::new();
        for (time, bit) in cone.bits.iter().take(MAX_BITS) {
            if time + self.target.mux + MIN_GAIN > best.0 {
                break;
            }
            last.push(*bit);
            let decisions = self.decisions(graph, &cone, id, (&last, &mut Vec::new()));
            let time = self.time(graph, decisions);
            if time < best.0 {
                best = (time, decisions);
            }
        }
        best.1
    }

    /// The node as a select by these bits between its cofactors.
    fn decisions(&mut self, graph: &mut Graph, cone: &Cone, id: Id, (bits, known): (&[Id], &mut Vec<(Id, Id)>)) -> Id {
        let Some((bit, rest)) = bits.split_first() else {
            let mut made = known.iter().copied().collect();
            return with(graph, cone, id, &mut made);
        };
        let [low, high] = [0, 1].map(|answer| {
            let answer = graph.number(answer, 1);
            known.push((*bit, answer));
            let decisions = self.decisions(graph, cone, id, (rest, known));
            known.pop();
            decisions
        });
        graph.select(vec![*bit, high, low])
    }

    fn cone(&mut self, graph: &Graph, id: Id) -> Cone {
        let time = self.time(graph, id);
        let from = time.saturating_sub(BACK_LEVELS * self.target.level);
        let (mut inside, mut bits) = (FxHashSet::default(), FxHashSet::default());
        // The latest node is expanded first.
        let mut work = BinaryHeap::from([(time, id)]);
        while let Some((_, next)) = work.pop() {
            if inside.len() == MAX_NODES {
                bits.insert(next);
                continue;
            }
            if !inside.insert(next) {
                continue;
            }
            for arg in &graph.node(next).args {
                let time = self.time(graph, *arg);
                if time > from && is_gate(graph, *arg) {
                    work.push((time, *arg));
                } else if graph.bits(*arg) == 1 && graph.as_const(*arg).is_none() {
                    bits.insert(*arg);
                }
            }
        }
        let mut bits: Vec<(Tenths, Id)> =
            bits.into_iter().filter(|bit| !inside.contains(bit)).map(|bit| (self.time(graph, bit), bit)).collect();
        bits.sort_unstable_by(|a, b| b.cmp(a));
        Cone { inside, bits }
    }
}

/// Whether a node is a single-bit gate of single bits.
fn is_gate(graph: &Graph, id: Id) -> bool {
    let node = graph.node(id);
    let is_gate = match node.kind {
        Kind::Not | Kind::Select => true,
        Kind::Binary(op) => matches!(op, Binary::And | Binary::Or | Binary::Xor),
        _ => false,
    };
    is_gate && node.bits == 1
}

/// The cofactor of a node of the cone; `made` maps the known bits and the nodes done so far.
fn with(graph: &mut Graph, cone: &Cone, id: Id, made: &mut FxHashMap<Id, Id>) -> Id {
    if let Some(known) = made.get(&id) {
        return *known;
    }
    if !cone.inside.contains(&id) {
        return id;
    }
    let node = graph.node(id).clone();
    let args = node.args.iter().map(|arg| with(graph, cone, *arg, made)).collect();
    let new = graph.make(node.kind, args, node.bits);
    made.insert(id, new);
    new
}
