// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that are counted by what becomes of them: nothing of them is kept.

use crate::{Choices, EngineError, Fate, Frame, Outcome, Output, Packet, Port, Verdict};

/// A packet of a capture, in memory that the engine does not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The captured bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// The arrival time in nanoseconds; never before that of an earlier packet of the run.
    pub now_ns: u64,
    /// The ingress port.
    pub port: Port,
}

impl<'a> Arrival<'a> {
    /// The packet without its time.
    pub fn packet(&self) -> Packet<'a> {
        Packet { bytes: self.bytes, port: self.port }
    }
}

/// The random values of consecutive packets, which depend on the seed and the number of the packet alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draws {
    /// The seed.
    pub seed: u64,
    /// The number of the first packet.
    pub first: u64,
}

impl Draws {
    /// The choices of the packet with this number after the first.
    pub fn choices(&self, packet: usize, now_ns: u64) -> Choices {
        Choices::seeded(now_ns, self.seed, self.first.wrapping_add(packet as u64))
    }

    /// Those of the packets from number `packet` after the first on.
    #[must_use]
    pub fn from(&self, packet: usize) -> Draws {
        Draws { first: self.first.wrapping_add(packet as u64), ..*self }
    }
}

/// Counts of what became of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The packets by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; 5],
    /// The packets that left.
    pub outputs: u64,
    /// Their bytes.
    pub output_bytes: u64,
    /// The records for user space.
    pub events: u64,
}

impl Tally {
    /// The packets that ran.
    pub fn packets(&self) -> u64 {
        self.verdicts.iter().sum()
    }

    /// Adds another count.
    pub fn merge(&mut self, other: &Tally) {
        self.verdicts.iter_mut().zip(other.verdicts).for_each(|(mine, its)| *mine += its);
        self.outputs += other.outputs;
        self.output_bytes += other.output_bytes;
        self.events += other.events;
    }

    /// Counts a packet.
    pub fn count(&mut self, outcome: &Outcome) {
        self.verdicts[outcome.verdict.number() as usize] += 1;
        self.events += outcome.events.len() as u64;
        outcome.outputs.iter().for_each(|output| self.sent(output));
    }

    /// Counts an output of a packet.
    pub fn sent(&mut self, output: &Output) {
        self.outputs += 1;
        self.output_bytes += output.bytes.len() as u64;
    }

    /// Counts a packet that was changed in place, without its further outputs.
    #[inline]
    pub fn count_frame(&mut self, frame: &Frame<'_>) {
        self.count_fate(frame.fate, frame.len_bytes() as u64);
    }

    /// Counts a packet of this length with this fate, without its further outputs.
    #[inline]
    pub fn count_fate(&mut self, fate: Fate, len_bytes: u64) {
        let leaves = matches!(fate, Fate::Pass | Fate::Tx | Fate::Redirect(_));
        self.verdicts[fate.verdict().number() as usize] += 1;
        self.outputs += u64::from(leaves);
        self.output_bytes += if leaves { len_bytes } else { 0 };
    }

    /// The packets with this verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict.number() as usize]
    }
}

/// The engine failed on a packet.
#[derive(Debug, thiserror::Error)]
#[error("packet {packet}: {source}")]
pub struct PacketError {
    /// Its number among the packets of the call.
    pub packet: usize,
    /// The failure.
    pub source: EngineError,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    #[test]
    fn frames_and_outcomes_have_equal_counts() {
        let (mut frames, mut outcomes) = (Tally::default(), Tally::default());
        let fates = [Fate::Aborted, Fate::Drop, Fate::Pass, Fate::Tx, Fate::Redirect(Port(7))];
        for (len, fate) in (10..).zip(fates) {
            let mut buffer = vec![0; 20];
            let mut frame = Frame::new(&mut buffer, 1, 1 + len, Port(1), 0);
            frame.fate = fate;
            frames.count_frame(&frame);
            let outcome = match fate {
                Fate::Aborted | Fate::Drop => Outcome::without_output(fate.verdict()),
                _ => Outcome::sent(fate.verdict(), Port(2), vec![0; len]),
            };
            outcomes.count(&outcome);
        }
        assert_eq!(frames, outcomes);
        assert_eq!((frames.verdicts, frames.outputs, frames.output_bytes), ([1; 5], 3, 12 + 13 + 14));
        let event = Event { map: "log".into(), cpu: 0, bytes: vec![] };
        let outputs = vec![Output { port: Port(1), bytes: vec![0; 5] }; 2];
        frames.count(&Outcome { verdict: Verdict::Drop, outputs, events: vec![event] });
        outcomes.merge(&frames);
        assert_eq!(outcomes.verdicts, [2, 3, 2, 2, 2]);
        assert_eq!((outcomes.packets(), outcomes.of(Verdict::Drop)), (11, 3));
        assert_eq!((outcomes.outputs, outcomes.output_bytes, outcomes.events), (8, 2 * 39 + 10, 1));
    }

    #[test]
    fn random_values_go_with_the_number_of_the_packet() {
        let draws = Draws { seed: 5, first: 3 };
        assert_eq!(draws.choices(4, 9), Choices::seeded(9, 5, 7));
        assert_eq!(draws.from(4).choices(0, 9), Choices::seeded(9, 5, 7));
    }
}
