//! The part of a packet that the program sees.

use std::collections::BTreeMap;

use flowloom_ir::{Dataflow, FRAME_BYTES, Id, Input, Kind, WINDOW_BYTES, largest};

use crate::plan::last_byte;

/// The longest packet whose last word is waited for where its exact length is needed.
const LONGEST_BYTES: u32 = 1518;

/// The longest packet whose length is told by how many of its words have come; where a longer one decides, the length is exact.
const MOST_CHECKED_BYTES: u32 = 512;

/// How the length of a packet is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Not at all.
    Unused,
    /// Only to see whether some of the first bytes are there.
    Checked,
    /// Exactly, in what the program computes; the shell says it with the first word.
    Given,
    /// Exactly, and only the last word tells it.
    Awaited,
}

impl Length {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Length::Unused => "unused",
            Length::Checked => "checked",
            Length::Given => "given",
            Length::Awaited => "awaited",
        }
    }
}

/// The window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// How many bytes, from the first one of the packet as it comes: whole frames.
    pub bytes: u32,
    /// How the length is used.
    pub length: Length,
    /// Comparisons that only ask whether bytes are there, and bytes at offsets that only the run knows, with the first stage in which
    /// the word with the last of them is.
    pub checks: BTreeMap<Id, u32>,
    /// Whether the packet begins elsewhere when it leaves, and is shifted.
    pub moves: bool,
    /// The program may look further than the window, at offsets that only the run knows. A packet in which it does is not for this
    /// pipeline, which says so before anything happens ([`flowloom_ir::Ending::slow`]): it leaves as it came, for a slow path.
    pub reaches_beyond: bool,
}

impl Window {
    /// Frames of it.
    pub fn frames(&self) -> u32 {
        self.bytes / u32::from(FRAME_BYTES)
    }

    /// Cycles besides the stages of the program: a register at either end, realignment, and the wait for the last word.
    pub fn framing_cycles(&self) -> u32 {
        let waits = match self.length {
            Length::Awaited => LONGEST_BYTES.div_ceil(u32::from(FRAME_BYTES)) - 1,
            _ => 0,
        };
        2 + u32::from(self.moves) + waits
    }
}

/// The window of a program.
pub(crate) fn window(dataflow: &Dataflow, length_given: bool) -> Window {
    let end = last_byte(dataflow).map_or(1, |last| u32::from(last) + 1);
    let largest = largest(dataflow);
    let picked = picked_bytes(dataflow, &largest);
    let furthest = furthest_byte(dataflow, &largest, &picked);
    let reaches_beyond = furthest > WINDOW_BYTES.max(end) || !is_never(dataflow, dataflow.ending.slow);
    let end = end.max(furthest.min(WINDOW_BYTES));
    let frame = u32::from(FRAME_BYTES);
    let moves = dataflow.graph.as_const(dataflow.ending.head) != Some(0);
    let bytes = end.div_ceil(frame) * frame;
    let (length, mut checks) = length(dataflow, &largest, length_given);
    for (id, end) in picked {
        checks.insert(id, (end.clamp(1, bytes) - 1) / frame);
    }
    Window { bytes, length, checks, moves, reaches_beyond }
}

fn is_never(dataflow: &Dataflow, bit: Id) -> bool {
    dataflow.graph.as_const(bit) == Some(0)
}

/// Where bytes end that begin so many behind an offset of at most so much.
fn end_of(offset: u64, ahead: i64, bytes: i64) -> u32 {
    let most = i64::try_from(offset).unwrap_or(i64::MAX);
    u32::try_from(most.saturating_add(ahead + bytes).max(0)).unwrap_or(u32::MAX)
}

/// Nodes that pick bytes at offsets that only the run knows, and where these end at most.
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

/// Where the bytes end that may be touched at offsets that only the run knows.
fn furthest_byte(dataflow: &Dataflow, largest: &[u64], picked: &[(Id, u32)]) -> u32 {
    let read = picked.iter().map(|(_, end)| *end);
    let written = dataflow.ending.overlays.iter().filter_map(|overlay| {
        let (last, _) = overlay.bytes.last_key_value()?;
        Some(end_of(largest[overlay.base.index()], *last, 1))
    });
    read.chain(written).max().unwrap_or(0)
}

fn length(dataflow: &Dataflow, largest: &[u64], given: bool) -> (Length, BTreeMap<Id, u32>) {
    let graph = &dataflow.graph;
    let used = dataflow.used();
    let is_length = |id: Id| graph.node(id).kind == Kind::Input(Input::Length);
    if !used.iter().any(|id| is_length(*id)) {
        return (Length::Unused, BTreeMap::new());
    }
    // Wires of the length lead to the same; of those that begin above its first bit it is known by how much.
    let mut wires: BTreeMap<Id, u16> = used.iter().filter(|id| is_length(**id)).map(|id| (*id, 0)).collect();
    let (mut exact, mut checks) = (false, BTreeMap::new());
    for id in &used {
        let node = graph.node(*id);
        let Some(low) = node.args.iter().find_map(|arg| wires.get(arg).copied()) else { continue };
        match node.kind {
            Kind::Slice { low: further } => {
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
                // The length that decides, and the stage in which the word that holds its last byte is there.
                let decides = (u128::from(most) + 1) << low;
                match u32::try_from(decides).ok().filter(|decides| *decides <= MOST_CHECKED_BYTES) {
                    Some(decides) => {
                        checks.insert(*id, (decides.max(1) - 1) / u32::from(FRAME_BYTES));
                    }
                    None => exact = true,
                }
            }
            _ => exact = true,
        }
    }
    // Without a change of its end a packet is as long as it came.
    let ending = &dataflow.ending;
    exact |= ending.nodes().any(|id| id != ending.tail && wires.contains_key(&id));
    match (exact, given) {
        (false, _) if checks.is_empty() => (Length::Unused, checks),
        (false, _) => (Length::Checked, checks),
        (true, true) => (Length::Given, BTreeMap::new()),
        (true, false) => (Length::Awaited, BTreeMap::new()),
    }
}
