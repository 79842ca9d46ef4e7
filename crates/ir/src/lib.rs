// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dataflow IR: a verified program as predicated dataflow in SSA form, from which hardware pipelines are made.
//!
//! ```text
//!  Program ──verify──► Proof ──build──► Dataflow ──passes──► Dataflow ──► stages (crate `plan`)
//!                                          │
//!                                          └──Evaluator──► verdicts, bytes, maps: equal to the interpreter's
//! ```
//!
//! Construction follows all paths at once: functions are inlined, loops unrolled, registers and stack bytes renamed. At
//! a join point a value becomes a select whose conditions are the path conditions (`bdd`), shortened by dominators
//! (`build::dominators`); a branch becomes the bit it tests. Equal nodes are one node (hash-consing, `graph`).
//! The result consists of values, and of effects with the predicate under which they happen.
#![forbid(unsafe_code)]

mod access;
mod arith;
mod bdd;
mod build;
mod dataflow;
mod eval;
mod fold;
mod graph;
mod live;
pub mod pass;
mod predicates;
mod refusal;
pub mod rules;
pub mod shape;
mod sources;
mod text;
mod validate;

pub use access::{Access, Touch};
pub use arith::apply;
pub use build::build;
pub use dataflow::{Argument, Dataflow, Ending, Laid, Overlay, Pattern, Reach, Reaching, Table};
pub use eval::Evaluator;
pub use graph::{Binary, Compare, Effect, Graph, Id, Input, Kind, Node};
pub use pass::largest;
pub use predicates::Predicates;
pub use refusal::{Reason, Refusal};
pub use text::TextError;
pub use validate::{Invalid, Mistranslation, Site, missing_waits, mistranslations};
