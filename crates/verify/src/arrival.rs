//! Packets with their times, and the clock that goes with them.

use flowloom_engine::{Packet, Port};
use flowloom_exec::{PacketClock, SweepClock};

/// A packet that arrives: one line of the input of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// When, in nanoseconds. A time before that of an earlier packet counts as the earlier packet's.
    pub time_ns: u64,
    /// By which port.
    pub port: Port,
    /// Its bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

impl Arrival {
    /// The packet as engines take it.
    pub fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.bytes, port: self.port }
    }
}

/// The time of a run: never backwards, with sweeps at moments that follow from the packets alone.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    packets: PacketClock,
    sweeps: SweepClock,
}

impl Clock {
    pub(crate) fn new(period_ns: Option<u64>) -> Clock {
        Clock { packets: PacketClock::default(), sweeps: SweepClock::new(period_ns.unwrap_or(0)) }
    }

    /// The time of a packet that arrives at `time_ns`, and the moment of the sweep that is due before it.
    pub(crate) fn advance(&mut self, time_ns: u64) -> (u64, Option<u64>) {
        let now_ns = self.packets.at(time_ns);
        (now_ns, self.sweeps.due(now_ns))
    }
}

/// Bytes as a hex dump of 16 to a line, each line led by `indent`.
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
    fn time_never_runs_backwards_and_sweeps_come_by_the_period() {
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
