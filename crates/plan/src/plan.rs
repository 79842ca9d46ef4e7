// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of a pipeline: the operations of each stage, and the consistency scheme of each map.

use std::collections::BTreeMap;

use flowloom_ir::{Dataflow, Id, Input, Kind, Touch};
use flowloom_isa::Program;
use flowloom_verifier::Proof;

use crate::bounds::{MAX_CARRIED, PassCount, carried_within, optimized};
use crate::commute::commutes;
use crate::cycles::cycles;
use crate::hazard::{HazardError, Region, decide};
use crate::refusal::{Reason, Refusal};
use crate::replay::{Replay, replay};
use crate::served::{OmittedCall, not_served, without_traces};
use crate::stages::Schedule;
use crate::tables::{Uses, draws, is_summed, pending};
use crate::target::Target;
use crate::timing::{Arbiter, MapTiming, Scheme, Timing};
use crate::window::{Window, window};

/// The options of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The hardware.
    pub target: Target,
    /// Schemes requested for maps, by name; the planner chooses the others.
    pub schemes: BTreeMap<String, Scheme>,
    /// The number of queues before a scheduled map.
    pub queues: u32,
    /// The depth of each queue in packets.
    pub queue_depth: u32,
    /// Whether the shell gives the packet length along with the first word. Otherwise a packet is stored up to its last
    /// word if the program needs its exact length.
    pub length_given: bool,
    /// Whether values are dropped from the pipeline after their last use.
    pub prune: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            target: Target::default(),
            schemes: BTreeMap::new(),
            queues: 8,
            queue_depth: 32,
            length_given: false,
            prune: true,
        }
    }
}

/// The accesses and the consistency scheme of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapPlan {
    /// The index of the map in the program.
    pub map: u32,
    /// The name.
    pub name: String,
    /// The scheme.
    pub scheme: Scheme,
    /// Why it was chosen.
    pub reason: String,
    /// The accesses.
    pub uses: Uses,
    /// The first stage that accesses the table.
    pub read_stage: u32,
    /// The stage at whose end writes commit; none for read-only maps.
    pub write_stage: Option<u32>,
    /// The hold: the number of cycles for which a packet keeps others with its key out.
    pub hold_cycles: u32,
    /// With [`Scheme::Schedule`]: the number of queues. A single one keeps all packets in order.
    pub queues: u32,
    /// With [`Scheme::Flush`]: the stage at which packets restart.
    pub restart_stage: Option<u32>,
    /// With [`Scheme::Atomic`]: the partial arrays whose sum is the map, one for each lookup; 1 if the map is not divided.
    pub parts: u32,
}

/// The plan of a pipeline.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The options.
    pub options: Options,
    /// The dataflow after all passes.
    pub dataflow: Dataflow,
    /// The effect of each pass.
    pub passes: Vec<PassCount>,
    /// The stage of each node and of each commit.
    pub schedule: Schedule,
    /// The maps, in the order of their index.
    pub maps: Vec<MapPlan>,
    /// The hazard regions.
    pub regions: Vec<Region>,
    /// The part of a packet that the program accesses.
    pub window: Window,
    /// The calls that the pipeline omits, in the order of their instructions.
    pub omitted: Vec<OmittedCall>,
    /// Packets that access maps by further keys, and run alone.
    pub replay: Option<Replay>,
}

/// Plans a pipeline for a verified program.
///
/// # Errors
/// The reason why there is none, with its place.
pub fn plan(program: &Program, proof: &Proof, options: &Options) -> Result<Plan, Box<Refusal>> {
    let dataflow = flowloom_ir::build(program, proof).map_err(|refusal| Box::new(refusal.map(Reason::Dataflow)))?;
    plan_dataflow(program, &dataflow, options)
}

/// Plans a pipeline for the dataflow of a program, as it is built.
///
/// # Errors
/// The reason why there is none, with its place.
pub fn plan_dataflow(program: &Program, dataflow: &Dataflow, options: &Options) -> Result<Plan, Box<Refusal>> {
    let refused = |dataflow: &Dataflow, (effect, why): (Id, Reason)| {
        Box::new(Refusal::new(program, Some(dataflow.graph.insn(effect)), why))
    };
    let (dataflow, omitted) = without_traces(dataflow).map_err(|found| refused(dataflow, found))?;
    if let Some(found) = not_served(&dataflow) {
        return Err(refused(&dataflow, found));
    }
    let target = &options.target;
    let (dataflow, passes) =
        optimized(&dataflow, target).map_err(|(insn, why)| Box::new(Refusal::new(program, Some(insn), why)))?;
    let tables = dataflow.maps.clone();
    let name = |map: u32| tables.get(map as usize).map_or_else(String::new, |map| map.name.clone());
    let mut forced = BTreeMap::new();
    for (wanted, scheme) in &options.schemes {
        let found = dataflow.maps.iter().position(|map| map.name == *wanted);
        let Some(map) = found else {
            let known: Vec<String> = dataflow.maps.iter().map(|map| format!("`{}`", map.name)).collect();
            let why = Reason::NoMap { found: wanted.clone(), known: known.join(", ") };
            return Err(Box::new(Refusal::new(program, None, why)));
        };
        forced.insert(map as u32, *scheme);
    }
    let window = window(&dataflow, target, options.length_given);
    let (dataflow, mut replay) = match replay(&dataflow, &forced) {
        Some((dataflow, replay)) => (dataflow, Some(replay)),
        None => (dataflow, None),
    };
    let decisions = decide(&dataflow, target, &window, &forced, replay.as_ref()).map_err(|error| {
        let (insn, why) = match error {
            HazardError::OwnWrite { read, write, map } => {
                let (map, insn) = (name(map), dataflow.graph.insn(write));
                let base = dataflow.graph.node(read).args.get(1).copied();
                let touch = |id| dataflow.access(id).map(|access| access.touch);
                let is_old = touch(write) == Some(Touch::Update) && base.is_some_and(|base| base < write);
                let why = match touch(read) {
                    Some(Touch::Load) if is_old => Reason::OldAddress { map, write: insn, access: "read" },
                    Some(Touch::Store | Touch::Atomic) => Reason::OldAddress { map, write: insn, access: "written" },
                    _ => Reason::OwnWrite { map, write: insn },
                };
                (Some(dataflow.graph.insn(read)), why)
            }
            HazardError::Scheme { map, scheme, reason } => {
                (None, Reason::Scheme { map: name(map), scheme: scheme.as_str(), reason })
            }
            HazardError::TooLarge { at, why } => (Some(dataflow.graph.insn(at)), why),
            HazardError::Circular(maps) => {
                let maps: Vec<String> = maps.into_iter().map(|map| format!("`{}`", name(map))).collect();
                (None, Reason::Circular { maps: maps.join(", ") })
            }
        };
        Box::new(Refusal::new(program, insn, why))
    })?;
    if let (Some(replay), Some(decided)) = (&mut replay, decisions.replay) {
        (replay.first_stage, replay.decided_stage) = (decided.first_stage, decided.decided_stage);
    }
    carried_within(&decisions.schedule, &dataflow, MAX_CARRIED).map_err(|found| refused(&dataflow, found))?;
    let mut plan = Plan {
        options: options.clone(),
        dataflow,
        passes,
        schedule: decisions.schedule,
        maps: Vec::new(),
        regions: decisions.regions,
        window,
        omitted,
        replay,
    };
    for (map, uses) in decisions.uses {
        let choice = &decisions.choices[&map];
        let planned = plan.map_plan(map, uses, choice.scheme, choice.reason.clone());
        plan.maps.push(planned);
    }
    plan.order_schedulers();
    Ok(plan)
}

impl Plan {
    /// The hazard region of a map, if packets write it.
    pub fn region(&self, map: u32) -> Option<&Region> {
        self.regions.iter().find(|region| region.maps.contains(&map))
    }

    fn map_plan(&self, map: u32, uses: Uses, scheme: Scheme, reason: String) -> MapPlan {
        let spans = &self.schedule.spans;
        let name = self.dataflow.maps.get(map as usize).map_or_else(String::new, |map| map.name.clone());
        let begins = uses.all().map(|id| spans[id.index()].begins.stage);
        let region = self.region(map);
        let write_stage = uses.writes().map(|id| self.schedule.commits[&id]).max();
        let first = begins.min().unwrap_or(0);
        let (read_stage, restart_stage) = match scheme {
            Scheme::Flush => (first, region.map(|region| region.first)),
            _ => (first, None),
        };
        let hold_cycles = match scheme {
            Scheme::None | Scheme::Atomic => 1,
            _ => self.visible(&uses).map_or(1, |visible| visible - first),
        };
        let queues = if scheme == Scheme::Schedule { self.options.queues } else { 0 };
        let parts = match scheme {
            Scheme::Atomic if is_summed(&self.dataflow, map, &uses) => uses.lookups.len() as u32,
            _ => 1,
        };
        let reason = match parts {
            1 => reason,
            parts => format!("{reason}; packets only add to it: {parts} partial arrays, one for each lookup"),
        };
        MapPlan { map, name, scheme, reason, uses, read_stage, write_stage, hold_cycles, queues, restart_stage, parts }
    }

    /// The first stage in which a later packet can read all writes of a map.
    fn visible(&self, uses: &Uses) -> Option<u32> {
        let cycles = |id: Id| cycles(&self.dataflow, &self.options.target, id)?.visible;
        uses.writes().filter_map(|id| Some(self.schedule.commits.get(&id)? + cycles(id)?)).max()
    }

    /// Only the first scheduler may reorder packets, and only if nothing before it has observed their order.
    fn order_schedulers(&mut self) {
        let scheduled: Vec<usize> = {
            let mut all: Vec<usize> =
                (0..self.maps.len()).filter(|at| self.maps[*at].scheme == Scheme::Schedule).collect();
            all.sort_by_key(|at| self.maps[*at].read_stage);
            all
        };
        for (place, at) in scheduled.iter().enumerate() {
            if place > 0 || !self.may_reorder(*at) {
                self.maps[*at].queues = 1;
                let why = if place > 0 { "an earlier scheduler" } else { "an earlier write" };
                self.maps[*at].reason.push_str(&format!("; one queue: {why} observed the packet order"));
            }
        }
    }

    /// Whether packets may be reordered before a map: no effect before it depends on their order.
    pub(crate) fn may_reorder(&self, at: usize) -> bool {
        let own = &self.maps[at];
        let reserves = |id: &Id| self.dataflow.access(*id).is_some_and(|access| access.touch == Touch::Reserve);
        let begins = |id: Id| self.schedule.spans[id.index()].begins.stage;
        let mut records = self.dataflow.graph.ids().filter(reserves);
        records.all(|id| begins(id) >= own.read_stage)
            && self.maps.iter().filter(|other| other.map != own.map).all(|other| {
                let is_changed = other.write_stage.is_some() || self.dataflow.remembers_use(other.map);
                let is_before = other.read_stage < own.read_stage;
                !is_changed || !is_before || commutes(&self.dataflow, &other.uses)
            })
    }

    /// The random numbers that a packet may draw, in program order, each with the predicates of the earlier ones that the
    /// packet may draw as well: as many as hold are before it.
    pub fn draws(&self) -> Vec<(Id, Vec<Id>)> {
        let dataflow = &self.dataflow;
        let is_draw = |id: &Id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Random);
        let mut earlier = draws(dataflow);
        dataflow.graph.ids().filter(is_draw).map(|id| (id, earlier.remove(&id).unwrap_or_default())).collect()
    }

    /// The number of operations in each stage, without wires.
    pub fn operations(&self) -> Vec<usize> {
        let mut counts = vec![0; self.schedule.stages as usize];
        for id in self.dataflow.graph.ids() {
            if self.is_operation(id)
                && let Some(count) = counts.get_mut(self.schedule.spans[id.index()].begins.stage as usize)
            {
                *count += 1;
            }
        }
        counts
    }

    /// Whether a node is more than wires.
    pub fn is_operation(&self, id: Id) -> bool {
        let kind = self.dataflow.graph.node(id).kind;
        !is_wire(kind) && !matches!(kind, Kind::Input(_) | Kind::Changed { .. })
    }

    /// The latency without contention in cycles, from the first word in to the first word out.
    pub fn latency_cycles(&self) -> u32 {
        let schedulers = self.maps.iter().filter(|map| map.scheme == Scheme::Schedule).count() as u32;
        let flushing = |region: &&Region| {
            region.maps.iter().any(|map| self.maps.iter().any(|own| own.map == *map && own.scheme == Scheme::Flush))
        };
        let buffers = self.regions.iter().filter(flushing).count() as u32;
        self.window.framing_cycles() + self.schedule.stages + schedulers + buffers
    }

    /// The timing of the plan.
    pub fn timing(&self) -> Timing {
        let changed = self.maps.iter().filter(|map| map.scheme != Scheme::None);
        let mut maps: Vec<MapTiming> = changed
            .map(|map| MapTiming {
                name: map.name.clone(),
                scheme: map.scheme,
                read_stage: map.read_stage,
                write_stage: map.write_stage.unwrap_or(map.read_stage),
                hold_cycles: map.hold_cycles,
                queues: map.queues,
                queue_depth: self.options.queue_depth,
                restart_stage: map.restart_stage.unwrap_or(0),
            })
            .collect();
        maps.sort_by_key(|map| map.read_stage);
        Timing {
            clock_mhz: f64::from(self.options.target.clock_mhz),
            stages: self.schedule.stages,
            latency_cycles: self.latency_cycles(),
            reload_cycles: Timing::RELOAD_CYCLES,
            arbiter: Arbiter::default(),
            maps,
        }
    }

    /// The nodes in the pipeline's order of evaluation: reads of a stage before its commits.
    pub fn order(&self) -> Vec<Id> {
        let graph = &self.dataflow.graph;
        // An effect whose result is used before it commits is evaluated where the result is used.
        let mut needed: BTreeMap<Id, u32> = BTreeMap::new();
        let need = |needed: &mut BTreeMap<Id, u32>, id: Id, by: u32| {
            let first = needed.entry(id).or_insert(by);
            *first = by.min(*first);
        };
        for id in graph.ids() {
            let begins = self.schedule.spans[id.index()].begins.stage;
            graph.node(id).args.iter().for_each(|arg| need(&mut needed, *arg, begins));
        }
        // So are the earlier changes that the result takes into account, except in an atomic table.
        let uses: BTreeMap<u32, Uses> = self
            .maps
            .iter()
            .filter(|map| map.scheme != Scheme::Atomic)
            .map(|map| (map.map, map.uses.clone()))
            .collect();
        for (later, earlier) in pending(&self.dataflow, &uses).into_iter().rev() {
            if let Some(stage) = needed.get(&later).copied() {
                earlier.into_iter().for_each(|id| need(&mut needed, id, stage));
            }
        }
        let mut places: Vec<(u32, u32)> = Vec::with_capacity(graph.nodes().len());
        let mut reserved = (0, 0);
        let is_step = |id: Id| self.replay.as_ref().is_some_and(|replay| replay.accesses.contains(&id));
        let mut stepped = (0, 0);
        for id in graph.ids() {
            let is_reserved = self.dataflow.access(id).is_some_and(|access| access.touch == Touch::Reserve);
            let own = match self.schedule.commits.get(&id) {
                // The record is there as soon as there is room; records keep their order.
                Some(_) if is_reserved => (self.schedule.spans[id.index()].begins.stage, 0).max(reserved),
                Some(commit) => match needed.get(&id) {
                    Some(first) if first <= commit => (*first, 0),
                    _ => (*commit, 1),
                },
                None => (self.schedule.spans[id.index()].begins.stage, 0),
            };
            // A node that only waits for its predicate has begun before it.
            let given = graph.node(id).args.iter().map(|arg| places[arg.index()]).max().unwrap_or(own);
            let mut own = own.max(given);
            // Steps keep their order.
            if is_step(id) {
                own = own.max(stepped);
                stepped = own;
            }
            reserved = if is_reserved { own } else { reserved };
            places.push(own);
        }
        let mut order: Vec<Id> = graph.ids().collect();
        order.sort_by_key(|id| (places[id.index()], *id));
        order
    }
}

/// Whether nodes of this kind are wires, which have neither delay nor registers.
pub(crate) fn is_wire(kind: Kind) -> bool {
    matches!(kind, Kind::Const(_) | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Not)
}

/// The last byte of the packet that the dataflow reads or writes.
pub(crate) fn last_byte(dataflow: &Dataflow) -> Option<u16> {
    let read = dataflow.used().into_iter().filter_map(|id| match dataflow.graph.node(id).kind {
        Kind::Input(Input::Byte(at)) => Some(at),
        _ => None,
    });
    let written = dataflow.ending.packet.keys().filter_map(|at| u16::try_from(*at).ok());
    read.chain(written).max()
}
