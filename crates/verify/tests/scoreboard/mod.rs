// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trials of Linux's programs, and the page with their results.
#![allow(unreachable_pub, missing_docs, clippy::panic, clippy::print_stdout)]

pub mod fitted;
pub mod page;
pub mod trial;

use std::fmt;

use flowloom_verify::explore::Gap;

/// Result of a program's trial.
#[derive(Debug, Clone)]
pub enum Came {
    /// The object or the program cannot be read.
    Unread(String),
    /// The interpreter refuses it.
    Refused(String),
    /// The kernel's verifier refuses it.
    NotInKernel(String),
    /// It depends on a property of the machine that differs between engines.
    Incomparable(String),
    /// Both engines agree.
    Equal { packets: u64, cases: usize },
    /// The engines disagree.
    Differs(String),
}

/// A program and its result.
#[derive(Debug, Clone)]
pub struct Row {
    pub object: String,
    pub section: String,
    pub program: String,
    pub slots: usize,
    pub reached: usize,
    pub gaps: Vec<Gap>,
    pub came: Came,
    /// Result of our verifier: the number of instructions visited, or the reason for refusal; `None` where it was not
    /// run.
    pub verified: Option<Result<u64, String>>,
    /// Number of instructions that the kernel's verifier visited, where it accepts the program.
    pub kernel_walked: Option<u64>,
}

impl Row {
    /// True if it was compared on less than four fifths of its instructions.
    pub fn is_low(&self) -> bool {
        matches!(self.came, Came::Equal { .. }) && self.reached * 5 < self.slots * 4
    }

    /// True if our verifier does not prove a program that runs, or proves one that the kernel's verifier refuses.
    pub fn is_judged_otherwise(&self) -> bool {
        match (&self.came, &self.verified) {
            (Came::Equal { .. } | Came::Differs(_), verified) => !matches!(verified, Some(Ok(_))),
            (Came::NotInKernel(_), verified) => !matches!(verified, Some(Err(_))),
            _ => false,
        }
    }

    /// Ratio of the instructions visited by our verifier to those visited by the kernel's.
    pub fn ratio(&self) -> Option<f64> {
        let ours = *self.verified.as_ref()?.as_ref().ok()?;
        self.kernel_walked.filter(|walked| *walked > 0).map(|walked| ours as f64 / walked as f64)
    }

    pub fn percent(&self) -> usize {
        self.reached * 100 / self.slots.max(1)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}): ", self.object, self.program, self.section)?;
        match &self.came {
            Came::Unread(why) => write!(f, "NOT READ: {why}"),
            Came::Refused(why) => write!(f, "refused: {why}"),
            Came::NotInKernel(why) => write!(f, "refused by the kernel: {why}"),
            Came::Incomparable(why) => write!(f, "not compared: {why}"),
            Came::Equal { packets, cases } => {
                let (reached, slots, percent) = (self.reached, self.slots, self.percent());
                write!(f, "equal on {packets} packets, {cases} states, {reached}/{slots} slots ({percent}%)")
            }
            Came::Differs(what) => write!(f, "DIFFERS: {what}"),
        }?;
        match &self.verified {
            Some(Ok(processed)) => write!(f, "; proved safe, {processed} instructions processed")?,
            Some(Err(why)) => write!(f, "; not proved safe: {why}")?,
            None => {}
        }
        self.kernel_walked.map_or(Ok(()), |walked| write!(f, " (the kernel processes {walked})"))
    }
}
