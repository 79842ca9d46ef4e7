// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons why a program has no plan.

use flowloom_isa::Explained;

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// No dataflow.
    #[error("{0}")]
    Dataflow(flowloom_ir::Reason),
    /// A helper without a hardware block.
    #[error("no hardware block for `{0}`")]
    Helper(String),
    /// The length of a text that hardware does not print.
    #[error("the result of `{0}` is used, but hardware omits the call")]
    TraceResult(String),
    /// The value of another CPU.
    #[error("the value of another CPU is looked up in map `{0}`; a pipeline is one CPU, number 0")]
    OtherCpu(String),
    /// An entry of a map of ports is looked up.
    #[error("no hardware block looks up entries of map of ports `{0}`, only redirects")]
    PortLookup(String),
    /// A map of maps.
    #[error("no hardware block for map of maps `{0}`")]
    MapOfMaps(String),
    /// A ring buffer is given records by `ringbuf_output` and by `ringbuf_reserve`.
    #[error("ring buffer `{0}` is filled by `ringbuf_reserve` and `ringbuf_output`, expected one of the two")]
    RingOutputs(String),
    /// The old bytes of a ring buffer are read.
    #[error("a byte of a record of ring buffer `{0}` is read before it is written")]
    OldRecord(String),
    /// The end of the packet is moved a second time.
    #[error("the packet's end is moved twice, expected at most once")]
    CutTwice,
    /// A packet reads entries of a map after it inserted or deleted one.
    #[error("map `{map}` is read again after the same packet inserts or deletes an entry at instruction {write}")]
    OwnWrite {
        /// The name of the map.
        map: String,
        /// The instruction of the insertion or deletion.
        write: usize,
    },
    /// A packet accesses an entry by an address that it found before it updated an entry of the map.
    #[error("an entry of map `{map}` is {access} by an address found before the update at instruction {write}")]
    OldAddress {
        /// The name of the map.
        map: String,
        /// The instruction of the update.
        write: usize,
        /// What is done with the entry: `read` or `written`.
        access: &'static str,
    },
    /// A requested scheme does not keep a map consistent.
    #[error("map `{map}` cannot be kept consistent by `{scheme}`: {reason}")]
    Scheme {
        /// The name of the map.
        map: String,
        /// The scheme.
        scheme: &'static str,
        /// The reason.
        reason: String,
    },
    /// Circular hazards.
    #[error("the reads and writes of the maps {maps} depend on each other circularly")]
    Circular {
        /// The names of the maps.
        maps: String,
    },
    /// The dataflow is too large for the passes.
    #[error("the dataflow has {found} nodes, expected at most {most}")]
    TooManyNodes {
        /// The number of nodes after the pass that exceeded the bound.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// The pipeline is too deep.
    #[error("the pipeline takes {found} stages, expected at most {most}")]
    TooManyStages {
        /// The number of stages.
        found: u32,
        /// The bound.
        most: u32,
    },
    /// Values cross too many stages.
    #[error("the pipeline registers hold {found} values in total, expected at most {most}")]
    TooManyRegisters {
        /// The number of values, summed over stage boundaries.
        found: u64,
        /// The bound.
        most: u64,
    },
    /// An option names a map that the program does not have.
    #[error("no map `{found}`, expected one of {known}")]
    NoMap {
        /// The given name.
        found: String,
        /// The names of the maps.
        known: String,
    },
}

impl Reason {
    /// A short name of the reason, stable between releases; scoreboards count by it.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Dataflow(reason) => reason.code(),
            Reason::Helper(_) => "helper-foreign",
            Reason::TraceResult(_) => "trace-result",
            Reason::OtherCpu(_) => "other-cpu",
            Reason::PortLookup(_) => "port-lookup",
            Reason::MapOfMaps(_) => "map-of-maps",
            Reason::RingOutputs(_) | Reason::OldRecord(_) => "record",
            Reason::CutTwice => "tail-moved-twice",
            Reason::OwnWrite { .. } | Reason::OldAddress { .. } => "own-write",
            Reason::Scheme { .. } => "scheme",
            Reason::Circular { .. } => "hazard-circle",
            Reason::TooManyNodes { .. } | Reason::TooManyStages { .. } | Reason::TooManyRegisters { .. } => "budget",
            Reason::NoMap { .. } => "no-map",
        }
    }
}

impl Explained for Reason {
    fn help(&self) -> Option<&'static str> {
        Some(match self {
            Reason::Dataflow(reason) => return reason.help(),
            Reason::Helper(_) => "leave the call to a slow path on a CPU",
            Reason::TraceResult(_) => "do not use its result",
            Reason::OtherCpu(_) => "look up the own value (`bpf_map_lookup_elem`), or that of CPU 0",
            Reason::PortLookup(_) => "call `bpf_redirect_map` with the verdict for absent entries in its flags",
            Reason::MapOfMaps(_) => "use one map with the inner map's index as part of the key",
            Reason::RingOutputs(_) => "use `ringbuf_reserve` for all records, or `ringbuf_output`",
            Reason::OldRecord(_) => "write all bytes before reading them",
            Reason::CutTwice => "call `bpf_xdp_adjust_tail` once, with the sum of both offsets",
            Reason::OwnWrite { .. } => "keep the entry in a variable instead of looking it up again",
            Reason::OldAddress { .. } => {
                "access the entry before the update, and put all changes into the value of the update"
            }
            Reason::Scheme { .. } => "omit the scheme, or choose `flush`",
            Reason::Circular { .. } => "read all maps before the first write",
            Reason::TooManyNodes { .. } | Reason::TooManyRegisters { .. } => {
                "split the program, or write fewer entries of one map by keys that may be equal"
            }
            Reason::TooManyStages { .. } => {
                "split the program, or shorten chains of divisions, multiplications and lookups"
            }
            Reason::NoMap { .. } => return None,
        })
    }
}

/// A refusal: the reason and its place.
pub type Refusal = flowloom_isa::Refusal<Reason>;
