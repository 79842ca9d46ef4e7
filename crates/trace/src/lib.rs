//! Captures, streamed in and out.
//!
//! ```text
//!  a.pcap ──► CaptureReader ─┐                                     ┌─► CaptureWriter ─► out.pcapng
//!  b.pcapng.xz ► CaptureReader ┴► MergedReader ─► CapturedPacket ──┴─► TraceInfo
//! ```
//!
//! A [`CaptureReader`] reads pcap and pcapng, plain or in xz, in constant memory; a [`MergedReader`] merges several by
//! time; a [`CaptureWriter`] writes either format. Every frame, its length on the wire and its time stamp in nanoseconds
//! pass unchanged. Damage is an error that says where it is, and what stands before it is read first.
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
//! Deviation: the formats are read by this crate's own code. `pcap-parser`, which judges what is written here in the
//! tests, takes `if_tsoffset` for little endian always, knows no binary `if_tsresol`, drops the reason of a failed read and
//! waits for more input where a length inside a block is wrong, so that damage cannot be told from an early end.
#![forbid(unsafe_code)]

mod beside;
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
mod traffic;
mod writer;

pub use beside::{Beside, Unit};
pub use error::{Place, TraceError};
pub use flows::{ACTIVE_WINDOW_NS, FlowCount, NEW_WINDOW_NS};
pub use folder::traces_from_env;
pub use info::{Census, PacketCount, SizeCount, TraceInfo};
pub use merge::{MergedReader, PortBy};
pub use reader::{CaptureReader, CapturedPacket};
pub use traffic::{
    MadePacket, PaperRow, Profile, Protocol, Rate, START_NS, SizeShare, Traffic, TrafficOptions, parse_count,
};
pub use writer::{CaptureWriter, Format};
