//! What every engine looks like from outside.

use crate::{Choices, Outcome, Packet, Ports, Snapshot, SnapshotError};

/// Runs packets through one loaded function.
///
/// Packets take effect one after the other, in the order of the calls, each atomically.
pub trait Datapath {
    /// The name of the engine, as given to `--engine`.
    fn name(&self) -> &str;

    /// Why this engine cannot take a frame at all, where it cannot: such frames are counted, never compared.
    fn refuses(&self, _packet: &Packet<'_>) -> Option<Refusal> {
        None
    }

    /// Says which ports there are from now on; until then it is [`Ports::default`].
    fn bind_ports(&mut self, ports: &Ports);

    /// Runs one packet.
    ///
    /// # Errors
    /// The engine itself failed; a function that fails on a packet is [`crate::Verdict::Aborted`].
    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError>;

    /// Whether full tables forget entries as the engine chooses: then it is run before the engine that it is compared with,
    /// which is told what was forgotten.
    fn chooses_victims(&self) -> bool {
        false
    }

    /// What tables forgot to make room while the last packet ran.
    fn evicted(&mut self) -> Vec<Eviction> {
        Vec::new()
    }

    /// Says what tables forget to make room while the next packet runs, instead of what the engine would choose: as many as
    /// there are in the list, and none where it is empty.
    fn evict_next(&mut self, _victims: &[Eviction]) {}

    /// What [`Datapath::evict_next`] named and the last packet needed no room for: choosing it was wrong.
    fn not_evicted(&mut self) -> Vec<Eviction> {
        Vec::new()
    }

    /// Removes every context whose deadline is at or before `now_ns`.
    ///
    /// # Errors
    /// The engine cannot reach its state.
    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError>;

    /// The state of all maps.
    ///
    /// # Errors
    /// The engine cannot reach its state.
    fn snapshot(&mut self) -> Result<Snapshot, EngineError>;

    /// Replaces the state of all maps; maps that `state` does not name become as they were when the function was loaded.
    ///
    /// # Errors
    /// `state` does not fit the maps, or the engine cannot reach its state.
    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError>;
}

/// An entry that a table forgot to make room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The table.
    pub map: String,
    /// The key of the entry.
    pub key: Vec<u8>,
    /// How many entries may be free at that moment: engines that keep some aside for each CPU make room before they run out.
    pub free_entries: u32,
}

/// A frame that an engine cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Shorter than the engine takes.
    TooShort {
        /// The least it takes.
        min_bytes: usize,
    },
    /// Longer than the engine takes.
    TooLong {
        /// The most it takes.
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

/// An engine that could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The state does not fit.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The program did what no verified program does, e.g. an access outside its memory.
    #[error("engine `{engine}` stopped at instruction {insn}: {what}")]
    Fault {
        /// The engine.
        engine: &'static str,
        /// The instruction's index.
        insn: usize,
        /// What it tried to do.
        what: String,
    },
    /// The system below the engine refused.
    #[error("engine `{engine}` could not {action}: {source}")]
    System {
        /// The engine.
        engine: &'static str,
        /// What it was doing.
        action: String,
        /// The system's answer.
        source: std::io::Error,
    },
}
