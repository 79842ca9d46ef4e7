// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential testing of targets.
//!
//! All targets agree: for every function, packet and state they return the same verdict, port, bytes and map contents.
//! This crate checks that, and reduces a disagreement to a minimal trace.
//!
//! ```text
//!  function ─► Stimulus ─┐
//!                        ├─ packets ─► compare(reference, target) ─► Report ─► shrink ─► five packets or fewer
//!  capture ──────────────┘                    └─► Coverage ─► Reached ─► table, gaps
//! ```
//!
//! - [`compare()`] runs a reference and a target by run record and finds the first packet on which they differ.
//! - [`shrink()`] reduces a trace to a minimal one that still shows the disagreement, [`shrink_end()`] a stream.
//! - [`Reached`] is the coverage of the packets: a comparison that exercised nothing is no evidence.
//! - [`Stimulus`] generates packets that reach a function's rows.
#![forbid(unsafe_code)]

mod arrival;
mod compare;
mod coverage;
mod difference;
mod entry;
pub mod explore;
mod frame;
mod hits;
mod shrink;
mod solve;
mod stimulus;
mod undefined;
mod walk;

pub use arrival::Arrival;
pub use compare::{CompareOptions, Report, compare, compare_stream, compare_stream_all};
pub use coverage::{Point, PointKind, Reached};
pub use difference::{Disagreement, Kind};
pub use frame::{frame_headers, mutated};
pub use hits::{Hit, Hits, Operator, StorageClass, Tick, Timer, relation_text};
pub use shrink::{ShrinkOptions, ShrinkProgress, Shrunk, shrink, shrink_end};
pub use stimulus::{Stimulus, StimulusCounts, StimulusOptions, sweep_period};
pub use undefined::Undefined;
