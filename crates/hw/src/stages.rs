//! When each node is computed: the dataflow laid out in stages.
//!
//! **Goal.** Every node as early as its arguments allow, with as many of them one behind the other in a stage as fit between two
//! registers.
//!
//! ```text
//!   v4 = add v1 v2         stage 0, levels 0.0 to 1.5
//!   v5 = eq v4 9           stage 0, levels 1.5 to 3.5
//!   v6 = call lookup v4    stages 1 to 4: a block of its own, with registers
//! ```
//!
//! **Steps.** The nodes in their order. What the consistency of maps asks for stands in [`Pins`]: values of a map that are read in a
//! certain stage, effects that show at the end of a certain stage.

use std::collections::BTreeMap;

use flowloom_ir::{Access, Dataflow, Delays, FRAME_BYTES, Id, Input, Kind, Tenths, Touch};

/// A moment in the life of a packet: a stage, and how deep in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    /// The stage, from 0.
    pub stage: u32,
    /// How much of it has gone by; at 0 the value lies in a register.
    pub depth: Tenths,
}

impl Moment {
    /// The beginning of a stage.
    pub fn start(stage: u32) -> Moment {
        Moment { stage, depth: 0 }
    }

    /// The first stage in which the value lies in a register.
    pub fn registered(self) -> u32 {
        self.stage + u32::from(self.depth > 0)
    }
}

/// When a node begins and when it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// When its work begins.
    pub begins: Moment,
    /// When its value is there.
    pub ends: Moment,
}

/// What is asked of the schedule besides arguments before values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    /// The stage in which what depends on other packets is read, by map.
    pub reads: BTreeMap<u32, u32>,
    /// The first stage in which a map is looked up.
    pub lookups: BTreeMap<u32, u32>,
    /// Maps that are changed in the stage in which they are read.
    pub atomic: Vec<u32>,
    /// The stage at whose end an effect shows.
    pub commits: BTreeMap<Id, u32>,
    /// The first stage that can tell how the length compares.
    pub checks: BTreeMap<Id, u32>,
}

/// Every node's moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// By node.
    pub spans: Vec<Span>,
    /// The stage at whose end an effect shows, of those that change something.
    pub commits: BTreeMap<Id, u32>,
    /// How many stages there are.
    pub stages: u32,
}

/// What the nodes of a dataflow cost, each looked up once.
#[derive(Debug)]
pub(crate) struct Costs {
    /// By node: the stages of a block, and the delay of mere logic.
    all: Vec<(u32, Tenths)>,
    used: Vec<bool>,
}

impl Costs {
    pub(crate) fn of(dataflow: &Dataflow, delays: &Delays) -> Costs {
        let graph = &dataflow.graph;
        let all = graph.ids().map(|id| (delays.block_stages(dataflow, id), delays.of(graph, id)));
        let mut used = vec![false; graph.nodes().len()];
        graph.nodes().iter().flat_map(|node| &node.args).for_each(|arg| used[arg.index()] = true);
        Costs { all: all.collect(), used }
    }
}

/// The earliest moments of all nodes.
pub(crate) fn earliest(dataflow: &Dataflow, delays: &Delays, costs: &Costs, pins: &Pins) -> Schedule {
    let graph = &dataflow.graph;
    let mut schedule = Schedule { spans: vec![Span::default(); graph.nodes().len()], ..Schedule::default() };
    for id in graph.ids() {
        let span = match dataflow.access(id) {
            Some(access) => effect(dataflow, delays, pins, &mut schedule, (id, access)),
            None => value(dataflow, delays, pins, &schedule.spans, (id, costs.all[id.index()])),
        };
        schedule.spans[id.index()] = span;
    }
    let outputs = dataflow.ending.nodes().map(|id| schedule.spans[id.index()].ends.registered());
    let effects = schedule.commits.values().map(|commit| commit + 1);
    // An answer that nobody uses is waited for by nobody.
    let answers = graph.ids().filter(|id| costs.used[id.index()] && dataflow.access(*id).is_some());
    let answers = answers.map(|id| schedule.spans[id.index()].ends.registered());
    schedule.stages = outputs.chain(effects).chain(answers).max().unwrap_or(0).max(1);
    schedule
}

/// When the last of these is there.
fn ready(spans: &[Span], nodes: &[Id]) -> Moment {
    nodes.iter().map(|id| spans[id.index()].ends).max().unwrap_or_default()
}

fn value(
    dataflow: &Dataflow,
    delays: &Delays,
    pins: &Pins,
    spans: &[Span],
    (id, (blocks, delay)): (Id, (u32, Tenths)),
) -> Span {
    let node = dataflow.graph.node(id);
    if let Kind::Input(Input::Byte(at)) = node.kind {
        let there = Moment::start(u32::from(at / FRAME_BYTES));
        return Span { begins: there, ends: there };
    }
    let known = Moment::start(pins.checks.get(&id).copied().unwrap_or(0));
    let ready = ready(spans, &node.args).max(known);
    if blocks > 0 {
        let begins = Moment::start(ready.registered());
        return Span { begins, ends: Moment::start(begins.stage + blocks) };
    }
    let fits = ready.depth + delay <= delays.stage;
    let begins = if fits { ready } else { Moment::start(ready.stage + 1) };
    Span { begins, ends: Moment { stage: begins.stage, depth: begins.depth + delay } }
}

fn effect(
    dataflow: &Dataflow,
    delays: &Delays,
    pins: &Pins,
    schedule: &mut Schedule,
    (id, access): (Id, Access),
) -> Span {
    let node = dataflow.graph.node(id);
    let given = ready(&schedule.spans, &node.args[1..]);
    let predicate = schedule.spans[node.args[0].index()].ends;
    let of_map = |pins: &BTreeMap<u32, u32>| access.map.and_then(|map| pins.get(&map).copied());
    let read = of_map(&pins.reads).unwrap_or(0);
    let is_atomic = access.map.is_some_and(|map| pins.atomic.contains(&map));
    // What the table puts in front of a value so that the packet before is seen.
    let forward = Moment { stage: read, depth: if is_atomic { delays.choice } else { 0 } };
    let mut commit = None;
    let span = match access.touch {
        Touch::Lookup => {
            let first = if given.depth > delays.key { given.stage + 1 } else { given.stage };
            let late = of_map(&pins.lookups).unwrap_or(0);
            let begins = first.max(late).max(read.saturating_sub(delays.lookup_stages));
            let found = Moment::start(begins + delays.lookup_stages);
            let remembers = access.map.is_some_and(|map| dataflow.remembers_use(map));
            if remembers {
                commit = Some((begins + delays.lookup_stages - 1).max(predicate.stage));
            }
            let waits = if remembers { found.max(predicate) } else { found };
            let depends = access.map.is_some_and(|map| pins.reads.contains_key(&map)) && is_atomic;
            Span { begins: Moment::start(begins), ends: if depends { waits.max(forward) } else { waits } }
        }
        Touch::Load => {
            let there = given.max(forward);
            let ends = if dataflow.graph.as_const(node.args[2]).is_some() { there } else { picked(delays, there) };
            Span { begins: there, ends: ends.max(waits_for(&schedule.spans, dataflow, id)) }
        }
        Touch::Atomic => {
            let base = schedule.spans[node.args[1].index()].ends;
            commit = Some(given.max(predicate).max(base).stage);
            let there = base.max(forward);
            Span { begins: there, ends: there }
        }
        Touch::Store | Touch::Emits => {
            let there = given.max(predicate);
            commit = Some(there.stage);
            Span { begins: there, ends: there }
        }
        // Where a packet goes and what it has drawn travel with it.
        Touch::Redirect | Touch::Draws => {
            let there = given.max(predicate);
            Span { begins: there, ends: there }
        }
        // Room is kept, and the answer given, as soon as key and value are there; the entry comes with the other effects. Inside
        // of a table that changes in the stage in which it is read, all of it happens there.
        Touch::Update | Touch::Delete | Touch::Evict => {
            let there = given.max(predicate);
            commit = Some(there.stage);
            let begins = if is_atomic { there } else { given };
            let asked = if is_atomic { begins.stage } else { begins.registered() };
            Span { begins, ends: Moment::start(asked + delays.update_stages) }
        }
        Touch::RedirectMap => {
            let begins = given.registered();
            let ends = Moment::start(begins + delays.redirect_stages).max(predicate);
            Span { begins: Moment::start(begins), ends }
        }
        Touch::Table => {
            let begins = given.registered();
            let stages = delays.block_stages(dataflow, id);
            Span { begins: Moment::start(begins), ends: Moment::start(begins + stages) }
        }
        Touch::Asks => Span { begins: Moment::default(), ends: Moment::default() },
    };
    let Some(commit) = commit else { return span };
    let commit = commit.max(pins.commits.get(&id).copied().unwrap_or(0));
    schedule.commits.insert(id, commit);
    match access.touch {
        Touch::Update | Touch::Delete | Touch::Evict if is_atomic => {
            Span { ends: span.ends.max(Moment::start(commit + delays.update_stages)), ..span }
        }
        _ => span,
    }
}

/// A load has to wait for these effects of the same packet.
fn waits_for(spans: &[Span], dataflow: &Dataflow, id: Id) -> Moment {
    dataflow.waits.get(&id).map_or(Moment::default(), |writes| ready(spans, writes))
}

/// Part of a value at an offset that only the run knows: choices of four.
fn picked(delays: &Delays, there: Moment) -> Moment {
    let delay = 3 * delays.level;
    let fits = there.depth + delay <= delays.stage;
    let begins = if fits { there } else { Moment::start(there.stage + 1) };
    Moment { stage: begins.stage, depth: begins.depth + delay }
}

/// The first stage at whose end an effect can show, given when its arguments are there; none for what changes nothing.
pub(crate) fn earliest_effect_stage(dataflow: &Dataflow, spans: &[Span], id: Id) -> Option<u32> {
    let access = dataflow.access(id)?;
    let node = dataflow.graph.node(id);
    match access.touch {
        Touch::Store | Touch::Atomic | Touch::Update | Touch::Delete | Touch::Evict | Touch::Emits => {
            Some(ready(spans, &node.args).stage)
        }
        Touch::Lookup if access.map.is_some_and(|map| dataflow.remembers_use(map)) => {
            Some(spans[node.args[0].index()].ends.stage)
        }
        _ => None,
    }
}
