// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function from its source to every engine.
//!
//! ```text
//!  path ──load──► Loaded ──program──► eBPF ──proof──► proof ──dataflow──► dataflow ──plan──► checked plan
//!                    │
//!                    └──engines──► an Engine of the registry, ready for packets
//! ```
//!
//! [`Loaded`] reads a source, compiles C or reads an object, and derives each form once. [`engines::ENGINES`] is the
//! registry: to add an engine, add a file and an entry in that list; all commands that run packets use it.
#![forbid(unsafe_code)]

mod compile;
pub mod engines;
mod error;
mod load;
mod plans;
mod times;

pub use compile::{Compiled, compiled, is_program};
pub use error::{SessionError, with_causes};
pub use load::{
    AnalysisError, ELF_MAGIC, FunctionFile, Loaded, SECTION_KEY, SiblingFiles, kernel_types, object, only_program,
    pick_program, source,
};
pub use plans::PlanError;
pub use times::parse_time;
