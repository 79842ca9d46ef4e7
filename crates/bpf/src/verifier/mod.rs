//! The verifier: proves a program safe before it runs, and says what it found out on the way.
//!
//! ```text
//!  Program ──check──► code ──walk──► Proof      which memory every access touches, which ways branches go, how loops end
//!                              └──► Refusal    where, on which path, what was found, what was expected
//! ```
//!
//! Every path is walked with what is known of each register and of each slot of the stack: of numbers their known bits and
//! ranges ([`number`]), of addresses what they lead to and how far inside. A path ends where nothing new can come of it
//! ([`within`]). What holds for every value a path may have holds when the program runs.
//!
//! Limits: a program that takes more instructions on all its paths than [`Options::limit`] is refused as too long, whether it
//! is safe or not; so no program takes longer than that, in time or memory.
//!
//! # Source
//! The way of walking is that of the kernel's verifier [Linux Documentation/bpf/verifier.rst]; what is remembered of numbers
//! that did not matter, and how, is our own (`origin`).

mod annotate;
mod branch;
mod calls;
mod checkpoints;
mod cycles;
mod expected;
mod globals;
mod help;
mod live;
mod marks;
mod memory;
mod number;
mod origin;
mod proof;
mod refusal;
mod rounds;
mod route;
mod signature;
mod stack;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod trips;
mod value;
mod walk;
mod within;

use crate::interp::{ProgramError, decoded};
use crate::program::Program;
pub use expected::Expected;
pub use proof::{Bytes, Contents, Known, Lookup, Memory, Proof, Sink, Touch, Ways};
pub use refusal::{Before, Leg, Refusal, Turn, Unsafe};
pub use value::MapId;

/// How a program is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// So many instructions are looked at, on all paths together.
    pub limit: u64,
    /// A path ends where it meets a state that has said what it could say. Without, every path is walked to its exit: that is what
    /// pruned walks are judged by, and takes too long for all but small programs. Rounds of callbacks and of `may_goto` end where
    /// nothing new begins all the same.
    pub prune: bool,
}

impl Default for Options {
    fn default() -> Options {
        // That of the kernel.
        Options { limit: 1_000_000, prune: true }
    }
}

/// Why a program is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It is no program that could run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// It is not safe on some path, or not seen to be.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

/// Verifies a program.
///
/// # Errors
/// It is no program, or some path of it is not seen to be safe.
pub fn verify(program: &Program, options: &Options) -> Result<Proof, VerifyError> {
    let code = decoded(program)?;
    let mut proof = walk::Walk::new(program, &code, *options).run().map_err(VerifyError::Refused)?;
    globals::check(program, &code, options, &mut proof).map_err(VerifyError::Refused)?;
    Ok(proof)
}
