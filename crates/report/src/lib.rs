// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a plan: the operations of each stage, and the reasons.
//!
//! ```text
//!  Program, Plan ──explain──► Explanation ─┬─► JSON (serde)
//!                                                 ├─► text: figures, maps, stages
//!                                                 └─► html: a self-contained page
//!  Program, Proof ──blocks──► BlockExplanation ────► JSON, text, html: the papers' layout of the same program
//! ```
//!
//! Everything is taken from the plan; nothing is decided here.

#![forbid(unsafe_code)]

mod code;
mod figures;
mod html;
mod maps;
mod notes;
mod numbers;
mod operations;
pub mod text;
mod words;

use flowloom_isa::Program;
use serde::Serialize;

use flowloom_plan::Liveness;
use flowloom_plan::{Fit, PassCount, Plan};

pub use code::{Instruction, SourceLine};
pub use figures::{Latency, Live, LiveValue, Rendering, WindowUse, last_word_reason};
pub use html::{STYLE, escaped, filled, tiles};
pub use maps::{MapUse, MapUser, RegionUse};
pub use numbers::{counted, grouped, hundredths, nanoseconds};
pub use operations::{Commit, Operation, Stage};

use numbers::levels;

/// The counting rule.
const COUNTED: &str =
    "operations that begin in a stage; slices, concatenations, constants and inversions are wires and do not count";

/// The report of a plan.
///
/// # Units
/// Stages count from 0. Levels are LUT levels from the registers before a stage. Bits, bytes, cycles and megahertz are
/// in the names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The name of the program.
    pub program: String,
    /// The kind of schedule.
    pub schedule: &'static str,
    /// The clock in MHz.
    pub clock_mhz: u32,
    /// The number of stages.
    pub stages: u32,
    /// The budget of a stage in LUT levels.
    pub stage_levels: f64,
    /// The latency without contention in cycles, from the first word in to the first word out; of a rendered pipeline
    /// for a packet of one word.
    pub latency_cycles: u32,
    /// Its parts.
    pub latency: Latency,
    /// The most operations in a stage.
    pub ilp_max: usize,
    /// The mean number of operations a stage.
    pub ilp_avg: f64,
    /// The counting rule.
    pub ilp_counts: &'static str,
    /// The instructions of the program.
    pub instructions: usize,
    /// The operations of the pipeline.
    pub operations: usize,
    /// Those of them that find headers, at the calls of `fl_parse`.
    pub parser_operations: usize,
    /// The window of the program in bytes: whole frames.
    pub window_bytes: u32,
    /// The use of the window.
    pub window: WindowUse,
    /// The maps, in the order of their first access.
    pub maps: Vec<MapUse>,
    /// The hazard regions.
    pub regions: Vec<RegionUse>,
    /// Notes: calls that the pipeline omits, and tables besides maps that the host fills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The effects of the passes.
    pub passes: Vec<PassCount>,
    /// Whether values are dropped after their last use.
    pub pruned: bool,
    /// The register bits after all stages.
    pub register_bits: u32,
    /// What it uses of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Fit>,
    /// The registers before each stage, then those after the last one.
    pub live: Vec<Live>,
    pub stage: Vec<Stage>,
    /// The source lines, by file and number.
    pub lines: Vec<SourceLine>,
    /// The instructions.
    pub code: Vec<Instruction>,
}

impl Explanation {
    /// The report of a plan of this program.
    pub fn of(program: &Program, plan: &Plan) -> Explanation {
        let liveness = Liveness::of(plan);
        let counts = plan.operations();
        let operations = counts.iter().sum();
        let lines = code::lines(program);
        let describer = operations::Describer::new(program, plan, &lines);
        let stage = describer.stages();
        let maps = maps::maps(&describer);
        let code = code::instructions(program, plan, &lines, &stage);
        let lines = code::placed(lines, &code);
        Explanation {
            program: program.name.clone(),
            schedule: "dataflow",
            clock_mhz: plan.options.target.clock_mhz,
            stages: plan.schedule.stages,
            stage_levels: levels(plan.options.target.stage),
            latency_cycles: plan.latency_cycles(),
            latency: figures::latency(plan),
            ilp_max: counts.iter().copied().max().unwrap_or(0),
            ilp_avg: hundredths(operations as f64 / f64::from(plan.schedule.stages.max(1))),
            ilp_counts: COUNTED,
            instructions: code.len(),
            operations,
            parser_operations: code::parser_operations(program, &stage),
            window_bytes: plan.window.bytes,
            window: figures::window(plan),
            maps,
            regions: maps::regions(plan),
            notes: notes::notes(program, plan),
            passes: plan.passes.clone(),
            pruned: plan.options.prune,
            register_bits: liveness.register_bits(),
            device: None,
            live: liveness.boundaries.iter().map(|boundary| figures::live(&describer, boundary)).collect(),
            stage,
            lines,
            code,
        }
    }
}

impl Explanation {
    /// The report with the latency and the holds of the rendered pipeline, or with a note why these are the plan's.
    #[must_use]
    pub fn with_rendering(mut self, rendering: Result<&Rendering, &str>) -> Explanation {
        match rendering {
            Ok(rendering) => {
                self.latency = self.latency.rendered(rendering, self.clock_mhz);
                self.latency_cycles = self.latency.cycles();
                for map in &mut self.maps {
                    map.rendered(rendering.holds.iter().find(|(name, _)| *name == map.name).map(|(_, cycles)| *cycles));
                }
            }
            Err(reason) => {
                self.notes.push(format!("latency and holds are those of the plan: {reason}"));
            }
        }
        self
    }

    /// The number of operations, and how many of them find headers.
    fn operations_text(&self) -> String {
        let all = numbers::counted(self.operations, "operation");
        match self.parser_operations {
            0 => all,
            parser => {
                let [parser, others] = [parser, self.operations - parser].map(|count| numbers::grouped(count as u64));
                format!("{all} ({parser} of the parser, {others} others)")
            }
        }
    }

    /// The report with what the plan uses of a device.
    #[must_use]
    pub fn with_device(self, device: Option<Fit>) -> Explanation {
        Explanation { device, ..self }
    }
}

/// The treatment of packets in which a program reads beyond its window.
const BEYOND: &str = "packets in which it reads beyond the window leave unchanged, for a slow path";

#[cfg(test)]
mod tests;
