//! Packets as typed views.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod field;
pub mod graph;
mod key;
mod parse;

pub use checksum::rewrite;
pub use field::{Field, FieldId};
pub use graph::Header;
pub use key::{KeyError, KeySpec};
pub use parse::Layers;
