//! Packets as typed views.
#![forbid(unsafe_code)]

pub mod field;
pub mod graph;
mod parse;

pub use field::{Field, FieldId};
pub use graph::Header;
pub use parse::Layers;
