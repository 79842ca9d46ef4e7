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
//! result of the one before, so that the mux moves to the end of a chain. Where gates and selects end, at outputs,
//! predicates and keys, up to [`MAX_DECISIONS`] bits become a decision diagram with the latest bit at its root
//! [Bryant 1986]: equal cofactors are one node, and each bit passes only the muxes of those after it. The pass is
//! undone unless it shortens the critical path by a level.
//!
//! **Limits.** Dataflow of more than [`MAX_OF_ALL`] nodes stays as it is. Before the ends, at most two bits at once,
//! gates of single bits only, and only paths within [`SLACK_STAGES`] stages of the critical path: the others have
//! slack, and duplicated logic takes area.

use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use flowloom_ir::pass::{dead_code, rebuilt, same};
use flowloom_ir::{Binary, Dataflow, Graph, Id, Kind};

use crate::critical_path::{Arrivals, awaited, depth, times};
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
/// The depth to which the end of a cone is followed back, in levels.
const DIAGRAM_LEVELS: Tenths = 10;
/// The most nodes of a cone that becomes a decision diagram.
const MAX_CONE: usize = 120;
/// The most bits of a decision diagram.
const MAX_DECISIONS: usize = 6;
/// The most decisions of a diagram.
const MAX_DIAGRAM: usize = 48;
/// The most bits to expand by.
const MAX_BITS: usize = 2;

pub(super) fn run(dataflow: &Dataflow, target: &Target) -> Dataflow {
    if dataflow.graph.nodes().len() > MAX_OF_ALL {
        return dataflow.clone();
    }
    let (critical, ends) = (critical(dataflow, target), ends(dataflow));
    let mut late = Late { target, arrivals: Arrivals::default() };
    let shorter = rebuilt(dataflow, |graph, id, node| {
        let plain = same(graph, node);
        late.arrivals.set_block(graph, plain, (dataflow, id), target);
        match (critical[id.index()], ends[id.index()]) {
            (false, _) => plain,
            (true, false) => late.decided_last(graph, plain),
            (true, true) => {
                let decided = late.decided_last(graph, plain);
                late.diagram(graph, decided)
            }
        }
    });
    // Duplicated logic takes area, so it has to pay.
    let is_profitable = depth(&shorter, target) + target.level <= depth(dataflow, target);
    if is_profitable { dead_code(&shorter) } else { dataflow.clone() }
}

/// The nodes with a user other than a gate or a select.
fn ends(dataflow: &Dataflow) -> Vec<bool> {
    let graph = &dataflow.graph;
    let mut ends = vec![false; graph.nodes().len()];
    dataflow.ending.nodes().for_each(|id| ends[id.index()] = true);
    for id in graph.ids().filter(|id| !is_gate(graph, *id) && graph.node(*id).kind != Kind::Select) {
        graph.node(id).args.iter().for_each(|arg| ends[arg.index()] = true);
    }
    ends
}

/// The nodes on near-critical paths.
pub(super) fn critical(dataflow: &Dataflow, target: &Target) -> Vec<bool> {
    let graph = &dataflow.graph;
    let ready = times(dataflow, target);
    let mut behind: Vec<Tenths> = vec![0; graph.nodes().len()];
    for id in graph.ids().rev() {
        let own = target.block_stages(dataflow, id) * target.stage + target.of(graph, id);
        let after = behind[id.index()] + own;
        for arg in awaited(dataflow, id) {
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

    /// Turns the end of a path into a decision diagram of its latest bits, the latest one at the root [Bryant 1986].
    fn diagram(&mut self, graph: &mut Graph, id: Id) -> Id {
        if !is_chosen(graph, id) {
            return id;
        }
        let mut best = (self.time(graph, id), id);
        let from = best.0.saturating_sub(DIAGRAM_LEVELS * self.target.level);
        let Some(bits) = self.late_bits(graph, id, from) else { return id };
        let Some(latest) = bits.first().map(|bit| self.time(graph, *bit)) else { return id };
        if latest + self.target.mux + self.target.level > best.0 {
            return id;
        }
        for count in [3, MAX_DECISIONS].into_iter().filter(|count| *count <= bits.len() || *count == MAX_DECISIONS) {
            let count = count.min(bits.len());
            let mut made = FxHashMap::default();
            let Some(diagram) = self.decided(graph, from, (id, &bits[..count]), &mut made) else { break };
            let time = self.time(graph, diagram);
            if time + self.target.level <= best.0 {
                best = (time, diagram);
            }
        }
        best.1
    }

    /// The bits after `from` by which the gates and selects before a node decide, the latest one first.
    fn late_bits(&mut self, graph: &Graph, id: Id, from: Tenths) -> Option<Vec<Id>> {
        let (mut inside, mut bits, mut work) = (FxHashSet::default(), FxHashSet::default(), vec![id]);
        while let Some(next) = work.pop() {
            if !inside.insert(next) {
                continue;
            }
            if inside.len() > MAX_CONE {
                return None;
            }
            for arg in &graph.node(next).args {
                if self.time(graph, *arg) <= from {
                    continue;
                }
                if is_chosen(graph, *arg) {
                    work.push(*arg);
                } else if graph.bits(*arg) == 1 {
                    bits.insert(*arg);
                }
            }
        }
        let mut bits: Vec<(Tenths, Id)> = bits.into_iter().map(|bit| (self.time(graph, bit), bit)).collect();
        bits.sort_unstable_by(|a, b| b.cmp(a));
        Some(bits.into_iter().map(|(_, bit)| bit).collect())
    }

    /// A node as a decision diagram of these bits; `None` if it has more than [`MAX_DIAGRAM`] decisions.
    fn decided(
        &mut self,
        graph: &mut Graph,
        from: Tenths,
        (id, bits): (Id, &[Id]),
        made: &mut FxHashMap<(Id, usize), Id>,
    ) -> Option<Id> {
        let Some((bit, rest)) = bits.split_first() else { return Some(id) };
        if let Some(known) = made.get(&(id, bits.len())) {
            return Some(*known);
        }
        if made.len() >= MAX_DIAGRAM {
            return None;
        }
        let mut arms = [id; 2];
        for (answer, arm) in arms.iter_mut().enumerate() {
            let answer = graph.number(answer as u64, 1);
            let cofactor = self.cofactor(graph, from, id, &mut FxHashMap::from_iter([(*bit, answer)]));
            *arm = self.decided(graph, from, (cofactor, rest), made)?;
        }
        let [low, high] = arms;
        let decision = if low == high { low } else { graph.select(vec![*bit, high, low]) };
        made.insert((id, bits.len()), decision);
        Some(decision)
    }

    /// A node with some bits known, by the gates and selects after `from`.
    fn cofactor(&mut self, graph: &mut Graph, from: Tenths, id: Id, made: &mut FxHashMap<Id, Id>) -> Id {
        if let Some(known) = made.get(&id) {
            return *known;
        }
        if !is_chosen(graph, id) || self.time(graph, id) <= from {
            return id;
        }
        let node = graph.node(id).clone();
        let args = node.args.iter().map(|arg| self.cofactor(graph, from, *arg, made)).collect();
        let new = graph.make(node.kind, args, node.bits);
        made.insert(id, new);
        new
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

/// Whether a node is a gate of single bits or a select.
fn is_chosen(graph: &Graph, id: Id) -> bool {
    is_gate(graph, id) || graph.node(id).kind == Kind::Select
}

/// Whether a node is a single-bit gate of single bits.
pub(super) fn is_gate(graph: &Graph, id: Id) -> bool {
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
