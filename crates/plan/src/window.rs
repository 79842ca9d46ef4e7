// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of a packet that the program accesses.

use std::collections::BTreeMap;

use flowloom_ir::{Dataflow, Id, Input, Kind, largest};

use crate::plan::last_byte;
use crate::target::Target;

/// The greatest packet length in bytes for which a pipeline waits for the last word to know the exact length.
const LONGEST_BYTES: u32 = 1518;

/// The greatest length in bytes that is checked by counting words as they arrive; a comparison with a greater one needs
/// the exact length.
const MAX_CHECKED_BYTES: u32 = 512;

/// The use of the packet length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Unused.
    Unused,
    /// Only compared, to check whether some of the first bytes are present.
    Checked,
    /// Used exactly; the shell gives it along with the first word.
    Given,
    /// Used exactly, and known only with the last word.
    Awaited,
}

impl Length {
    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Length::Unused => "unused",
            Length::Checked => "checked",
            Length::Given => "given",
            Length::Awaited => "awaited",
        }
    }
}

/// The window of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Its size in bytes from the first byte of the packet as received: whole words.
    pub bytes: u32,
    /// The size of a word of the bus in bytes.
    pub word_bytes: u16,
    /// The use of the length.
    pub length: Length,
    /// Length checks, and bytes at offsets known only at run time, with the first stage in which the word with the last
    /// byte concerned has arrived.
    pub checks: BTreeMap<Id, u32>,
    /// Whether the start of the packet moves, so that the packet is realigned.
    pub moves: bool,
    /// Whether the program may access bytes beyond the window, at offsets known only at run time. Such a packet leaves
    /// unchanged, for a slow path; this is decided before any effect ([`flowloom_ir::Ending::slow`]).
    pub reaches_beyond: bool,
}

impl Window {
    /// The size in words.
    pub fn words(&self) -> u32 {
        self.bytes / u32::from(self.word_bytes)
    }

    /// The cycles besides the program's stages: input and output registers, realignment, and the wait for the last
    /// word.
    pub fn framing_cycles(&self) -> u32 {
        let waits = match self.length {
            Length::Awaited => LONGEST_BYTES.div_ceil(u32::from(self.word_bytes)) - 1,
            _ => 0,
        };
        2 + u32::from(self.moves) + waits
    }
}

/// The window of a program.
pub fn window(dataflow: &Dataflow, target: &Target, length_given: bool) -> Window {
    let end = last_byte(dataflow).map_or(1, |last| u32::from(last) + 1);
    let largest = largest(dataflow);
    let picked = picked_bytes(dataflow, &largest);
    let furthest = furthest_byte(dataflow, &largest, &picked);
    let reaches_beyond = furthest > target.window_bytes.max(end) || !is_never(dataflow, dataflow.ending.slow);
    let end = end.max(furthest.min(target.window_bytes));
    let word = u32::from(target.word_bytes);
    let moves = dataflow.graph.as_const(dataflow.ending.head) != Some(0);
    let bytes = end.div_ceil(word) * word;
    let (length, mut checks) = length(dataflow, &largest, (target, length_given));
    for (id, end) in picked {
        checks.insert(id, (end.clamp(1, bytes) - 1) / word);
    }
    Window { bytes, word_bytes: target.word_bytes, length, checks, moves, reaches_beyond }
}

fn is_never(dataflow: &Dataflow, bit: Id) -> bool {
    dataflow.graph.as_const(bit) == Some(0)
}

/// The end of an access of `bytes` bytes, `ahead` after an offset of at most `offset`.
fn end_of(offset: u64, ahead: i64, bytes: i64) -> u32 {
    let most = i64::try_from(offset).unwrap_or(i64::MAX);
    u32::try_from(most.saturating_add(ahead + bytes).max(0)).unwrap_or(u32::MAX)
}

/// Accesses at offsets known only at run time, with their greatest end.
fn picked_bytes(dataflow: &Dataflow, largest: &[u64]) -> Vec<(Id, u32)> {
    let picked = dataflow.used().into_iter().filter_map(|id| {
        let node = dataflow.graph.node(id);
        match node.kind {
            Kind::Bytes { ahead } => {
                Some((id, end_of(largest[node.args[0].index()], ahead.into(), i64::from(node.bits / 8))))
            }
            _ => None,
        }
    });
    picked.collect()
}

/// The greatest end of all accesses at offsets known only at run time.
fn furthest_byte(dataflow: &Dataflow, largest: &[u64], picked: &[(Id, u32)]) -> u32 {
    let read = picked.iter().map(|(_, end)| *end);
    let written = dataflow.ending.overlays.iter().filter_map(|overlay| {
        let (last, _) = overlay.bytes.last_key_value()?;
        Some(end_of(largest[overlay.base.index()], *last, 1))
    });
    read.chain(written).max().unwrap_or(0)
}

fn length(dataflow: &Dataflow, largest: &[u64], (target, given): (&Target, bool)) -> (Length, BTreeMap<Id, u32>) {
    let graph = &dataflow.graph;
    let used = dataflow.used();
    let is_length = |id: Id| graph.node(id).kind == Kind::Input(Input::Length);
    if !used.iter().any(|id| is_length(*id)) {
        return (Length::Unused, BTreeMap::new());
    }
    // Slices of the length follow the same rule; for those above bit 0 the shift is tracked.
    let mut wires: BTreeMap<Id, u16> = used.iter().filter(|id| is_length(**id)).map(|id| (*id, 0)).collect();
    let (mut exact, mut checks) = (false, BTreeMap::new());
    for id in &used {
        let node = graph.node(*id);
        let Some(low) = node.args.iter().find_map(|arg| wires.get(arg).copied()) else { continue };
        match node.kind {
            // The upper bits stay: the value saturates where the length does.
            Kind::Slice { low: further } if further + node.bits == graph.bits(node.args[0]) => {
                wires.insert(*id, low + further);
            }
            Kind::Concat if wires.contains_key(&node.args[0]) => {
                wires.insert(*id, low);
            }
            Kind::SignExtend => {
                wires.insert(*id, low);
            }
            Kind::Compare(_) => {
                let others = node.args.iter().filter(|arg| !wires.contains_key(arg));
                let most = others.map(|other| largest[other.index()]).max().unwrap_or(u64::MAX);
                // The length that decides, and the stage in which the word with its last byte has arrived.
                let decides = (u128::from(most) + 1) << low;
                match u32::try_from(decides).ok().filter(|decides| *decides <= MAX_CHECKED_BYTES) {
                    Some(decides) => {
                        checks.insert(*id, (decides.max(1) - 1) / u32::from(target.word_bytes));
                    }
                    None => exact = true,
                }
            }
            _ => exact = true,
        }
    }
    // Unless its end moves, a packet keeps its length.
    let ending = &dataflow.ending;
    exact |= ending.nodes().any(|id| id != ending.tail && wires.contains_key(&id));
    match (exact, given) {
        (false, _) if checks.is_empty() => (Length::Unused, checks),
        (false, _) => (Length::Checked, checks),
        (true, true) => (Length::Given, BTreeMap::new()),
        (true, false) => (Length::Awaited, BTreeMap::new()),
    }
}
