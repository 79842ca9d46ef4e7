// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling: the stage of each node.
//!
//! **Goal.** As-soon-as-possible scheduling with chaining: each node as early as its arguments allow, with as many
//! dependent nodes in a stage as fit between two registers.
//!
//! ```text
//!   v4 = add v1 v2         stage 0, levels 0.0 to 1.5
//!   v5 = eq v4 9           stage 0, levels 1.5 to 3.5
//!   v6 = call lookup v4    stages 1 to 4: a block of its own, with registers
//! ```
//!
//! **Steps.** Nodes in topological order. Constraints from the consistency of maps are given as [`Pins`]: reads of a
//! map in a certain stage, effects that commit at the end of a certain stage.

use std::collections::BTreeMap;

use flowloom_ir::{Access, Dataflow, Id, Input, Kind, Touch};

use crate::replay::Replay;
use crate::tables::{draws, pending, steps, uses};
use crate::target::{Target, Tenths};

/// A point in time relative to the packet: a stage, and a depth in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    /// The stage, from 0.
    pub stage: u32,
    /// The delay since the beginning of the stage; at 0 the value comes from a register.
    pub depth: Tenths,
}

impl Moment {
    /// The beginning of a stage.
    pub fn start(stage: u32) -> Moment {
        Moment { stage, depth: 0 }
    }

    /// The first stage in which the value comes from a register.
    pub fn registered(self) -> u32 {
        self.stage + u32::from(self.depth > 0)
    }
}

/// The time span of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// When its evaluation begins.
    pub begins: Moment,
    /// When its value is ready.
    pub ends: Moment,
}

/// The constraints of a schedule besides data dependences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    /// By map, the stage of reads that depend on other packets.
    pub reads: BTreeMap<u32, u32>,
    /// By map, the first stage of a lookup.
    pub lookups: BTreeMap<u32, u32>,
    /// The maps that are updated in the stage in which they are read.
    pub atomic: Vec<u32>,
    /// The scheduled maps whose state slice gives results of changes before its end.
    pub answering: Vec<u32>,
    /// By effect, the stage at whose end it commits.
    pub commits: BTreeMap<Id, u32>,
    /// By comparison of the length, the first stage in which its result is known.
    pub checks: BTreeMap<Id, u32>,
    /// The stage of the queue from which packets run again; effects from there on commit where it is decided whether the
    /// packet runs alone, or later.
    pub replay: Option<Decided>,
}

/// Where packets run again, and where it is decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub first_stage: u32,
    pub decided_stage: u32,
}

/// Whether a queue in place of the registers of a stage cuts what begins and ends in these stages.
pub fn is_cut(stage: u32, begins: u32, ends: u32) -> bool {
    begins < stage && stage <= ends
}

/// A schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// By node, its time span.
    pub spans: Vec<Span>,
    /// By effect, the stage at whose end it commits.
    pub commits: BTreeMap<Id, u32>,
    /// By write of a scheduled map, the stage of the state slice that makes it, where that is not the one of the commit: a
    /// change of entries with a used result, and the writes before it. What the slice makes becomes visible to other packets
    /// when it commits.
    pub steps: BTreeMap<Id, u32>,
    /// The number of stages.
    pub stages: u32,
    /// Where packets run again.
    pub(crate) replay: Option<Decided>,
}

/// The costs of all nodes, computed once.
#[derive(Debug)]
pub(crate) struct Costs {
    /// By node: the latency of a block in stages, and the delay of combinational logic.
    all: Vec<(u32, Tenths)>,
    used: Vec<bool>,
    /// By change of entries whose result is used, the earlier ones that may decide it.
    pending: BTreeMap<Id, Vec<Id>>,
    /// By write that a later change with a used result follows, or that is one: the accesses to the map before it.
    before: BTreeMap<Id, Vec<Id>>,
    /// By random number, the predicates of the earlier ones.
    draws: BTreeMap<Id, Vec<Id>>,
    /// The packets that run alone.
    replay: Option<Replay>,
}

impl Costs {
    pub(crate) fn of(dataflow: &Dataflow, target: &Target, replay: Option<&Replay>) -> Costs {
        let graph = &dataflow.graph;
        let all = graph.ids().map(|id| (target.block_stages(dataflow, id), target.of(graph, id)));
        let mut used = vec![false; graph.nodes().len()];
        graph.nodes().iter().flat_map(|node| &node.args).for_each(|arg| used[arg.index()] = true);
        let uses = uses(dataflow);
        let uses = replay.map_or(uses.clone(), |replay| replay.others(uses));
        let before = uses.values().flat_map(|uses| steps(dataflow, uses));
        let before = before.collect();
        let (pending, draws) = (pending(dataflow, &uses), draws(dataflow));
        Costs { all: all.collect(), used, pending, before, draws, replay: replay.cloned() }
    }

    /// Whether an access is part of a step of a packet that runs alone.
    fn is_step(&self, id: Id) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.accesses.contains(&id))
    }

    /// The latency of a node in stages.
    pub(crate) fn block_stages(&self, id: Id) -> u32 {
        self.all[id.index()].0
    }
}

pub(crate) fn earliest(dataflow: &Dataflow, target: &Target, costs: &Costs, pins: &Pins) -> Schedule {
    let graph = &dataflow.graph;
    let spans = vec![Span::default(); graph.nodes().len()];
    let mut schedule = Schedule { spans, replay: pins.replay, ..Schedule::default() };
    // Records keep the order in which the packet reserves them.
    let mut reserved = Moment::default();
    for id in graph.ids() {
        let span = match dataflow.access(id) {
            // Its result is kept while the packet runs again.
            Some(_) if costs.is_step(id) => {
                let kept = Moment::start(pins.replay.map_or(0, |replay| replay.first_stage));
                Span { begins: kept, ends: kept }
            }
            Some(Access { touch: Touch::Reserve, .. }) => {
                let span = reserve(dataflow, target, pins, &mut schedule, (id, reserved));
                reserved = span.begins;
                span
            }
            Some(Access { touch: Touch::Random, .. }) => {
                let earlier = costs.draws.get(&id).map_or(&[][..], Vec::as_slice);
                let there = ready(&schedule.spans, earlier);
                Span { begins: there, ends: there }
            }
            Some(access) => {
                let pending = costs.pending.get(&id).map_or(&[][..], Vec::as_slice);
                let is_first = costs.replay.as_ref().is_some_and(|replay| replay.first_lookups.contains(&id));
                let maps = costs.replay.as_ref().map(|replay| &replay.maps);
                let excludes_alone = access.map.is_some_and(|map| maps.is_some_and(|maps| maps.contains(&map)));
                let part = (id, access, pending, (is_first, excludes_alone));
                let span = effect(dataflow, target, pins, &mut schedule, part);
                match costs.before.get(&id) {
                    Some(before) if access.map.is_some_and(|map| pins.answering.contains(&map)) => {
                        step(dataflow, target, &mut schedule, (id, access, before), span)
                    }
                    _ => span,
                }
            }
            None => value(dataflow, target, pins, &schedule.spans, (id, costs.all[id.index()])),
        };
        schedule.spans[id.index()] = span;
    }
    let outputs = dataflow.ending.nodes().map(|id| schedule.spans[id.index()].ends.registered());
    // The operands of steps, and whether there is one.
    let replay = costs.replay.iter();
    let operands = replay.clone().flat_map(|replay| &replay.accesses).flat_map(|id| &graph.node(*id).args).copied();
    let operands = operands.chain(replay.map(|replay| replay.alone));
    let decided = pins.replay.map(|replay| replay.decided_stage);
    let operands: Vec<u32> = operands.map(|id| schedule.spans[id.index()].ends.stage).chain(decided).collect();
    let effects = schedule.commits.values().chain(&operands).map(|commit| commit + 1);
    // Nothing waits for an unused result.
    let answers = graph.ids().filter(|id| costs.used[id.index()] && dataflow.access(*id).is_some());
    let answers = answers.map(|id| schedule.spans[id.index()].ends.registered());
    // Whether a redirect happens decides about the target, which leaves with the packet.
    let is_redirect = |id: &Id| {
        let touch = dataflow.access(*id).map(|access| access.touch);
        matches!(touch, Some(Touch::Redirect | Touch::RedirectMap))
    };
    let redirects = graph.ids().filter(is_redirect).flat_map(|id| [id, graph.node(id).args[0]]);
    let redirects = redirects.map(|id| schedule.spans[id.index()].ends.registered());
    schedule.stages = outputs.chain(effects).chain(answers).chain(redirects).max().unwrap_or(0).max(1);
    schedule
}

/// When the last of these nodes is ready.
fn ready(spans: &[Span], nodes: &[Id]) -> Moment {
    nodes.iter().map(|id| spans[id.index()].ends).max().unwrap_or_default()
}

fn value(
    dataflow: &Dataflow,
    target: &Target,
    pins: &Pins,
    spans: &[Span],
    (id, (blocks, delay)): (Id, (u32, Tenths)),
) -> Span {
    let node = dataflow.graph.node(id);
    if let Kind::Input(Input::Byte(at)) = node.kind {
        let there = Moment::start(u32::from(at / target.word_bytes));
        return Span { begins: there, ends: there };
    }
    let known = Moment::start(pins.checks.get(&id).copied().unwrap_or(0));
    let ready = ready(spans, &node.args).max(known);
    if blocks > 0 {
        let begins = Moment::start(ready.registered());
        return Span { begins, ends: Moment::start(begins.stage + blocks) };
    }
    let fits = ready.depth + delay <= target.stage;
    let begins = if fits { ready } else { Moment::start(ready.stage + 1) };
    Span { begins, ends: Moment { stage: begins.stage, depth: begins.depth + delay } }
}

fn effect(
    dataflow: &Dataflow,
    target: &Target,
    pins: &Pins,
    schedule: &mut Schedule,
    (id, access, pending, (is_first, excludes_alone)): (Id, Access, &[Id], (bool, bool)),
) -> Span {
    let node = dataflow.graph.node(id);
    let given = ready(&schedule.spans, &node.args[1..]);
    let predicate = schedule.spans[node.args[0].index()].ends;
    let of_map = |pins: &BTreeMap<u32, u32>| access.map.and_then(|map| pins.get(&map).copied());
    let read = of_map(&pins.reads).unwrap_or(0);
    let is_atomic = access.map.is_some_and(|map| pins.atomic.contains(&map));
    // The table's forwarding mux, through which a read sees the write of the packet before.
    let forward = Moment { stage: read, depth: if is_atomic { target.mux } else { 0 } };
    let mut commit = None;
    let span = match access.touch {
        Touch::Lookup => {
            let first = if given.depth > target.key { given.stage + 1 } else { given.stage };
            let queue = pins.replay.filter(|_| is_first).map_or(0, |replay| replay.first_stage);
            let late = of_map(&pins.lookups).unwrap_or(0).max(queue);
            let latency = target.lookup_stages(dataflow, access);
            let begins = first.max(late).max(read.saturating_sub(latency));
            // A register is read as soon as the key is known.
            let found = Moment::start(begins + latency).max(if latency == 0 { given } else { Moment::start(begins) });
            let remembers = access.map.is_some_and(|map| dataflow.remembers_use(map));
            if remembers {
                commit = Some((begins + latency - 1).max(predicate.stage));
            }
            let waits = if remembers { found.max(predicate) } else { found };
            let depends = access.map.is_some_and(|map| pins.reads.contains_key(&map)) && is_atomic;
            Span { begins: Moment::start(begins), ends: if depends { waits.max(forward) } else { waits } }
        }
        Touch::Load => {
            // The only entry of an array has no lookup that could be put off in its place.
            let is_register = matches!(dataflow.graph.node(node.args[1]).kind, Kind::Input(Input::Only(_)));
            let late = of_map(&pins.lookups).filter(|_| is_register).unwrap_or(0);
            let there = given.max(forward).max(Moment::start(late));
            let ends = if dataflow.graph.as_const(node.args[2]).is_some() { there } else { picked(target, there) };
            Span { begins: there, ends: ends.max(waits_for(&schedule.spans, dataflow, id)) }
        }
        Touch::Atomic => {
            let base = schedule.spans[node.args[1].index()].ends;
            commit = Some(given.max(predicate).max(base).stage);
            let there = base.max(forward);
            Span { begins: there, ends: there }
        }
        Touch::Store | Touch::Emit => {
            let there = given.max(predicate);
            commit = Some(there.stage);
            Span { begins: there, ends: there }
        }
        // The redirect target travels with the packet. The others have their own functions.
        Touch::Redirect | Touch::Random | Touch::Reserve => {
            let there = given.max(predicate);
            Span { begins: there, ends: there }
        }
        // Room is reserved and the result given once key and value are ready, and those of earlier changes that may decide
        // it; the entry commits with the other effects. Inside of an atomic table all of this is one stage.
        Touch::Update | Touch::Delete | Touch::Evict => {
            let there = given.max(predicate);
            commit = Some(there.stage);
            let happens = |earlier: &Id| schedule.spans[dataflow.graph.node(*earlier).args[0].index()].ends;
            let decisions = pending.iter().map(happens).max().unwrap_or_default().max(ready(&schedule.spans, pending));
            let begins = if is_atomic { there } else { given.max(decisions) };
            let asked = if is_atomic { begins.stage } else { begins.registered() };
            Span { begins, ends: Moment::start(asked + target.update_stages) }
        }
        // The verdict is used only where the predicate holds. The target is chosen at the end.
        Touch::RedirectMap => {
            let begins = given.registered();
            Span { begins: Moment::start(begins), ends: Moment::start(begins + target.redirect_stages) }
        }
        Touch::HostTable | Touch::Compute => {
            let begins = given.registered();
            let stages = target.block_stages(dataflow, id);
            Span { begins: Moment::start(begins), ends: Moment::start(begins + stages) }
        }
        Touch::Environment => Span { begins: Moment::default(), ends: Moment::default() },
    };
    let Some(commit) = commit else { return span };
    let commit = commit.max(pins.commits.get(&id).copied().unwrap_or(0));
    // What a packet writes through the port of a map with steps, it writes only if it does not run alone. All else it
    // would do twice in the stage in which that is decided.
    let decided = pins.replay.filter(|replay| commit >= replay.first_stage);
    let decided = decided.map_or(0, |replay| replay.decided_stage + u32::from(!excludes_alone));
    let commit = commit.max(decided);
    schedule.commits.insert(id, commit);
    match access.touch {
        Touch::Update | Touch::Delete | Touch::Evict if is_atomic => {
            Span { ends: span.ends.max(Moment::start(commit + target.update_stages)), ..span }
        }
        _ => span,
    }
}

/// A write that happens in a stage of the state slice, on the value that the accesses before it leave; a change of entries
/// gives its result there.
fn step(
    dataflow: &Dataflow,
    target: &Target,
    schedule: &mut Schedule,
    (id, access, before): (Id, Access, &[Id]),
    span: Span,
) -> Span {
    let place = |earlier: &Id| {
        let is_lookup = dataflow.access(*earlier).is_some_and(|access| access.touch == Touch::Lookup);
        let span = schedule.spans[earlier.index()];
        schedule.steps.get(earlier).copied().unwrap_or(if is_lookup { span.ends.stage } else { span.begins.stage })
    };
    let ready = ready(&schedule.spans, &dataflow.graph.node(id).args).stage;
    // A change without a lookup before it asks the table itself.
    let keyed = dataflow.key(id).map_or(0, |key| {
        let known = key.iter().map(|byte| schedule.spans[byte.index()].ends.registered()).max().unwrap_or(0);
        known + target.lookup_stages(dataflow, access)
    });
    let has_lookup = before.iter().any(|id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Lookup));
    let own = if has_lookup { ready } else { ready.max(keyed) };
    let stage = before.iter().map(place).max().unwrap_or(0).max(own);
    schedule.steps.insert(id, stage);
    let commit = schedule.commits.entry(id).or_insert(stage);
    *commit = stage.max(*commit);
    match access.touch {
        Touch::Update | Touch::Delete | Touch::Evict => {
            Span { begins: Moment::start(stage), ends: Moment::start(stage + target.update_stages) }
        }
        _ => Span { begins: span.begins.max(Moment::start(stage)), ends: span.ends.max(Moment::start(stage)) },
    }
}

/// Room in a ring buffer, taken once it is sure that the packet needs it, and not before the room for the record before.
/// It is given back where the packet restarts before the commit.
fn reserve(
    dataflow: &Dataflow,
    target: &Target,
    pins: &Pins,
    schedule: &mut Schedule,
    (id, before): (Id, Moment),
) -> Span {
    let asked = ready(&schedule.spans, &dataflow.graph.node(id).args).registered();
    let begins = Moment::start(asked).max(before);
    let commit = begins.stage.max(pins.commits.get(&id).copied().unwrap_or(0));
    schedule.commits.insert(id, commit);
    Span { begins, ends: Moment::start(begins.stage + target.block_stages(dataflow, id)) }
}

/// When the earlier effects that a load waits for have committed.
fn waits_for(spans: &[Span], dataflow: &Dataflow, id: Id) -> Moment {
    dataflow.waits.get(&id).map_or(Moment::default(), |writes| ready(spans, writes))
}

/// Part of a value at an offset known only at run time: muxes of four.
fn picked(target: &Target, there: Moment) -> Moment {
    let delay = 3 * target.level;
    let fits = there.depth + delay <= target.stage;
    let begins = if fits { there } else { Moment::start(there.stage + 1) };
    Moment { stage: begins.stage, depth: begins.depth + delay }
}
