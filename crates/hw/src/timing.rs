//! What of a plan decides how long packets take: no values, only places and times.

use serde::{Deserialize, Serialize};

/// How a map is kept consistent while several packets are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Packets only read it.
    None,
    /// It is read, changed and written in one stage, inside of the table.
    Atomic,
    /// A packet waits in a queue while another with the same key is between its read and its write.
    Schedule,
    /// Packets that read too early start again.
    Flush,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 4] = [Scheme::None, Scheme::Atomic, Scheme::Schedule, Scheme::Flush];

    /// Its name, as users type it.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::Atomic => "atomic",
            Scheme::Schedule => "schedule",
            Scheme::Flush => "flush",
        }
    }
}

/// Which of a scheduler's queues goes first, of those whose first packet may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arbiter {
    /// That of the packet that came first.
    ///
    /// Deviation: by turns a queue that had to wait for a key gets no more than the others afterwards, and fills up. Of 250
    /// Mpps in 50 000 flows by Zipf's law, at a hold of 8 cycles and with 8 queues, 250 pass so, and 238 by turns.
    #[default]
    Oldest,
    /// One after the other [FlowBlaze 4.3].
    Turns,
}

/// When packets touch a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapTiming {
    /// Its name.
    pub name: String,
    /// How it is kept consistent.
    pub scheme: Scheme,
    /// The first stage that reads it, from 0.
    pub read_stage: u32,
    /// The stage whose end its writes are done at, from 0; the last stage of its hazard region.
    pub write_stage: u32,
    /// For how many cycles a packet keeps others with the same key out: from the cycle in which it enters `read_stage` until
    /// what it writes can be read. 1 where it is atomic, so that the next cycle's packet may have the same key.
    pub hold_cycles: u32,
    /// With [`Scheme::Schedule`]: how many queues there are in front of `read_stage`, each for the keys that lead to it.
    pub queues: u32,
    /// How many packets each queue holds; with [`Scheme::Flush`], how many may wait in the elastic buffer behind those that
    /// start again.
    pub queue_depth: u32,
    /// With [`Scheme::Flush`]: the stage from which packets start again, where the elastic buffer stands.
    pub restart_stage: u32,
}

impl MapTiming {
    /// The stage in which a packet is when it is known which ones behind it have read too early: that of its write, or
    /// a later one where what is written can be read only later.
    pub fn commit_stage(&self) -> u32 {
        self.write_stage.max((self.read_stage + self.hold_cycles).saturating_sub(1))
    }
}

/// When packets are where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// The clock.
    pub clock_mhz: f64,
    /// How many stages the program has.
    pub stages: u32,
    /// Cycles from the first word of a packet until its first word leaves, where nothing is in its way: `stages`, framing,
    /// queues that it goes through, realignment.
    pub latency_cycles: u32,
    /// With [`Scheme::Flush`]: cycles after the one that found the hazard in which no packet starts again
    /// ([`Timing::RELOAD_CYCLES`] in eHDL).
    pub reload_cycles: u32,
    /// With [`Scheme::Schedule`]: which queue goes first.
    pub arbiter: Arbiter,
    /// Its maps, those that packets change, in the order of their first reads.
    pub maps: Vec<MapTiming>,
}

impl Timing {
    /// What eHDL takes to load its pipeline again.
    ///
    /// # Source
    /// [eHDL A.1]
    pub const RELOAD_CYCLES: u32 = 4;

    /// Cycles that a flush of this map takes where the next packet meets its hazard: the stages from which packets start
    /// again up to the write, and the reload. A packet that follows `d` cycles behind the one that writes, and all behind it,
    /// lose so many cycles less `d`.
    ///
    /// # Source
    /// K in [eHDL A.1]
    pub fn flush_cycles(&self, map: &MapTiming) -> u32 {
        (map.commit_stage() + 1).saturating_sub(map.restart_stage) + self.reload_cycles
    }
}
