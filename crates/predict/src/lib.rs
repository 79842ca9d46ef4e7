// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prediction of a plan's behaviour on traffic, before there is any hardware: throughput, stalls, flushes, loss,
//! latency.
//!
//! ```text
//!  Timing ───────────────────────────────────────────────┐
//!  numbers of flows: Flows ──────────────────────Arrival──┴─► cycle model ──► Report
//!  frames: Captured, Traffic ─► Keyed (dataflow) ─Arrival─┘
//! ```
//!
//! One word of 64 bytes enters each cycle: a packet of n words occupies the input for n cycles, and the output
//! likewise. Its program runs once, on the window; so after the first place where packets wait, they may follow each
//! other in every cycle, whatever their lengths. Back-pressure: a pipe stalls while the place after it has no room
//! (`Model::advance`). Read-only and atomic maps cost nothing; schedulers are described in `scheduler.rs`, a flush is
//! `Model::flush_stale_readers` in `model.rs`; [`MapTiming`](flowloom_plan::MapTiming) has the parameters of both.
//!
//! ```
//! use flowloom_predict::{Flows, Pace, PredictOptions, predict};
//! use flowloom_plan::{Arbiter, MapTiming, Scheme, Timing};
//!
//! let bucket = MapTiming {
//!     name: "buckets".to_owned(),
//!     scheme: Scheme::Schedule,
//!     read_stage: 4,
//!     write_stage: 11,
//!     hold_cycles: 8,
//!     queues: 8,
//!     queue_depth: 32,
//!     restart_stage: 4,
//! };
//! let timing = Timing {
//!     clock_mhz: 250.0,
//!     stages: 12,
//!     latency_cycles: 20,
//!     reload_cycles: Timing::RELOAD_CYCLES,
//!     arbiter: Arbiter::Oldest,
//!     maps: vec![bucket],
//! };
//! let report = predict(&timing, &PredictOptions::new(Pace::Full), &mut Flows::single(1, 8000))?;
//! assert_eq!(report.throughput_mpps.round(), 31.0);
//! # Ok::<(), flowloom_predict::PredictError>(())
//! ```

#![forbid(unsafe_code)]

mod ahead;
mod arrival;
mod buffer;
mod columns;
mod error;
mod flows;
pub mod formula;
mod frames;
mod keyed;
mod known;
mod latency;
mod layout;
mod model;
mod ops;
mod options;
mod packets;
mod pipe;
mod render;
mod report;
mod run;
mod scheduler;
mod twin;
mod value;

pub use ahead::ReadAhead;
pub use arrival::{Arrival, Arrivals};
pub use error::PredictError;
pub use flows::Flows;
pub use frames::{Captured, Frame, Frames};
pub use keyed::Keyed;
pub use known::{Known, shared_maps};
pub use options::{Pace, PredictOptions};
pub use report::{Latency, MapReport, ModelKind, Report};
pub use twin::{Offered, PacketCycles, Twin, rendered_timing};

use flowloom_plan::Timing;
use model::Model;

/// Runs packets through the model of a pipeline until all have left.
///
/// # Errors
/// The timing or the options describe no pipeline, or the packets cannot be read.
///
/// # Cost
/// At least 5 million packets per second, with a scheduled or flushed map.
pub fn predict(
    timing: &Timing,
    options: &PredictOptions,
    arrivals: &mut (impl Arrivals + ?Sized),
) -> Result<Report, PredictError> {
    let mut model = Model::new(timing, options)?;
    model.run(arrivals)?;
    Ok(Report::of(timing, &model, arrivals))
}
