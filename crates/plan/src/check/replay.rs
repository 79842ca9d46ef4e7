// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that run alone: no access of one is missed, and nothing happens twice where packets run again.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Dataflow, Id, Kind, Predicates, Touch};

use super::derive::Accesses;
use super::{Checker, Fault};

impl Checker<'_> {
    pub(super) fn replay(&mut self) {
        let Some(replay) = &self.plan.replay else { return };
        let (queue, decided) = (replay.first_stage, replay.decided_stage);
        let maps: BTreeSet<u32> = self.steps.iter().filter_map(|id| self.map_of(*id)).collect();
        self.alone(replay);
        self.decision(replay.alone, (queue, decided), &maps);
        self.through_ports(replay.alone, queue, &maps);
        self.across(queue);
        let missed = missed(&self.plan.dataflow, &self.steps, replay.alone);
        self.faults.extend(missed.into_iter().map(|id| Fault::NotAlone { node: id.index() }));
        let operands = self.steps.iter().flat_map(|id| self.plan.dataflow.graph.node(*id).args.iter().copied());
        // Speculation makes lookups earlier; a step is made under the condition of the program.
        let wanted = self.steps.iter().filter_map(|id| self.plan.dataflow.wanted.get(id).copied());
        let last = operands.chain(wanted).map(|id| self.ends(id).stage).max().unwrap_or(0);
        let (found, needed) = (self.plan.schedule.stages, last.max(decided) + 1);
        if found < needed {
            self.faults.push(Fault::Stages { found, needed });
        }
    }

    fn map_of(&self, id: Id) -> Option<u32> {
        self.plan.dataflow.access(id).and_then(|access| access.map)
    }

    /// Checks that nothing commits where packets may still run again.
    fn decision(&mut self, alone: Id, (queue, decided): (u32, u32), maps: &BTreeSet<u32>) {
        let known = self.ends(alone);
        if known.stage > decided || decided <= queue {
            self.faults.push(Fault::Undecided { node: alone.index(), stage: decided, decided: known.stage });
        }
        for (id, stage) in &self.plan.schedule.commits {
            // In the stage of the decision, a packet that runs alone writes nothing yet.
            let excludes_alone = self.map_of(*id).is_some_and(|map| maps.contains(&map));
            if (queue..decided + u32::from(!excludes_alone)).contains(stage) {
                self.faults.push(Fault::Undecided { node: id.index(), stage: *stage, decided });
            }
        }
    }

    /// Checks the accesses through the ports of maps with steps: none before the queue, no write of a packet that runs
    /// alone.
    fn through_ports(&mut self, alone: Id, queue: u32, maps: &BTreeSet<u32>) {
        let graph = &self.plan.dataflow.graph;
        let own = || maps.iter().filter_map(|map| self.accesses.get(map));
        let reads = own().flat_map(Accesses::all).chain(self.steps.iter().copied());
        let early = reads.filter(|id| self.begins(*id).stage < queue);
        let early = early.map(|id| Fault::BeforeQueue { node: id.index(), stage: self.begins(id).stage, queue });
        let mut predicates = Predicates::new(graph);
        let mut excludes = |id: Id| predicates.exclude_by_value(graph, graph.node(id).args[0], alone);
        let both = own().flat_map(Accesses::writes).filter(|id| !excludes(*id));
        let both = both.map(|id| Fault::MayRunAlone { node: id.index() });
        let found: Vec<Fault> = early.chain(both).collect();
        self.faults.extend(found);
    }

    /// Checks that no block lies across the queue: packets pass it again, and the block does not.
    fn across(&mut self, queue: u32) {
        let blocks = self.plan.dataflow.graph.ids().filter(|id| !self.steps.contains(id)).filter_map(|id| {
            let (begins, ends) = (self.begins(id).stage, self.ends(id).stage);
            let is_across = begins < queue && queue <= ends && begins < ends;
            is_across.then_some(Fault::AcrossQueue { node: id.index(), begins, ends, queue })
        });
        let found: Vec<Fault> = blocks.collect();
        self.faults.extend(found);
    }
}

/// The steps that a packet may make first although it does not run alone. Before its first step all results of steps are
/// 0.
fn missed(dataflow: &Dataflow, steps: &BTreeSet<Id>, alone: Id) -> Vec<Id> {
    let mut graph = dataflow.graph.clone();
    let mut first: BTreeMap<Id, Id> = BTreeMap::new();
    for id in dataflow.graph.ids() {
        let node = dataflow.graph.node(id);
        let is_later = node.args.iter().any(|arg| first.contains_key(arg));
        let copy = match node.kind {
            _ if steps.contains(&id) => graph.number(0, node.bits),
            Kind::Effect(_) => continue,
            kind if is_later => {
                let args = node.args.iter().map(|arg| first.get(arg).copied().unwrap_or(*arg)).collect();
                graph.make(kind, args, node.bits)
            }
            _ => continue,
        };
        first.insert(id, copy);
    }
    let mut predicates = Predicates::new(&graph);
    let calls = steps.iter().filter(|id| {
        let touch = dataflow.access(**id).map(|access| access.touch);
        matches!(touch, Some(Touch::Lookup | Touch::Update | Touch::Delete))
    });
    let is_missed = |id: &&Id| {
        let is_lookup = dataflow.access(**id).is_some_and(|access| access.touch == Touch::Lookup);
        let wanted = dataflow.wanted.get(id).filter(|_| is_lookup);
        let when = wanted.copied().unwrap_or(dataflow.graph.node(**id).args[0]);
        let when = first.get(&when).copied().unwrap_or(when);
        graph.as_const(when) != Some(0) && !predicates.implies(&graph, when, alone)
    };
    calls.filter(is_missed).copied().collect()
}
