//! The common ground of everything that runs packets.
//!
//! A [`Datapath`] takes one packet at a time and says what became of it: a [`Verdict`] and the list of [`Output`]s.
//! What an engine may choose for itself (the time it reads, the random numbers it draws, the CPU it runs on) is written
//! down in [`Choices`], so that every other engine can repeat the run; a whole run is a [`RunRecord`]. The state an
//! engine leaves behind is a [`Snapshot`], in the form that `bpftool map dump -j` prints.
//!
//! ```text
//!  packet + choices ──► Datapath::process ──► Outcome { verdict, outputs }
//!                        Datapath::snapshot ──► Snapshot { map: { key: value } }
//! ```
//!
//! Two engines agree when, given the same packets in the same order with the same choices, every outcome and the
//! snapshots at the end are equal. [`compare`](outcome::Outcome) is plain equality: nothing is tolerated.
#![forbid(unsafe_code)]

mod datapath;
mod outcome;
mod ports;
mod record;
mod snapshot;

pub use datapath::{Datapath, EngineError, Eviction, Refusal};
pub use outcome::{Event, Outcome, Output, Packet, Port, Verdict};
pub use ports::{PORT_COUNT, Ports};
pub use record::{Choices, RANDOM_WORDS, RunRecord};
pub use snapshot::{FULL_ARRAY_ENTRIES, MapState, Snapshot, SnapshotError};
