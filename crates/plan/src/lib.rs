// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of hardware pipelines for verified programs: the operations of each stage, and how each map stays consistent.
//!
//! ```text
//!  Dataflow ──passes for a Target──► Dataflow ──stages, hazards──► Plan ──► Timing (crate `predict`)
//!                                                                  │
//!                                                                  └──check──► faults
//! ```
#![forbid(unsafe_code)]

mod bounds;
mod check;
mod commute;
mod critical_path;
mod cycles;
mod device;
mod hazard;
mod live;
mod pass;
mod plan;
mod refusal;
mod replay;
mod served;
mod stages;
mod tables;
mod target;
mod timing;
mod window;

pub use bounds::{PassCount, optimized};
pub use check::{Fault, check};
pub use commute::{Operator, Update, sums};
pub use device::{DEVICES, Device, Fit, MAX_PREFIXES, Memory, Placed, Resources, Used, prefix_fanout};
pub use hazard::Region;
pub use live::{Boundary, Carried, Liveness, ValueKind};
pub use pass::{PASSES, Pass, optimize};
pub use plan::{MapPlan, Options, Plan, plan, plan_dataflow};
pub use refusal::{Reason, Refusal};
pub use replay::{Action, Replay, Step};
pub use served::OmittedCall;
pub use stages::{Moment, Schedule, Span, is_cut};
pub use tables::{Uses, uses};
pub use target::{ARRAY_STAGES, HASH_STAGES, LPM_STAGES, Target, Tenths};
pub use timing::{Arbiter, MapTiming, Scheme, Timing};
pub use window::{Length, Window, window};
