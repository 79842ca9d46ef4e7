//! Targets side by side.
//!
//! All targets agree: for every function, packet and state they come to the same verdict, port, bytes and map contents.
//! This crate holds them to it, and makes a disagreement small enough to look at.
//!
//! ```text
//!  function ─► Stimulus ─┐
//!                        ├─ packets ─► compare(reference, target) ─► Report ─► shrink ─► five packets or fewer
//!  capture ──────────────┘                    └─► Coverage ─► Reached ─► table, gaps
//! ```
//!
//! - [`compare()`] runs a reference and a target by run record and finds the first packet on which they part.
//! - [`shrink()`] makes the smallest trace that still shows it.
//! - [`Reached`] tells what the packets reached: a comparison that nothing exercised is no evidence.
//! - [`Stimulus`] makes packets that reach it; [`RandomFunctions`] makes functions; [`fault`] breaks engines on purpose,
//!   to show that the comparison would have seen it.
#![forbid(unsafe_code)]

mod arrival;
mod compare;
mod coverage;
mod difference;
mod entry;
pub mod explore;
pub mod fault;
mod frame;
mod hits;
mod random;
mod render;
mod shrink;
mod solve;
mod stimulus;
mod undefined;
mod walk;

pub use arrival::Arrival;
pub use compare::{CompareOptions, Report, compare, compare_stream};
pub use coverage::{Point, Reached, What};
pub use difference::{Disagreement, Kind};
pub use frame::mutated;
pub use hits::{Hit, Hits, Operator, Place, Tick, Timer};
pub use random::{RandomFunctions, Reach};
pub use shrink::{ShrinkOptions, ShrinkProgress, Shrunk, shrink};
pub use stimulus::{Stimulus, StimulusCounts, StimulusOptions, sweep_period};
pub use undefined::Undefined;
