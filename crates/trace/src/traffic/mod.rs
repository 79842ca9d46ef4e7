// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic generator: the profiles measured by the papers, and synthetic patterns.
//!
//! ```text
//!  TrafficOptions ─► Traffic ─┬─ Network: flows that stay, conversations, bursts ─┐
//!                             └─ Pattern: uniform, zipf, turns, churn ────────────┴─► Packet ─► FrameWriter ─► bytes
//! ```
//!
//! All randomness comes from one seed: equal options yield equal packets. Memory depends on the number of flows, not of
//! packets. Frames have valid lengths and checksums; TCP connections have handshakes and sequence numbers.

mod conversation;
mod frame;
mod governor;
mod host;
mod network;
mod options;
mod pattern;
mod population;
mod profile;
mod rate;
mod sizes;
mod tuples;
mod zipf;

pub use options::{Protocol, TrafficOptions};
pub use profile::{PaperRow, Profile, SizeShare};
pub use rate::{Rate, parse_count};
pub use tuples::FiveTuples;

use crate::error::TraceError;
use frame::{FrameWriter, Packet};
use host::Addresses;
use network::Network;
use options::Source;
use pattern::Pattern;
use rate::Pace;

/// Arrival time of the first packet: 2020-01-01.
pub const START_NS: u64 = 1_577_836_800_000_000_000;

/// A generated packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratedPacket<'a> {
    /// Arrival time since 1970.
    pub time_ns: u64,
    /// 1 from inside the network, 2 from outside.
    pub port: u32,
    /// Length on the wire.
    pub len_bytes: u32,
    /// The bytes that a capture with the configured snap length holds.
    pub bytes: &'a [u8],
}

/// Generates packets.
///
/// ```
/// use flowloom_trace::{Profile, Traffic, TrafficOptions};
///
/// let mut traffic = Traffic::new(&TrafficOptions { packets: Some(1000), ..TrafficOptions::new(Profile::Uni1) })?;
/// let mut bytes = 0;
/// while let Some(packet) = traffic.next_packet() {
///     bytes += packet.bytes.len();
/// }
/// assert!(bytes > 300_000);
/// # Ok::<(), flowloom_trace::TraceError>(())
/// ```
pub struct Traffic {
    generator: Generator,
    writer: FrameWriter,
    /// Overrides the packets' own timestamps with a given rate.
    pace: Option<Pace>,
    packets_left: u64,
    until_ns: u64,
    /// End of the traffic in the packets' own time.
    until_own_ns: u64,
    snap_bytes: usize,
    bytes: Vec<u8>,
}

enum Generator {
    Network(Box<Network>),
    Pattern(Box<Pattern>),
}

impl Generator {
    fn next(&mut self) -> (u64, Packet) {
        match self {
            Generator::Network(network) => network.next(),
            Generator::Pattern(pattern) => pattern.next(),
        }
    }
}

impl Traffic {
    /// Creates a generator.
    ///
    /// # Errors
    /// [`TraceError::TrafficOption`] and the like if options conflict; the message names what is permitted.
    pub fn new(options: &TrafficOptions) -> Result<Traffic, TraceError> {
        let plan = options.plan()?;
        let (generator, pace) = match plan.source {
            Source::Network { model, scale } => {
                let network = Network::new(model, &scale, plan.lengths, options.seed);
                (Generator::Network(Box::new(network)), options.rate.map(Pace::new))
            }
            Source::Pattern(shape) => (Generator::Pattern(Box::new(Pattern::new(shape, options.seed))), None),
        };
        Ok(Traffic {
            generator,
            pace,
            writer: FrameWriter::new(Addresses::new(plan.addresses, options.seed)),
            packets_left: plan.packets,
            until_ns: plan.until_ns,
            until_own_ns: plan.until_own_ns,
            snap_bytes: options.snap_bytes.unwrap_or(u32::MAX) as usize,
            bytes: Vec::new(),
        })
    }

    /// Returns the next packet, or `None` at the end.
    pub fn next_packet(&mut self) -> Option<GeneratedPacket<'_>> {
        if self.packets_left == 0 {
            return None;
        }
        let (own_ns, packet) = self.generator.next();
        let time_ns = match &mut self.pace {
            Some(pace) => pace.step(u64::from(packet.len_bytes)),
            None => own_ns,
        };
        if time_ns >= self.until_ns || own_ns >= self.until_own_ns {
            self.packets_left = 0;
            return None;
        }
        self.packets_left -= 1;
        self.writer.write(&packet, self.snap_bytes, &mut self.bytes);
        Some(GeneratedPacket {
            time_ns: START_NS + time_ns,
            port: if packet.src.is_outside() { 2 } else { 1 },
            len_bytes: packet.len_bytes,
            bytes: &self.bytes,
        })
    }
}
