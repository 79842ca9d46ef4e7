// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block-by-block schedule of the papers, for comparison with the dataflow schedule [eHDL 3].
//!
//! ```text
//!  Program, Proof ──graph──► blocks ──trim, fuse──► blocks ──place──► stages ──live──► what each stage carries
//!                   │ loops unrolled, calls inlined   │                 │
//!                   │ labels of loads and stores      │                 └ in a block, each instruction in the first
//!                   └ bounds checks left out          └ mov + op            stage after those it depends on
//! ```
//!
//! Registers are not renamed: two writes of a register are in different stages; a write may share a stage with the last
//! read. Jumps are not instructions, exits are. Values that the pipeline provides cost no instruction: loads of the
//! packet's addresses from the context, and zeros stored to unwritten stack. Derived from the toy of the paper's figure
//! 8, whose stages are named there.
//!
//! **Counting.** An instruction counts once, in the stage in which it begins; a fused pair is one.
//! [`Schedule::average_ilp`] divides by all stages, [`Schedule::busy_ilp`] by those in which an instruction begins: the
//! other stages of a call are inside its block. For our own programs for the same functions, the second is closest to
//! the paper's table 5, within 23% for each of the five and 7% on average (the first: 29% and 17%). For the bytecode
//! that the paper's predecessor was evaluated on, the first gives 1.53 for the firewall (paper: 1.48) and 1.23 for the
//! router (1.54), the second 1.81 and 1.60.

mod access;
mod explain;
mod graph;
mod live;
mod maps;
mod order;
mod place;
mod refusal;
mod render;
mod sparse;
mod step;
mod trim;
mod value;

use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_verifier::Proof;

pub use access::{Access, Dependence, Region};
pub use explain::{BlockExplanation, BlockInstruction, BlockMap, BlockStage};
use flowloom_plan::Target;
pub use graph::Step;
pub use live::Carried;
pub use maps::MapUse;
pub use refusal::{Reason, Refusal};
pub use sparse::{SparseReason, SparseStage};

const REGISTERS: usize = 11;
/// Number of callee-saved registers, which each function has its own copy of: `r6` to `r9`.
const KEPT_REGISTERS: usize = 4;
const STACK_BYTES: usize = flowloom_isa::limits::STACK_BYTES;

/// A scheduled step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedStep {
    /// Its instruction.
    pub step: Step,
    /// The stage in which it begins, from 0.
    pub stage: usize,
    /// The dependence that fixes its stage; `None` if no step of its block precedes it.
    pub after: Option<Dependence>,
}

/// A stage of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The number of its block, from 0.
    pub block: usize,
    /// The steps that begin in it, as indices into [`Schedule::steps`].
    pub begins: Vec<usize>,
    /// The state carried into it, pruned along the pipeline.
    pub carried: Carried,
    /// The state carried into it, pruned along the paths of the program.
    pub needed: Carried,
}

/// The schedule of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The instructions, block by block.
    pub steps: Vec<PlacedStep>,
    pub stages: Vec<Stage>,
    /// The number of blocks that have stages.
    pub blocks: usize,
    /// Removed bounds checks of the packet, by instruction.
    pub checks: Vec<usize>,
    /// Removed dead instructions, including those that only removed checks used.
    pub dropped: Vec<usize>,
    /// The window of the packet in bytes, whole frames.
    pub frame_bytes: u64,
}

/// State of each stage without pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpruned {
    /// Number of registers: those of eBPF, and callee-saved ones for each further function that may be active.
    pub registers: usize,
    /// Bytes of the stacks of functions that may be active.
    pub stack_bytes: usize,
    /// Bytes of the packet: the frames that the program accesses, since framing prunes those [eHDL 4.2].
    pub packet_bytes: usize,
}

impl Schedule {
    /// The largest number of instructions in a stage.
    pub fn max_ilp(&self) -> usize {
        self.stages.iter().map(|stage| stage.begins.len()).max().unwrap_or(0)
    }

    /// State of each stage without pruning.
    pub fn unpruned(&self) -> Unpruned {
        let depths = self.steps.iter().flat_map(|step| &step.step.accesses).map(|access| match access.region {
            Region::Register { depth, .. } | Region::Stack { depth } => usize::from(depth),
            _ => 0,
        });
        let depth = depths.max().unwrap_or(0);
        Unpruned {
            registers: REGISTERS + depth * KEPT_REGISTERS,
            stack_bytes: STACK_BYTES * (depth + 1),
            packet_bytes: self.frame_bytes as usize,
        }
    }

    /// Mean number of instructions per stage.
    pub fn average_ilp(&self) -> f64 {
        self.steps.len() as f64 / self.stages.len().max(1) as f64
    }

    /// Mean number of instructions per stage in which one begins, which excludes stages that only wait for a call.
    pub fn busy_ilp(&self) -> f64 {
        let busy = self.stages.iter().filter(|stage| !stage.begins.is_empty()).count();
        self.steps.len() as f64 / busy.max(1) as f64
    }
}

/// The latency of a lookup in the papers' pipelines, in stages.
const LOOKUP_STAGES: u32 = 4;
/// The latency of an insertion or deletion there, which the papers do not print.
const UPDATE_STAGES: u32 = 2;

fn stages(op: Op, target: &Target) -> u32 {
    let Op::Call { helper } = op else { return 1 };
    match helper {
        helper::MAP_LOOKUP_ELEM | helper::MAP_LOOKUP_PERCPU_ELEM => LOOKUP_STAGES,
        helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM | helper::FL_EVICT => UPDATE_STAGES,
        helper::REDIRECT | helper::REDIRECT_MAP => target.redirect_stages,
        _ => 1,
    }
}

/// Schedules a verified program.
///
/// # Errors
/// The reason why there is no schedule, with its place.
pub fn schedule(program: &Program, proof: &Proof, target: &Target) -> Result<Schedule, Box<Refusal>> {
    let mut graph = graph::unrolled(program, proof, &|op| stages(op, target))?;
    let dropped = trim::trim(&mut graph.blocks);
    trim::fuse(&mut graph.blocks);
    let (mut steps, mut all) = (Vec::new(), Vec::new());
    let (mut times, mut lengths) = (Vec::new(), Vec::new());
    for (block, contents) in graph.blocks.iter().enumerate() {
        let (first, begin) = (steps.len(), all.len());
        let placed = place::place(contents, first);
        for _ in 0..placed.stages {
            all.push(Stage { block, begins: Vec::new(), carried: Carried::default(), needed: Carried::default() });
        }
        for ((step, (stage, _)), after) in contents.steps.iter().zip(&placed.times).zip(&placed.after) {
            let stage = begin + *stage as usize;
            all[stage].begins.push(steps.len());
            steps.push(PlacedStep { step: step.clone(), stage, after: *after });
        }
        times.push(placed.times);
        lengths.push(placed.stages);
    }
    let word_bytes = u64::from(target.word_bytes);
    let frame_bytes = proof.window().div_ceil(word_bytes).max(1) * word_bytes;
    let states = live::states(&graph.blocks, &times, &lengths, proof.window() as i64);
    for (stage, (carried, needed)) in all.iter_mut().zip(states) {
        (stage.carried, stage.needed) = (carried, needed);
    }
    Ok(Schedule {
        steps,
        stages: all,
        blocks: lengths.iter().filter(|stages| **stages > 0).count(),
        checks: graph.checks.into_iter().collect(),
        dropped: dropped.into_iter().collect(),
        frame_bytes,
    })
}
