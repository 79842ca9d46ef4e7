// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a plan, and their parts.

use serde::Serialize;

use super::numbers::{counted, nanoseconds};
use super::operations::Describer;
use flowloom_plan::Scheme;
use flowloom_plan::{Boundary, ValueKind};
use flowloom_plan::{Length, Plan};

/// The parts of the latency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// The cycles of the program's stages.
    pub stages: u32,
    /// The input and output registers; in a rendered pipeline, the framer, which stores packets whole.
    pub framing: u32,
    /// The emitter of a rendered pipeline, which realigns packets too; 0 of a plan without a rendering.
    pub emitter: u32,
    /// In a rendered pipeline, the wait for results of blocks that begin before the queue.
    pub late_results: u32,
    /// The schedulers before maps.
    pub schedulers: u32,
    /// The elastic buffers before flush regions.
    pub buffers: u32,
    /// The realignment of the packet to its new start.
    pub realignment: u32,
    /// The wait for the last word of the longest packet.
    pub last_word: u32,
    /// The reason why the pipeline waits for it, or does not.
    pub last_word_reason: &'static str,
    /// The whole latency in nanoseconds.
    pub ns: f64,
}

/// The window, and its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WindowUse {
    /// Its size in bytes, whole frames.
    pub bytes: u32,
    /// Its size in frames.
    pub frames: u32,
    /// The use of the packet length: `unused`, `checked`, `given` or `awaited`.
    pub length: &'static str,
    /// Whether the start of the packet moves.
    pub moves: bool,
    /// Whether packets in which the program would read beyond the window leave unchanged.
    pub reaches_beyond: bool,
}

/// The registers between two stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Live {
    /// The number of bits.
    pub bits: u32,
    /// Bits of the packet.
    pub packet_bits: u32,
    /// Bits of length, port and time.
    pub metadata_bits: u32,
    /// Bits of results of operations.
    pub computed_bits: u32,
    /// Bits of results of tables and helpers.
    pub answer_bits: u32,
    /// The bytes of the packet: the first and the last of each run.
    pub packet: Vec<(u16, u16)>,
    /// All other values.
    pub values: Vec<LiveValue>,
}

/// A value in registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveValue {
    pub node: usize,
    /// Its kind: `metadata`, `computed` or `answer`.
    pub holds: &'static str,
    /// The operation that defines it.
    pub does: String,
    /// The number of live bits.
    pub bits: u32,
}

impl Latency {
    /// The latency with its parts: `22 cycles, 88 ns: 20 stages, 2 registers at the ends`.
    pub fn text(&self, cycles: u32) -> String {
        let mut parts = vec![counted(self.stages as usize, "stage")];
        match self.emitter {
            0 => parts.push("2 registers at the ends".to_owned()),
            emitter => parts.push(format!("{} of the framer, {emitter} of the emitter", self.framing)),
        }
        let others = [
            (self.late_results, "late result"),
            (self.schedulers, "scheduler"),
            (self.buffers, "buffer"),
            (self.realignment, "shift to the new packet start"),
        ];
        let others = others.into_iter().filter(|(number, _)| *number > 0);
        parts.extend(others.map(|(number, what)| counted(number as usize, what)));
        if self.last_word > 0 {
            parts.push(format!("{} waiting for the last word", self.last_word));
        }
        format!("{cycles} cycles, {} ns: {}", self.ns, parts.join(", "))
    }
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
        emitter: 0,
        late_results: 0,
        schedulers,
        buffers: all.saturating_sub(stages + schedulers + plan.window.framing_cycles()),
        realignment,
        last_word,
        last_word_reason: last_word_reason(plan.window.length),
        ns: nanoseconds(all, plan.options.target.clock_mhz),
    }
}

/// What is known of a plan that is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    /// The cycles of the framer.
    pub framer: u32,
    /// The cycles of the emitter.
    pub emitter: u32,
    /// The cycles for which packets wait for late results.
    pub late_results: u32,
    /// By map, the cycles from a packet to the next one that may have its key; 1 for those that are not named.
    pub holds: Vec<(String, u32)>,
}

impl Latency {
    /// The latency of a rendered pipeline: of a packet of the least length, which waits for no other one.
    pub(super) fn rendered(&self, rendering: &Rendering, clock_mhz: u32) -> Latency {
        let Rendering { framer, emitter, late_results, .. } = *rendering;
        let mut latency = Latency { framing: framer, emitter, late_results, ..self.clone() };
        (latency.schedulers, latency.buffers, latency.realignment, latency.last_word) = (0, 0, 0, 0);
        latency.ns = nanoseconds(latency.cycles(), clock_mhz);
        latency
    }

    /// The sum of the parts.
    pub(super) fn cycles(&self) -> u32 {
        let ends = self.framing + self.emitter + self.realignment + self.last_word;
        self.stages + ends + self.late_results + self.schedulers + self.buffers
    }
}

pub(super) fn window(plan: &Plan) -> WindowUse {
    let window = &plan.window;
    WindowUse {
        bytes: window.bytes,
        frames: window.words(),
        length: window.length.as_str(),
        moves: window.moves,
        reaches_beyond: window.reaches_beyond,
    }
}

pub(super) fn live(describer: &Describer<'_>, boundary: &Boundary) -> Live {
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
            ValueKind::Metadata => "metadata",
            ValueKind::Computed => "computed",
            ValueKind::Answer => "answer",
        },
        does: describer.does(value.node),
        bits: value.bits,
    });
    Live {
        bits: boundary.bits(),
        packet_bits: boundary.packet_bits(),
        metadata_bits: boundary.value_bits(ValueKind::Metadata),
        computed_bits: boundary.value_bits(ValueKind::Computed),
        answer_bits: boundary.value_bits(ValueKind::Answer),
        packet,
        values: values.collect(),
    }
}

/// The reason why the pipeline waits for the last word, or does not.
pub fn last_word_reason(length: Length) -> &'static str {
    match length {
        Length::Unused => "the length is not used",
        Length::Checked => "the length only decides whether some of the first bytes are present",
        Length::Given => "the exact length is used; it arrives with the first word",
        Length::Awaited => "the exact length is used; it is known with the last word",
    }
}
