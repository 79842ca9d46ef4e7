// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pace of the traffic, and the buffers around the pipeline.

use flowloom_trace::Rate;

use super::error::PredictError;

/// The width of the pipeline's streams in bytes.
pub(super) const WORD_BYTES: u32 = 64;
/// The bytes of a frame on the wire besides its own: frame check sequence, preamble, start of frame, gap [IEEE 802.3].
pub(super) const WIRE_OVERHEAD_BYTES: u32 = 24;
/// One word for each row of a block RAM of 512 rows.
const BUFFER_BYTES: u32 = 512 * WORD_BYTES;
/// The longest frame, which always fits into an empty buffer.
const LARGEST_BYTES: u32 = 9600;

/// The pace of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The times of the capture.
    Own,
    /// Back to back at this rate.
    At(Rate),
    /// The next word is always available: nothing is lost, and the result is the capacity of the pipeline.
    Full,
}

/// The options that are not part of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PredictOptions {
    /// The pace of the traffic.
    pub pace: Pace,
    /// The size of the input buffer: a packet that does not fit is lost. Its words are freed one by one as the packet
    /// enters.
    pub input_buffer_bytes: u32,
    /// The size of the output buffer, in which packets wait until earlier ones have left, a word a cycle: while it is
    /// full the last stages stall.
    pub output_buffer_bytes: u32,
    /// The number of packets to stop after.
    pub packets: Option<u64>,
}

impl PredictOptions {
    /// Traffic at this pace, with buffers of 512 words.
    pub fn new(pace: Pace) -> PredictOptions {
        PredictOptions { pace, input_buffer_bytes: BUFFER_BYTES, output_buffer_bytes: BUFFER_BYTES, packets: None }
    }

    pub(super) fn check(&self) -> Result<(), PredictError> {
        for (which, found) in [("input", self.input_buffer_bytes), ("output", self.output_buffer_bytes)] {
            if found < LARGEST_BYTES {
                return Err(PredictError::Buffer { which, found, least: LARGEST_BYTES });
            }
        }
        Ok(())
    }
}

/// Converts arrival times to cycles.
#[derive(Debug)]
pub(super) struct Clock {
    pace: Pace,
    clock_hz: u64,
    first_ns: Option<u64>,
    now: u64,
    /// The remainder of a cycle, in units of one over the rate.
    rest: u64,
}

impl Clock {
    pub(super) fn new(pace: Pace, clock_mhz: f64) -> Clock {
        Clock { pace, clock_hz: ((clock_mhz * 1e6).round() as u64).max(1), first_ns: None, now: 0, rest: 0 }
    }

    /// The arrival cycle of the next packet; `None` if it arrives as soon as it can be taken.
    pub(super) fn next(&mut self, time_ns: u64, len_bytes: u32) -> Option<u64> {
        let (parts, rate) = match self.pace {
            Pace::Full => return None,
            Pace::Own => {
                let first_ns = *self.first_ns.get_or_insert(time_ns);
                let cycles = time_ns.saturating_sub(first_ns) as f64 * (self.clock_hz as f64 / 1e9);
                self.now = self.now.max(cycles as u64);
                return Some(self.now);
            }
            Pace::At(Rate::Bits(bits)) => (u64::from(len_bytes + WIRE_OVERHEAD_BYTES) * 8 * self.clock_hz, bits),
            Pace::At(Rate::Packets(packets)) => (self.clock_hz, packets),
        };
        let arrival = self.now;
        let parts = parts + self.rest;
        (self.now, self.rest) = (arrival + parts / rate, parts % rate);
        Some(arrival)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cycles(pace: Pace, packets: &[(u64, u32)]) -> Vec<Option<u64>> {
        let mut clock = Clock::new(pace, 250.0);
        packets.iter().map(|(time_ns, len_bytes)| clock.next(*time_ns, *len_bytes)).collect()
    }

    #[test]
    fn packets_arrive_at_the_given_pace() {
        let packets = [(1000, 60), (1003, 60), (1004, 1514), (1002, 60), (1100, 60)];
        assert_eq!(cycles(Pace::Own, &packets), [0, 0, 1, 1, 25].map(Some));
        // At 100 Gb/s, 84 bytes are 1.68 cycles of 4 ns, 1538 are 30.76.
        let line = Pace::At(Rate::Bits(100_000_000_000));
        assert_eq!(cycles(line, &packets), [0, 1, 3, 34, 35].map(Some));
        assert_eq!(cycles(Pace::At(Rate::Packets(100_000_000)), &packets), [0, 2, 5, 7, 10].map(Some));
        assert_eq!(cycles(Pace::Full, &packets), [None; 5]);
    }

    #[test]
    fn buffers_hold_at_least_one_packet() {
        let options = PredictOptions::new(Pace::Full);
        assert!(options.check().is_ok());
        let wrong = PredictOptions { output_buffer_bytes: 9000, ..options }.check().unwrap_err();
        assert_eq!(wrong.to_string(), "the output buffer is 9000 bytes, expected at least 9600");
    }
}
