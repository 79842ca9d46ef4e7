// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that run alone: accesses to maps by further keys than the one of the table's port.
//!
//! **Goal.** A table has one port for packets. Most packets of a program need one key in each map; the others, such as
//! those that open a connection, look up, insert and delete by several. These are found out while packets are in
//! flight, and run again with no other packet beside them, one access at a time.
//!
//! ```text
//!   queue ──► lookup by the first key ──► alone? ──► results are written
//!     ▲                                     │
//!     └──── it and all packets after it ◄───┘        then: run, access, run, access, run, leave
//! ```
//!
//! **Steps.** The first key by which a map is looked up is that of its port. All other lookups, and all insertions and
//! deletions, are steps: accesses of a packet that runs alone. Their results are kept while the packet runs again, so a
//! step whose operands depend on results of others has them one run later. The packet is alone if it makes one step at
//! least. Before that is known, no packet in the region writes, so that all of them can run again.
//!
//! **Order.** Lookups, insertions and deletions are made in program order, so that the results that a step depends on are
//! known when it is made. As everywhere in the dataflow, loads have the values before all writes of the packet: writes to
//! values come last. Such a write excludes insertions into its map, and applies only where the entry is still present.
//!
//! **Limits.** Hash maps and arrays; addresses that one lookup gave. What a packet writes through the port of a map
//! excludes running alone, or else the map has no port for packets.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Dataflow, Effect, Graph, Id, Kind, Predicates, Touch};
use flowloom_isa::MapKind;
use flowloom_isa::op::AtomicOp;

use crate::tables::{Uses, draws, is_summed, keys, uses};
use crate::timing::Scheme;

/// The most steps of a packet.
const MAX_STEPS: usize = 64;
/// The greatest flag of an update, `BPF_EXIST`.
const MAX_FLAGS: u64 = 2;
/// The most nodes of the conditions under which packets run alone.
const MAX_COPIED: usize = 20_000;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Looks an entry up.
    Look,
    /// Inserts, changes or deletes an entry.
    Change,
    /// Writes to the value of an entry that a lookup has found.
    Write,
}

/// An access of a packet that runs alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The map.
    pub map: u32,
    /// What it does.
    pub action: Action,
    /// The call that has the key: of a write, the lookup whose entry it writes to.
    pub call: Id,
    /// A write's stores and atomic operations, in program order.
    pub writes: Vec<Id>,
}

/// The part of a plan that concerns packets that run alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Where a packet runs alone, as long as it has made no step.
    pub alone: Id,
    /// The steps, in the order in which a packet makes them.
    pub steps: Vec<Step>,
    /// The maps with steps.
    pub maps: BTreeSet<u32>,
    /// The lookups through the ports of these maps.
    pub first_lookups: BTreeSet<Id>,
    /// All accesses that are part of steps, among them the loads from entries that steps look up.
    pub accesses: BTreeSet<Id>,
    /// The stage of the queue from which packets run again.
    pub first_stage: u32,
    /// The stage at whose end it is known whether a packet runs alone.
    pub decided_stage: u32,
}

impl Replay {
    /// The condition under which the program makes the access of a step, as one of these nodes that holds.
    pub fn conditions(&self, dataflow: &Dataflow, step: &Step) -> Vec<Id> {
        match step.action {
            Action::Write => step.writes.iter().map(|id| dataflow.graph.node(*id).args[0]).collect(),
            Action::Look | Action::Change => vec![condition(dataflow, step.call)],
        }
    }

    /// The step that looks up the entry of an access.
    pub fn look(&self, call: Id) -> Option<usize> {
        self.steps.iter().position(|step| step.call == call && step.action != Action::Write)
    }

    /// The bits of the registers with operands and results of steps, and with what the packet found first.
    pub(crate) fn register_bits(&self, dataflow: &Dataflow) -> u64 {
        let map = |call: Id| &dataflow.maps[dataflow.access(call).and_then(|access| access.map).unwrap_or(0) as usize];
        let stored = |id: &Id| match dataflow.graph.node(*id).kind {
            Kind::Effect(Effect::Store(size) | Effect::Atomic(_, size)) => 1 + 8 * size.bytes() as u32,
            _ => 0,
        };
        let step = |step: &Step| {
            let map = map(step.call);
            let held = match step.action {
                Action::Look => 8 * map.value_bytes,
                Action::Change => 8 * map.value_bytes + 1,
                Action::Write => step.writes.iter().map(stored).sum(),
            };
            u64::from(8 * map.key_bytes + held + 3)
        };
        let found = self.first_lookups.iter().map(|call| u64::from(8 * map(*call).value_bytes + 1));
        let written = self.steps.iter().filter(|step| step.action == Action::Write).map(|step| step.map);
        // The entry that a write has read.
        let read = written.collect::<BTreeSet<u32>>().into_iter();
        let read = read.map(|map| u64::from(8 * dataflow.maps[map as usize].value_bytes));
        self.steps.iter().map(step).chain(found).chain(read).sum()
    }

    /// The accesses besides those of steps.
    pub(crate) fn others(&self, mut all: BTreeMap<u32, Uses>) -> BTreeMap<u32, Uses> {
        for uses in all.values_mut() {
            for list in [&mut uses.lookups, &mut uses.loads, &mut uses.atomics, &mut uses.stores, &mut uses.entries] {
                list.retain(|id| !self.accesses.contains(id));
            }
        }
        all
    }
}

/// The condition of a call. That of a lookup is the one before speculation.
fn condition(dataflow: &Dataflow, call: Id) -> Id {
    let own = dataflow.graph.node(call).args[0];
    let is_lookup = dataflow.access(call).is_some_and(|access| access.touch == Touch::Lookup);
    dataflow.wanted.get(&call).copied().filter(|_| is_lookup).unwrap_or(own)
}

/// The steps of a program whose maps are accessed by several keys, and the dataflow with the condition under which a
/// packet runs alone; none if there is no such map, or one that packets cannot access so.
pub(crate) fn replay(dataflow: &Dataflow, forced: &BTreeMap<u32, Scheme>) -> Option<(Dataflow, Replay)> {
    let all = uses(dataflow);
    let several = all.iter().filter(|(map, uses)| has_several_keys(dataflow, **map, uses)).map(|(map, _)| *map);
    let mut maps: BTreeSet<u32> = several.filter(|map| !forced.contains_key(map)).collect();
    if !maps.is_empty() {
        // A packet that runs again must not insert or delete again.
        let changed = all.iter().filter(|(map, uses)| !forced.contains_key(map) && !uses.entries.is_empty());
        maps.extend(changed.map(|(map, _)| *map));
    }
    if maps.is_empty() || !maps.iter().all(|map| is_accessible(dataflow, *map, &all[map])) {
        return None;
    }
    // By map, the key of its port.
    let first = |map: &u32| Some((*map, dataflow.key(*all[map].lookups.first()?)?.to_vec()));
    let mut ports: BTreeMap<u32, Vec<Id>> = maps.iter().filter_map(first).collect();
    loop {
        let found = attempt(dataflow, &all, &maps, &ports)?;
        let lost: Vec<u32> =
            ports.keys().copied().filter(|map| !found.keeps(dataflow, *map, &all[map], &ports[map])).collect();
        if lost.is_empty() {
            let through = maps.iter().flat_map(|map| all[map].writes().collect::<Vec<Id>>());
            return found.finished(dataflow, &through.collect::<Vec<Id>>());
        }
        ports.retain(|map, _| !lost.contains(map));
    }
}

/// Whether packets write a map, and access it by several keys.
fn has_several_keys(dataflow: &Dataflow, map: u32, uses: &Uses) -> bool {
    uses.writes().next().is_some()
        && !is_summed(dataflow, map, uses)
        && keys(dataflow, uses).is_none_or(|keys| keys.len() > 1)
}

/// Whether steps can make all accesses to a map.
fn is_accessible(dataflow: &Dataflow, map: u32, uses: &Uses) -> bool {
    let graph = &dataflow.graph;
    let kind = dataflow.maps.get(map as usize).map(|map| map.kind);
    let is_kind = match kind {
        Some(MapKind::Hash | MapKind::PerCpuHash) => true,
        // The only entry of an array is a register.
        Some(MapKind::Array | MapKind::PerCpuArray) => {
            uses.entries.is_empty() && dataflow.maps[map as usize].max_entries > 1
        }
        _ => false,
    };
    let is_change = |id: &Id| {
        let flags = || graph.node(*id).args.last().and_then(|flags| graph.as_const(*flags));
        let is_known = match dataflow.access(*id).map(|access| access.touch) {
            Some(Touch::Update) => flags().is_some_and(|flags| flags <= MAX_FLAGS),
            Some(Touch::Delete) => true,
            _ => false,
        };
        is_known && dataflow.key(*id).is_some()
    };
    let is_direct = |id: &Id| {
        let node = graph.node(*id);
        uses.lookups.contains(&node.args[1]) && graph.as_const(node.args[2]).is_some()
    };
    let is_silent = |id: &Id| match graph.node(*id).kind {
        Kind::Effect(Effect::Atomic(op, _)) => {
            matches!(op, AtomicOp::Add { fetch: false } | AtomicOp::Or { fetch: false })
                || matches!(op, AtomicOp::And { fetch: false } | AtomicOp::Xor { fetch: false })
        }
        _ => false,
    };
    let values = uses.loads.iter().chain(&uses.stores).chain(&uses.atomics);
    is_kind
        && uses.lookups.iter().all(|id| dataflow.key(*id).is_some())
        && uses.entries.iter().all(is_change)
        && values.into_iter().all(is_direct)
        && uses.atomics.iter().all(is_silent)
}

/// A choice of ports, and what follows from it.
struct Attempt {
    maps: BTreeSet<u32>,
    first_lookups: BTreeSet<Id>,
    accesses: BTreeSet<Id>,
    steps: Vec<Step>,
    /// The dataflow with the conditions of the steps as they are before the first step.
    dataflow: Dataflow,
    early: Vec<Id>,
    /// The nodes that depend on results of steps.
    later: BTreeSet<Id>,
}

fn attempt(
    dataflow: &Dataflow,
    all: &BTreeMap<u32, Uses>,
    maps: &BTreeSet<u32>,
    ports: &BTreeMap<u32, Vec<Id>>,
) -> Option<Attempt> {
    let graph = &dataflow.graph;
    let mut predicates = Predicates::new(graph);
    let (mut first_lookups, mut accesses, mut steps) = (BTreeSet::new(), BTreeSet::new(), Vec::<Step>::new());
    for map in maps {
        let uses = &all[map];
        let is_first = |id: &Id| ports.get(map).is_some_and(|port| dataflow.key(*id) == Some(port.as_slice()));
        let of_port: BTreeSet<Id> = uses.lookups.iter().copied().filter(is_first).collect();
        let is_step = |id: &Id| !of_port.contains(id) && !of_port.contains(&graph.node(*id).args[1]);
        let own: BTreeSet<Id> = uses.all().filter(is_step).collect();
        let mut writes: Vec<Step> = Vec::new();
        for &id in &own {
            let node = graph.node(id);
            let (action, call) = match dataflow.access(id)?.touch {
                Touch::Lookup => (Action::Look, id),
                Touch::Update | Touch::Delete => (Action::Change, id),
                Touch::Store | Touch::Atomic => (Action::Write, node.args[1]),
                _ => continue,
            };
            if action != Action::Write {
                steps.push(Step { map: *map, action, call, writes: Vec::new() });
                continue;
            }
            // Writes to an entry are one step, unless others of the same packet may come between them.
            let mut excludes = |step: &Step| {
                step.writes
                    .iter()
                    .all(|other| predicates.exclude_by_value(graph, graph.node(*other).args[0], node.args[0]))
            };
            let at = writes.iter().rposition(|step| step.call == call);
            let at = at.filter(|at| writes[at + 1..].iter().all(&mut excludes));
            match at {
                Some(at) => writes[at].writes.push(id),
                None => writes.push(Step { map: *map, action, call, writes: vec![id] }),
            }
        }
        // What an atomic operation gives is what the lookup has found, as no write comes before it.
        let is_used = |id: Id| graph.nodes().iter().any(|node| node.args.contains(&id));
        for &id in uses.atomics.iter().filter(|id| own.contains(id) && is_used(**id)) {
            let when = graph.node(id).args[0];
            let mut before = uses.writes().filter(|other| *other < id);
            if before.any(|other| !predicates.exclude_by_value(graph, graph.node(other).args[0], when)) {
                return None;
            }
        }
        // An entry that the packet has inserted is another one than it has found.
        let inserts = |id: &&Id| dataflow.access(**id).is_some_and(|access| access.touch == Touch::Update);
        for insert in uses.entries.iter().filter(inserts) {
            let when = graph.node(*insert).args[0];
            let all_writes = writes.iter().flat_map(|step| &step.writes);
            if !all_writes.into_iter().all(|id| predicates.exclude_by_value(graph, graph.node(*id).args[0], when)) {
                return None;
            }
        }
        steps.extend(writes);
        first_lookups.extend(of_port);
        accesses.extend(own);
    }
    steps.sort_by_key(|step| (step.action == Action::Write, step.writes.first().copied().unwrap_or(step.call)));
    if steps.is_empty() || steps.len() > MAX_STEPS {
        return None;
    }
    let mut later: BTreeSet<Id> = BTreeSet::new();
    // Which of the packet's random numbers a draw gives depends on the draws before it.
    let draws = draws(dataflow);
    for id in graph.ids() {
        let earlier = draws.get(&id).into_iter().flatten();
        if accesses.contains(&id) || graph.node(id).args.iter().chain(earlier).any(|arg| later.contains(arg)) {
            later.insert(id);
        }
    }
    let calls = steps.iter().filter(|step| step.action != Action::Write).map(|step| condition(dataflow, step.call));
    let (dataflow, early) = early(dataflow, calls.collect(), &accesses, &later)?;
    Some(Attempt { maps: maps.clone(), first_lookups, accesses, steps, dataflow, early, later })
}

/// Conditions as they are before the first step, when no step has found anything.
fn early(
    dataflow: &Dataflow,
    conditions: Vec<Id>,
    accesses: &BTreeSet<Id>,
    later: &BTreeSet<Id>,
) -> Option<(Dataflow, Vec<Id>)> {
    let mut cone = BTreeSet::new();
    let mut work = conditions.clone();
    while let Some(id) = work.pop() {
        if !later.contains(&id) || !cone.insert(id) {
            continue;
        }
        if cone.len() > MAX_COPIED {
            return None;
        }
        if !accesses.contains(&id) {
            work.extend(&dataflow.graph.node(id).args);
        }
    }
    let mut after = dataflow.clone();
    let mut copies: BTreeMap<Id, Id> = BTreeMap::new();
    for id in cone {
        let node = dataflow.graph.node(id);
        let copy = match (accesses.contains(&id), node.kind) {
            (true, _) => after.graph.number(0, node.bits),
            // An effect that depends on a step would happen twice.
            (false, Kind::Effect(_)) => return None,
            (false, kind) => {
                let args = node.args.iter().map(|arg| copies.get(arg).copied().unwrap_or(*arg)).collect();
                after.graph.make(kind, args, node.bits)
            }
        };
        copies.insert(id, copy);
    }
    let early: BTreeSet<Id> = conditions.iter().map(|id| copies.get(id).copied().unwrap_or(*id)).collect();
    Some((after, early.into_iter().collect()))
}

impl Attempt {
    /// Whether a map keeps its port: the key does not depend on steps, and a packet that writes through it does not run
    /// alone.
    fn keeps(&self, dataflow: &Dataflow, map: u32, uses: &Uses, port: &[Id]) -> bool {
        if port.iter().any(|id| self.later.contains(id)) || !self.maps.contains(&map) {
            return false;
        }
        let mut writes = uses.writes().filter(|id| !self.accesses.contains(id)).peekable();
        if writes.peek().is_none() {
            return true;
        }
        let graph = &self.dataflow.graph;
        let mut predicates = Predicates::new(graph);
        writes.all(|id| {
            let when = dataflow.graph.node(id).args[0];
            !self.later.contains(&when)
                && self.early.iter().all(|early| predicates.exclude_by_value(graph, *early, when))
        })
    }

    /// The result, if it is proved what the checker asks for: whatever is the first step of a packet, it runs alone, and
    /// no packet that writes through a port does.
    fn finished(self, before: &Dataflow, writes: &[Id]) -> Option<(Dataflow, Replay)> {
        let Attempt { maps, first_lookups, accesses, steps, mut dataflow, early, later } = self;
        let alone = one_of(&mut dataflow.graph, early.clone());
        let alone = equal(&before.graph, &dataflow.graph, alone, &later).unwrap_or(alone);
        let graph = &dataflow.graph;
        let mut predicates = Predicates::new(graph);
        let is_found = |when: &Id| graph.as_const(*when) == Some(0) || predicates.implies(graph, *when, alone);
        let is_proved = early.iter().all(is_found);
        let mut through = writes.iter().filter(|id| !accesses.contains(id)).map(|id| graph.node(*id).args[0]);
        if !is_proved || !through.all(|when| predicates.exclude_by_value(graph, when, alone)) {
            return None;
        }
        let replay = Replay { alone, steps, maps, first_lookups, accesses, first_stage: 0, decided_stage: 0 };
        Some((dataflow, replay))
    }
}

/// Whether one of some conditions holds, without those that imply others.
fn one_of(graph: &mut Graph, mut conditions: Vec<Id>) -> Id {
    let mut predicates = Predicates::new(graph);
    for at in (0..conditions.len()).rev() {
        let own = conditions[at];
        let is_other = |(place, other): (usize, &Id)| place != at && predicates.implies(graph, own, *other);
        if conditions.iter().enumerate().any(is_other) {
            conditions.remove(at);
        }
    }
    let zero = graph.number(0, 1);
    conditions.into_iter().fold(zero, |all, one| graph.or(all, one))
}

/// A condition of the program that is the same as another one, and does not depend on steps: its own is known earlier
/// than one that is put together from those of all steps.
fn equal(before: &Graph, graph: &Graph, condition: Id, later: &BTreeSet<Id>) -> Option<Id> {
    let mut predicates = Predicates::new(graph);
    let bits = before.ids().filter(|id| graph.bits(*id) == 1 && !later.contains(id) && graph.as_const(*id).is_none());
    bits.into_iter().find(|id| predicates.implies(graph, condition, *id) && predicates.implies(graph, *id, condition))
}
