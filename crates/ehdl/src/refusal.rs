// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons for programs without a schedule.

use std::fmt;

use flowloom_isa::{LineInfo, Program};

/// The reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// An irreducible loop: it has two entries.
    #[error("a loop is entered at instructions {0} and {1}, expected one entry")]
    TwoEntries(usize, usize),
    /// A loop without a constant bound.
    #[error("a loop has no constant bound")]
    Unbounded,
    /// The unrolled program is too long.
    #[error("the unrolled program has more than {0} instructions")]
    TooLong(usize),
    /// A helper with a callback into the program.
    #[error("`{0}` calls back into the program, expected no callbacks")]
    Callback(String),
    /// A tail call.
    #[error("`tail_call` continues in another program, expected a single program")]
    TailCall,
    /// A kernel function.
    #[error("no hardware block for kernel function {0}")]
    Kfunc(i32),
    /// An instruction that XDP programs do not have.
    #[error("{0}")]
    Other(String),
}

impl Reason {
    /// Advice for the user.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Reason::TwoEntries(..) => {
                "write the loop with `for` or `while`: a loop with two entries cannot be unrolled"
            }
            Reason::Unbounded => "count the iterations, and exit at a constant",
            Reason::TooLong(_) => "bound the loop by a smaller constant",
            Reason::Callback(_) => "write the iterations as a `for` loop with a constant bound",
            Reason::TailCall => "call the other program as a function",
            Reason::Kfunc(_) => "leave the call to a slow path on a CPU",
            Reason::Other(_) => return None,
        })
    }
}

/// A program without a schedule, with the reason and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The program.
    pub program: String,
    /// The instruction.
    pub insn: usize,
    /// The source line, if it is known.
    pub line: Option<LineInfo>,
    /// The reason.
    pub reason: Reason,
}

impl Refusal {
    pub(super) fn new(program: &Program, insn: usize, reason: Reason) -> Refusal {
        let line = program.line_of(insn).filter(|line| line.line > 0).cloned();
        Refusal { program: program.name.clone(), insn, line, reason }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`, instruction {}", self.program, self.insn)?;
        if let Some(line) = &self.line {
            write!(f, ", {line}")?;
        }
        write!(f, ": {}", self.reason)?;
        self.reason.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl std::error::Error for Refusal {}
