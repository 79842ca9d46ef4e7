// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages in which each value is used, and so the pipeline registers.
//!
//! ```text
//!   v7   computed in stage 0, used in stages 0 and 2:   v7_s0, then registers v7_s1_q and v7_s2_q
//!   v9   a slice of v7, used in stage 2:                v9_s2, wires from v7_s2_q
//! ```

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Id, Input, Kind, Touch};
use flowloom_isa::MapKind;
use flowloom_plan::Plan;

use crate::error::RtlError;
use crate::node::is_lookup;
use crate::replay::is_step;
use crate::sends::is_send;

/// The random words of a packet at most, which repeat after that.
pub(crate) const RANDOM_WORDS: u32 = 8;

/// By node, the stages in which a signal holds its value.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    stages: BTreeMap<Id, BTreeSet<u32>>,
    /// By word of the packet, the last stage that reads it at an offset known only at run time.
    pub(crate) window: BTreeMap<u32, u32>,
    /// By random number, the predicates of the earlier ones.
    draws: BTreeMap<Id, Vec<Id>>,
}

impl Needs {
    /// The needs of the outputs, which are used after the last stage, and of the effects, in the stages in which they
    /// commit. `map` adds those of the uses of LRU maps.
    pub(crate) fn of(plan: &Plan) -> Needs {
        let mut needs = Needs { draws: plan.draws().into_iter().collect(), ..Needs::default() };
        let end = plan.schedule.stages;
        for id in plan.dataflow.ending.nodes() {
            needs.add(plan, id, end);
        }
        // Packets that are sent besides are outputs (`sends`).
        let is_input = |id: Id| !is_send(&plan.dataflow, id) && !is_lookup(&plan.dataflow, id);
        for id in plan.schedule.commits.keys().filter(|id| is_input(**id)) {
            needs.add_arguments(plan, *id, happens(plan, *id));
        }
        needs
    }

    /// All pairs of a node and a stage in which a signal holds its value, by stage.
    pub(crate) fn by_stage(&self) -> BTreeMap<u32, Vec<Id>> {
        let mut all: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
        for (id, stages) in &self.stages {
            stages.iter().for_each(|stage| all.entry(*stage).or_default().push(*id));
        }
        all
    }

    /// The words of the packet that the core reads. The window may have more of them, which are only written.
    pub(crate) fn words(&self, plan: &Plan) -> u32 {
        let bytes = self.stages.keys().filter_map(|id| match plan.dataflow.graph.node(*id).kind {
            Kind::Input(Input::Byte(at)) => Some(u32::from(at / plan.options.target.word_bytes)),
            _ => None,
        });
        bytes.chain(self.window.keys().copied()).max().unwrap_or(0) + 1
    }

    /// The nodes with a signal in a stage.
    pub(crate) fn in_stage(&self, stage: u32) -> impl Iterator<Item = Id> + '_ {
        self.stages.iter().filter(move |(_, stages)| stages.contains(&stage)).map(|(id, _)| *id)
    }

    /// The nodes with a signal.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.stages.keys().copied()
    }

    /// A result of a change of an entry that is needed in a stage before that of the change.
    pub(crate) fn early_result(&self, plan: &Plan) -> Option<RtlError> {
        self.stages.iter().find_map(|(id, stages)| {
            let access = plan.dataflow.access(*id)?;
            let is_change = matches!(access.touch, Touch::Atomic | Touch::Update | Touch::Delete);
            if is_step(plan, *id) {
                return None;
            }
            let (stage, known) = (*stages.first()?, defined(plan, *id));
            let map = plan.dataflow.maps.get(access.map? as usize)?.name.clone();
            let insn = plan.dataflow.graph.insn(*id);
            (is_change && stage < known).then_some(RtlError::Result { insn, map, stage, known })
        })
    }

    /// The predicates of the random numbers before one.
    pub(crate) fn draws_before(&self, id: Id) -> Option<&[Id]> {
        self.draws.get(&id).map(Vec::as_slice)
    }

    /// The random words that a packet brings along, and the last stage that takes one of them; none if no number is
    /// used.
    pub(crate) fn random(&self, plan: &Plan) -> Option<(u32, u32)> {
        let used = self.draws.iter().filter(|(id, _)| self.stages.contains_key(id));
        let words = used.clone().map(|(_, earlier)| (earlier.len() as u32 + 1).min(RANDOM_WORDS)).max()?;
        Some((words, used.map(|(id, _)| begins(plan, *id)).max()?))
    }

    /// Whether a signal holds the value of a node in a stage.
    pub(crate) fn has(&self, id: Id, stage: u32) -> bool {
        self.stages.get(&id).is_some_and(|stages| stages.contains(&stage))
    }

    /// Adds a use of a node in a stage.
    pub(crate) fn add(&mut self, plan: &Plan, id: Id, stage: u32) {
        let node = plan.dataflow.graph.node(id);
        if matches!(node.kind, Kind::Const(_) | Kind::Input(Input::Only(_))) {
            return;
        }
        let known = self.stages.entry(id).or_default();
        if !known.insert(stage) {
            return;
        }
        if is_step(plan, id) {
            // A value is that of an entry that was found.
            let touch = plan.dataflow.access(id).map(|access| access.touch);
            if matches!(touch, Some(Touch::Load | Touch::Atomic)) {
                self.add(plan, node.args[1], stage);
            }
            return;
        }
        if is_wire(node.kind) {
            node.args.iter().for_each(|arg| self.add(plan, *arg, stage));
            return;
        }
        let defined = defined(plan, id);
        known.extend(defined..stage);
        match plan.dataflow.access(id).map(|access| access.touch) {
            // The key is needed where the table is looked up, which `map` adds; the predicate decides at the end, and
            // the verdict is used only where it holds.
            Some(Touch::RedirectMap) => {}
            // The word is used only where the predicate holds; those of the earlier numbers say which word it is.
            Some(Touch::Random) => {
                let earlier = self.draws.get(&id).cloned().unwrap_or_default();
                earlier.iter().for_each(|earlier| self.add(plan, *earlier, begins(plan, id)));
            }
            _ => self.add_arguments(plan, id, begins(plan, id)),
        }
        if let Kind::Bytes { .. } = node.kind {
            for word in 0..plan.window.words().min(defined + 1) {
                let last = self.window.entry(word).or_default();
                *last = defined.max(*last);
            }
        }
    }

    fn add_arguments(&mut self, plan: &Plan, id: Id, stage: u32) {
        plan.dataflow.graph.node(id).args.iter().for_each(|arg| self.add(plan, *arg, stage));
    }
}

/// Whether a node is wires, which are drawn anew in each stage that uses them instead of taking registers.
pub(crate) fn is_wire(kind: Kind) -> bool {
    matches!(kind, Kind::Const(_) | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Not)
}

/// The stage in which an effect happens: in a state slice of several stages, before its commit.
pub(crate) fn happens(plan: &Plan, id: Id) -> u32 {
    plan.schedule.steps.get(&id).copied().unwrap_or(plan.schedule.commits[&id])
}

/// The stage in which the evaluation of a node begins. Atomic operations and changes of entries read where they commit.
pub(crate) fn begins(plan: &Plan, id: Id) -> u32 {
    if is_step(plan, id) {
        return plan.schedule.spans[id.index()].begins.stage;
    }
    match plan.dataflow.access(id).map(|access| access.touch) {
        Some(Touch::Atomic | Touch::Update | Touch::Delete) => happens(plan, id),
        _ => plan.schedule.spans[id.index()].begins.stage,
    }
}

/// The first stage with a signal of a node's value: the one that computes it, or the one after its block.
pub(crate) fn defined(plan: &Plan, id: Id) -> u32 {
    let dataflow = &plan.dataflow;
    let Some(access) = dataflow.access(id) else { return begins(plan, id) + block_stages(plan, id) };
    let kind = access.map.and_then(|map| dataflow.maps.get(map as usize)).map(|map| map.kind);
    match access.touch {
        // Whether an index is in bounds is known at once.
        Touch::Lookup if matches!(kind, Some(MapKind::Array | MapKind::PerCpuArray)) => begins(plan, id),
        Touch::Lookup | Touch::RedirectMap => plan.schedule.spans[id.index()].ends.stage,
        _ => begins(plan, id),
    }
}

/// The latency of a multiplier or divider; 0 for all that is combinational.
pub(crate) fn block_stages(plan: &Plan, id: Id) -> u32 {
    match plan.dataflow.graph.node(id).kind {
        Kind::Binary(_) => plan.options.target.block_stages(&plan.dataflow, id),
        _ => 0,
    }
}
