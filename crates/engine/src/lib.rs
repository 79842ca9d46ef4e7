// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The types that all engines share.
//!
//! A [`Datapath`] processes one packet at a time and returns a [`Verdict`] and a list of [`Output`]s. Whatever an
//! engine may choose (the time it reads, the random numbers it draws, the CPU it runs on) is recorded in [`Choices`],
//! so that every other engine can repeat the run; a whole run is a [`RunRecord`]. The state after a run is a
//! [`Snapshot`], in the format of `bpftool map dump -j`.
//!
//! ```text
//!  packet + choices ──► Datapath::process ──► Outcome { verdict, outputs }
//!                        Datapath::snapshot ──► Snapshot { map: { key: value } }
//! ```
//!
//! Where many packets run, their outcomes are in one list ([`Outcomes`], [`Datapath::process_all`]), so that no packet
//! allocates; where they are only counted, there is no list ([`Tally`], [`Datapath::tally`]). Sources and sinks of
//! packets exchange buffers with engines in batches: [`InPlace`] changes [`Frame`]s in place, and [`Copying`] runs any
//! [`Datapath`] that way.
//!
//! Two engines agree if, for the same packets in the same order with the same choices, every outcome and the final
//! snapshots are equal. [`Outcome`] compares by plain equality: nothing is tolerated.
#![forbid(unsafe_code)]

mod batch;
mod datapath;
mod digest;
mod outcome;
mod outcomes;
mod ports;
mod record;
mod snapshot;
mod tally;

pub use batch::{Copying, FRAME_RECORD_BYTES, Fate, Frame, HEADROOM_BYTES, InPlace};
pub use datapath::{Datapath, EngineError, Eviction, Refusal};
pub use digest::Digest;
pub use outcome::{Event, Outcome, Output, Packet, Port, Verdict};
pub use outcomes::Outcomes;
pub use ports::{PORT_COUNT, Ports};
pub use record::{Choices, RANDOM_WORDS, RunRecord};
pub use snapshot::{FULL_ARRAY_ENTRIES, MapState, Snapshot, SnapshotError};
pub use tally::{Arrival, Draws, PacketError, Tally};
