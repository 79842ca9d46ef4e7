//! What cannot be predicted.

use flowloom_bpf::ProgramError;
use flowloom_engine::EngineError;
use flowloom_trace::TraceError;

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The clock does not run.
    #[error("the clock is {found} MHz, expected more than 0 and at most {most} MHz")]
    Clock {
        /// What was found.
        found: f64,
        /// The fastest.
        most: f64,
    },
    /// The pipeline is too long, or shorter than its stages.
    #[error("`{what}` is {found} cycles, expected {least} to {most}")]
    Cycles {
        /// Which number.
        what: &'static str,
        /// What was found.
        found: u32,
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// More maps than the model has room for.
    #[error("the pipeline has {found} maps that packets change, expected at most {most}")]
    Maps {
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// A number of a map is out of its bounds.
    #[error("`{what}` of map `{map}` is {found}, expected {least} to {most}")]
    Map {
        /// The map.
        map: String,
        /// Which number.
        what: &'static str,
        /// What was found.
        found: u32,
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// Packets would wait in the middle of what a flush repeats.
    #[error(
        "packets wait in front of stage {stage}, inside of what a flush of map `{map}` repeats: stages {first} to {last}"
    )]
    Region {
        /// The map that is flushed.
        map: String,
        /// Where others wait.
        stage: u32,
        /// The first stage of its region.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// A flush would repeat the write of another map.
    #[error("map `{map}` is written inside of what a flush of map `{flushed}` repeats: stages {first} to {last}")]
    Repeated {
        /// The map that would be written twice.
        map: String,
        /// The map that is flushed.
        flushed: String,
        /// The first stage of its region.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// A buffer holds no packet.
    #[error("the {which} buffer is {found} bytes, expected at least {least}")]
    Buffer {
        /// Which.
        which: &'static str,
        /// What was found.
        found: u32,
        /// The least.
        least: u32,
    },
    /// The program is none that runs.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The program does not run on a packet.
    #[error(transparent)]
    Run(#[from] EngineError),
    /// The traffic cannot be read or made.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
