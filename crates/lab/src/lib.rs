// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test bed of network namespaces: rates and round-trip times of functions on live interfaces.
//!
//! ```text
//!  namespace of the generator                 namespace of the function
//!  sender ──► far1 ═══════ wire ═══════ near1 ──► Station: XDP in the kernel,
//!  sink, or   far2 ═══════ wire ═══════ near2 ◄── or a device and an engine
//!  echo
//! ```
//!
//! [`rate`] counts the packets that arrive at `far2` of more than the function can take; [`lossless`] takes the time of
//! packets that all arrive; [`round_trips`] takes the times of packets that an echo at `far2`
//! returns. [`from_memory`] runs an engine on packets in memory ([`Memory`]), without a wire.
//!
//! A [`Bed`] has namespaces without names: files of this process and threads hold them, so that the kernel removes
//! them, with all their interfaces, when the process ends, however it ends. All threads that enter them are threads of
//! the test bed; that of the caller stays where it is.
//!
//! [`Native`] is the peer: hand-written C for the kernel, compiled for user space. [`Several`] has it on several cores.

mod bed;
mod error;
mod lossless;
mod memory;
mod native;
mod packets;
mod rates;
mod round_trips;
mod several;
mod station;
mod sys;

pub use bed::{Bed, Wires};
pub use error::LabError;
pub use lossless::{Lossless, lossless};
pub use memory::{EGRESS, Memory, Order};
pub use native::{Forward, Native, forwarder};
pub use packets::{MAX_FLOWS, Packets};
pub use rates::{FromMemory, Load, Rate, from_memory, rate};
pub use round_trips::{RoundTrips, round_trips};
pub use several::{Peer, Several};
pub use station::{MakeEngine, OpenDevice, RunPeer, Station};
pub use sys::pinning_note;
