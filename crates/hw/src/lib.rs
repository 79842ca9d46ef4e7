//! Hardware pipelines out of verified programs.
//!
//! ```text
//!  Dataflow ──stages──► Plan ──► explain: who does what in which stage
//!                        │
//!                        └─────► Timing ──predict──► throughput, stalls, flushes, loss, latency
//! ```
#![forbid(unsafe_code)]

pub mod predict;
mod timing;

pub use timing::{Arbiter, MapTiming, Scheme, Timing};
