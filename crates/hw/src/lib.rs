//! Hardware pipelines out of verified programs.
//!
//! ```text
//!  Dataflow ──stages──► Plan ──► explain: who does what in which stage
//!                        │
//!                        └─────► Timing ──predict──► throughput, stalls, flushes, loss, latency
//! ```
#![forbid(unsafe_code)]

pub mod stages;
mod timing;

pub use timing::{MapTiming, Scheme, Timing};
