// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons for stages without parallelism.

use super::{Dependence, Schedule};

/// A stage with fewer than two instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SparseStage {
    /// The stage, from 0.
    pub stage: usize,
    /// Its step, as an index into [`Schedule::steps`]; `None` if the stage only waits.
    pub step: Option<usize>,
    pub reason: SparseReason,
}

/// The reason why a stage has fewer than two instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseReason {
    /// The block has only this instruction.
    OnlyInstruction,
    /// It is the first of its block, and all others depend on it in a chain.
    HeadOfChain,
    /// It depends on another, and all other instructions of the block are in other stages.
    DependsOn(Dependence),
    /// No instruction begins: a call is in progress.
    CallInProgress(usize),
}

impl Schedule {
    /// All stages with fewer than two instructions, with reasons.
    pub fn sparse_stages(&self) -> Vec<SparseStage> {
        let mut sparse = Vec::new();
        for (number, stage) in self.stages.iter().enumerate() {
            let (step, reason) = match stage.begins.as_slice() {
                [] => match self
                    .steps
                    .iter()
                    .rposition(|step| step.stage < number && number < step.stage + step.step.stages as usize)
                {
                    Some(call) => (None, SparseReason::CallInProgress(call)),
                    None => continue,
                },
                [only] => {
                    let others = self.stages.iter().filter(|other| other.block == stage.block);
                    let is_only = others.map(|other| other.begins.len()).sum::<usize>() == 1;
                    let reason = match self.steps[*only].after {
                        _ if is_only => SparseReason::OnlyInstruction,
                        Some(after) => SparseReason::DependsOn(after),
                        None => SparseReason::HeadOfChain,
                    };
                    (Some(*only), reason)
                }
                _ => continue,
            };
            sparse.push(SparseStage { stage: number, step, reason });
        }
        sparse
    }
}
