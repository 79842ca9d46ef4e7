//! An independent checker of plans.
//!
//! **Goal.** In a plan without faults no packet misses a write of an earlier packet, sees a write of a later one, or
//! uses a value before it is computed.
//!
//! **Steps.** Times are taken from the schedule alone, reads and writes from the dataflow alone. Packets keep their
//! distance in cycles from stage to stage unless a scheme says otherwise. So a write in stage `w` is visible to all
//! later packets that read in a later stage than `w`, and to no earlier packet that reads no later than `w`:
//!
//! | scheme | condition |
//! | --- | --- |
//! | none | no writes |
//! | atomic | all reads and writes are in one stage |
//! | schedule | one key; reads not before the stage where it is taken; the hold lasts until the last write is visible |
//! | flush | all writes, and all other effects of the region, in its last stage; the restart is no later than the first read, and in no other region |
//! | all | no write is in an earlier stage than a read |

use std::collections::BTreeSet;
use std::fmt;

use flowloom_ir::{FRAME_BYTES, Id, Input, Kind, Touch};

use crate::hazard::Region;
use crate::plan::{MapPlan, Plan, last_byte};
use crate::stages::{Moment, earliest_effect_stage};
use crate::tables::{commutes, keys, uses};
use crate::timing::Scheme;

/// A fault of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A node begins before an argument is ready.
    TooEarly {
        /// The node.
        node: usize,
        /// The argument.
        argument: usize,
    },
    /// A stage exceeds its budget of delay.
    TooDeep {
        /// The node that ends too late.
        node: usize,
        /// The depth in tenths of a level.
        depth: u32,
        /// The budget of a stage in tenths of a level.
        stage: u32,
    },
    /// A node ends earlier than its delay allows.
    TooFast {
        /// The node.
        node: usize,
    },
    /// An effect commits before its arguments are ready.
    EarlyEffect {
        /// The node.
        node: usize,
        /// The stage at whose end it commits.
        stage: u32,
    },
    /// A read is in a later stage than a write of the same map: it sees the write of a later packet.
    LateRead {
        /// The map.
        map: String,
        /// The stage of the read.
        read: u32,
        /// The stage of the write.
        write: u32,
    },
    /// A map that packets write has no scheme.
    NoScheme {
        /// The map.
        map: String,
    },
    /// The reads and writes of an atomic map are in different stages.
    NotAtomic {
        /// The map.
        map: String,
        /// The stages.
        stages: Vec<u32>,
    },
    /// A scheduled map is accessed by several keys.
    Keys {
        /// The map.
        map: String,
    },
    /// A hold ends before the write is visible.
    ShortHold {
        /// The map.
        map: String,
        /// The length of the hold in cycles.
        hold_cycles: u32,
        /// The length needed in cycles.
        needed_cycles: u32,
    },
    /// A read comes before the scheduler, or before the restart stage.
    Unguarded {
        /// The map.
        map: String,
        /// The stage of the read.
        read: u32,
        /// The stage from which on reads are guarded.
        guard: u32,
    },
    /// An effect commits inside of a flush region, not in its last stage: a restart would repeat it.
    Repeated {
        /// The node.
        node: usize,
        /// The stage in which it commits.
        stage: u32,
        /// The last stage of the region.
        last: u32,
    },
    /// The restart stage of a map lies inside of another region.
    RestartInside {
        /// The map.
        map: String,
        /// The stage.
        stage: u32,
    },
    /// Packets may overtake each other although their order has been observed before.
    Overtaking {
        /// The map before which they may.
        map: String,
    },
    /// An effect or a map is missing from the plan.
    Missing {
        /// Its description.
        what: String,
    },
    /// A read does not wait for a write of the same packet.
    OwnWrite {
        /// The read.
        read: usize,
    },
    /// The window does not hold a byte that the program accesses.
    Window {
        /// The offset of the byte.
        byte: u32,
        /// The size of the window in bytes.
        window: u32,
    },
    /// The plan has fewer stages than its values need.
    Stages {
        /// The number of stages.
        found: u32,
        /// The number needed.
        needed: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TooEarly { node, argument } => {
                write!(f, "node {node} begins before its argument {argument} is there")
            }
            Fault::TooDeep { node, depth, stage } => {
                write!(f, "node {node} ends {depth} tenths of a level deep in its stage, which holds {stage}")
            }
            Fault::TooFast { node } => write!(f, "node {node} takes less time than its delay"),
            Fault::EarlyEffect { node, stage } => {
                write!(f, "the effect of node {node} shows at the end of stage {stage}, before it has what it needs")
            }
            Fault::LateRead { map, read, write } => {
                write!(
                    f,
                    "map `{map}` is read in stage {read} and written in stage {write}, which later packets reach first"
                )
            }
            Fault::NoScheme { map } => write!(f, "packets change map `{map}`, and nothing keeps it consistent"),
            Fault::NotAtomic { map, stages } => {
                write!(f, "map `{map}` is read and written in stages {stages:?}, expected one")
            }
            Fault::Keys { map } => write!(f, "map `{map}` is scheduled by one key and used by others"),
            Fault::ShortHold { map, hold_cycles, needed_cycles } => {
                write!(f, "map `{map}` is held for {hold_cycles} cycles, expected {needed_cycles}")
            }
            Fault::Unguarded { map, read, guard } => {
                write!(f, "map `{map}` is read in stage {read}, and guarded from stage {guard} on")
            }
            Fault::Repeated { node, stage, last } => write!(
                f,
                "the effect of node {node} shows in stage {stage} of a region that may start again, expected its last, {last}"
            ),
            Fault::RestartInside { map, stage } => {
                write!(
                    f,
                    "packets that have read map `{map}` too early start again in stage {stage}, inside of another region"
                )
            }
            Fault::Overtaking { map } => {
                write!(f, "packets overtake each other in front of map `{map}` after their order was noted")
            }
            Fault::Missing { what } => write!(f, "{what} has no place in the plan"),
            Fault::OwnWrite { read } => write!(f, "node {read} reads before a write of the same packet"),
            Fault::Window { byte, window } => {
                write!(f, "byte {byte} of the packet lies outside of the window of {window}")
            }
            Fault::Stages { found, needed } => write!(f, "there are {found} stages, expected {needed}"),
        }
    }
}

/// All faults of a plan.
pub fn check(plan: &Plan) -> Vec<Fault> {
    let mut checker = Checker { plan, faults: Vec::new() };
    checker.values();
    checker.effects();
    let mut used = uses(&plan.dataflow);
    for map in &plan.maps {
        match used.remove(&map.map) {
            Some(uses) if uses == map.uses => checker.map(map),
            _ => checker.faults.push(Fault::Missing { what: format!("an access to map `{}`", map.name) }),
        }
    }
    for map in used.keys() {
        let name = plan.dataflow.maps.get(*map as usize).map_or("", |map| map.name.as_str());
        checker.faults.push(Fault::Missing { what: format!("map `{name}`") });
    }
    for region in &plan.regions {
        checker.region(region);
    }
    checker.faults
}

struct Checker<'a> {
    plan: &'a Plan,
    faults: Vec<Fault>,
}

impl Checker<'_> {
    fn ends(&self, id: Id) -> Moment {
        self.plan.schedule.spans[id.index()].ends
    }

    fn begins(&self, id: Id) -> Moment {
        self.plan.schedule.spans[id.index()].begins
    }

    /// Checks that values begin after their arguments, and fit their stages.
    fn values(&mut self) {
        let (graph, delays) = (&self.plan.dataflow.graph, &self.plan.delays);
        for id in graph.ids() {
            let node = graph.node(id);
            let span = self.plan.schedule.spans[id.index()];
            if span.ends.depth > delays.stage {
                let (depth, stage) = (span.ends.depth, delays.stage);
                self.faults.push(Fault::TooDeep { node: id.index(), depth, stage });
            }
            if let Kind::Input(Input::Byte(at)) = node.kind
                && span.ends < Moment::start(u32::from(at / FRAME_BYTES))
            {
                self.faults.push(Fault::TooFast { node: id.index() });
            }
            if matches!(node.kind, Kind::Effect(_)) {
                continue;
            }
            for arg in &node.args {
                if self.ends(*arg) > span.begins {
                    self.faults.push(Fault::TooEarly { node: id.index(), argument: arg.index() });
                }
            }
            let blocks = delays.block_stages(&self.plan.dataflow, id);
            let least = match blocks {
                0 => Moment { depth: span.begins.depth + delays.of(graph, id), ..span.begins },
                _ => Moment::start(span.begins.registered() + blocks),
            };
            if span.ends < least {
                self.faults.push(Fault::TooFast { node: id.index() });
            }
        }
        for (id, stage) in &self.plan.window.checks {
            if self.begins(*id).stage < *stage {
                self.faults.push(Fault::TooFast { node: id.index() });
            }
        }
        let outputs = self.plan.dataflow.ending.nodes().map(|id| self.ends(id).registered());
        let shown = self.plan.schedule.commits.values().map(|commit| commit + 1);
        let needed = outputs.chain(shown).max().unwrap_or(0);
        let found = self.plan.schedule.stages;
        if found < needed {
            self.faults.push(Fault::Stages { found, needed });
        }
        let window = self.plan.window.bytes;
        if let Some(byte) = last_byte(&self.plan.dataflow).map(u32::from).filter(|byte| *byte >= window) {
            self.faults.push(Fault::Window { byte, window });
        }
    }

    /// Checks that effects begin after their arguments, and commit after they are ready.
    fn effects(&mut self) {
        let dataflow = &self.plan.dataflow;
        for id in dataflow.graph.ids() {
            let Some(access) = dataflow.access(id) else { continue };
            let node = dataflow.graph.node(id);
            let span = self.plan.schedule.spans[id.index()];
            let given = node.args[1..].iter().map(|arg| self.ends(*arg)).max().unwrap_or_default();
            let room = if access.touch == Touch::Lookup { self.plan.delays.key } else { 0 };
            let begun = match access.touch {
                // It reads once the address is ready. The operand is needed where the write commits, as checked below.
                Touch::Atomic => self.ends(node.args[1]) <= span.begins,
                Touch::Lookup => given.stage + u32::from(given.depth > room) <= span.begins.stage,
                Touch::Update | Touch::Delete | Touch::Evict => given.stage <= span.begins.stage,
                Touch::Asks => true,
                _ => given <= span.begins || given.registered() <= span.begins.stage,
            };
            if !begun {
                self.faults.push(Fault::TooEarly { node: id.index(), argument: id.index() });
            }
            let stages = self.plan.delays.block_stages(dataflow, id);
            let answers = matches!(
                access.touch,
                Touch::Lookup | Touch::RedirectMap | Touch::Table | Touch::Update | Touch::Delete | Touch::Reserves
            );
            if answers && span.ends < Moment::start(span.begins.stage + stages) {
                self.faults.push(Fault::TooFast { node: id.index() });
            }
            let Some(least) = earliest_effect_stage(dataflow, &self.plan.schedule.spans, id) else { continue };
            match self.plan.schedule.commits.get(&id) {
                None => self.faults.push(Fault::Missing { what: format!("the effect of node {}", id.index()) }),
                Some(stage) if *stage < least => {
                    self.faults.push(Fault::EarlyEffect { node: id.index(), stage: *stage });
                }
                Some(_) => {}
            }
        }
        for (read, writes) in &dataflow.waits {
            let early =
                |write: &Id| self.plan.schedule.commits.get(write).is_none_or(|at| *at >= self.begins(*read).stage);
            if writes.iter().any(early) {
                self.faults.push(Fault::OwnWrite { read: read.index() });
            }
        }
    }

    /// The stage in which a read observes the contents of the map.
    fn read_stage(&self, id: Id) -> u32 {
        match self.plan.dataflow.access(id).map(|access| access.touch) {
            // The entry is found in the last of its stages; the search may begin in any stage before.
            Some(Touch::Lookup) => self.begins(id).stage,
            Some(Touch::Update | Touch::Delete | Touch::Evict) => self.begins(id).stage,
            _ => self.begins(id).stage,
        }
    }

    fn map(&mut self, map: &MapPlan) {
        let commits = &self.plan.schedule.commits;
        let writes: Vec<u32> = map.uses.writes().filter_map(|id| commits.get(&id).copied()).collect();
        let Some(last_write) = writes.iter().copied().max() else {
            return;
        };
        let name = || map.name.clone();
        let first_write = writes.iter().copied().min().unwrap_or(last_write);
        let reads: Vec<u32> = map.uses.reads().map(|id| self.read_stage(id)).collect();
        let latest = reads.iter().copied().max().unwrap_or(0);
        if latest > first_write {
            self.faults.push(Fault::LateRead { map: name(), read: latest, write: first_write });
        }
        let starts = map.uses.all().map(|id| self.read_stage(id)).min().unwrap_or(0);
        match map.scheme {
            Scheme::None => self.faults.push(Fault::NoScheme { map: name() }),
            Scheme::Atomic => {
                // Whether an entry exists is checked again in the stage of the write.
                let loads = map.uses.loads.iter().chain(&map.uses.atomics).map(|id| self.begins(*id).stage);
                let found: &[Id] = if map.uses.entries.is_empty() { &[] } else { &map.uses.lookups };
                let found = found.iter().map(|id| self.ends(*id).stage);
                let stages: BTreeSet<u32> = loads.chain(found).chain(writes.iter().copied()).collect();
                if stages.len() > 1 {
                    self.faults.push(Fault::NotAtomic { map: name(), stages: stages.into_iter().collect() });
                }
            }
            Scheme::Schedule => {
                if keys(&self.plan.dataflow, &map.uses).is_none_or(|keys| keys.len() != 1) {
                    self.faults.push(Fault::Keys { map: name() });
                }
                if starts < map.read_stage {
                    self.faults.push(Fault::Unguarded { map: name(), read: starts, guard: map.read_stage });
                }
                let needed_cycles = self.plan.shown(&map.uses, last_write).saturating_sub(map.read_stage);
                if map.hold_cycles < needed_cycles {
                    let hold_cycles = map.hold_cycles;
                    self.faults.push(Fault::ShortHold { map: name(), hold_cycles, needed_cycles });
                }
                if map.queues > 1 && !self.may_overtake(map) {
                    self.faults.push(Fault::Overtaking { map: name() });
                }
            }
            Scheme::Flush => {
                let guard = map.restart_stage.unwrap_or(u32::MAX);
                if starts < guard {
                    self.faults.push(Fault::Unguarded { map: name(), read: starts, guard });
                }
                if self.plan.region(map.map).is_none() {
                    self.faults.push(Fault::Missing { what: format!("the region of map `{}`", map.name) });
                }
                let inside = |region: &&Region| {
                    !region.maps.contains(&map.map)
                        && self.flushes(region)
                        && region.first < guard
                        && guard <= region.last
                };
                if self.plan.regions.iter().any(|region| inside(&region)) {
                    self.faults.push(Fault::RestartInside { map: name(), stage: guard });
                }
            }
        }
    }

    fn flushes(&self, region: &Region) -> bool {
        let is_flush = |map: &u32| self.plan.maps.iter().any(|own| own.map == *map && own.scheme == Scheme::Flush);
        region.maps.iter().any(is_flush)
    }

    /// Whether nothing before a scheduler has observed the order of packets, and no other scheduler changes it.
    fn may_overtake(&self, map: &MapPlan) -> bool {
        self.plan.maps.iter().filter(|other| other.map != map.map).all(|other| {
            let noted = other.uses.writes().next().is_some() || self.plan.dataflow.remembers_use(other.map);
            let first = other.uses.all().map(|id| self.read_stage(id)).min().unwrap_or(0);
            let other_overtakes = other.scheme == Scheme::Schedule && other.queues > 1;
            !other_overtakes && (!noted || first >= map.read_stage || commutes(&self.plan.dataflow, &other.uses))
        })
    }

    /// Checks that all effects inside of a flush region commit in its last stage, whatever they belong to.
    fn region(&mut self, region: &Region) {
        if !self.flushes(region) {
            return;
        }
        let mut last = region.last;
        for map in self.plan.maps.iter().filter(|map| region.maps.contains(&map.map)) {
            let writes = map.uses.writes().filter_map(|id| self.plan.schedule.commits.get(&id).copied());
            last = writes.max().unwrap_or(0).max(last);
        }
        for (id, stage) in &self.plan.schedule.commits {
            if (region.first..last).contains(stage) {
                self.faults.push(Fault::Repeated { node: id.index(), stage: *stage, last });
            }
        }
    }
}
