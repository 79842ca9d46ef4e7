// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verifier: proves a program safe before it runs, by abstract interpretation.
//!
//! ```text
//!  Program ──check──► code ──walk──► Proof      memory accesses, branch directions, trip counts
//!                              └──► Refusal    where, on which path, what was found, what was expected
//! ```
//!
//! Every path is walked with an abstract value for each register and stack slot: known bits and ranges of numbers
//! (`number`), region and offset of addresses. A path is pruned (`checkpoints`) at a state within one that was verified
//! (`within`). What holds for all abstract values holds when the program runs.
//!
//! Limits: a program that takes more instructions on all paths than [`Options::limit`] is refused as too long, whether
//! it is safe or not; this bounds time and memory.
//!
//! # Source
//! The walk is that of the kernel's verifier [Linux Documentation/bpf/verifier.rst]; precision tracking is our own
//! (`origin`).

mod annotate;
mod branch;
mod calls;
mod checkpoints;
mod expected;
mod globals;
mod help;
mod iterations;
mod live;
mod loops;
mod marks;
mod memory;
mod number;
mod options;
mod origin;
mod path;
mod proof;
mod refusal;
mod route;
mod stack;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod text;
pub mod trips;
mod value;
mod walk;
mod within;

pub use expected::Expected;
use flowloom_isa::{Program, ProgramError, decoded};
pub use options::Options;
pub use proof::{Bytes, Contents, Edges, Known, Lookup, Memory, Proof, Sink, Touch};
pub use refusal::{Before, Leg, Refusal, Turn, Unsafe};
pub use value::MapId;

/// Why a program is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The program is malformed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Some path is unsafe, or cannot be proved safe.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

/// Verifies a program.
///
/// # Errors
/// The program is malformed, or some path cannot be proved safe.
pub fn verify(program: &Program, options: &Options) -> Result<Proof, VerifyError> {
    let code = decoded(program)?;
    let mut proof = walk::Walk::new(program, &code, *options).run().map_err(VerifyError::Refused)?;
    globals::check(program, &code, options, &mut proof).map_err(VerifyError::Refused)?;
    Ok(proof)
}
