//! Hardware pipelines from verified programs.
//!
//! ```text
//!  Dataflow ──stages──► Plan ──► explain: the operations of each stage
//!                        │
//!                        └─────► Timing ──predict──► throughput, stalls, flushes, loss, latency
//!
//!  Program ──blocks──► Schedule: the stages of the papers' tools, for comparison
//! ```
#![forbid(unsafe_code)]

pub mod blocks;
mod bounds;
mod check;
mod commute;
mod cycles;
pub mod explain;
mod hazard;
mod live;
mod numbers;
mod plan;
pub mod predict;
mod refusal;
mod served;
mod stages;
mod tables;
mod timing;
mod window;

pub use check::{Fault, check};
pub use explain::{BlockExplanation, Explanation};
pub use flowloom_ir::Delays;
pub use hazard::Region;
pub use live::{Boundary, Carried, Holds, Liveness};
pub use plan::{MapPlan, Options, Plan, plan, plan_of};
pub use refusal::{Refusal, Why};
pub use served::LeftOut;
pub use stages::{Moment, Schedule, Span};
pub use tables::Uses;
pub use timing::{Arbiter, MapTiming, Scheme, Timing};
pub use window::{Length, Window};
