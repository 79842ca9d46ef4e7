// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of packets that run alone: each access is made once, by a step that can make it, in an order that gives the
//! result of the program.
//!
//! | access | condition |
//! | --- | --- |
//! | lookup, insertion, deletion | one step, after those of earlier calls; a constant flag, and a known key |
//! | store, atomic operation | one place in a write of the entry that its own lookup found, after all other steps |
//! | load | from an entry that a step looks up |
//! | through a port | by one key for each map, or to an entry that a lookup through it found |
//!
//! Writes that may happen in one packet keep their order. What an atomic operation gives is what the lookup found, so no
//! write comes before it. An insertion excludes writes to values of its map: an entry that the packet inserts is another
//! one than it has found.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Effect, Id, Kind, Predicates, Touch};
use flowloom_isa::MapKind;
use flowloom_isa::op::AtomicOp;

use super::derive::is_used;
use super::{Checker, Fault};
use crate::replay::{Action, Replay, Step};

/// The greatest flag of an update, `BPF_EXIST`.
const MAX_FLAGS: u64 = 2;

impl Checker<'_> {
    /// Checks the steps, and what the plan says of maps with steps.
    pub(super) fn alone(&mut self, replay: &Replay) {
        let dataflow = &self.plan.dataflow;
        let places = places(&replay.steps);
        let mut faults = Vec::new();
        for id in &self.steps {
            let Some(access) = dataflow.access(*id) else {
                faults.push(Fault::StepAccess { node: id.index() });
                continue;
            };
            let expected = usize::from(access.touch != Touch::Load);
            let found = places.get(id).map_or(0, Vec::len);
            if found != expected {
                faults.push(Fault::StepCount { node: id.index(), found, expected });
            }
            if !self.can_step(*id) {
                faults.push(Fault::StepAccess { node: id.index() });
            }
        }
        for step in &replay.steps {
            let own = if step.action == Action::Write { &step.writes[..] } else { std::slice::from_ref(&step.call) };
            let is_own = |id: &Id| self.is_of(step, *id);
            let is_fit = !own.is_empty() && (step.action == Action::Write || step.writes.is_empty());
            let wrong = own.iter().find(|id| !is_own(id)).or((!is_fit).then_some(&step.call));
            faults.extend(wrong.map(|id| Fault::StepAccess { node: id.index() }));
        }
        faults.extend(self.in_order(&replay.steps, &places));
        faults.extend(self.of_maps(replay));
        self.faults.extend(faults);
    }

    /// Whether a step, or the result of one, is an access of this kind.
    fn can_step(&self, id: Id) -> bool {
        let dataflow = &self.plan.dataflow;
        let (graph, node) = (&dataflow.graph, dataflow.graph.node(id));
        let Some((touch, map)) = dataflow.access(id).and_then(|access| Some((access.touch, access.map?))) else {
            return false;
        };
        let Some(map) = dataflow.maps.get(map as usize) else { return false };
        let is_hash = matches!(map.kind, MapKind::Hash | MapKind::PerCpuHash);
        // The only entry of an array is a register, which has no port.
        let is_array = matches!(map.kind, MapKind::Array | MapKind::PerCpuArray) && map.max_entries > 1;
        let is_known = || dataflow.key(id).is_some();
        let is_direct = || self.is_lookup(node.args[1]) && graph.as_const(node.args[2]).is_some();
        match touch {
            Touch::Lookup => (is_hash || is_array) && is_known(),
            Touch::Delete => is_hash && is_known(),
            Touch::Update => {
                let flags = node.args.last().and_then(|flags| graph.as_const(*flags));
                is_hash && is_known() && flags.is_some_and(|flags| flags <= MAX_FLAGS)
            }
            Touch::Load | Touch::Store => is_direct(),
            // Of an atomic operation, a step makes the write, and the old value is not given back.
            Touch::Atomic => is_direct() && is_silent(node.kind),
            _ => false,
        }
    }

    /// Whether a node is a lookup that a step makes.
    fn is_lookup(&self, id: Id) -> bool {
        self.steps.contains(&id) && self.plan.dataflow.access(id).is_some_and(|access| access.touch == Touch::Lookup)
    }

    /// Whether a step may make an access: it has its map, its action and its entry.
    fn is_of(&self, step: &Step, id: Id) -> bool {
        let dataflow = &self.plan.dataflow;
        let Some(access) = dataflow.access(id).filter(|_| self.steps.contains(&id)) else { return false };
        let is_action = match access.touch {
            Touch::Lookup => step.action == Action::Look && step.call == id,
            Touch::Update | Touch::Delete => step.action == Action::Change && step.call == id,
            Touch::Store | Touch::Atomic => {
                step.action == Action::Write && step.call == dataflow.graph.node(id).args[1]
            }
            _ => false,
        };
        is_action && access.map == Some(step.map)
    }

    /// Checks that accesses that may happen in one packet keep their order, as far as it decides a result.
    fn in_order(&self, steps: &[Step], places: &BTreeMap<Id, Vec<(usize, usize)>>) -> Vec<Fault> {
        let dataflow = &self.plan.dataflow;
        let graph = &dataflow.graph;
        let mut predicates = Predicates::new(graph);
        let mut excludes =
            |one: Id, other: Id| predicates.exclude_by_value(graph, graph.node(one).args[0], graph.node(other).args[0]);
        let mut faults = Vec::new();
        let place = |id: Id| places.get(&id).and_then(|all| all.first()).copied();
        let is_write = |at: usize| steps[at].action == Action::Write;
        // Calls depend on results of earlier calls, of any map; writes come after all of them.
        let rank = |step: &Step| match step.action {
            Action::Look | Action::Change => (false, step.call.index()),
            Action::Write => (true, 0),
        };
        let name = |step: &Step| step.writes.first().unwrap_or(&step.call).index();
        for pair in steps.windows(2).filter(|pair| rank(&pair[0]) > rank(&pair[1])) {
            faults.push(Fault::StepOrder { first: name(&pair[1]), then: name(&pair[0]) });
        }
        for accesses in self.alone.values() {
            let values: Vec<Id> =
                accesses.writes().filter(|id| place(*id).is_some_and(|(at, _)| is_write(at))).collect();
            for (at, then) in values.iter().enumerate() {
                for first in &values[..at] {
                    if place(*first) >= place(*then) && !excludes(*first, *then) {
                        faults.push(Fault::StepOrder { first: first.index(), then: then.index() });
                    }
                }
            }
            let inserts = accesses.changes.iter().copied();
            let inserts = inserts.filter(|id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Update));
            for insert in inserts {
                if let Some(write) = values.iter().find(|write| !excludes(**write, insert)) {
                    faults.push(Fault::StepInsertion { node: insert.index(), write: write.index() });
                }
            }
            for atomic in accesses.atomics.iter().filter(|id| is_used(dataflow, **id)) {
                let mut earlier = accesses.writes().filter(|id| id < atomic);
                if earlier.any(|id| !excludes(id, *atomic)) {
                    faults.push(Fault::StepAccess { node: atomic.index() });
                }
            }
        }
        faults
    }

    /// Checks that the plan names the maps with steps and the lookups through their ports, each by one key.
    fn of_maps(&self, replay: &Replay) -> Vec<Fault> {
        let dataflow = &self.plan.dataflow;
        let maps: BTreeSet<u32> = self.steps.iter().filter_map(|id| dataflow.access(*id)?.map).collect();
        let through = || maps.iter().filter_map(|map| Some((*map, self.accesses.get(map)?)));
        let lookups: BTreeSet<Id> = through().flat_map(|(_, own)| own.lookups.iter().copied()).collect();
        let mut faults = Vec::new();
        for map in replay.maps.symmetric_difference(&maps) {
            faults.push(Fault::StepMap { map: self.name(*map), has_steps: maps.contains(map) });
        }
        let values = through().flat_map(|(_, own)| own.loads.iter().chain(&own.stores).chain(&own.atomics));
        let values = values.filter(|id| !lookups.contains(&dataflow.graph.node(**id).args[1]));
        let others = values.chain(replay.first_lookups.symmetric_difference(&lookups));
        faults.extend(others.map(|id| Fault::Port { node: id.index() }));
        let several = through().filter(|(_, own)| own.keys(dataflow).is_none_or(|keys| keys.len() > 1));
        faults.extend(several.map(|(map, _)| Fault::Keys { map: self.name(map) }));
        faults
    }
}

/// By access, its places in the steps: the step, and which of its writes it is.
fn places(steps: &[Step]) -> BTreeMap<Id, Vec<(usize, usize)>> {
    let mut places: BTreeMap<Id, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        let own = if step.action == Action::Write { &step.writes[..] } else { std::slice::from_ref(&step.call) };
        own.iter().enumerate().for_each(|(number, id)| places.entry(*id).or_default().push((at, number)));
    }
    places
}

/// Whether a step can make an atomic operation: it writes one of these results, and gives no old value back.
fn is_silent(kind: Kind) -> bool {
    let Kind::Effect(Effect::Atomic(op, _)) = kind else { return false };
    matches!(
        op,
        AtomicOp::Add { fetch: false }
            | AtomicOp::Or { fetch: false }
            | AtomicOp::And { fetch: false }
            | AtomicOp::Xor { fetch: false }
    )
}
