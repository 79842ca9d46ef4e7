//! Extended finite state machines over packets [FlowBlaze 3].
#![forbid(unsafe_code)]

mod check;
pub mod diagnostic;
pub mod model;
mod syntax;

pub use check::compile;
pub use diagnostic::{Diagnostic, Diagnostics};
