//! The part of a packet that the program sees.

use flowloom_ir::{Dataflow, FRAME_BYTES, Graph, Id, Input, Kind};

use crate::plan::last_byte;

/// The longest packet whose last word is waited for where its exact length is needed.
const LONGEST_BYTES: u32 = 1518;

/// How the length of a packet is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Not at all.
    Unused,
    /// Only to see whether bytes of the window are there.
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
    /// Whether the packet begins elsewhere when it leaves, and is shifted.
    pub moves: bool,
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
    let frame = u32::from(FRAME_BYTES);
    let moves = dataflow.graph.as_const(dataflow.ending.head) != Some(0);
    let bytes = end.div_ceil(frame) * frame;
    Window { bytes, length: length(dataflow, bytes, length_given), moves }
}

fn length(dataflow: &Dataflow, window_bytes: u32, given: bool) -> Length {
    let graph = &dataflow.graph;
    let used = dataflow.used();
    let is_length = |id: Id| graph.node(id).kind == Kind::Input(Input::Length);
    if !used.iter().any(|id| is_length(*id)) {
        return Length::Unused;
    }
    // Wires of the length lead to the same.
    let mut wires: Vec<Id> = used.iter().copied().filter(|id| is_length(*id)).collect();
    let mut exact = false;
    for id in &used {
        let node = graph.node(*id);
        if !node.args.iter().any(|arg| wires.contains(arg)) {
            continue;
        }
        match node.kind {
            Kind::Slice { .. } | Kind::Concat | Kind::SignExtend => wires.push(*id),
            Kind::Compare(_) => exact |= !is_within(graph, &node.args, window_bytes),
            _ => exact = true,
        }
    }
    // Without a change of its end a packet is as long as it came.
    let ending = &dataflow.ending;
    exact |= ending.nodes().any(|id| id != ending.tail && wires.contains(&id));
    match (exact, given) {
        (false, _) => Length::Checked,
        (true, true) => Length::Given,
        (true, false) => Length::Awaited,
    }
}

/// Whether the length is compared with a number that the window already tells.
fn is_within(graph: &Graph, args: &[Id], window_bytes: u32) -> bool {
    args.iter().any(|arg| graph.as_const(*arg).is_some_and(|limit| limit <= u64::from(window_bytes)))
}
