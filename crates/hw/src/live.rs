//! Which values cross the boundaries between stages: what registers, stack and packet come to when they are pruned.
//!
//! **Goal.** For each boundary the bits that lie in registers there, and whose they are: no more than somebody behind it uses.
//!
//! ```text
//!   boundary   0        1        2        3
//!   pkt[12]    ●────────●                          compared in stage 1
//!   v7              ○───●────────●                 there at the end of stage 0, used in stage 2
//!   v9                       ○────── (stage 1) ─►  used in the stage that computes it: no register
//! ```
//!
//! **Steps.** Backwards over the dataflow, bit by bit: the last stage in which a bit is used. Wires (slices, joins, constants, bits the
//! other way round) have no registers: what is asked of them is asked of their sources. A bit lies at the boundaries from the first one
//! behind its making to the one in front of its last use. What the ending and redirects need lies there to the end.
//!
//! An entry of a table travels as a bit that says whether it was found, and the number of its place; bytes of its value that are read
//! travel by themselves. Registers inside of blocks (lookups, multipliers) belong to the blocks.
//!
//! **Limits.** A packet's bytes that nobody reads wait beside the pipeline, and so do those that leave as they came.

mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flowloom_ir::{Compare, Effect, FRAME_BYTES, Id, Input, Kind, Touch, largest};

use crate::plan::Plan;
use crate::stages::Moment;
use crate::timing::Scheme;
use entries::{entries, place_bits};

/// Bits of a port that a packet is redirected to.
const TARGET_BITS: u16 = 32;

/// What a value in a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holds {
    /// Length, port and time of a packet.
    Metadata,
    /// What an operation has computed.
    Computed,
    /// What a table or a helper has answered: entries, bytes of values, targets.
    Answer,
}

/// A value that crosses a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// The node that made it.
    pub node: Id,
    /// What it is.
    pub holds: Holds,
    /// How many bits of it cross.
    pub bits: u32,
}

/// What lies in registers between two stages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Bytes of the packet, and which bits of each: the lowest one is bit 0.
    pub packet: BTreeMap<u16, u8>,
    /// Everything else.
    pub values: Vec<Carried>,
}

impl Boundary {
    /// Bits of the packet.
    pub fn packet_bits(&self) -> u32 {
        self.packet.values().map(|bits| bits.count_ones()).sum()
    }

    /// Bits of values of a kind.
    pub fn value_bits(&self, holds: Holds) -> u32 {
        self.values.iter().filter(|value| value.holds == holds).map(|value| value.bits).sum()
    }

    /// All bits.
    pub fn bits(&self) -> u32 {
        self.packet_bits() + self.values.iter().map(|value| value.bits).sum::<u32>()
    }
}

/// What crosses the boundaries of a pipeline. Boundary 0 lies in front of stage 0, the last one behind the last stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    /// One more than stages.
    pub boundaries: Vec<Boundary>,
}

impl Liveness {
    /// Of a plan; all values to the end where it does not prune.
    pub fn of(plan: &Plan) -> Liveness {
        let mut uses = LastUses::new(plan);
        match plan.options.prune {
            true => uses.collect(),
            false => uses.keep_all(),
        }
        uses.boundaries()
    }

    /// Bits of registers behind all stages: those in front of the first one belong to who brings the packet.
    pub fn register_bits(&self) -> u32 {
        self.boundaries.iter().skip(1).map(Boundary::bits).sum()
    }
}

/// The bits of a value as it lies in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Layout {
    /// One bit in front: whether an entry was found, or all went well.
    has_flag: bool,
    /// Its number, or the number of its place in the table.
    number: u16,
    /// Where packets are redirected to.
    target: u16,
}

impl Layout {
    fn bits(self) -> u16 {
        u16::from(self.has_flag) + self.number + self.target
    }

    fn number(self) -> Range<u16> {
        let first = u16::from(self.has_flag);
        first..first + self.number
    }

    fn target(self) -> Range<u16> {
        self.number().end..self.bits()
    }
}

/// The last stage in which each bit of each value is used.
struct LastUses<'a> {
    plan: &'a Plan,
    used: BTreeSet<Id>,
    /// Values that are addresses of entries and nothing else, with the map.
    addresses: BTreeMap<Id, u32>,
    last: Vec<Vec<Option<u32>>>,
    /// The largest number that each node may be.
    largest: Vec<u64>,
    /// The last use of whole bytes of the window, for who picks some at an offset that only the run knows.
    bytes: Vec<Option<u32>>,
}

impl<'a> LastUses<'a> {
    fn new(plan: &'a Plan) -> LastUses<'a> {
        let dataflow = &plan.dataflow;
        let used = dataflow.used();
        let addresses = entries(dataflow, &used);
        let bytes = vec![None; plan.window.bytes as usize];
        let mut uses = LastUses { plan, used, addresses, last: Vec::new(), largest: largest(dataflow), bytes };
        uses.last = dataflow.graph.ids().map(|id| vec![None; usize::from(uses.layout(id).bits())]).collect();
        uses
    }

    fn layout(&self, id: Id) -> Layout {
        let dataflow = &self.plan.dataflow;
        let node = dataflow.graph.node(id);
        if let Some(map) = self.addresses.get(&id) {
            return match node.kind {
                Kind::Input(_) => Layout::default(),
                _ => Layout { has_flag: true, number: place_bits(dataflow, *map), target: 0 },
            };
        }
        match (node.kind, dataflow.access(id).map(|access| access.touch)) {
            (_, Some(Touch::RedirectMap)) => Layout { has_flag: true, number: node.bits, target: TARGET_BITS },
            (Kind::Effect(Effect::Call { .. }), _) => Layout { has_flag: true, number: node.bits, target: 0 },
            _ => Layout { number: node.bits, ..Layout::default() },
        }
    }

    /// The call of which a node asks only whether it found something, or went well.
    fn asked(&self, id: Id) -> Option<Id> {
        let graph = &self.plan.dataflow.graph;
        let node = graph.node(id);
        if node.kind != Kind::Compare(Compare::Equal) || !node.args.iter().any(|arg| graph.as_const(*arg) == Some(0)) {
            return None;
        }
        node.args.iter().copied().find(|arg| self.layout(*arg).has_flag)
    }

    fn is_wire(&self, id: Id) -> bool {
        let wire = matches!(
            self.plan.dataflow.graph.node(id).kind,
            Kind::Const(_) | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Not
        );
        wire || self.asked(id).is_some()
    }

    fn ask(&mut self, id: Id, bits: Range<u16>, stage: u32) {
        for bit in bits {
            if let Some(last) = self.last[id.index()].get_mut(usize::from(bit)) {
                *last = (*last).max(Some(stage));
            }
        }
    }

    fn ask_number(&mut self, id: Id, stage: u32) {
        let layout = self.layout(id);
        // An address that is chosen from takes its flag along.
        let first = if self.addresses.contains_key(&id) { 0 } else { layout.number().start };
        self.ask(id, first..layout.number().end, stage);
    }

    /// All bytes that may be picked.
    fn ask_bytes(&mut self, offset: Id, ahead: i32, bytes: u16, stage: u32) {
        let most = self.largest[offset.index()];
        let is_negative = most > i32::MAX as u64;
        let place = |at: i64| usize::try_from(at.max(0)).unwrap_or(usize::MAX).min(self.bytes.len());
        let (first, end) = match is_negative {
            true => (0, self.bytes.len()),
            false => (place(ahead.into()), place(most as i64 + i64::from(ahead) + i64::from(bytes))),
        };
        for last in self.bytes.get_mut(first..end).unwrap_or_default() {
            *last = (*last).max(Some(stage));
        }
    }

    fn collect(&mut self) {
        let plan = self.plan;
        let end = plan.schedule.stages;
        let graph = &plan.dataflow.graph;
        let ending = &plan.dataflow.ending;
        let same_end = self.is_length(ending.tail);
        for id in ending.nodes().filter(|id| !(same_end && *id == ending.tail)).collect::<Vec<Id>>() {
            self.ask_number(id, end);
        }
        for id in graph.ids().rev().filter(|id| self.used.contains(id)).collect::<Vec<Id>>() {
            match self.is_wire(id) {
                true => self.through_wire(id),
                false => self.arguments(id),
            }
        }
    }

    /// Whether a node is the length as it came: the packet itself says it.
    fn is_length(&self, id: Id) -> bool {
        let graph = &self.plan.dataflow.graph;
        let node = graph.node(id);
        match node.kind {
            Kind::Input(Input::Length) => true,
            Kind::Concat => {
                self.is_length(node.args[0]) && node.args[1..].iter().all(|arg| graph.as_const(*arg) == Some(0))
            }
            _ => false,
        }
    }

    fn through_wire(&mut self, id: Id) {
        let graph = &self.plan.dataflow.graph;
        let node = graph.node(id);
        let asked: Vec<(u16, u32)> = self.last[id.index()]
            .iter()
            .enumerate()
            .filter_map(|(bit, last)| last.map(|last| (bit as u16, last)))
            .collect();
        if let Some(call) = self.asked(id) {
            for (_, stage) in asked {
                self.ask(call, 0..1, stage);
            }
            return;
        }
        for (bit, stage) in asked {
            let source = match node.kind {
                Kind::Slice { low } => Some((node.args[0], bit + low)),
                Kind::Not => Some((node.args[0], bit)),
                Kind::SignExtend => Some((node.args[0], bit.min(graph.bits(node.args[0]).saturating_sub(1)))),
                Kind::Concat => {
                    let mut left = bit;
                    node.args.iter().find_map(|part| match left.checked_sub(graph.bits(*part)) {
                        None => Some((*part, left)),
                        Some(rest) => {
                            left = rest;
                            None
                        }
                    })
                }
                _ => None,
            };
            if let Some((source, bit)) = source {
                let first = self.layout(source).number().start + bit;
                self.ask(source, first..first + 1, stage);
            }
        }
    }

    /// What an operation or an effect is given, in the stage in which it needs it.
    fn arguments(&mut self, id: Id) {
        let plan = self.plan;
        let node = plan.dataflow.graph.node(id);
        let span = plan.schedule.spans[id.index()];
        let begins = span.begins.stage;
        let Some(access) = plan.dataflow.access(id) else {
            for arg in &node.args {
                self.ask_number(*arg, begins);
            }
            if let Kind::Bytes { ahead } = node.kind {
                self.ask_bytes(node.args[0], ahead, node.bits / 8, begins);
            }
            return;
        };
        let commit = plan.schedule.commits.get(&id).copied();
        let end = plan.schedule.stages;
        let (predicate, others) = match access.touch {
            Touch::Lookup => (commit, begins),
            Touch::Load | Touch::Asks | Touch::Table => (None, begins),
            Touch::RedirectMap => {
                self.ask(id, self.layout(id).target(), end);
                (Some(span.ends.stage), begins)
            }
            // The port travels to the end, and whether it counts.
            Touch::Redirect => (Some(end), end),
            Touch::Draws => (Some(begins), begins),
            _ => (commit, commit.unwrap_or(begins).max(begins)),
        };
        if let (Some(stage), Some(condition)) = (predicate, node.args.first()) {
            self.ask_number(*condition, stage);
        }
        for (place, arg) in node.args.iter().enumerate().skip(1) {
            // What is read of an entry comes with it, where it is read as soon as it is found.
            let comes_along =
                access.touch == Touch::Load && place == 1 && self.comes_along(*arg, access.map, span.begins);
            if !comes_along {
                self.ask_number(*arg, others);
            }
        }
    }

    fn comes_along(&self, entry: Id, map: Option<u32>, begins: Moment) -> bool {
        let is_atomic = self.plan.maps.iter().any(|own| Some(own.map) == map && own.scheme == Scheme::Atomic);
        let is_found = matches!(self.plan.dataflow.graph.node(entry).kind, Kind::Effect(Effect::Call { .. }));
        !is_atomic && is_found && self.plan.schedule.spans[entry.index()].ends.registered() == begins.stage
    }

    fn keep_all(&mut self) {
        let end = self.plan.schedule.stages;
        for id in self.used.clone() {
            if !self.is_wire(id) {
                self.ask(id, 0..self.layout(id).bits(), end);
            }
        }
    }

    fn boundaries(&self) -> Liveness {
        let plan = self.plan;
        let end = plan.schedule.stages;
        let mut boundaries = vec![Boundary::default(); end as usize + 1];
        for id in &self.used {
            let first = plan.schedule.spans[id.index()].ends.registered();
            for (at, boundary) in boundaries.iter_mut().enumerate().skip(first as usize) {
                let lives = |last: &&Option<u32>| last.is_some_and(|last| last >= at as u32);
                let bits = self.last[id.index()].iter().filter(lives).count() as u32;
                if bits == 0 || self.is_wire(*id) {
                    continue;
                }
                if let Kind::Input(Input::Byte(byte)) = plan.dataflow.graph.node(*id).kind {
                    let alive = self.last[id.index()].iter().enumerate().filter(|(_, last)| lives(last));
                    let mask = alive.fold(0, |mask, (bit, _)| mask | 1_u8 << bit);
                    *boundary.packet.entry(byte).or_default() |= mask;
                    continue;
                }
                boundary.values.push(Carried { node: *id, holds: self.holds(*id), bits });
            }
        }
        for (byte, last) in
            self.bytes.iter().enumerate().filter_map(|(byte, last)| Some((u16::try_from(byte).ok()?, *last)))
        {
            let last = if plan.options.prune { last } else { Some(end) };
            let first = byte / FRAME_BYTES;
            for (at, boundary) in boundaries.iter_mut().enumerate().skip(usize::from(first)) {
                if last.is_some_and(|last| last >= at as u32) {
                    boundary.packet.insert(byte, u8::MAX);
                }
            }
        }
        Liveness { boundaries }
    }

    fn holds(&self, id: Id) -> Holds {
        match (self.plan.dataflow.graph.node(id).kind, self.plan.dataflow.access(id).map(|access| access.touch)) {
            (Kind::Input(_), _) | (_, Some(Touch::Asks)) => Holds::Metadata,
            (Kind::Effect(_), _) => Holds::Answer,
            _ => Holds::Computed,
        }
    }
}

#[cfg(test)]
mod tests;
