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

mod access;
mod arith;
mod bdd;
mod build;
mod delay;
mod eval;
mod fold;
mod graph;
mod live;
mod pass;
mod predicates;
mod refusal;
pub mod rules;
pub mod shape;
mod text;

pub use access::{Access, Touch};
pub use arith::apply;
pub use build::{Argument, Dataflow, Ending, Laid, Overlay, Pattern, Reach, Reaching, Table, build};
pub use delay::{Arrivals, CLOCK_MHZ, Delays, FRAME_BYTES, Tenths};
pub use eval::Evaluator;
pub use graph::{Binary, Compare, Effect, Graph, Id, Input, Kind, Node};
pub use pass::{PASSES, Pass, WINDOW_BYTES, largest, optimize};
pub use predicates::Predicates;
pub use refusal::{Refusal, Why};
pub use text::TextError;
