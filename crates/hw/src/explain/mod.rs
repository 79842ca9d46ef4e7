//! A plan told to people: who does what in which stage, and why.
//!
//! ```text
//!  Program, Proof, Plan ──explain──► Explanation ─┬─► JSON (serde)
//!                                                 ├─► text: figures, maps, stages
//!                                                 └─► html: one page, which needs nothing besides
//!  Program, Proof ──blocks──► BlockExplanation ────► JSON, text, html: the papers' layout of the same program
//! ```
//!
//! Everything that is said comes from the plan; nothing is decided here.

mod blocks;
mod code;
mod figures;
mod html;
mod maps;
mod notes;
mod operations;
mod text;
mod words;

use flowloom_bpf::Program;
use flowloom_bpf::verifier::Proof;
use serde::Serialize;

use crate::live::Liveness;
use crate::plan::Plan;

pub use blocks::{BlockExplanation, BlockInstruction, BlockMap, BlockStage};
pub use code::{Instruction, SourceLine};
pub use figures::{Latency, Live, LiveValue, PassCount, WindowUse};
pub use maps::{MapUse, MapUser, RegionUse};
pub use operations::{Commit, Operation, Stage};

/// How operations are counted.
const COUNTED: &str =
    "operations that begin in a stage; slices, joins, constants and inversions are wires and do not count";

/// A plan, told.
///
/// # Units
/// Stages count from 0. Levels are levels of look-up tables from the registers in front of a stage. Bits, bytes, cycles and megahertz
/// are in the names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The program's name.
    pub program: String,
    /// How its operations were put into stages.
    pub schedule: &'static str,
    /// The clock.
    pub clock_mhz: u32,
    /// How many stages the program has.
    pub stages: u32,
    /// Levels that fit between two registers.
    pub stage_levels: f64,
    /// Cycles from the first word of a packet until its first word leaves, where nothing is in its way.
    pub latency_cycles: u32,
    /// What they consist of.
    pub latency: Latency,
    /// The most operations in a stage.
    pub ilp_max: usize,
    /// Operations a stage.
    pub ilp_avg: f64,
    /// How they are counted.
    pub ilp_counts: &'static str,
    /// Instructions of the program.
    pub instructions: usize,
    /// Operations of the pipeline.
    pub operations: usize,
    /// Bytes of a packet that the program sees: whole frames.
    pub window_bytes: u32,
    /// How it uses them.
    pub window: WindowUse,
    /// Its maps, in the order in which they are first touched.
    pub maps: Vec<MapUse>,
    /// Stages in which packets are between reads and writes.
    pub regions: Vec<RegionUse>,
    /// What the pipeline leaves out, and what the host has to fill besides maps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the passes made of the dataflow.
    pub passes: Vec<PassCount>,
    /// Whether values leave behind the last stage that needs them.
    pub pruned: bool,
    /// Bits of registers behind all stages together.
    pub register_bits: u32,
    /// What lies in registers in front of each stage, and last of all behind the last one.
    pub live: Vec<Live>,
    /// The stages.
    pub stage: Vec<Stage>,
    /// The source lines that instructions come from, by file and number.
    pub lines: Vec<SourceLine>,
    /// The instructions.
    pub code: Vec<Instruction>,
}

impl Explanation {
    /// Tells a plan; the program and its proof are those that it was made from.
    pub fn of(program: &Program, proof: &Proof, plan: &Plan) -> Explanation {
        let liveness = Liveness::of(plan);
        let counts = plan.operations();
        let operations = counts.iter().sum();
        let lines = code::lines(program);
        let said = operations::Sayer::new(program, plan, &lines);
        let stage = said.stages();
        let maps = maps::maps(&said);
        let code = code::instructions(program, plan, &lines, &stage);
        let lines = code::placed(lines, &code);
        Explanation {
            program: program.name.clone(),
            schedule: "dataflow",
            clock_mhz: plan.options.clock_mhz,
            stages: plan.schedule.stages,
            stage_levels: levels(plan.delays.stage),
            latency_cycles: plan.latency_cycles(),
            latency: figures::latency(plan),
            ilp_max: counts.iter().copied().max().unwrap_or(0),
            ilp_avg: hundredths(operations as f64 / f64::from(plan.schedule.stages.max(1))),
            ilp_counts: COUNTED,
            instructions: code.len(),
            operations,
            window_bytes: plan.window.bytes,
            window: figures::window(plan),
            maps,
            regions: maps::regions(plan),
            notes: notes::notes(program, plan),
            passes: figures::passes(program, proof),
            pruned: plan.options.prune,
            register_bits: liveness.register_bits(),
            live: liveness.boundaries.iter().map(|boundary| figures::live(&said, boundary)).collect(),
            stage,
            lines,
            code,
        }
    }

    /// Nanoseconds of a number of cycles.
    pub fn nanoseconds(&self, cycles: u32) -> f64 {
        hundredths(f64::from(cycles) * 1000.0 / f64::from(self.clock_mhz.max(1)))
    }
}

/// What becomes of packets in which a program looks further than its window.
const BEYOND: &str = "packets in which it looks further leave as they came, for a slow path";

/// Tenths of a level as levels.
fn levels(tenths: u32) -> f64 {
    f64::from(tenths) / 10.0
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests;
