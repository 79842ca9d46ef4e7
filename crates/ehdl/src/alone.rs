//! Reasons for stages without parallelism.

use super::{After, Schedule};

/// A stage with fewer than two instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alone {
    /// The stage, from 0.
    pub stage: usize,
    /// Its step, as an index into [`Schedule::steps`]; `None` if the stage only waits.
    pub step: Option<usize>,
    /// The reason.
    pub reason: Reason,
}

/// The reason why a stage has fewer than two instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The block has only this instruction.
    OnlyOne,
    /// It is the first of its block, and all others depend on it in a chain.
    First,
    /// It depends on another, and all other instructions of the block are in other stages.
    Follows(After),
    /// No instruction begins: a call is in progress.
    Waits(usize),
}

impl Schedule {
    /// All stages with fewer than two instructions, with reasons.
    pub fn alone(&self) -> Vec<Alone> {
        let mut alone = Vec::new();
        for (number, stage) in self.stages.iter().enumerate() {
            let (step, reason) = match stage.begins.as_slice() {
                [] => match self
                    .steps
                    .iter()
                    .rposition(|step| step.stage < number && number < step.stage + step.step.stages as usize)
                {
                    Some(call) => (None, Reason::Waits(call)),
                    None => continue,
                },
                [only] => {
                    let others = self.stages.iter().filter(|other| other.block == stage.block);
                    let is_only = others.map(|other| other.begins.len()).sum::<usize>() == 1;
                    let reason = match self.steps[*only].after {
                        _ if is_only => Reason::OnlyOne,
                        Some(after) => Reason::Follows(after),
                        None => Reason::First,
                    };
                    (Some(*only), reason)
                }
                _ => continue,
            };
            alone.push(Alone { stage: number, step, reason });
        }
        alone
    }
}
