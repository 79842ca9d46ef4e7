// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended finite state machines over packets [FlowBlaze 3].
#![forbid(unsafe_code)]

mod check;
mod context;
mod coverage;
pub mod diagnostic;
pub mod difference;
mod draw;
pub mod events;
pub mod files;
mod format;
pub mod hash;
pub mod intervals;
pub mod layout;
mod machine;
pub mod model;
pub mod reads;
mod registers;
pub mod steps;
mod syntax;

pub use check::{compile, compile_with};
pub use context::Context;
pub use coverage::{Coverage, ElementCoverage};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use draw::{Drawing, TooLarge};
pub use format::{MAX_COLUMNS, format};
pub use machine::Machine;
pub use registers::Registers;
pub use syntax::words::keywords;
