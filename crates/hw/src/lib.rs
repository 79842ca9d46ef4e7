//! Hardware pipelines out of verified programs.
//!
//! ```text
//!  Dataflow ──stages──► Plan ──► explain: who does what in which stage
//!                        │
//!                        └─────► Timing ──predict──► throughput, stalls, flushes, loss, latency
//!
//!  Program ──blocks──► Schedule: the stages of the papers' tools, to compare with
//! ```
#![forbid(unsafe_code)]

pub mod blocks;
mod delay;
mod timing;

pub use delay::Delays;
pub use timing::{MapTiming, Scheme, Timing};
