// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of engines.

use crate::{
    Arrival, Choices, Digest, Draws, Outcome, Outcomes, Packet, PacketError, Ports, Snapshot, SnapshotError, Tally,
};

/// An engine with a loaded function.
///
/// Packets take effect one after the other, in the order of the calls, each atomically. A comparison runs two engines
/// in two threads.
pub trait Datapath: Send {
    /// The name of the engine, as in `--engine`.
    fn name(&self) -> &str;

    /// Returns the reason why this engine cannot run a frame, if it cannot: such frames are counted, never compared.
    fn refuses(&self, _packet: &Packet<'_>) -> Option<Refusal> {
        None
    }

    /// Sets the ports from now on; the default is [`Ports::default`].
    fn bind_ports(&mut self, ports: &Ports);

    /// Runs a packet.
    ///
    /// # Errors
    /// The engine itself failed; a function that fails on a packet is [`crate::Verdict::Aborted`].
    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError>;

    /// The most packets that the engine wants to be announced at once; 0 if it does not run packets ahead.
    fn most_ahead(&self) -> usize {
        0
    }

    /// Announces the packets that run next, in this order, with no other call in between. The engine may run them at
    /// once, close behind one another; [`Datapath::process`] then gives the outcome of each.
    ///
    /// # Errors
    /// As for [`Datapath::process`].
    fn announce(&mut self, _packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        Ok(())
    }

    /// Runs packets, one after the other, and appends their outcomes.
    ///
    /// # Errors
    /// As for [`Datapath::process`]; the packets before the one that failed have outcomes.
    fn process_all(&mut self, packets: &[(Packet<'_>, Choices)], outcomes: &mut Outcomes) -> Result<(), EngineError> {
        for batch in packets.chunks(self.most_ahead().max(1)) {
            if self.most_ahead() > 0 {
                self.announce(batch)?;
            }
            for (packet, choices) in batch {
                outcomes.push(self.process(packet, choices)?);
            }
        }
        Ok(())
    }

    /// True if packets that are only counted take less time by [`Datapath::tally`] than one by one. Then packets leave
    /// no records, and none is refused.
    fn tallies(&self) -> bool {
        false
    }

    /// Runs packets, one after the other, and counts what becomes of them: their outputs and records are not kept. The
    /// engine writes none of `packets`, which may be a mapped file: what a function writes are copies.
    ///
    /// # Errors
    /// As for [`Datapath::process`], with the number of the first packet on which the engine failed. The counts and the
    /// state are unspecified then.
    fn tally(&mut self, packets: &[Arrival<'_>], draws: Draws, tally: &mut Tally) -> Result<(), PacketError> {
        for (number, arrival) in packets.iter().enumerate() {
            let outcome = self.process(&arrival.packet(), &draws.choices(number, arrival.now_ns));
            tally.count(&outcome.map_err(|source| PacketError { packet: number, source })?);
        }
        Ok(())
    }

    /// The packets since the last [`Datapath::restore`] that took a slow path: another engine ran them, so that their
    /// outcomes say little about this one.
    fn slow_packets(&self) -> u64 {
        0
    }

    /// True if the engine chooses the evictions of full tables: then it runs before the engine that it is compared
    /// with, which is given its evictions.
    fn chooses_victims(&self) -> bool {
        false
    }

    /// The evictions during the last packet.
    fn evicted(&mut self) -> Vec<Eviction> {
        Vec::new()
    }

    /// Sets the evictions during the next packet in place of the engine's own choice: exactly these, none for an empty
    /// list.
    fn evict_next(&mut self, _victims: &[Eviction]) {}

    /// The evictions set by [`Datapath::evict_next`] for which the last packet needed no room: they were wrong.
    fn not_evicted(&mut self) -> Vec<Eviction> {
        Vec::new()
    }

    /// Removes every context whose deadline is at or before `now_ns`.
    ///
    /// # Errors
    /// The engine cannot access its state.
    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError>;

    /// The contents of all maps.
    ///
    /// # Errors
    /// The engine cannot access its state.
    fn snapshot(&mut self) -> Result<Snapshot, EngineError>;

    /// A digest of what [`Datapath::snapshot`] gives, if that takes less time.
    fn digest(&mut self) -> Option<Digest> {
        None
    }

    /// Replaces the contents of all maps; maps that `state` does not list are reset to their initial contents.
    ///
    /// # Errors
    /// `state` does not fit the maps, or the engine cannot access its state.
    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError>;
}

/// An evicted entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The table.
    pub map: String,
    /// The key of the entry.
    pub key: Vec<u8>,
    /// The number of entries that may be free at that time: engines that reserve some for each CPU evict before the
    /// table is full.
    pub free_entries: u32,
}

/// A frame that an engine cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Shorter than the engine accepts.
    TooShort {
        /// The minimum.
        min_bytes: usize,
    },
    /// Longer than the engine accepts.
    TooLong {
        /// The maximum.
        max_bytes: usize,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::TooShort { min_bytes } => write!(f, "shorter than {min_bytes} bytes"),
            Refusal::TooLong { max_bytes } => write!(f, "longer than {max_bytes} bytes"),
        }
    }
}

/// A failure of an engine.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The state does not fit.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A fault: what no verified program does, e.g. an access out of bounds.
    #[error("engine `{engine}` stopped at instruction {insn}: {what}")]
    Fault { engine: &'static str, insn: usize, what: String },
    /// A system call failed.
    #[error("engine `{engine}` could not {action}: {source}")]
    System { engine: &'static str, action: String, source: std::io::Error },
}
