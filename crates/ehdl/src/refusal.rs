// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons for programs without a schedule.

use flowloom_isa::Explained;

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

impl Explained for Reason {
    fn help(&self) -> Option<&'static str> {
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

/// A refusal: the reason and its place.
pub type Refusal = flowloom_isa::Refusal<Reason>;
