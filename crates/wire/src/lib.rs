//! Packets as typed views.
#![forbid(unsafe_code)]

pub mod field;
pub mod graph;
