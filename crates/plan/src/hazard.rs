// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hazard planner: how maps stay consistent while a packet enters every cycle.
//!
//! **Goal.** For each map the cheapest scheme under which no packet misses a write of an earlier packet.
//!
//! ```text
//!   stage   3      4 5 6 7      8          9
//!           key    lookup       value ──► slice ──► write
//!                               └──── atomic: one stage, inside of the table ────┘
//!           └──────────── schedule: packets with this key wait for so long ──────┘
//!           └──────────── flush: later packets with this key restart ────────────┘
//! ```
//!
//! **Steps.** Read-only maps need nothing. A map whose state slice (from read to write) fits into one stage is updated
//! atomically inside of its table. Else, if a single key is known before the first access, a scheduler holds back
//! packets whose key is in flight. Else packets that have read too early restart: the overlapping intervals of such
//! maps form one hazard region, and all effects in it commit in its last stage, so that a restart repeats none. A write
//! is never in an earlier stage than a read of the same map, so no packet sees the write of a later one.
//!
//! A change of entries whose result is used before it commits is made in an earlier stage of the state slice, and so are
//! the writes before it (`Schedule::steps`): only the slice knows the entry and the room that packets before leave.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Access, Dataflow, Id, Touch};

use crate::bounds::stages_within;
use crate::cycles::cycles;
use crate::plan::is_wire;
use crate::refusal::Reason;
use crate::replay::Replay;
use crate::stages::{Costs, Decided, Pins, Schedule, earliest, is_cut};
use crate::tables::{Uses, answers, keys, uses};
use crate::target::Target;
use crate::timing::Scheme;
use crate::window::Window;

/// The most schedules that are computed, over all choices of schemes, before hazards count as circular. The last choice,
/// which flushes all maps that no option keeps atomic, has [`MAX_SCHEDULES_AT_ONCE`] in any case.
const MAX_SCHEDULES: usize = 400;
/// The most schedules for one choice of schemes.
const MAX_SCHEDULES_AT_ONCE: usize = 200;
/// The most rounds in a row in which a pipeline grows and its regions keep their maps, before they count as circular.
const MAX_GROWN: u32 = 40;
/// The most times that the stage of an atomic map is moved later, for operands that are not ready.
const MAX_ATOMIC_DELAYS: usize = 6;
/// The most times that the queue from which packets run again is moved.
const MAX_MOVED_QUEUES: usize = 64;
/// The most stages by which a pipeline grows so that packets wait for packets with their key only.
const MAX_ADDED_STAGES: u32 = 4;

/// A hazard region: the stages from the first read to the last write of a map, or of several that restart together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The first stage.
    pub first: u32,
    /// The last stage; with the scheme `flush`, all effects in the region commit at its end.
    pub last: u32,
    /// The maps.
    pub maps: Vec<u32>,
}

/// The scheme of a map, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) scheme: Scheme,
    pub(crate) reason: String,
}

/// The decisions about consistency.
#[derive(Debug, Clone)]
pub(crate) struct Decisions {
    pub(crate) schedule: Schedule,
    pub(crate) choices: BTreeMap<u32, Choice>,
    pub(crate) regions: Vec<Region>,
    pub(crate) uses: BTreeMap<u32, Uses>,
    /// Where packets run again, and where that is decided.
    pub(crate) replay: Option<Decided>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HazardError {
    /// A read after a write of the same packet.
    OwnWrite { read: Id, write: Id, map: u32 },
    /// A requested scheme that does not keep the map consistent.
    Scheme { map: u32, scheme: Scheme, reason: String },
    /// The pipeline exceeds its bounds.
    TooLarge { at: Id, why: Reason },
    /// Circular hazards.
    Circular(Vec<u32>),
}

struct Planner<'a> {
    dataflow: &'a Dataflow,
    target: &'a Target,
    costs: Costs,
    uses: BTreeMap<u32, Uses>,
    pins: Pins,
    choices: BTreeMap<u32, Choice>,
    /// The schedules left in the budget.
    schedules_left: usize,
    replay: Option<&'a Replay>,
    /// The first stage in which all words of the window have arrived.
    first_stage: u32,
}

pub(crate) fn decide(
    dataflow: &Dataflow,
    target: &Target,
    window: &Window,
    forced: &BTreeMap<u32, Scheme>,
    replay: Option<&Replay>,
) -> Result<Decisions, HazardError> {
    for (read, writes) in &dataflow.waits {
        let map = dataflow.access(*read).and_then(|access| access.map);
        if let (Some(map), Some(write)) = (map, writes.first()) {
            return Err(HazardError::OwnWrite { read: *read, write: *write, map });
        }
    }
    let pins = Pins { checks: window.checks.clone(), ..Pins::default() };
    let costs = Costs::of(dataflow, target, replay);
    let uses = uses(dataflow);
    let mut planner = Planner {
        dataflow,
        target,
        costs,
        uses: replay.map_or(uses.clone(), |replay| replay.others(uses)),
        pins,
        choices: BTreeMap::new(),
        schedules_left: MAX_SCHEDULES,
        replay,
        first_stage: window.words().max(1),
    };
    let base = planner.earliest(&planner.pins);
    let within =
        |schedule: &Schedule| stages_within(schedule, dataflow).map_err(|(at, why)| HazardError::TooLarge { at, why });
    within(&base)?;
    let mut order: Vec<u32> = planner.uses.keys().copied().collect();
    order.sort_by_key(|map| planner.first_read(&base, *map));
    for map in order {
        planner.choose(map, forced.get(&map).copied())?;
    }
    let decisions = planner.resolve(forced)?;
    within(&decisions.schedule)?;
    Ok(decisions)
}

impl Planner<'_> {
    fn earliest(&self, pins: &Pins) -> Schedule {
        self.replayed(pins)
    }

    /// The schedule, where packets run again at a queue before the first lookup of the maps with steps, which cuts
    /// no block, and no map that packets write. Lookups that it would cut, and that no key of these maps needs, begin at
    /// the queue.
    fn replayed(&self, pins: &Pins) -> Schedule {
        let Some(replay) = self.replay else {
            return earliest(self.dataflow, self.target, &self.costs, pins);
        };
        let mut pins = pins.clone();
        let mut decided = Decided { first_stage: self.first_stage, decided_stage: self.first_stage + 1 };
        for _ in 0..MAX_MOVED_QUEUES {
            pins.replay = Some(decided);
            let schedule = earliest(self.dataflow, self.target, &self.costs, &pins);
            let alone = schedule.spans[replay.alone.index()].ends;
            let lookups = replay.first_lookups.iter().map(|id| schedule.spans[id.index()].begins.stage);
            let mut first_stage = lookups.min().unwrap_or(alone.registered()).max(decided.first_stage);
            while let Some(last) = self.cut(&schedule, first_stage) {
                first_stage = last + 1;
            }
            let mut is_moved = false;
            for map in self.free_maps(replay) {
                let lookups = self.uses[&map].lookups.iter().map(|id| schedule.spans[id.index()]);
                let lookups = lookups.map(|span| (span.begins.stage, span.ends.stage));
                let mut intervals = lookups.chain(self.interval(&schedule, map));
                if intervals.any(|(begins, ends)| is_cut(first_stage, begins, ends)) {
                    pins.lookups.entry(map).and_modify(|stage| *stage = first_stage.max(*stage)).or_insert(first_stage);
                    is_moved = true;
                }
            }
            let next = Decided { first_stage, decided_stage: alone.stage.max(first_stage + 1) };
            if next == decided && !is_moved {
                return schedule;
            }
            decided = next;
        }
        // No queue is found; `resolve` says so.
        Schedule { replay: None, ..earliest(self.dataflow, self.target, &self.costs, &pins) }
    }

    /// The maps without steps, of which no key of a first lookup of those with steps needs anything.
    fn free_maps(&self, replay: &Replay) -> BTreeSet<u32> {
        let graph = &self.dataflow.graph;
        let mut needed: BTreeSet<Id> = BTreeSet::new();
        let mut work: Vec<Id> = replay.first_lookups.iter().flat_map(|id| graph.node(*id).args.clone()).collect();
        while let Some(id) = work.pop() {
            if needed.insert(id) {
                work.extend(&graph.node(id).args);
            }
        }
        let is_free = |uses: &Uses| uses.all().all(|id| !needed.contains(&id));
        let free = self.uses.iter().filter(|(map, uses)| !replay.maps.contains(map) && is_free(uses));
        free.map(|(map, _)| *map).collect()
    }

    /// The stages from the first read to the last write of a map that packets write.
    fn interval(&self, schedule: &Schedule, map: u32) -> Option<(u32, u32)> {
        let uses = &self.uses[&map];
        // An atomic operation reads where it commits.
        let reads = uses.lookups.iter().chain(&uses.loads).map(|id| schedule.spans[id.index()].begins.stage);
        let commits = || uses.writes().map(|id| schedule.commits[&id]);
        Some((reads.chain(commits()).min()?, commits().max()?))
    }

    /// The last stage of a block, or of a map that packets write, that a queue in a stage would cut.
    fn cut(&self, schedule: &Schedule, stage: u32) -> Option<u32> {
        let replay = self.replay?;
        let free = self.free_maps(replay);
        let is_fixed = |id: &Id| {
            let map = self.dataflow.access(*id).filter(|access| access.touch == Touch::Lookup);
            let map = map.and_then(|access| access.map);
            !replay.accesses.contains(id) && map.is_none_or(|map| !free.contains(&map))
        };
        let blocks = self.dataflow.graph.ids().filter(|id| self.costs.block_stages(*id) > 0 && is_fixed(id));
        let blocks = blocks.map(|id| {
            let span = schedule.spans[id.index()];
            (span.begins.stage, span.ends.stage)
        });
        // The maps with steps are read from the queue on.
        let others = self.uses.keys().filter(|map| !replay.maps.contains(map) && !free.contains(map));
        let written = others.filter_map(|map| self.interval(schedule, *map));
        blocks.chain(written).filter(|(begins, ends)| is_cut(stage, *begins, *ends)).map(|(_, ends)| ends).max()
    }

    fn first_read(&self, schedule: &Schedule, map: u32) -> u32 {
        let uses = &self.uses[&map];
        let begins = uses.all().map(|id| schedule.spans[id.index()].begins.stage);
        begins.min().unwrap_or(0)
    }

    fn is_changed(&self, map: u32) -> bool {
        self.uses[&map].writes().next().is_some()
    }

    fn choose(&mut self, map: u32, forced: Option<Scheme>) -> Result<(), HazardError> {
        if !self.is_changed(map) {
            let reason = match self.dataflow.remembers_use(map) {
                true => "packets only read it; the table records recency of use",
                false if self.replay.is_some_and(|replay| replay.maps.contains(&map)) => {
                    "packets only read it, but for those that run alone"
                }
                false => "packets only read it",
            };
            return self.set(map, Scheme::None, reason.to_owned(), forced);
        }
        let atomic = self.try_atomic(map);
        let key = self.one_key(map);
        match (forced, &atomic, &key) {
            (None | Some(Scheme::Atomic), Ok((stage, reason)), _) => {
                self.pins.reads.insert(map, *stage);
                self.pins.atomic.push(map);
                self.set(map, Scheme::Atomic, reason.clone(), None)
            }
            (Some(Scheme::Atomic), Err(reason), _) => {
                Err(HazardError::Scheme { map, scheme: Scheme::Atomic, reason: reason.clone() })
            }
            (None, Err(why), Ok(reason)) => self.set(map, Scheme::Schedule, format!("{why}; {reason}"), None),
            (Some(Scheme::Schedule), _, Ok(reason)) => {
                self.set(map, Scheme::Schedule, format!("requested; {reason}"), None)
            }
            (Some(Scheme::Schedule), _, Err(reason)) => {
                Err(HazardError::Scheme { map, scheme: Scheme::Schedule, reason: reason.clone() })
            }
            (None, Err(why), Err(reason)) => self.set(map, Scheme::Flush, format!("{why}; {reason}"), None),
            (Some(Scheme::Flush), ..) => self.set(map, Scheme::Flush, "requested".to_owned(), None),
            (Some(Scheme::None), ..) => {
                Err(HazardError::Scheme { map, scheme: Scheme::None, reason: "packets write it".to_owned() })
            }
        }
    }

    fn set(&mut self, map: u32, scheme: Scheme, reason: String, forced: Option<Scheme>) -> Result<(), HazardError> {
        if let Some(other) = forced.filter(|other| *other != scheme) {
            return Err(HazardError::Scheme { map, scheme: other, reason });
        }
        self.choices.insert(map, Choice { scheme, reason });
        Ok(())
    }

    /// The single key by which a map is accessed.
    fn one_key(&self, map: u32) -> Result<String, String> {
        let uses = &self.uses[&map];
        match keys(self.dataflow, uses).map(|keys| keys.len()) {
            Some(1) => Ok("one key, known before the first access".to_owned()),
            Some(count) => Err(format!("packets access it by {count} keys")),
            None => Err("not every key is known".to_owned()),
        }
    }

    /// The stage in which a map can be read, changed and written, and why one stage suffices; or why it does not.
    fn try_atomic(&self, map: u32) -> Result<(u32, String), String> {
        let uses = &self.uses[&map];
        if !uses.entries.is_empty() && keys(self.dataflow, uses).is_none_or(|keys| keys.len() != 1) {
            return Err("entries are inserted or deleted by other keys than the lookup's".to_owned());
        }
        let mut pins = self.pins.clone();
        pins.atomic.push(map);
        let first = self.earliest(&pins);
        let found = uses.lookups.iter().map(|id| first.spans[id.index()].ends.registered());
        let mut stage = found.max().unwrap_or(0);
        for _ in 0..MAX_ATOMIC_DELAYS {
            pins.reads.insert(map, stage);
            let schedule = self.earliest(&pins);
            let last = uses.writes().map(|id| schedule.commits[&id]).max().unwrap_or(stage);
            let depth = uses.writes().map(|id| depth_in(&schedule, self.dataflow, id, stage)).max().unwrap_or(0);
            if last <= stage {
                return Ok((
                    stage,
                    format!(
                        "its state slice takes {} of the {} levels of a stage",
                        tenths(depth),
                        tenths(self.target.stage)
                    ),
                ));
            }
            stage = last;
        }
        Err(format!("its state slice is deeper than a stage of {} levels", tenths(self.target.stage)))
    }

    /// Moves reads and commits to where the schemes need them, to a fixed point.
    ///
    /// A region that waits for an atomic map that waits for the region contains that map: it is flushed instead. First
    /// one such map is, then all of them are.
    fn resolve(mut self, forced: &BTreeMap<u32, Scheme>) -> Result<Decisions, HazardError> {
        let start = self.pins.clone();
        let unforced: Vec<u32> = start.atomic.iter().rev().copied().filter(|map| !forced.contains_key(map)).collect();
        let mut converged = self.converge();
        for map in &unforced {
            if converged.is_none() {
                converged = self.converge_without(&start, &[*map]);
            }
        }
        if converged.is_none() && unforced.len() > 1 {
            self.schedules_left = self.schedules_left.max(MAX_SCHEDULES_AT_ONCE);
            converged = self.converge_without(&start, &unforced);
        }
        let Some((schedule, regions)) = converged else {
            let maps = self.choices.keys().copied().filter(|map| self.is_changed(*map)).collect();
            return Err(HazardError::Circular(maps));
        };
        let (schedule, regions) = self.later(schedule, regions);
        let (mut schedule, mut regions) = self.behind_atomics(schedule, regions);
        loop {
            let early = self.early_answers(&schedule);
            if early.is_empty() {
                break;
            }
            for map in &early {
                let reason = "; results of changes come from its state slice, before its end";
                self.choices.entry(*map).and_modify(|choice| choice.reason.push_str(reason));
            }
            self.pins.answering.extend(&early);
            self.schedules_left = self.schedules_left.max(MAX_SCHEDULES_AT_ONCE);
            let Some(converged) = self.converge() else { return Err(HazardError::Circular(early)) };
            (schedule, regions) = self.later(converged.0, converged.1);
        }
        let replay = schedule.replay;
        if let Some(own) = self.replay.filter(|_| replay.is_none()) {
            return Err(HazardError::Circular(own.maps.iter().copied().collect()));
        }
        Ok(Decisions { schedule, choices: self.choices, regions, uses: self.uses, replay })
    }

    /// The scheduled maps with a result of a change that is used before the change commits. The table does not know it: it
    /// depends on the entry and the room that packets before this one leave.
    fn early_answers(&self, schedule: &Schedule) -> Vec<u32> {
        let graph = &self.dataflow.graph;
        // By node that follows from results without logic of its own: the results.
        let mut given: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
        let mut early = BTreeSet::new();
        for (map, uses) in &self.uses {
            if self.choices[map].scheme == Scheme::Schedule && !self.pins.answering.contains(map) {
                given.extend(answers(self.dataflow, uses).into_iter().map(|id| (id, BTreeSet::from([id]))));
            }
        }
        if given.is_empty() {
            return Vec::new();
        }
        for id in graph.ids() {
            let node = graph.node(id);
            let results: BTreeSet<Id> = node.args.iter().filter_map(|arg| given.get(arg)).flatten().copied().collect();
            if is_wire(node.kind) {
                given.entry(id).or_default().extend(results);
                continue;
            }
            // A lookup reads its key when it begins, also where it commits later.
            let is_key = self.dataflow.access(id).is_some_and(|access| access.touch == Touch::Lookup)
                && node.args.iter().skip(1).any(|arg| given.contains_key(arg));
            let commit = schedule.commits.get(&id).filter(|_| !is_key);
            let used = commit.copied().unwrap_or(schedule.spans[id.index()].begins.stage);
            let is_early = |result: &&Id| used < schedule.commits[*result];
            early.extend(results.iter().filter(is_early).filter_map(|result| self.dataflow.access(*result)?.map));
        }
        early.into_iter().collect()
    }

    /// The fixed point with some atomic maps flushed; without one, the choices stay as they are.
    fn converge_without(&mut self, start: &Pins, maps: &[u32]) -> Option<(Schedule, Vec<Region>)> {
        let before = self.choices.clone();
        self.pins = start.clone();
        for map in maps {
            self.pins.atomic.retain(|other| other != map);
            self.pins.reads.remove(map);
            let reason = "its state slice fits a stage, but overlaps accesses to other maps".to_owned();
            self.choices.insert(*map, Choice { scheme: Scheme::Flush, reason });
        }
        let converged = self.converge();
        if converged.is_none() {
            self.choices = before;
        }
        converged
    }

    fn converge(&mut self) -> Option<(Schedule, Vec<Region>)> {
        let mut last: Option<(u32, Vec<Vec<u32>>)> = None;
        let mut grown = 0;
        for _ in 0..MAX_SCHEDULES_AT_ONCE {
            self.schedules_left = self.schedules_left.checked_sub(1)?;
            let schedule = self.earliest(&self.pins);
            let regions = self.regions(&schedule);
            let mut next_pins = self.pins.clone();
            for region in &regions {
                self.gather(&schedule, region, &mut next_pins);
            }
            self.delay_atomics(&schedule, &mut next_pins);
            self.emit_last(&schedule, &mut next_pins);
            if next_pins == self.pins {
                return Some((schedule, regions));
            }
            self.pins = next_pins;
            // In a circle every round puts off the same regions.
            let maps: Vec<Vec<u32>> = regions.into_iter().map(|region| region.maps).collect();
            let grows = last.as_ref().is_some_and(|(stages, before)| schedule.stages > *stages && maps == *before);
            grown = if grows { grown + 1 } else { 0 };
            if grown > MAX_GROWN {
                return None;
            }
            last = Some((schedule.stages, maps));
        }
        None
    }

    /// The intervals between reads and writes of maps; overlapping intervals of flushed maps are merged.
    fn regions(&self, schedule: &Schedule) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for (map, choice) in &self.choices {
            if choice.scheme == Scheme::None {
                continue;
            }
            let uses = &self.uses[map];
            let writes = uses.writes().map(|id| schedule.commits[&id]);
            // Entries do not change before the last cycle of a lookup.
            let last_read = |id: Id| cycles(self.dataflow, self.target, id)?.last_read;
            let reads = uses.reads().filter_map(|id| Some(schedule.spans[id.index()].begins.stage + last_read(id)?));
            // A lookup in an LRU map is a use, which happens once its predicate is known; what it finds is what is there
            // at that time.
            let noted = uses.lookups.iter().filter_map(|id| schedule.commits.get(id).copied());
            let last = writes.chain(reads).chain(noted).max().unwrap_or(0);
            let first = match choice.scheme {
                Scheme::Atomic => self.pins.reads.get(map).copied().unwrap_or(last),
                _ => self.first_read(schedule, *map),
            };
            regions.push(Region { first, last, maps: vec![*map] });
        }
        let is_flush = |region: &Region| region.maps.iter().any(|map| self.choices[map].scheme == Scheme::Flush);
        loop {
            let overlap = |a: &Region, b: &Region| a.first <= b.last && b.first <= a.last;
            let pair = (0..regions.len()).flat_map(|a| (a + 1..regions.len()).map(move |b| (a, b))).find(|(a, b)| {
                let (a, b) = (&regions[*a], &regions[*b]);
                // Intervals of schedulers may overlap; one that overlaps a flush region joins it.
                (is_flush(a) || is_flush(b)) && overlap(a, b) && !(a.last == a.first && a.last == b.last)
            });
            let Some((a, b)) = pair else { break };
            let other = regions.remove(b);
            let region = &mut regions[a];
            region.first = region.first.min(other.first);
            region.last = region.last.max(other.last);
            region.maps.extend(other.maps);
        }
        regions.sort_by_key(|region| (region.first, region.last));
        regions
    }

    /// Moves the commits inside of a region to its last stage.
    fn gather(&self, schedule: &Schedule, region: &Region, next_pins: &mut Pins) {
        for map in &region.maps {
            let uses = &self.uses[map];
            for write in uses.writes() {
                let commit = next_pins.commits.entry(write).or_insert(0);
                *commit = region.last.max(*commit);
            }
            if self.choices[map].scheme == Scheme::Atomic {
                let read = next_pins.reads.entry(*map).or_insert(0);
                *read = region.last.max(*read);
            }
        }
        let starts_again = region.maps.iter().any(|map| self.choices[map].scheme == Scheme::Flush);
        if starts_again {
            for (id, commit) in &schedule.commits {
                if (region.first..region.last).contains(commit) {
                    next_pins.commits.insert(*id, region.last);
                }
            }
        }
    }

    /// Moves the read of an atomic map to the stage where the operands of its last write are ready.
    fn delay_atomics(&self, schedule: &Schedule, next_pins: &mut Pins) {
        for map in &self.pins.atomic {
            let writes = self.uses[map].writes();
            let last = writes.map(|id| schedule.commits[&id]).max().unwrap_or(0);
            let read = next_pins.reads.entry(*map).or_insert(0);
            *read = last.max(*read);
            for write in self.uses[map].writes() {
                next_pins.commits.insert(write, *read);
            }
        }
    }

    /// Data that is not the packet is sent in the last stage, in packet order.
    fn emit_last(&self, schedule: &Schedule, next_pins: &mut Pins) {
        for id in schedule.commits.keys() {
            let access: Option<Access> = self.dataflow.access(*id);
            if access.is_some_and(|access| access.touch == Touch::Emit) {
                let commit = next_pins.commits.entry(*id).or_insert(0);
                *commit = (schedule.stages - 1).max(*commit);
            }
        }
    }

    /// Moves reads of scheduled maps as late as the depth allows, which shortens the hold, and then to one stage, so that
    /// packets wait for all of them at once, when all keys are known.
    fn later(&mut self, mut schedule: Schedule, mut regions: Vec<Region>) -> (Schedule, Vec<Region>) {
        let held: BTreeSet<u32> = self
            .choices
            .iter()
            .filter(|(_, choice)| matches!(choice.scheme, Scheme::Schedule | Scheme::Flush))
            .map(|(map, _)| *map)
            .collect();
        let span = |regions: &[Region]| regions.iter().map(|region| region.last - region.first).sum::<u32>();
        for map in held {
            loop {
                let before = self.pins.clone();
                self.pins.lookups.insert(map, self.first_read(&schedule, map) + 1);
                match self.converge() {
                    Some((next, others)) if next.stages <= schedule.stages && span(&others) < span(&regions) => {
                        (schedule, regions) = (next, others);
                    }
                    _ => {
                        self.pins = before;
                        break;
                    }
                }
            }
        }
        let waits = |(map, choice): (&u32, &Choice)| (choice.scheme == Scheme::Schedule).then_some(*map);
        let asked = |map: u32| {
            let begins = |id: &Id| schedule.spans[id.index()].begins.stage;
            let lookups = self.uses[&map].lookups.iter().map(begins).min();
            // A register is read by its loads.
            (map, lookups.unwrap_or_else(|| self.first_read(&schedule, map)))
        };
        let reads: Vec<(u32, u32)> = self.choices.iter().filter_map(waits).map(asked).collect();
        let last = reads.iter().map(|(_, stage)| *stage).max().unwrap_or(0);
        if reads.iter().any(|(_, stage)| *stage < last) {
            self.pins.lookups.extend(reads.iter().map(|(map, _)| (*map, last)));
            let together = self.converge();
            if let Some((next, others)) = together.filter(|(next, _)| next.stages <= schedule.stages)
                && span(&others) <= span(&regions)
            {
                (schedule, regions) = (next, others);
            }
        }
        (schedule, regions)
    }
}

impl Planner<'_> {
    /// Moves reads of scheduled maps behind the intervals of atomic maps in which they lie. Packets wait before the read, and
    /// no table may be between question and result there. Before such an interval, the key is not known yet, so that all
    /// packets would wait for one another.
    ///
    /// ```text
    ///   pace     read 4 ........ write 10
    ///   paths          key 8, read 9 ...........     becomes read 11
    /// ```
    fn behind_atomics(&mut self, mut schedule: Schedule, mut regions: Vec<Region>) -> (Schedule, Vec<Region>) {
        let of_scheme = |scheme: Scheme| self.choices.iter().filter(move |(_, choice)| choice.scheme == scheme);
        let scheduled: Vec<u32> = of_scheme(Scheme::Schedule).map(|(map, _)| *map).collect();
        let atomic: Vec<u32> = of_scheme(Scheme::Atomic).map(|(map, _)| *map).collect();
        let span = |regions: &[Region]| regions.iter().map(|region| region.last - region.first).sum::<u32>();
        for map in scheduled {
            let lookups = &self.uses[&map].lookups;
            let Some(asked) = lookups.iter().map(|id| schedule.spans[id.index()].begins.stage).min() else { continue };
            let keys = lookups.iter().flat_map(|id| self.dataflow.key(*id).unwrap_or_default());
            let known = keys.map(|id| schedule.spans[id.index()].ends.registered()).max().unwrap_or(0);
            let behind = atomic.iter().filter_map(|other| {
                let last = self.uses[other].writes().map(|id| schedule.commits[&id]).max()?;
                let first = self.first_read(&schedule, *other);
                (first < asked && asked <= last && known > first).then_some(last + 1)
            });
            let Some(behind) = behind.max() else { continue };
            let before = self.pins.clone();
            self.pins.lookups.insert(map, behind);
            match self.converge() {
                Some((next, others))
                    if next.stages <= schedule.stages + MAX_ADDED_STAGES
                        && span(&others) <= span(&regions) + (behind - asked) =>
                {
                    (schedule, regions) = (next, others);
                }
                _ => self.pins = before,
            }
        }
        (schedule, regions)
    }
}

/// The depth in a stage at which the operands of a write are ready.
fn depth_in(schedule: &Schedule, dataflow: &Dataflow, id: Id, stage: u32) -> u32 {
    let args = dataflow.graph.node(id).args.iter().map(|arg| schedule.spans[arg.index()].ends);
    args.filter(|moment| moment.stage == stage).map(|moment| moment.depth).max().unwrap_or(0)
}

/// Formats tenths of a level as levels.
pub(crate) fn tenths(value: u32) -> String {
    format!("{}.{}", value / 10, value % 10)
}
