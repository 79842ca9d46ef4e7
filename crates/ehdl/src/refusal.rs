//! Reasons for programs without a schedule.

use std::fmt;

use flowloom_isa::{LineInfo, Program};

/// The reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// An irreducible loop: it has two entries.
    #[error("a loop is entered at instructions {0} and {1}, expected one entry")]
    TwoEntries(usize, usize),
    /// A loop without a constant bound.
    #[error("a loop has no bound, expected one that the program itself ends")]
    Unbounded,
    /// The unrolled program is too long.
    #[error("with all rounds of its loops the program has more than {0} instructions")]
    TooLong(usize),
    /// A helper with a callback into the program.
    #[error("`{0}` calls a function of the program back, expected calls that a pipeline passes once")]
    Callback(String),
    /// A tail call.
    #[error("`tail_call` goes on in another program, expected one program")]
    TailCall,
    /// A kernel function.
    #[error("function {0} of the kernel is called, which has no block in hardware")]
    Kfunc(i32),
    /// An instruction that XDP programs do not have.
    #[error("{0}")]
    Other(String),
}

impl Why {
    /// Advice for the user.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Why::TwoEntries(..) => "write the loop with `for` or `while`: a jump into its middle cannot be unrolled",
            Why::Unbounded => "count the rounds, and leave at a constant",
            Why::TooLong(_) => "bound the loop by a smaller constant",
            Why::Callback(_) => "write the rounds as a `for` loop with a constant bound",
            Why::TailCall => "call the other program as a function of this one",
            Why::Kfunc(_) => "leave the call to a slow path on a CPU",
            Why::Other(_) => return None,
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
    pub why: Why,
}

impl Refusal {
    pub(super) fn new(program: &Program, insn: usize, why: Why) -> Refusal {
        let line = program.line_of(insn).filter(|line| line.line > 0).cloned();
        Refusal { program: program.name.clone(), insn, line, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`, instruction {}", self.program, self.insn)?;
        if let Some(line) = &self.line {
            write!(f, ", {line}")?;
        }
        write!(f, ": {}", self.why)?;
        self.why.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl std::error::Error for Refusal {}
