//! Stages: each instruction of a block in the first one after those that it depends on.

use super::access::{After, History};
use super::graph::Block;
use super::live::Times;

/// A block with its stages.
pub(super) struct Placed {
    pub(super) times: Times,
    /// Whom each step follows.
    pub(super) after: Vec<Option<After>>,
    pub(super) stages: u32,
}

/// Places the steps of a block, the first of which has this number among all.
pub(super) fn place(block: &Block, first: usize) -> Placed {
    let mut history = History::default();
    let mut placed = Placed { times: Vec::new(), after: Vec::new(), stages: 0 };
    for (number, step) in block.steps.iter().enumerate() {
        let (stage, after) = history.first_stage(&step.accesses);
        let done = stage + step.stages.max(1);
        history.note(&step.accesses, stage, done, first + number);
        placed.times.push((stage, done));
        placed.after.push(after);
        placed.stages = placed.stages.max(done);
    }
    placed
}
