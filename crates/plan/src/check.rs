// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An independent checker of plans.
//!
//! **Goal.** In a plan without faults no packet misses a write of an earlier packet, sees a write of a later one, or
//! uses a value before it is computed.
//!
//! **Independence.** The checker shares no code with the planner, on purpose: what it knows of accesses, keys,
//! commutation, packet words and commit stages it derives from the dataflow itself ([`derive`], [`commute`]), even where
//! the planner has a function for it. It takes from a plan only what a plan claims: times and commits of nodes, schemes,
//! stages, holds, queues, regions, window, omitted calls, steps of packets that run alone, and its list of accesses for
//! comparison. Shared are the dataflow, the types of the plan, the target, and the table of [`cycles`], which define what
//! is checked.
//!
//! **Steps.** Packets keep their distance in cycles from stage to stage unless a scheme says otherwise. So a write that
//! commits in stage `w` is visible to all later packets that read in a later stage than `w`, and to no earlier packet
//! that reads no later than `w`. A block that takes several cycles reads in the first and in the last of them:
//!
//! | scheme | condition |
//! | --- | --- |
//! | none | no writes |
//! | atomic | all reads and writes are in one stage, behind the forwarding mux; one key if entries come and go |
//! | schedule | one key; reads not before the stage where it is taken; the hold lasts until the last write is visible |
//! | flush | all writes, and all other effects of the region, in its last stage; the restart is no later than the first read, and in no other region; the hold covers all packets that have read too early |
//! | all | no write is in an earlier stage than the last cycle of a read; writes of a packet keep their order |

mod alone;
mod commute;
mod derive;
mod fault;
mod replay;

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Effect, Id, Input, Kind, Predicates, Touch};
use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;
use flowloom_isa::op::AtomicOp;

use crate::cycles::{Cycles, cycles};
use crate::hazard::Region;
use crate::plan::{MapPlan, Plan};
use crate::stages::Moment;
use crate::timing::Scheme;
use crate::window::Length;
pub(crate) use commute::updates_commute;
use derive::{Accesses, Words};
pub use fault::Fault;

/// All faults of a plan.
pub fn check(plan: &Plan) -> Vec<Fault> {
    // A packet that runs alone makes its steps one after the other: nothing of them is in a stage.
    let steps = plan.replay.as_ref().map(|replay| replay.accesses.clone()).unwrap_or_default();
    let mut accesses = derive::accesses(&plan.dataflow);
    let mut alone = accesses.clone();
    accesses.values_mut().for_each(|own| own.retain(|id| !steps.contains(&id)));
    alone.values_mut().for_each(|own| own.retain(|id| steps.contains(&id)));
    let mut checker = Checker { plan, accesses, alone, steps, faults: Vec::new() };
    checker.values();
    checker.packet();
    checker.effects();
    checker.order();
    checker.draws();
    checker.own_writes();
    checker.steps();
    checker.maps();
    checker.regions();
    checker.replay();
    for call in &plan.omitted {
        if !matches!(call.helper, helper::TRACE_PRINTK | helper::TRACE_VPRINTK) {
            checker.faults.push(Fault::Omitted { helper: call.helper });
        }
    }
    checker.faults
}

struct Checker<'a> {
    plan: &'a Plan,
    /// By map, the accesses that all packets make.
    accesses: BTreeMap<u32, Accesses>,
    /// By map, the accesses of packets that run alone.
    alone: BTreeMap<u32, Accesses>,
    /// All of these.
    steps: BTreeSet<Id>,
    faults: Vec<Fault>,
}

impl Checker<'_> {
    fn ends(&self, id: Id) -> Moment {
        self.plan.schedule.spans[id.index()].ends
    }

    fn begins(&self, id: Id) -> Moment {
        self.plan.schedule.spans[id.index()].begins
    }

    fn commit(&self, id: Id) -> Option<u32> {
        self.plan.schedule.commits.get(&id).copied()
    }

    fn cycles(&self, id: Id) -> Option<Cycles> {
        cycles(&self.plan.dataflow, &self.plan.options.target, id)
    }

    /// The latest moment at which one of these nodes is ready.
    fn ready(&self, nodes: &[Id]) -> Moment {
        nodes.iter().map(|id| self.ends(*id)).max().unwrap_or_default()
    }

    fn name(&self, map: u32) -> String {
        self.plan.dataflow.maps.get(map as usize).map_or_else(String::new, |map| map.name.clone())
    }

    fn scheme(&self, map: u32) -> Option<Scheme> {
        self.plan.maps.iter().find(|own| own.map == map).map(|own| own.scheme)
    }

    /// Checks that values begin after their arguments, and fit their stages.
    fn values(&mut self) {
        let (graph, target) = (&self.plan.dataflow.graph, &self.plan.options.target);
        for id in graph.ids() {
            let node = graph.node(id);
            let (begins, ends) = (self.begins(id), self.ends(id));
            if ends.depth > target.stage {
                self.faults.push(Fault::TooDeep { node: id.index(), depth: ends.depth, stage: target.stage });
            }
            if matches!(node.kind, Kind::Effect(_)) {
                continue;
            }
            if let Some(late) = node.args.iter().find(|arg| self.ends(**arg) > begins) {
                self.faults.push(Fault::TooEarly { node: id.index(), argument: late.index() });
            }
            let least = match target.block_stages(&self.plan.dataflow, id) {
                0 => Moment { depth: begins.depth + target.of(graph, id), ..begins },
                stages => Moment::start(begins.registered() + stages),
            };
            if ends < least {
                self.faults.push(Fault::TooFast { node: id.index() });
            }
        }
        let outputs = self.plan.dataflow.ending.nodes().map(|id| self.ends(id).registered());
        let committed = self.plan.schedule.commits.values().map(|commit| commit + 1);
        // The target of a redirect is chosen after the last stage.
        let is_redirect = |id: &Id| {
            let touch = self.plan.dataflow.access(*id).map(|access| access.touch);
            matches!(touch, Some(Touch::Redirect | Touch::RedirectMap))
        };
        let redirects = graph.ids().filter(is_redirect).flat_map(|id| [id, graph.node(id).args[0]]);
        let redirects = redirects.map(|id| self.ends(id).registered());
        let needed = outputs.chain(committed).chain(redirects).max().unwrap_or(0);
        let found = self.plan.schedule.stages;
        if found < needed {
            self.faults.push(Fault::Stages { found, needed });
        }
    }

    /// Checks that words of the packet are there when they are used, and that the window holds all bytes.
    fn packet(&mut self) {
        let window = &self.plan.window;
        let words = Words::of(&self.plan.dataflow);
        for (id, byte) in &words.bytes {
            let is_input = matches!(self.plan.dataflow.graph.node(*id).kind, Kind::Input(Input::Byte(_)));
            // An access beyond the window is of a packet that takes the slow path.
            if *byte >= window.bytes && (is_input || !window.reaches_beyond) {
                self.faults.push(Fault::Window { byte: *byte, window: window.bytes });
            }
            self.after_word(*id, (*byte).min(window.bytes.saturating_sub(1)));
        }
        if let Some(byte) = words.written.filter(|byte| *byte >= window.bytes) {
            self.faults.push(Fault::Window { byte, window: window.bytes });
        }
        let is_whole = match window.length {
            Length::Unused | Length::Checked => false,
            Length::Given => self.plan.options.length_given,
            Length::Awaited => true,
        };
        if words.exact_length && !is_whole {
            self.faults.push(Fault::Length);
        }
        if !is_whole {
            words.tests.iter().for_each(|(id, byte)| self.after_word(*id, *byte));
        }
    }

    /// Checks that a node begins no earlier than the word with this byte arrives.
    fn after_word(&mut self, id: Id, byte: u32) {
        let stage = byte / u32::from(self.plan.options.target.word_bytes);
        if self.begins(id).stage < stage {
            self.faults.push(Fault::EarlyWord { node: id.index(), stage });
        }
    }

    /// Checks that effects begin after their arguments, answer after their latency, and commit when they are ready.
    fn effects(&mut self) {
        let (dataflow, target) = (&self.plan.dataflow, &self.plan.options.target);
        let graph = &dataflow.graph;
        for id in graph.ids() {
            let Some(access) = dataflow.access(id).filter(|_| !self.steps.contains(&id)) else { continue };
            let node = graph.node(id);
            let (begins, ends) = (self.begins(id), self.ends(id));
            let given = self.ready(&node.args[1..]);
            let is_atomic = access.map.and_then(|map| self.scheme(map)) == Some(Scheme::Atomic);
            let step = self.plan.schedule.steps.get(&id).copied();
            let begun = match access.touch {
                // It reads once the address is ready. The operand is needed where the write commits, as checked below.
                Touch::Atomic => self.ends(node.args[1]) <= begins,
                Touch::Lookup => given.stage + u32::from(given.depth > target.key) <= begins.stage,
                Touch::Update | Touch::Delete | Touch::Evict => given.stage <= begins.stage,
                Touch::Reserve => self.ready(&node.args).registered() <= begins.stage,
                Touch::Environment => true,
                _ => given <= begins || given.registered() <= begins.stage,
            };
            if !begun {
                self.faults.push(Fault::TooEarly { node: id.index(), argument: id.index() });
            }
            let stages = target.block_stages(dataflow, id);
            let least = match access.touch {
                Touch::Lookup | Touch::RedirectMap | Touch::HostTable | Touch::Reserve => begins.stage + stages,
                // In an atomic table the result comes from the stage of the change, otherwise from registered operands.
                Touch::Update | Touch::Delete | Touch::Evict if is_atomic => self.commit(id).unwrap_or(0) + stages,
                // So it does in a state slice, in the stage that makes the change.
                Touch::Update | Touch::Delete | Touch::Evict if step.is_some() => step.unwrap_or(0) + stages,
                Touch::Update | Touch::Delete | Touch::Evict => given.registered().max(begins.stage) + stages,
                _ => begins.stage,
            };
            let is_picked = access.touch == Touch::Load && graph.as_const(node.args[2]).is_none();
            let picked = Moment { depth: begins.depth + if is_picked { 3 * target.level } else { 0 }, ..begins };
            if ends < Moment::start(least) || is_picked && ends.stage == begins.stage && ends < picked {
                self.faults.push(Fault::TooFast { node: id.index() });
            }
            if self.cycles(id).is_none_or(|cycles| cycles.visible.is_none()) {
                continue;
            }
            let least = match access.touch {
                // Recency is noted once the entry is found, of packets that really look it up.
                Touch::Lookup => {
                    self.ends(node.args[0]).stage.max(begins.stage + target.lookup_stages(dataflow, access) - 1)
                }
                _ => self.ready(&node.args).stage.max(begins.stage),
            };
            match self.commit(id) {
                None => self.faults.push(Fault::Missing { what: format!("the effect of node {}", id.index()) }),
                Some(stage) if stage < least => self.faults.push(Fault::EarlyEffect { node: id.index(), stage }),
                Some(_) => {}
            }
        }
    }

    /// Checks that effects of one packet on the same state keep the order of the program: writes of a map, records and
    /// sent data, and the room that is reserved for records.
    fn order(&mut self) {
        let dataflow = &self.plan.dataflow;
        let of = |id: Id| dataflow.access(id).map(|access| access.touch);
        let all = |wanted: Touch| dataflow.graph.ids().filter(move |id| of(*id) == Some(wanted));
        let commits = |ids: &mut dyn Iterator<Item = Id>| -> Vec<(Id, Moment)> {
            ids.filter_map(|id| Some((id, Moment::start(self.commit(id)?)))).collect()
        };
        let mut ordered: Vec<Vec<(Id, Moment)>> =
            self.accesses.values().map(|accesses| commits(&mut accesses.writes())).collect();
        ordered.push(commits(&mut all(Touch::Emit)));
        ordered.push(all(Touch::Reserve).map(|id| (id, self.begins(id))).collect());
        for pair in ordered.iter().flat_map(|list| list.windows(2)) {
            if let [(first, at), (then, sooner)] = pair
                && sooner < at
            {
                self.faults.push(Fault::Order { first: first.index(), then: then.index() });
            }
        }
    }

    /// Checks that a random number is not used before it is known which of the packet's numbers it is: whether the earlier
    /// ones are drawn on the path of this one.
    fn draws(&mut self) {
        let dataflow = &self.plan.dataflow;
        let is_draw = |id: &Id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Random);
        let draws: Vec<Id> = dataflow.graph.ids().filter(is_draw).collect();
        let predicate = |id: Id| dataflow.graph.node(id).args[0];
        let early = draws.iter().enumerate().flat_map(|(at, later)| {
            let earlier = draws[..at].iter().map(|earlier| predicate(*earlier));
            earlier.filter(|id| self.ends(*id) > self.begins(*later)).map(|id| (*later, id))
        });
        let early: Vec<(Id, Id)> = early.collect();
        if early.is_empty() {
            return;
        }
        let mut known = Predicates::new(&dataflow.graph);
        for (later, earlier) in early {
            if !known.exclude(&dataflow.graph, earlier, predicate(later)) {
                self.faults.push(Fault::TooEarly { node: later.index(), argument: earlier.index() });
            }
        }
    }

    /// Checks that a packet sees its own earlier changes: reads that wait for them, and results of later changes, which
    /// depend on the room that earlier ones take or free.
    fn own_writes(&mut self) {
        let dataflow = &self.plan.dataflow;
        let mut found = Vec::new();
        for (read, writes) in &dataflow.waits {
            let is_early = |write: &Id| self.commit(*write).is_none_or(|at| at >= self.begins(*read).stage);
            if writes.iter().any(is_early) {
                found.push(*read);
            }
        }
        let mut predicates = None;
        for (map, accesses) in &self.accesses {
            let is_atomic = self.scheme(*map) == Some(Scheme::Atomic);
            let in_slice = |id: Id| self.plan.schedule.steps.contains_key(&id);
            let answered = accesses.changes.iter().filter(|id| accesses.has_answers && derive::is_used(dataflow, **id));
            for later in answered {
                let predicate = |id: Id| dataflow.graph.node(id).args[0];
                // No change has committed yet: the block of the later one takes the earlier ones into account, once they have
                // their results and are sure to happen. In an atomic table both happen in one stage, in their order.
                let is_missed = |earlier: Id| {
                    let known = self.ends(earlier).max(self.ends(predicate(earlier)));
                    let is_one_slice = is_atomic || in_slice(earlier) && in_slice(*later);
                    !is_one_slice && known.registered() > self.begins(*later).registered()
                };
                let mut earlier = accesses.changes.iter().copied().filter(|id| id < later && is_missed(*id));
                if earlier.any(|earlier| {
                    let known = predicates.get_or_insert_with(|| Predicates::new(&dataflow.graph));
                    !known.exclude(&dataflow.graph, predicate(earlier), predicate(*later))
                }) {
                    found.push(*later);
                }
            }
        }
        self.faults.extend(found.into_iter().map(|read| Fault::OwnWrite { read: read.index() }));
    }

    /// Checks the stages of state slices that make writes before they commit, and that results of changes are not used
    /// before the slice has them.
    fn steps(&mut self) {
        let dataflow = &self.plan.dataflow;
        let mut found = Vec::new();
        for (map, accesses) in &self.accesses {
            if self.scheme(*map) != Some(Scheme::Schedule) {
                let writes = accesses.writes().filter(|id| self.plan.schedule.steps.contains_key(id));
                found.extend(writes.map(|id| Fault::Step { node: id.index() }));
                continue;
            }
            let is_lookup = |id: Id| accesses.lookups.contains(&id);
            // The stage in which the slice has done an access, where that is known before the end.
            let done = |id: Id| match (self.plan.schedule.steps.get(&id), is_lookup(id)) {
                (Some(stage), _) => Some(*stage),
                (None, true) => Some(self.ends(id).stage),
                (None, false) if accesses.loads.contains(&id) => Some(self.begins(id).stage),
                (None, false) => self.commit(id),
            };
            for write in accesses.writes() {
                let Some(stage) = self.plan.schedule.steps.get(&write).copied() else { continue };
                let ready = self.ready(&dataflow.graph.node(write).args).stage;
                let is_late = |earlier: Id| done(earlier).is_none_or(|at| at > stage);
                // The table takes its time from the key on.
                let is_found = accesses.lookups.iter().any(|lookup| *lookup < write);
                let key = dataflow.key(write).filter(|_| !is_found);
                let asked = key.map(|key| self.ready(key).registered() + self.lookup_latency(write));
                let is_wrong = ready > stage
                    || asked.is_some_and(|known| known > stage)
                    || self.commit(write).is_none_or(|commit| commit < stage)
                    || accesses.all().filter(|id| *id < write).any(is_late);
                if is_wrong {
                    found.push(Fault::Step { node: write.index() });
                }
            }
            if !accesses.has_answers {
                continue;
            }
            for change in &accesses.changes {
                let Some(known) = done(*change) else { continue };
                if self.first_use(*change).is_some_and(|used| used < known) {
                    found.push(Fault::EarlyAnswer { node: change.index(), stage: known });
                }
            }
        }
        let mapless = self
            .plan
            .schedule
            .steps
            .keys()
            .filter(|id| !self.accesses.values().any(|own| own.writes().any(|other| other == **id)));
        found.extend(mapless.map(|id| Fault::Step { node: id.index() }));
        self.faults.extend(found);
    }

    /// The stages from the key of a change of entries to the entry.
    fn lookup_latency(&self, id: Id) -> u32 {
        let access = self.plan.dataflow.access(id);
        access.map_or(0, |access| self.plan.options.target.lookup_stages(&self.plan.dataflow, access))
    }

    /// The first stage in which logic or an effect uses a value, through wires or not.
    fn first_use(&self, value: Id) -> Option<u32> {
        let graph = &self.plan.dataflow.graph;
        let mut carriers = BTreeSet::from([value]);
        let mut first: Option<u32> = None;
        for id in graph.ids().filter(|id| *id > value) {
            let node = graph.node(id);
            if !node.args.iter().any(|arg| carriers.contains(arg)) {
                continue;
            }
            let is_wire =
                matches!(node.kind, Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Not | Kind::Const(_));
            if is_wire {
                carriers.insert(id);
                continue;
            }
            // A lookup reads its key when it begins, also where it commits later.
            let is_lookup = self.plan.dataflow.access(id).is_some_and(|access| access.touch == Touch::Lookup);
            let is_key = is_lookup && node.args.iter().skip(1).any(|arg| carriers.contains(arg));
            let used = match (self.plan.schedule.steps.get(&id), self.commit(id)) {
                _ if is_key => self.begins(id).stage,
                (Some(stage), _) => *stage,
                (None, Some(commit)) => commit,
                (None, None) => self.begins(id).stage,
            };
            first = Some(first.map_or(used, |other| other.min(used)));
        }
        first
    }

    /// Checks that the plan has each map once, with all its accesses, and that its scheme keeps it consistent.
    fn maps(&mut self) {
        let mut seen = BTreeSet::new();
        for map in &self.plan.maps {
            if !seen.insert(map.map) {
                self.faults.push(Fault::Twice { map: map.name.clone() });
            }
            match self.accesses.get(&map.map).cloned() {
                Some(accesses) if accesses.are_all_of(&map.uses) => self.map(map, &accesses),
                _ => self.faults.push(Fault::Missing { what: format!("an access to map `{}`", map.name) }),
            }
        }
        let missing: Vec<u32> = self.accesses.keys().copied().filter(|map| !seen.contains(map)).collect();
        for map in missing {
            let what = format!("map `{}`", self.name(map));
            self.faults.push(Fault::Missing { what });
        }
    }

    /// The last stage in which an access reads entries or values, which may be later than the one in which it begins;
    /// none if it reads nothing.
    fn last_read(&self, id: Id) -> Option<u32> {
        Some(self.begins(id).stage + self.cycles(id)?.last_read?)
    }

    fn map(&mut self, map: &MapPlan, accesses: &Accesses) {
        let writes: Vec<u32> = accesses.writes().filter_map(|id| self.commit(id)).collect();
        let last_write = writes.iter().copied().max();
        if map.write_stage != last_write {
            let (found, expected) = (map.write_stage, last_write);
            self.faults.push(Fault::WriteStage { map: map.name.clone(), found, expected });
        }
        let (Some(first_write), Some(_)) = (writes.iter().copied().min(), last_write) else { return };
        let name = || map.name.clone();
        // Lookups read entries, so only changes of entries concern them.
        let entry_writes = accesses.changes.iter().filter_map(|id| self.commit(*id)).min();
        let values = accesses.loads.iter().chain(&accesses.atomics).map(|id| (*id, Some(first_write)));
        let entries = accesses.lookups.iter().map(|id| (*id, entry_writes));
        // The last cycle of a change may be the one after another packet's change commits: packets are a cycle apart.
        let changes = accesses.changes.iter().map(|id| (*id, Some(first_write + 1)));
        let reads: Vec<(Id, Option<u32>)> = values.chain(entries).chain(changes).collect();
        for (id, write) in reads {
            if let (Some(read), Some(write)) = (self.last_read(id), write)
                && read > write
            {
                self.faults.push(Fault::LateRead { map: name(), read, write });
            }
        }
        // A lookup that notes its use happens where it commits.
        let noted = accesses.lookups.iter().filter_map(|id| self.commit(*id)).max();
        if let (Some(read), Some(write)) = (noted, entry_writes)
            && read > write
        {
            self.faults.push(Fault::LateRead { map: name(), read, write });
        }
        if map.parts != 1 && !(map.scheme == Scheme::Atomic && self.is_divisible(map, accesses)) {
            self.faults.push(Fault::Parts { map: name(), parts: map.parts });
        }
        let starts = self.starts(accesses);
        let visible = accesses.writes().filter_map(|id| Some(self.commit(id)? + self.cycles(id)?.visible?)).max();
        let visible = visible.unwrap_or(0);
        let hold = |needed_cycles: u32| {
            let hold_cycles = map.hold_cycles;
            (hold_cycles < needed_cycles).then(|| Fault::ShortHold { map: name(), hold_cycles, needed_cycles })
        };
        match map.scheme {
            Scheme::None => self.faults.push(Fault::NoScheme { map: name() }),
            Scheme::Atomic => self.atomic(map, accesses, &writes),
            Scheme::Schedule => {
                if accesses.keys(&self.plan.dataflow).is_none_or(|keys| keys.len() != 1) {
                    self.faults.push(Fault::Keys { map: name() });
                }
                if starts < map.read_stage {
                    self.faults.push(Fault::Unguarded { map: name(), read: starts, guard: map.read_stage });
                }
                self.faults.extend(hold(visible.saturating_sub(map.read_stage)));
                if map.queues > 1 && !self.may_overtake(map) {
                    self.faults.push(Fault::Overtaking { map: name() });
                }
            }
            Scheme::Flush => {
                let guard = map.restart_stage.unwrap_or(u32::MAX);
                if starts < guard || starts < map.read_stage {
                    self.faults.push(Fault::Unguarded { map: name(), read: starts, guard: guard.max(map.read_stage) });
                }
                self.faults.extend(hold(visible.saturating_sub(starts)));
            }
        }
    }

    /// Whether a map may be divided into partial arrays, one for each lookup, whose sum is its contents: every access but the
    /// lookups adds to a value found by one of them, nothing reads a value, and no two additions overlap in part.
    fn is_divisible(&self, map: &MapPlan, accesses: &Accesses) -> bool {
        let graph = &self.plan.dataflow.graph;
        let kind = self.plan.dataflow.maps.get(map.map as usize).map(|map| map.kind);
        let is_array = matches!(kind, Some(MapKind::Array | MapKind::PerCpuArray));
        let mut bytes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let is_apart = accesses.atomics.iter().all(|id| {
            let node = graph.node(*id);
            let Kind::Effect(Effect::Atomic(AtomicOp::Add { .. }, size)) = node.kind else { return false };
            let Some(first) = graph.as_const(node.args[2]) else { return false };
            let place = (first, size.bytes() as u64);
            let is_own = (first..first + place.1).all(|byte| *bytes.entry(byte).or_insert(place) == place);
            is_own && accesses.lookups.contains(&node.args[1]) && !derive::is_used(&self.plan.dataflow, *id)
        });
        let others = [&accesses.loads, &accesses.stores, &accesses.changes];
        is_array
            && is_apart
            && others.iter().all(|list| list.is_empty())
            && map.parts as usize == accesses.lookups.len()
    }

    fn atomic(&mut self, map: &MapPlan, accesses: &Accesses, writes: &[u32]) {
        let has_one_key = || accesses.keys(&self.plan.dataflow).is_some_and(|keys| keys.len() == 1);
        if !accesses.changes.is_empty() && !has_one_key() {
            self.faults.push(Fault::Keys { map: map.name.clone() });
        }
        let values = || accesses.loads.iter().chain(&accesses.atomics).copied();
        // Whether an entry exists is checked again in the stage of the write.
        let is_searched = |id: &Id| !accesses.changes.is_empty() && self.last_read(*id).is_some();
        let found = || accesses.lookups.iter().copied().filter(is_searched);
        let stages = values().map(|id| self.begins(id)).chain(found().map(|id| self.ends(id))).map(|at| at.stage);
        let stages: BTreeSet<u32> = stages.chain(writes.iter().copied()).collect();
        let mux = self.plan.options.target.mux;
        let late = values().filter(|id| self.begins(*id).depth < mux);
        let late: Vec<Id> = late.chain(found().filter(|id| self.ends(*id).depth < mux)).collect();
        self.faults.extend(late.into_iter().map(|id| Fault::Forwarding { node: id.index() }));
        if stages.len() > 1 {
            self.faults.push(Fault::NotAtomic { map: map.name.clone(), stages: stages.into_iter().collect() });
        }
    }

    /// The first stage of all accesses.
    fn starts(&self, accesses: &Accesses) -> u32 {
        accesses.all().map(|id| self.begins(id).stage).min().unwrap_or(0)
    }

    /// Whether nothing before a scheduler has observed the order of packets, and no other scheduler changes it.
    fn may_overtake(&self, map: &MapPlan) -> bool {
        let dataflow = &self.plan.dataflow;
        let reserves = |id: &Id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Reserve);
        let overtakes = |other: &MapPlan| other.map != map.map && other.scheme == Scheme::Schedule && other.queues > 1;
        let is_unordered = |(other, accesses): (&u32, &Accesses)| {
            let is_noted = accesses.writes().next().is_some() || dataflow.remembers_use(*other);
            *other == map.map
                || !is_noted
                || self.starts(accesses) >= map.read_stage
                || updates_commute(dataflow, *other)
        };
        !self.plan.maps.iter().any(overtakes)
            && self.accesses.iter().all(is_unordered)
            && dataflow.graph.ids().filter(reserves).all(|id| self.begins(id).stage >= map.read_stage)
    }

    /// Checks that nothing of a flush region is repeated by a restart: all effects inside of it commit in its last stage,
    /// whatever they belong to, and no restart leads into another region.
    fn regions(&mut self) {
        let mut seen = BTreeSet::new();
        for map in self.plan.regions.iter().flat_map(|region| &region.maps) {
            if !seen.insert(*map) {
                let map = self.name(*map);
                self.faults.push(Fault::Twice { map });
            }
        }
        let intervals: Vec<(Vec<u32>, u32, u32)> =
            self.plan.regions.iter().filter_map(|region| self.interval(region)).collect();
        for map in self.plan.maps.iter().filter(|map| map.scheme == Scheme::Flush) {
            let guard = map.restart_stage.unwrap_or(u32::MAX);
            if !intervals.iter().any(|(maps, ..)| maps.contains(&map.map)) {
                self.faults.push(Fault::Missing { what: format!("the region of map `{}`", map.name) });
            }
            let inside = |(maps, first, last): &(Vec<u32>, u32, u32)| {
                !maps.contains(&map.map) && *first < guard && guard <= *last
            };
            if intervals.iter().any(inside) {
                self.faults.push(Fault::RestartInside { map: map.name.clone(), stage: guard });
            }
        }
        for (_, first, last) in intervals {
            for (id, stage) in &self.plan.schedule.commits {
                if (first..last).contains(stage) {
                    self.faults.push(Fault::Repeated { node: id.index(), stage: *stage, last });
                }
            }
        }
    }

    /// The maps of a flush region, the stage of its first restart, and that of its last write.
    fn interval(&self, region: &Region) -> Option<(Vec<u32>, u32, u32)> {
        let maps = self.plan.maps.iter().filter(|map| region.maps.contains(&map.map));
        let flushed = maps.clone().filter(|map| map.scheme == Scheme::Flush);
        let first = flushed.filter_map(|map| map.restart_stage).chain([region.first]).min();
        let accesses = maps.filter_map(|map| self.accesses.get(&map.map));
        let last = accesses.flat_map(Accesses::writes).filter_map(|id| self.commit(id)).chain([region.last]).max();
        let is_flush = region.maps.iter().any(|map| self.scheme(*map) == Some(Scheme::Flush));
        is_flush.then_some((region.maps.clone(), first?, last?))
    }
}
