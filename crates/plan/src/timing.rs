// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The timing of a plan: the stages and latencies that determine throughput, without any values.

use serde::{Deserialize, Serialize};

/// How a map stays consistent while several packets are in flight; `Planner::choose` in `hazard.rs` decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Packets only read it.
    None,
    /// Read-modify-write in one stage, inside of the table.
    Atomic,
    /// A packet waits in a queue while another one with the same key is between its read and its write.
    Schedule,
    /// Packets that read too early restart.
    Flush,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Scheme; 4] = [Scheme::None, Scheme::Atomic, Scheme::Schedule, Scheme::Flush];

    /// The name, as in options.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::Atomic => "atomic",
            Scheme::Schedule => "schedule",
            Scheme::Flush => "flush",
        }
    }
}

/// The policy of a scheduler: which queue goes first among those whose head may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arbiter {
    /// The queue whose head arrived first.
    ///
    /// Deviation: under round robin a queue that had to wait for a key gets no more service than others afterwards, and
    /// fills up. Of 250 Mpps in 50,000 flows by Zipf's law, with a hold of 8 cycles and 8 queues, 250 pass under this
    /// policy, and 238 under round robin.
    #[default]
    Oldest,
    /// Round robin [FlowBlaze 4.3].
    Turns,
}

/// The timing of the accesses to a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapTiming {
    /// The name.
    pub name: String,
    /// The scheme.
    pub scheme: Scheme,
    /// The first stage that reads it, from 0.
    pub read_stage: u32,
    /// The stage at whose end its writes commit, from 0; the last stage of its hazard region.
    pub write_stage: u32,
    /// The hold: the number of cycles for which a packet keeps others with its key out, from the cycle in which it
    /// enters `read_stage` until its write is visible. 1 for an atomic map: the packet in the next cycle may have the
    /// same key.
    pub hold_cycles: u32,
    /// With [`Scheme::Schedule`]: the number of queues before `read_stage`; a hash of the key picks the queue.
    pub queues: u32,
    /// The depth of each queue in packets; with [`Scheme::Flush`], of the elastic buffer for packets after those that
    /// restart.
    pub queue_depth: u32,
    /// With [`Scheme::Flush`]: the stage at which packets restart, where the elastic buffer is.
    pub restart_stage: u32,
}

impl MapTiming {
    /// The stage of a packet when it is decided which later packets have read too early: that of its write, or a later
    /// one if the write becomes visible later.
    pub fn commit_stage(&self) -> u32 {
        self.write_stage.max((self.read_stage + self.hold_cycles).saturating_sub(1))
    }
}

/// The timing of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// The clock in MHz.
    pub clock_mhz: f64,
    /// The number of stages.
    pub stages: u32,
    /// The latency without contention in cycles, from the first word in to the first word out: `stages`, framing,
    /// schedulers on the way, realignment.
    pub latency_cycles: u32,
    /// With [`Scheme::Flush`]: the cycles after the detection of a hazard in which no packet restarts
    /// ([`Timing::RELOAD_CYCLES`] in eHDL).
    pub reload_cycles: u32,
    /// With [`Scheme::Schedule`]: the policy of the schedulers.
    pub arbiter: Arbiter,
    /// The maps that packets write, in the order of their first reads.
    pub maps: Vec<MapTiming>,
}

impl Timing {
    /// The cycles that eHDL takes to reload its pipeline.
    ///
    /// # Source
    /// [eHDL A.1]
    pub const RELOAD_CYCLES: u32 = 4;

    /// The cost of a flush in cycles if the hazard is with the next packet: the stages from the restart to the write,
    /// and the reload. A packet `d` cycles after the writer, and all packets after it, lose `d` cycles less.
    ///
    /// # Source
    /// K in [eHDL A.1]
    pub fn flush_cycles(&self, map: &MapTiming) -> u32 {
        (map.commit_stage() + 1).saturating_sub(map.restart_stage) + self.reload_cycles
    }
}
