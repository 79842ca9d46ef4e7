//! Why instructions stand alone in their stage.

use super::{After, Schedule};

/// An instruction without another beside it, or a stage without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alone {
    /// The stage, from 0.
    pub stage: usize,
    /// The step, by its place in [`Schedule::steps`]; none where the stage waits.
    pub step: Option<usize>,
    /// Why.
    pub reason: Reason,
}

/// Why an instruction stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its block has no other.
    OnlyOne,
    /// It is the first of its block, and all others depend on it, one after the other.
    First,
    /// It follows another, and nothing else of its block is left that does not.
    Follows(After),
    /// Nothing begins: a call is not done.
    Waits(usize),
}

impl Schedule {
    /// The stages with fewer than two instructions, and why.
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
