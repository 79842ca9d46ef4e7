// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading, merging, writing and generating packet captures, as streams.
//!
//! ```text
//!  a.pcap ──► CaptureReader ─┐                                     ┌─► CaptureWriter ─► out.pcapng
//!  b.pcapng.xz ► CaptureReader ┴► MergedReader ─► CapturedPacket ──┴─► TraceInfo
//! ```
//!
//! A [`CaptureReader`] reads pcap and pcapng, plain or xz-compressed, in constant memory. A [`MergedReader`] merges
//! several captures by time. A [`ReadAhead`] is a thread that reads batches of packets which are not copied. A
//! [`CaptureWriter`] writes either format. Frames, their lengths on the wire and their timestamps in nanoseconds are
//! preserved. A malformed capture yields its packets up to the first error, which names the offset.
//!
//! ```no_run
//! use flowloom_trace::{CaptureWriter, MergedReader, TraceError};
//!
//! # fn main() -> Result<(), TraceError> {
//! let mut packets = MergedReader::open(&["inside.pcap", "outside.pcapng.xz"])?;
//! let mut out = CaptureWriter::create("out.pcapng")?;
//! while let Some(packet) = packets.next_packet()? {
//!     out.write(packet.time_ns, packet.port, packet.original_len_bytes, packet.verdict, &packet.bytes)?;
//! }
//! out.finish()
//! # }
//! ```
//!
//! Deviation: the formats are parsed by this crate's own code. `pcap-parser`, the tests' independent oracle for written
//! captures, always reads `if_tsoffset` as little endian, lacks binary `if_tsresol`, drops the cause of a failed read,
//! and requests more input when a length inside a block is wrong, so malformed input looks like truncation.
#![forbid(unsafe_code)]

mod ahead;
mod batch;
mod comparison;
mod error;
mod flows;
mod folder;
mod info;
mod input;
mod linktype;
mod merge;
mod pcap;
mod pcapng;
mod reader;
mod steps;
mod traffic;
mod writer;

pub use ahead::ReadAhead;
pub use batch::{Batch, PacketBuffer, PacketRef};
pub use comparison::{Comparison, Unit};
pub use error::{Location, TraceError};
pub use flows::{ACTIVE_WINDOW_NS, FlowCount, NEW_WINDOW_NS};
pub use folder::traces_from_env;
pub use info::{Census, PacketCount, SizeCount, TraceInfo};
pub use merge::{MergedReader, PortBy};
pub use reader::{CaptureReader, CapturedPacket};
pub use traffic::{
    FiveTuples, GeneratedPacket, PaperRow, Profile, Protocol, Rate, START_NS, SizeShare, Traffic, TrafficOptions,
    parse_count,
};
pub use writer::{CaptureWriter, Format};
