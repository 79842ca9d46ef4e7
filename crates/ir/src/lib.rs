//! Verified programs as predicated dataflow: what hardware is made of.
//!
//! ```text
//!  Program ──verify──► Proof ──build──► Dataflow ──passes──► Dataflow ──► stages (crate `hw`)
//!                                          │
//!                                          └──Evaluator──► verdicts, bytes, maps: the interpreter's
//! ```
//!
//! Building follows every path of the program at once: functions are put into their callers, loops unrolled, registers and bytes
//! of the stack renamed. Where paths meet, a value is selected by the branches that led there; a branch itself is nothing but
//! the bit that it tests. What remains are values, and effects with the condition that they happen on.
#![forbid(unsafe_code)]

mod arith;
mod bdd;
mod build;
mod eval;
mod graph;
mod refusal;
pub mod rules;
mod shape;

pub use build::{Argument, Dataflow, Ending, Pattern, build};
pub use eval::Evaluator;
pub use graph::{Binary, Compare, Effect, Graph, Id, Input, Kind, Node};
pub use refusal::{Refusal, Why};
