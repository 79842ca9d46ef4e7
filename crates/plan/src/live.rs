// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Liveness at stage boundaries: the pipeline registers after pruning.
//!
//! **Goal.** For each boundary, the bits in registers and the values that they belong to: only bits with a later use.
//!
//! ```text
//!   boundary   0        1        2        3
//!   pkt[12]    ●────────●                          compared in stage 1
//!   v7              ○───●────────●                 ready at the end of stage 0, used in stage 2
//!   v9                       ○────── (stage 1) ─►  used in the stage that computes it: no register
//! ```
//!
//! **Steps.** Backwards over the dataflow, by bit: the last stage that uses it. Wires (slices, concatenations,
//! constants, complements) have no registers: their uses count for their sources. A bit is live at the boundaries from
//! its definition to its last use. Outputs and redirect targets are live to the end.
//!
//! The address of a map entry takes a hit flag and the index of the entry; bytes of its value that are read are values
//! of their own. Registers inside of blocks (lookups, multipliers) belong to the blocks.
//!
//! **Limits.** Bytes of the packet that are not read, or leave unchanged, are kept beside the pipeline.

mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flowloom_ir::{Compare, Effect, Id, Input, Kind, Touch, largest};

use crate::plan::{Plan, is_wire};
use crate::stages::Moment;
use crate::tables::draws;
use crate::timing::Scheme;
use entries::{entries, index_bits};

/// The width of a redirect target in bits.
const TARGET_BITS: u16 = 32;

/// The kinds of values in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    /// Length, port and time of the packet.
    Metadata,
    /// The result of an operation.
    Computed,
    /// The result of a table or helper: entries, bytes of values, targets.
    Answer,
}

/// A value that crosses a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// The node that defines it.
    pub node: Id,
    /// The kind.
    pub holds: ValueKind,
    /// The number of live bits.
    pub bits: u32,
}

/// The registers between two stages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boundary {
    /// By offset, a mask of the live bits of each byte of the packet.
    pub packet: BTreeMap<u16, u8>,
    /// All other values.
    pub values: Vec<Carried>,
}

impl Boundary {
    /// The number of packet bits.
    pub fn packet_bits(&self) -> u32 {
        self.packet.values().map(|bits| bits.count_ones()).sum()
    }

    /// The number of bits of values of a kind.
    pub fn value_bits(&self, holds: ValueKind) -> u32 {
        self.values.iter().filter(|value| value.holds == holds).map(|value| value.bits).sum()
    }

    /// The number of all bits.
    pub fn bits(&self) -> u32 {
        self.packet_bits() + self.values.iter().map(|value| value.bits).sum::<u32>()
    }
}

/// The live values at all boundaries of a pipeline. Boundary 0 lies before stage 0, the last one after the last stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    /// The boundaries, one more than stages.
    pub boundaries: Vec<Boundary>,
}

impl Liveness {
    /// The liveness of a plan; without pruning all values are live to the end.
    pub fn of(plan: &Plan) -> Liveness {
        let mut uses = LastUses::new(plan);
        match plan.options.prune {
            true => uses.collect(),
            false => uses.keep_all(),
        }
        uses.boundaries()
    }

    /// Register bits after all stages: the registers before the first one belong to the shell.
    pub fn register_bits(&self) -> u32 {
        self.boundaries.iter().skip(1).map(Boundary::bits).sum()
    }
}

/// The layout of a value in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Layout {
    /// Whether the first bit is a flag: hit, or success.
    has_flag: bool,
    /// The width of the number, or of the index of the entry, in bits.
    number: u16,
    /// The width of the redirect target in bits.
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

/// The last use of each bit of each value.
struct LastUses<'a> {
    plan: &'a Plan,
    used: BTreeSet<Id>,
    /// Values that are only ever addresses of entries, with their maps.
    addresses: BTreeMap<Id, u32>,
    last: Vec<Vec<Option<u32>>>,
    /// The maximum of each node.
    largest: Vec<u64>,
    /// By byte of the window, the last use by an access at an offset known only at run time.
    bytes: Vec<Option<u32>>,
    /// By random number, the predicates of the earlier ones.
    draws: BTreeMap<Id, Vec<Id>>,
}

impl<'a> LastUses<'a> {
    fn new(plan: &'a Plan) -> LastUses<'a> {
        let dataflow = &plan.dataflow;
        let used = dataflow.used();
        let addresses = entries(dataflow, &used);
        let bytes = vec![None; plan.window.bytes as usize];
        let mut uses = LastUses {
            plan,
            used,
            addresses,
            last: Vec::new(),
            largest: largest(dataflow),
            bytes,
            draws: draws(dataflow),
        };
        uses.last = dataflow.graph.ids().map(|id| vec![None; usize::from(uses.layout(id).bits())]).collect();
        uses
    }

    fn layout(&self, id: Id) -> Layout {
        let dataflow = &self.plan.dataflow;
        let node = dataflow.graph.node(id);
        if let Some(map) = self.addresses.get(&id) {
            return match node.kind {
                Kind::Input(_) => Layout::default(),
                _ => Layout { has_flag: true, number: index_bits(dataflow, *map), target: 0 },
            };
        }
        match (node.kind, dataflow.access(id).map(|access| access.touch)) {
            (_, Some(Touch::RedirectMap)) => Layout { has_flag: true, number: node.bits, target: TARGET_BITS },
            (Kind::Effect(Effect::Call { .. }), _) => Layout { has_flag: true, number: node.bits, target: 0 },
            _ => Layout { number: node.bits, ..Layout::default() },
        }
    }

    /// The call of which a node uses only the flag.
    fn flag_source(&self, id: Id) -> Option<Id> {
        let graph = &self.plan.dataflow.graph;
        let node = graph.node(id);
        if node.kind != Kind::Compare(Compare::Equal) || !node.args.iter().any(|arg| graph.as_const(*arg) == Some(0)) {
            return None;
        }
        node.args.iter().copied().find(|arg| self.layout(*arg).has_flag)
    }

    fn is_wire(&self, id: Id) -> bool {
        is_wire(self.plan.dataflow.graph.node(id).kind) || self.flag_source(id).is_some()
    }

    fn use_bits(&mut self, id: Id, mut bits: Range<u16>, stage: u32) {
        // Whether there is such a port tells the verdict of a redirect.
        if self.is_redirect_verdict(id) && bits.start < self.layout(id).number().end {
            bits = 0..1;
        }
        for bit in bits {
            if let Some(last) = self.last[id.index()].get_mut(usize::from(bit)) {
                *last = (*last).max(Some(stage));
            }
        }
    }

    /// Whether a node is the verdict of a redirect with constant flags.
    fn is_redirect_verdict(&self, id: Id) -> bool {
        let dataflow = &self.plan.dataflow;
        let flags = dataflow.graph.node(id).args.last().copied();
        dataflow.access(id).is_some_and(|access| access.touch == Touch::RedirectMap)
            && flags.is_some_and(|flags| dataflow.graph.as_const(flags).is_some())
    }

    fn use_number(&mut self, id: Id, stage: u32) {
        let layout = self.layout(id);
        // A select between addresses needs their flags as well.
        let first = if self.addresses.contains_key(&id) { 0 } else { layout.number().start };
        self.use_bits(id, first..layout.number().end, stage);
    }

    /// Records a use of all bytes that a variable offset may select.
    fn use_bytes(&mut self, offset: Id, ahead: i32, bytes: u16, stage: u32) {
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
        if let Some(replay) = &plan.replay {
            self.use_number(replay.alone, replay.decided_stage);
        }
        for id in ending.nodes().filter(|id| !(same_end && *id == ending.tail)).collect::<Vec<Id>>() {
            self.use_number(id, end);
        }
        for id in graph.ids().rev().filter(|id| self.used.contains(id)).collect::<Vec<Id>>() {
            match self.is_wire(id) {
                true => self.use_wire(id),
                false => self.use_arguments(id),
            }
        }
    }

    /// Whether a node is the length as received, which the packet itself gives.
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

    fn use_wire(&mut self, id: Id) {
        let graph = &self.plan.dataflow.graph;
        let node = graph.node(id);
        let flag_source: Vec<(u16, u32)> = self.last[id.index()]
            .iter()
            .enumerate()
            .filter_map(|(bit, last)| last.map(|last| (bit as u16, last)))
            .collect();
        if let Some(call) = self.flag_source(id) {
            for (_, stage) in flag_source {
                self.use_bits(call, 0..1, stage);
            }
            return;
        }
        for (bit, stage) in flag_source {
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
                self.use_bits(source, first..first + 1, stage);
            }
        }
    }

    /// Records the uses of an operation's or effect's arguments, in the stage that needs them.
    fn use_arguments(&mut self, id: Id) {
        let plan = self.plan;
        let node = plan.dataflow.graph.node(id);
        let span = plan.schedule.spans[id.index()];
        let begins = span.begins.stage;
        if self.is_step(id) {
            // The registers of the step take them when all are known.
            let ends = |arg: &Id| plan.schedule.spans[arg.index()].ends.stage;
            let known = node.args.iter().map(ends).max().unwrap_or(begins);
            node.args.iter().for_each(|arg| self.use_number(*arg, known));
            return;
        }
        let Some(access) = plan.dataflow.access(id) else {
            for arg in &node.args {
                self.use_number(*arg, begins);
            }
            if let Kind::Bytes { ahead } = node.kind {
                self.use_bytes(node.args[0], ahead, node.bits / 8, begins);
            }
            return;
        };
        let commit = plan.schedule.commits.get(&id).copied();
        let end = plan.schedule.stages;
        let (predicate, others) = match access.touch {
            Touch::Lookup => (commit, begins),
            Touch::Load | Touch::Environment | Touch::Compute | Touch::HostTable => (None, begins),
            Touch::RedirectMap => {
                self.use_bits(id, self.layout(id).target(), end);
                (Some(end), begins)
            }
            // The target and its valid flag are live to the end.
            Touch::Redirect => (Some(end), end),
            Touch::Random => {
                for predicate in self.draws.get(&id).cloned().unwrap_or_default() {
                    self.use_number(predicate, begins);
                }
                (None, begins)
            }
            Touch::Reserve => (Some(begins), begins),
            _ => (commit, commit.unwrap_or(begins).max(begins)),
        };
        if let (Some(stage), Some(condition)) = (predicate, node.args.first()) {
            self.use_number(*condition, stage);
        }
        for (place, arg) in node.args.iter().enumerate().skip(1) {
            // A value read as soon as the entry is found comes out of the table along with it.
            let is_read_with_entry =
                access.touch == Touch::Load && place == 1 && self.is_read_with_entry(*arg, access.map, span.begins);
            if !is_read_with_entry {
                self.use_number(*arg, others);
            }
        }
    }

    /// Whether a node is the result of a step of a packet that runs alone, which is kept outside of the pipeline.
    fn is_step(&self, id: Id) -> bool {
        self.plan.replay.as_ref().is_some_and(|replay| replay.accesses.contains(&id))
    }

    fn is_read_with_entry(&self, entry: Id, map: Option<u32>, begins: Moment) -> bool {
        let is_atomic = self.plan.maps.iter().any(|own| Some(own.map) == map && own.scheme == Scheme::Atomic);
        let is_found = matches!(self.plan.dataflow.graph.node(entry).kind, Kind::Effect(Effect::Call { .. }));
        !is_atomic && is_found && self.plan.schedule.spans[entry.index()].ends.registered() == begins.stage
    }

    fn keep_all(&mut self) {
        let end = self.plan.schedule.stages;
        for id in self.used.clone() {
            if !self.is_wire(id) {
                self.use_bits(id, 0..self.layout(id).bits(), end);
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
                let is_live = |last: &&Option<u32>| last.is_some_and(|last| last >= at as u32);
                let bits = self.last[id.index()].iter().filter(is_live).count() as u32;
                if bits == 0 || self.is_wire(*id) || self.is_step(*id) {
                    continue;
                }
                if let Kind::Input(Input::Byte(byte)) = plan.dataflow.graph.node(*id).kind {
                    let alive = self.last[id.index()].iter().enumerate().filter(|(_, last)| is_live(last));
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
            let first = byte / plan.options.target.word_bytes;
            for (at, boundary) in boundaries.iter_mut().enumerate().skip(usize::from(first)) {
                if last.is_some_and(|last| last >= at as u32) {
                    boundary.packet.insert(byte, u8::MAX);
                }
            }
        }
        Liveness { boundaries }
    }

    fn holds(&self, id: Id) -> ValueKind {
        match (self.plan.dataflow.graph.node(id).kind, self.plan.dataflow.access(id).map(|access| access.touch)) {
            (Kind::Input(_), _) | (_, Some(Touch::Environment)) => ValueKind::Metadata,
            (Kind::Effect(_), _) => ValueKind::Answer,
            _ => ValueKind::Computed,
        }
    }
}

#[cfg(test)]
mod tests;
