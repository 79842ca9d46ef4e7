//! How maps stay consistent while a packet enters every cycle.
//!
//! **Goal.** For each map the cheapest scheme under which no packet misses what an earlier one has written.
//!
//! ```text
//!   stage   3      4 5 6 7      8          9
//!           key    lookup       value ──► slice ──► write
//!                               └──── atomic: one stage, inside of the table ────┘
//!           └──────────── schedule: packets with this key wait for so long ──────┘
//!           └──────────── flush: packets behind, with this key, start again ─────┘
//! ```
//!
//! **Steps.** Maps that packets only read need nothing. A map whose state slice (from what is read to what is written) fits one
//! stage is changed inside of its table. Else, where one key is known before the first access, a scheduler holds back packets
//! with a key that is under way. Else packets that have read too early start again: then the intervals of maps that overlap are
//! one region, and whatever shows in it shows in its last stage, so that starting again repeats nothing. A write is never in an
//! earlier stage than a read of the same map, so no packet sees what a later one writes.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_ir::{Access, Dataflow, Delays, Id, Touch};

use crate::bounds::stages_within;
use crate::refusal::Why;
use crate::stages::{Costs, Pins, Schedule, earliest};
use crate::tables::{Uses, keys, uses};
use crate::timing::Scheme;

/// The most often that the schedule is made anew, in all, before hazards count as circular.
const MOST_ROUNDS: usize = 400;
/// The most often for one choice of schemes.
const ROUNDS_AT_ONCE: usize = 200;
/// How often the stage of an atomic map is put off, for values that come from elsewhere.
const PUT_OFF: usize = 6;

/// Stages in which maps are read and not yet written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The first stage.
    pub first: u32,
    /// The last one, at whose end everything in it shows.
    pub last: u32,
    /// The maps.
    pub maps: Vec<u32>,
}

/// A scheme for a map, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) scheme: Scheme,
    pub(crate) reason: String,
}

/// Everything that is decided about consistency.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    pub(crate) schedule: Schedule,
    pub(crate) choices: BTreeMap<u32, Choice>,
    pub(crate) regions: Vec<Region>,
    pub(crate) uses: BTreeMap<u32, Uses>,
}

/// What stands against a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A read behind a write of the same packet.
    OwnWrite { read: Id, write: Id, map: u32 },
    /// A scheme was asked for that does not do.
    Scheme { map: u32, scheme: Scheme, reason: String },
    /// The pipeline outgrows its bounds.
    TooLarge { at: Id, why: Why },
    /// No end.
    Circle(Vec<u32>),
}

struct Planner<'a> {
    dataflow: &'a Dataflow,
    delays: &'a Delays,
    costs: Costs,
    uses: BTreeMap<u32, Uses>,
    pins: Pins,
    choices: BTreeMap<u32, Choice>,
    /// How often the schedule may still be made anew.
    rounds: usize,
}

pub(crate) fn decide(
    dataflow: &Dataflow,
    delays: &Delays,
    checks: &BTreeMap<Id, u32>,
    forced: &BTreeMap<u32, Scheme>,
) -> Result<Decided, Trouble> {
    for (read, writes) in &dataflow.waits {
        let map = dataflow.access(*read).and_then(|access| access.map);
        if let (Some(map), Some(write)) = (map, writes.first()) {
            return Err(Trouble::OwnWrite { read: *read, write: *write, map });
        }
    }
    let pins = Pins { checks: checks.clone(), ..Pins::default() };
    let costs = Costs::of(dataflow, delays);
    let mut planner =
        Planner { dataflow, delays, costs, uses: uses(dataflow), pins, choices: BTreeMap::new(), rounds: MOST_ROUNDS };
    let base = planner.earliest(&planner.pins);
    let within =
        |schedule: &Schedule| stages_within(schedule, dataflow).map_err(|(at, why)| Trouble::TooLarge { at, why });
    within(&base)?;
    let mut order: Vec<u32> = planner.uses.keys().copied().collect();
    order.sort_by_key(|map| planner.first_read(&base, *map));
    for map in order {
        planner.choose(map, forced.get(&map).copied())?;
    }
    let decided = planner.settle(forced)?;
    within(&decided.schedule)?;
    Ok(decided)
}

impl Planner<'_> {
    fn earliest(&self, pins: &Pins) -> Schedule {
        earliest(self.dataflow, self.delays, &self.costs, pins)
    }

    fn first_read(&self, schedule: &Schedule, map: u32) -> u32 {
        let uses = &self.uses[&map];
        let begins = uses.all().map(|id| schedule.spans[id.index()].begins.stage);
        begins.min().unwrap_or(0)
    }

    fn is_changed(&self, map: u32) -> bool {
        self.uses[&map].writes().next().is_some()
    }

    fn choose(&mut self, map: u32, forced: Option<Scheme>) -> Result<(), Trouble> {
        if !self.is_changed(map) {
            let reason = match self.dataflow.remembers_use(map) {
                true => "packets only read it; what was used last is noted in the table",
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
                Err(Trouble::Scheme { map, scheme: Scheme::Atomic, reason: reason.clone() })
            }
            (None, Err(why), Ok(reason)) => self.set(map, Scheme::Schedule, format!("{why}; {reason}"), None),
            (Some(Scheme::Schedule), _, Ok(reason)) => {
                self.set(map, Scheme::Schedule, format!("asked for; {reason}"), None)
            }
            (Some(Scheme::Schedule), _, Err(reason)) => {
                Err(Trouble::Scheme { map, scheme: Scheme::Schedule, reason: reason.clone() })
            }
            (None, Err(why), Err(reason)) => self.set(map, Scheme::Flush, format!("{why}; {reason}"), None),
            (Some(Scheme::Flush), ..) => self.set(map, Scheme::Flush, "asked for".to_owned(), None),
            (Some(Scheme::None), ..) => {
                Err(Trouble::Scheme { map, scheme: Scheme::None, reason: "packets change it".to_owned() })
            }
        }
    }

    fn set(&mut self, map: u32, scheme: Scheme, reason: String, forced: Option<Scheme>) -> Result<(), Trouble> {
        if let Some(other) = forced.filter(|other| *other != scheme) {
            return Err(Trouble::Scheme { map, scheme: other, reason });
        }
        self.choices.insert(map, Choice { scheme, reason });
        Ok(())
    }

    /// The one key by which a map is looked up and changed.
    fn one_key(&self, map: u32) -> Result<String, String> {
        let uses = &self.uses[&map];
        match keys(self.dataflow, uses).map(|keys| keys.len()) {
            Some(1) => Ok("one key, known before the first access".to_owned()),
            Some(count) => Err(format!("packets use it by {count} keys")),
            None => Err("not every key is told".to_owned()),
        }
    }

    /// The stage in which a map can be read, changed and written, and the reason why that is one stage; or why it is not.
    fn try_atomic(&self, map: u32) -> Result<(u32, String), String> {
        let uses = &self.uses[&map];
        if !uses.entries.is_empty() && keys(self.dataflow, uses).is_none_or(|keys| keys.len() != 1) {
            return Err("entries come and go by other keys than those looked up".to_owned());
        }
        let mut pins = self.pins.clone();
        pins.atomic.push(map);
        let first = self.earliest(&pins);
        let found = uses.lookups.iter().map(|id| first.spans[id.index()].ends.registered());
        let mut stage = found.max().unwrap_or(0);
        for _ in 0..PUT_OFF {
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
                        tenths(self.delays.stage)
                    ),
                ));
            }
            stage = last;
        }
        Err(format!("its state slice is deeper than a stage of {} levels", tenths(self.delays.stage)))
    }

    /// Puts reads and effects where the schemes want them, until nothing moves any more.
    fn settle(mut self, forced: &BTreeMap<u32, Scheme>) -> Result<Decided, Trouble> {
        loop {
            let start = self.pins.clone();
            match self.converge() {
                Some((schedule, regions)) => {
                    let (schedule, regions) = self.later(schedule, regions);
                    return Ok(Decided { schedule, choices: self.choices, regions, uses: self.uses });
                }
                None => {
                    // A region waits for a map that waits for the region: that map belongs to it.
                    self.pins = start;
                    let weak = |planner: &Planner<'_>, map: &u32| {
                        planner.choices[map].scheme == Scheme::Atomic && !forced.contains_key(map)
                    };
                    let Some(map) = self.pins.atomic.iter().rev().copied().find(|map| weak(&self, map)) else {
                        let maps = self.choices.keys().copied().filter(|map| self.is_changed(*map)).collect();
                        return Err(Trouble::Circle(maps));
                    };
                    self.pins.atomic.retain(|other| *other != map);
                    self.pins.reads.remove(&map);
                    let reason =
                        "its slice would fit a stage, but lies between reads and writes of other maps".to_owned();
                    self.choices.insert(map, Choice { scheme: Scheme::Flush, reason });
                }
            }
        }
    }

    fn converge(&mut self) -> Option<(Schedule, Vec<Region>)> {
        for _ in 0..ROUNDS_AT_ONCE {
            self.rounds = self.rounds.checked_sub(1)?;
            let schedule = self.earliest(&self.pins);
            let regions = self.regions(&schedule);
            let mut wanted = self.pins.clone();
            for region in &regions {
                self.gather(&schedule, region, &mut wanted);
            }
            self.put_off_atomics(&schedule, &mut wanted);
            self.emit_last(&schedule, &mut wanted);
            if wanted == self.pins {
                return Some((schedule, regions));
            }
            self.pins = wanted;
        }
        None
    }

    /// The intervals in which maps are read and not yet written; those of maps that flush are one where they overlap.
    fn regions(&self, schedule: &Schedule) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for (map, choice) in &self.choices {
            if choice.scheme == Scheme::None {
                continue;
            }
            let uses = &self.uses[map];
            let writes = uses.writes().map(|id| schedule.commits[&id]);
            let reads = uses.reads().map(|id| schedule.spans[id.index()].begins.stage);
            let last = writes.chain(reads).max().unwrap_or(0);
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
                // Schedulers may stand in each other's intervals; whoever meets one that starts again goes along.
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

    /// Everything that shows inside of a region shows in its last stage.
    fn gather(&self, schedule: &Schedule, region: &Region, wanted: &mut Pins) {
        for map in &region.maps {
            let uses = &self.uses[map];
            for write in uses.writes() {
                let commit = wanted.commits.entry(write).or_insert(0);
                *commit = region.last.max(*commit);
            }
            if self.choices[map].scheme == Scheme::Atomic {
                let read = wanted.reads.entry(*map).or_insert(0);
                *read = region.last.max(*read);
            }
        }
        let starts_again = region.maps.iter().any(|map| self.choices[map].scheme == Scheme::Flush);
        if starts_again {
            for (id, commit) in &schedule.commits {
                if (region.first..region.last).contains(commit) {
                    wanted.commits.insert(*id, region.last);
                }
            }
        }
    }

    /// A map that is changed where it is read is read where its last write has what it needs.
    fn put_off_atomics(&self, schedule: &Schedule, wanted: &mut Pins) {
        for map in &self.pins.atomic {
            let writes = self.uses[map].writes();
            let last = writes.map(|id| schedule.commits[&id]).max().unwrap_or(0);
            let read = wanted.reads.entry(*map).or_insert(0);
            *read = last.max(*read);
            for write in self.uses[map].writes() {
                wanted.commits.insert(write, *read);
            }
        }
    }

    /// What is sent besides packets is sent at the end, in the order of the packets.
    fn emit_last(&self, schedule: &Schedule, wanted: &mut Pins) {
        for id in schedule.commits.keys() {
            let access: Option<Access> = self.dataflow.access(*id);
            if access.is_some_and(|access| access.touch == Touch::Emits) {
                let commit = wanted.commits.entry(*id).or_insert(0);
                *commit = (schedule.stages - 1).max(*commit);
            }
        }
    }

    /// Reads maps that are held as late as the depth allows: the hold is shorter.
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
        (schedule, regions)
    }
}

/// How deep in a stage a write has what it needs.
fn depth_in(schedule: &Schedule, dataflow: &Dataflow, id: Id, stage: u32) -> u32 {
    let args = dataflow.graph.node(id).args.iter().map(|arg| schedule.spans[arg.index()].ends);
    args.filter(|moment| moment.stage == stage).map(|moment| moment.depth).max().unwrap_or(0)
}

/// Tenths of a level, as levels.
pub(crate) fn tenths(value: u32) -> String {
    format!("{}.{}", value / 10, value % 10)
}
