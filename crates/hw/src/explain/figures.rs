//! The figures of a plan, and what they consist of.

use flowloom_bpf::Program;
use flowloom_bpf::verifier::Proof;
use flowloom_ir::{Dataflow, Kind, PASSES};
use serde::Serialize;

use super::operations::Sayer;
use crate::live::{Boundary, Holds};
use crate::plan::Plan;
use crate::timing::Scheme;

/// What the latency consists of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// Cycles of the program's stages.
    pub stages: u32,
    /// Registers at either end.
    pub framing: u32,
    /// Schedulers in front of maps.
    pub schedulers: u32,
    /// Buffers in front of regions that start again.
    pub buffers: u32,
    /// Shifting the packet to its new beginning.
    pub realignment: u32,
    /// The wait for the last word of the longest packet.
    pub last_word: u32,
    /// Why it is waited for, or not.
    pub last_word_reason: &'static str,
    /// All of it at this clock.
    pub ns: f64,
}

/// How a program uses the part of the packet that it sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WindowUse {
    /// Bytes of it, whole frames.
    pub bytes: u32,
    /// Frames of it.
    pub frames: u32,
    /// How the length of a packet is used: `unused`, `checked`, `given` or `awaited`.
    pub length: &'static str,
    /// Whether the packet begins elsewhere when it leaves.
    pub moves: bool,
    /// Whether packets leave as they came in which the program would look further than the window.
    pub reaches_beyond: bool,
}

/// What a pass made of the dataflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassCount {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Nodes that are used before it.
    pub nodes_before: usize,
    /// Nodes that are used behind it.
    pub nodes_after: usize,
}

/// What lies in registers between two stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Live {
    /// All bits.
    pub bits: u32,
    /// Bits of the packet.
    pub packet_bits: u32,
    /// Bits of length, port and time.
    pub metadata_bits: u32,
    /// Bits of what was computed.
    pub computed_bits: u32,
    /// Bits of what tables and helpers have answered.
    pub answer_bits: u32,
    /// Bytes of the packet: the first and the last of each run.
    pub packet: Vec<(u16, u16)>,
    /// Everything else.
    pub values: Vec<LiveValue>,
}

/// A value in registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveValue {
    /// Its node.
    pub node: usize,
    /// What it is: `metadata`, `computed` or `answer`.
    pub holds: &'static str,
    /// What made it.
    pub does: String,
    /// How many bits of it.
    pub bits: u32,
}

pub(super) fn latency(plan: &Plan) -> Latency {
    let stages = plan.schedule.stages;
    let schedulers = plan.maps.iter().filter(|map| map.scheme == Scheme::Schedule).count() as u32;
    let realignment = u32::from(plan.window.moves);
    let framing = 2;
    let last_word = plan.window.framing_cycles().saturating_sub(framing + realignment);
    let all = plan.latency_cycles();
    Latency {
        stages,
        framing,
        schedulers,
        buffers: all.saturating_sub(stages + schedulers + plan.window.framing_cycles()),
        realignment,
        last_word,
        last_word_reason: super::blocks::reason(plan.window.length),
        ns: super::hundredths(f64::from(all) * 1000.0 / f64::from(plan.options.clock_mhz.max(1))),
    }
}

pub(super) fn window(plan: &Plan) -> WindowUse {
    let window = &plan.window;
    WindowUse {
        bytes: window.bytes,
        frames: window.frames(),
        length: window.length.as_str(),
        moves: window.moves,
        reaches_beyond: window.reaches_beyond,
    }
}

/// The passes once more, counted.
pub(super) fn passes(program: &Program, proof: &Proof) -> Vec<PassCount> {
    let Ok(built) = flowloom_ir::build(program, proof) else { return Vec::new() };
    let mut dataflow = built.without_traces();
    let count = |dataflow: &Dataflow| {
        let is_node = |kind: Kind| !matches!(kind, Kind::Const(_));
        dataflow.used().into_iter().filter(|id| is_node(dataflow.graph.node(*id).kind)).count()
    };
    let mut nodes_before = count(&dataflow);
    let mut counts = Vec::new();
    for pass in PASSES {
        dataflow = (pass.run)(&dataflow);
        let nodes_after = count(&dataflow);
        counts.push(PassCount { name: pass.name, does: pass.does, nodes_before, nodes_after });
        nodes_before = nodes_after;
    }
    counts
}

pub(super) fn live(said: &Sayer<'_>, boundary: &Boundary) -> Live {
    let mut packet: Vec<(u16, u16)> = Vec::new();
    for byte in boundary.packet.keys().copied() {
        match packet.last_mut() {
            Some((_, last)) if *last + 1 == byte => *last = byte,
            _ => packet.push((byte, byte)),
        }
    }
    let values = boundary.values.iter().map(|value| LiveValue {
        node: value.node.index(),
        holds: match value.holds {
            Holds::Metadata => "metadata",
            Holds::Computed => "computed",
            Holds::Answer => "answer",
        },
        does: said.does(value.node),
        bits: value.bits,
    });
    Live {
        bits: boundary.bits(),
        packet_bits: boundary.packet_bits(),
        metadata_bits: boundary.value_bits(Holds::Metadata),
        computed_bits: boundary.value_bits(Holds::Computed),
        answer_bits: boundary.value_bits(Holds::Answer),
        packet,
        values: values.collect(),
    }
}
