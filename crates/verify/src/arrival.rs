// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets with arrival times, and the clock derived from them.

use flowloom_engine::{Packet, Port};
use flowloom_exec::{PacketClock, SweepClock};

/// An arriving packet: one line of the input of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Arrival time in nanoseconds. A time before that of an earlier packet counts as the earlier packet's.
    pub time_ns: u64,
    /// Input port.
    pub port: Port,
    /// Its bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

impl Arrival {
    /// Returns the packet in the form that engines take.
    pub fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.bytes, port: self.port }
    }

    /// Copies a packet; keeps the memory.
    pub(crate) fn copy_from(&mut self, Arrival { time_ns, port, bytes }: &Arrival) {
        (self.time_ns, self.port) = (*time_ns, *port);
        self.bytes.clone_from(bytes);
    }
}

/// Packets in one buffer, with their positions in the input.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    packets: Vec<Listed>,
    bytes: Vec<u8>,
}

/// A packet in the buffer.
#[derive(Debug, Clone, Copy)]
struct Listed {
    time_ns: u64,
    port: Port,
    position: usize,
    /// Its end in the buffer.
    end: usize,
}

impl Arrivals {
    /// Removes all packets; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Length of all packets in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn push(&mut self, Arrival { time_ns, port, bytes }: &Arrival, position: usize) {
        self.bytes.extend_from_slice(bytes);
        self.packets.push(Listed { time_ns: *time_ns, port: *port, position, end: self.bytes.len() });
    }

    /// A packet by its number in the list.
    pub(crate) fn packet(&self, number: usize) -> Packet<'_> {
        let start = number.checked_sub(1).map_or(0, |before| self.packets[before].end);
        let Listed { port, end, .. } = self.packets[number];
        Packet { bytes: &self.bytes[start..end], port }
    }

    /// The time and the position of a packet.
    pub(crate) fn place(&self, number: usize) -> (u64, usize) {
        let Listed { time_ns, position, .. } = self.packets[number];
        (time_ns, position)
    }

    /// A packet of its own.
    pub(crate) fn arrival(&self, number: usize) -> Arrival {
        let Packet { bytes, port } = self.packet(number);
        Arrival { time_ns: self.packets[number].time_ns, port, bytes: bytes.to_vec() }
    }
}

/// Clock of a run: monotonic, with sweeps at moments that depend on the packets only.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    packets: PacketClock,
    sweeps: SweepClock,
}

impl Clock {
    pub(crate) fn new(period_ns: Option<u64>) -> Clock {
        Clock { packets: PacketClock::default(), sweeps: SweepClock::new(period_ns.unwrap_or(0)) }
    }

    /// Returns the time of a packet that arrives at `time_ns`, and the moment of the sweep that is due before it.
    pub(crate) fn advance(&mut self, time_ns: u64) -> (u64, Option<u64>) {
        let now_ns = self.packets.at(time_ns);
        (now_ns, self.sweeps.due(now_ns))
    }
}

/// Hex dump with 16 bytes per line, each line prefixed by `indent`.
pub(crate) fn hex_dump(bytes: &[u8], indent: &str) -> String {
    let mut text = String::new();
    for (i, line) in bytes.chunks(16).enumerate() {
        text.push_str(&format!("{indent}{:04x} ", i * 16));
        for byte in line {
            text.push_str(&format!(" {byte:02x}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_monotonic_and_sweeps_are_periodic() {
        let mut clock = Clock::new(Some(10));
        let seen: Vec<_> = [5, 3, 14, 15, 24, 20, 108, 110].into_iter().map(|t| clock.advance(t)).collect();
        assert_eq!(
            seen,
            [
                (5, None),
                (5, None),
                (14, Some(10)),
                (15, None),
                (24, Some(20)),
                (24, None),
                (108, Some(100)),
                (110, Some(110)),
            ]
        );
    }
}
