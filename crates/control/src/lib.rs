// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observation and control of functions that run on interfaces.
//!
//! ```text
//!  flowloom top, map, reload ──► Client ──socket──► Server ──► Subject ──Desk──► packet loop, between two batches
//!  Prometheus ──► http://127.0.0.1:PORT/metrics ──────────────────┘
//! ```
//!
//! A run listens on a Unix socket in a [directory](directory()) that only its user may enter. A thread of its own talks
//! to clients and compiles functions; what concerns the state runs on the thread of the packets, as a task that the
//! packet loop takes between two batches ([`Desk`], [`Inbox`]). Without a task the loop pays for one load of a flag a
//! round.
//!
//! [`Watched`] is the engine of an observed run: it samples packets for the largest flows and can be replaced by that
//! of another program ([`transfer`] tells which maps keep their entries). Single packets are traced with the state before
//! and after ([`Tracing`]).
#![forbid(unsafe_code)]

mod client;
mod desk;
mod directory;
mod error;
mod hex;
mod http;
mod metrics;
mod protocol;
mod published;
mod reload;
mod report;
mod run;
mod sample;
mod server;
mod trace;
mod tracing;
mod watched;

pub use client::Client;
pub use desk::{Desk, Inbox, Replaced, Worker, desk};
pub use directory::{Found, Runs, directory, folder, run_of, runs, runs_in};
pub use error::{ControlError, Refusal};
pub use http::MetricsServer;
pub use metrics::metrics;
pub use protocol::{
    Changed, Entry, Greeting, LeftOut, MapFacts, Maps, PROTOCOL_VERSION, Reloaded, Request, UpdateRule,
};
pub use published::{Published, ReloadFunction};
pub use reload::{Emptied, Transfer, transfer};
pub use report::{FlowShare, MapLoad, PortReport, Report, RowHits, ServiceTimes, TopFlows};
pub use run::{Facts, LoadFunction, New, UserRun};
pub use sample::Samples;
pub use server::{Server, Subject, Visitor};
pub use trace::{Begun, Touched, Trace, Tracer};
pub use tracing::{TraceSink, TracedPacket, Tracing};
pub use watched::{Shared, Watched};
