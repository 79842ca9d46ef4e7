//! Packets with their times, and the clock that goes with them.

use flowloom_engine::{Packet, Port};

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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    now_ns: u64,
    period_ns: Option<u64>,
    next_sweep_ns: Option<u64>,
}

impl Clock {
    pub(crate) fn new(period_ns: Option<u64>) -> Clock {
        Clock { now_ns: 0, period_ns: period_ns.filter(|&p| p > 0), next_sweep_ns: None }
    }

    /// The time of a packet that arrives at `time_ns`, and the moment of the last sweep that is due before it.
    ///
    /// Sweeps come a period apart from the first packet on; of several that are due at once only the last has an effect.
    pub(crate) fn advance(&mut self, time_ns: u64) -> (u64, Option<u64>) {
        self.now_ns = self.now_ns.max(time_ns);
        let Some(period) = self.period_ns else { return (self.now_ns, None) };
        let Some(next) = self.next_sweep_ns else {
            self.next_sweep_ns = Some(self.now_ns.saturating_add(period));
            return (self.now_ns, None);
        };
        if self.now_ns < next {
            return (self.now_ns, None);
        }
        let sweep = next + (self.now_ns - next) / period * period;
        self.next_sweep_ns = Some(sweep.saturating_add(period));
        (self.now_ns, Some(sweep))
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
        let seen: Vec<_> = [5, 3, 14, 15, 24, 25, 108, 110].into_iter().map(|t| clock.advance(t)).collect();
        let expected = [(5, None), (5, None), (14, None), (15, Some(15)), (24, None), (25, Some(25)), (108, Some(105))];
        assert_eq!(seen[..7], expected);
        assert_eq!(seen[7], (110, None));
    }
}
