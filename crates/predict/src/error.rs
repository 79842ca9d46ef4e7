// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of predictions.

use flowloom_engine::EngineError;
use flowloom_isa::ProgramError;
use flowloom_trace::TraceError;

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The clock is out of range.
    #[error("the clock is {found} MHz, expected more than 0 and at most {most} MHz")]
    Clock {
        /// The given clock in MHz.
        found: f64,
        /// The fastest one.
        most: f64,
    },
    /// A latency is out of range.
    #[error("`{what}` is {found} cycles, expected {least} to {most}")]
    Cycles {
        /// The name of the parameter.
        what: &'static str,
        /// The given value.
        found: u32,
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// More maps than the model supports.
    #[error("the pipeline has {found} maps that packets write, expected at most {most}")]
    Maps {
        /// The number of maps.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// A parameter of a map is out of range.
    #[error("`{what}` of map `{map}` is {found}, expected {least} to {most}")]
    Map {
        /// The name of the map.
        map: String,
        /// The name of the parameter.
        what: &'static str,
        /// The given value.
        found: u32,
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// Packets would wait inside of a flush region.
    #[error("packets wait before stage {stage}, inside the flush region of map `{map}`: stages {first} to {last}")]
    Region {
        /// The flushed map.
        map: String,
        /// The stage where other packets wait.
        stage: u32,
        /// The first stage of the region.
        first: u32,
        /// The last stage of the region.
        last: u32,
    },
    /// A flush would repeat the write of another map.
    #[error("map `{map}` is written inside the flush region of map `{flushed}`: stages {first} to {last}")]
    Repeated {
        /// The map that would be written twice.
        map: String,
        /// The flushed map.
        flushed: String,
        /// The first stage of the region.
        first: u32,
        /// The last stage of the region.
        last: u32,
    },
    /// A buffer is too small for a packet.
    #[error("the {which} buffer is {found} bytes, expected at least {least}")]
    Buffer {
        /// Which buffer.
        which: &'static str,
        /// The given size.
        found: u32,
        /// The minimum.
        least: u32,
    },
    /// A hash map is too large for the model of the cycles, which holds all keys.
    #[error("map {map} has {found} entries, the model of the cycles holds at most {most}")]
    Entries {
        /// The index of the map.
        map: u32,
        /// Its entries.
        found: u32,
        /// The limit.
        most: u32,
    },
    /// Packets send others besides themselves.
    #[error("packets send others besides themselves, whose cycles the model does not have")]
    Extra,
    /// A full map evicts entries.
    #[error("map `{map}` evicts the entry with the least recent use, whose cycles the model does not have")]
    Lru {
        /// The name of the map.
        map: String,
    },
    /// Packets that access maps by several keys run alone.
    #[error(
        "packets that access a map by several keys run alone and hold the others up, which the model of the cycles does \
         not have, nor that of the plan"
    )]
    Alone,
    /// Packets wait for ever: new keys of the same rows as others find no place in a hash map.
    #[error(
        "the pipeline is stuck in cycle {cycle} with {packets} packets: new keys of a hash map find no place in its table; \
         predict with fewer keys of the same rows, or with a larger map"
    )]
    Stuck {
        /// The cycle.
        cycle: u64,
        /// The packets in the pipeline.
        packets: usize,
    },
    /// A hash map has no model of its cycles.
    #[error(transparent)]
    Table(#[from] flowloom_state::ParameterError),
    /// The program cannot be run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The program failed on a packet.
    #[error(transparent)]
    Run(#[from] EngineError),
    /// The traffic cannot be read or generated.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
