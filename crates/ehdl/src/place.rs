// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ASAP scheduling: each instruction of a block is in the first stage after those that it depends on.

use super::access::{Dependence, History};
use super::graph::Block;
use super::live::Times;

/// The stages of a block.
pub(super) struct Placed {
    pub(super) times: Times,
    /// The dependence of each step.
    pub(super) after: Vec<Option<Dependence>>,
    pub(super) stages: u32,
}

/// Schedules the steps of a block; `first` is the index of its first step in the program.
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
