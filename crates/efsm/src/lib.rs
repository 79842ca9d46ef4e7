//! Extended finite state machines over packets [FlowBlaze 3].
#![forbid(unsafe_code)]

mod coverage;
pub mod layout;
mod lower;
mod machine;
pub mod model;
mod reads;

pub use coverage::{Coverage, ElementCoverage};
pub use lower::{LowerError, LowerOptions, lower};
pub use machine::{Context, Machine};
