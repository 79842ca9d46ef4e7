// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that run alone: no access of one is missed, and nothing happens twice where packets run again.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Dataflow, Id, Kind, Predicates, Touch};

use super::{Checker, Fault};

impl Checker<'_> {
    pub(super) fn replay(&mut self) {
        let Some(replay) = &self.plan.replay else {
            return;
        };
        let (queue, decided) = (replay.first_stage, replay.decided_stage);
        let known = self.ends(replay.alone);
        if known.stage > decided || decided <= queue {
            self.faults.push(Fault::Undecided { node: replay.alone.index(), stage: decided, decided: known.stage });
        }
        for (id, stage) in &self.plan.schedule.commits {
            // In the stage of the decision, a packet that runs alone writes nothing yet.
            let map = self.plan.dataflow.access(*id).and_then(|access| access.map);
            let excludes_alone = map.is_some_and(|map| replay.maps.contains(&map));
            if (queue..decided + u32::from(!excludes_alone)).contains(stage) {
                self.faults.push(Fault::Undecided { node: id.index(), stage: *stage, decided });
            }
        }
        let maps: BTreeSet<u32> =
            self.steps.iter().filter_map(|id| self.plan.dataflow.access(*id).and_then(|access| access.map)).collect();
        let others = maps.iter().filter_map(|map| self.accesses.get(map)).flat_map(|own| own.all());
        let early = others.chain(self.steps.iter().copied()).filter(|id| self.begins(*id).stage < queue);
        let early: Vec<Fault> =
            early.map(|id| Fault::BeforeQueue { node: id.index(), stage: self.begins(id).stage, queue }).collect();
        self.faults.extend(early);
        let mut predicates = Predicates::new(&self.plan.dataflow.graph);
        let through = maps.iter().filter_map(|map| self.accesses.get(map)).flat_map(|own| own.writes());
        let both = through.filter(|id| {
            let graph = &self.plan.dataflow.graph;
            !predicates.exclude_by_value(graph, graph.node(*id).args[0], replay.alone)
        });
        let both: Vec<Fault> = both.map(|id| Fault::Undecided { node: id.index(), stage: decided, decided }).collect();
        self.faults.extend(both);
        let missed = missed(&self.plan.dataflow, &self.steps, replay.alone);
        self.faults.extend(missed.into_iter().map(|id| Fault::NotAlone { node: id.index() }));
        let late = self.steps.iter().flat_map(|id| self.plan.dataflow.graph.node(*id).args.iter().copied());
        let late = late.map(|id| self.ends(id).stage).max().unwrap_or(0);
        let needed = late.max(decided) + 1;
        if self.plan.schedule.stages < needed {
            self.faults.push(Fault::Stages { found: self.plan.schedule.stages, needed });
        }
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
