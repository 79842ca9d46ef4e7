//! The papers' schedule: blocks of the program one after the other, beside which the dataflow's is shown [eHDL 3].
//!
//! ```text
//!  Program, Proof ──graph──► blocks ──trim, fuse──► blocks ──place──► stages ──live──► what each stage carries
//!                   │ loops unrolled, calls inlined   │                 │
//!                   │ labels of loads and stores      │                 └ in a block, each instruction in the first
//!                   └ bounds checks left out          └ mov + op            stage after those it depends on
//! ```
//!
//! Registers are not renamed: two writes of one register stand in different stages, a write may stand beside the last read. A
//! jump is no instruction, an exit is one. What the pipeline gives takes none: loads of the packet's addresses from the context, and
//! zeros put where the stack was never written. Found by the toy of the paper's figure 8, with the stages that it names.
//!
//! **Counting.** An instruction counts once, in the stage that it begins in; a fused pair is one. [`Schedule::average_ilp`] divides by
//! all stages, [`Schedule::busy_ilp`] by those in which something begins: a call's other stages lie inside of its block. With
//! programs of our own for the same functions, the second meets the paper's table 5 best, within 23% for each of the five and 7% on
//! average (the first: 29% and 17%). On the bytecode that the paper's predecessor was evaluated on the first gives 1.53 for the
//! firewall (paper: 1.48) and 1.23 for the router (1.54), the second 1.81 and 1.60.

mod access;
mod alone;
mod explain;
mod graph;
mod live;
mod maps;
mod order;
mod place;
mod refusal;
mod render;
mod step;
mod trim;
mod value;

use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_verifier::Proof;

pub use access::{Access, After, Region};
pub use alone::{Alone, Reason};
pub use explain::{BlockExplanation, BlockInstruction, BlockMap, BlockStage};
use flowloom_plan::Target;
pub use graph::Step;
pub use live::Carried;
pub use maps::MapUse;
pub use refusal::{Refusal, Why};

/// Registers of the machine.
const REGISTERS: usize = 11;
/// Registers that a function of its own has of its own: `r6` to `r9`.
const KEPT_REGISTERS: usize = 4;
/// Bytes of a function's stack.
const STACK_BYTES: usize = flowloom_isa::limits::STACK_BYTES;

/// A step with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedStep {
    /// The instruction.
    pub step: Step,
    /// The stage that it begins in, from 0.
    pub stage: usize,
    /// The step that it had to follow, where there is one in its block.
    pub after: Option<After>,
}

/// A stage of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The block that it belongs to, from 0.
    pub block: usize,
    /// Which of [`Schedule::steps`] begin in it.
    pub begins: Vec<usize>,
    /// What it has at its beginning, pruned along the pipeline.
    pub carried: Carried,
    /// The same, pruned along the program's paths.
    pub needed: Carried,
}

/// A program laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its instructions, block by block.
    pub steps: Vec<PlacedStep>,
    /// Its stages.
    pub stages: Vec<Stage>,
    /// How many blocks have stages.
    pub blocks: usize,
    /// Bounds checks of the packet that were left out, by their instruction.
    pub checks: Vec<usize>,
    /// Instructions that only those needed, or nobody.
    pub dropped: Vec<usize>,
    /// The program's window of the packet, in whole frames.
    pub frame_bytes: u64,
}

/// What every stage has where nothing is pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpruned {
    /// Registers: all of the machine, and those that calls keep for each function that may run.
    pub registers: usize,
    /// Bytes of the stacks of the functions that may run.
    pub stack_bytes: usize,
    /// Bytes of the packet: the frames that the program touches, since those are pruned by framing [eHDL 4.2].
    pub packet_bytes: usize,
}

impl Schedule {
    /// The most instructions in a stage.
    pub fn max_ilp(&self) -> usize {
        self.stages.iter().map(|stage| stage.begins.len()).max().unwrap_or(0)
    }

    /// What every stage has where nothing is pruned.
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

    /// Instructions over stages, all of them.
    pub fn average_ilp(&self) -> f64 {
        self.steps.len() as f64 / self.stages.len().max(1) as f64
    }

    /// Instructions over those stages in which one begins: without the stages that only wait for a call.
    pub fn busy_ilp(&self) -> f64 {
        let busy = self.stages.iter().filter(|stage| !stage.begins.is_empty()).count();
        self.steps.len() as f64 / busy.max(1) as f64
    }
}

/// How many stages an instruction takes.
fn stages(op: Op, target: &Target) -> u32 {
    let Op::Call { helper } = op else { return 1 };
    match helper {
        helper::MAP_LOOKUP_ELEM | helper::MAP_LOOKUP_PERCPU_ELEM => target.lookup_stages,
        helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM | helper::FL_EVICT => target.update_stages,
        helper::REDIRECT | helper::REDIRECT_MAP => target.redirect_stages,
        _ => 1,
    }
}

/// Lays a verified program out.
///
/// # Errors
/// What stands in the way, with its place.
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
