//! Reasons why a program has no plan.

use std::fmt;

use flowloom_isa::{LineInfo, Program};

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No dataflow.
    #[error("{0}")]
    Dataflow(flowloom_ir::Why),
    /// A helper without a hardware block.
    #[error("`{0}` is called, for which hardware has no block")]
    Helper(String),
    /// The length of a text that hardware does not print.
    #[error("the result of `{0}` is used, which hardware leaves out")]
    TraceResult(String),
    /// A map of maps.
    #[error("map `{0}` gives other maps, for which hardware has no block")]
    MapOfMaps(String),
    /// A ring buffer is given records by `ringbuf_output` and by `ringbuf_reserve`.
    #[error("ring buffer `{0}` is given records by `ringbuf_reserve` and by `ringbuf_output`, expected one of the two")]
    RingOutputs(String),
    /// The old bytes of a ring buffer are read.
    #[error("a byte of a record of ring buffer `{0}` is read before the program has stored it")]
    OldRecord(String),
    /// The end of the packet is moved a second time.
    #[error("the packet's end is moved twice, for which hardware has no block")]
    CutTwice,
    /// A packet reads entries of a map after it inserted or deleted one.
    #[error("map `{map}` is read again behind a change of its entries at instruction {write} by the same packet")]
    OwnWrite {
        /// The name of the map.
        map: String,
        /// The instruction of the insertion or deletion.
        write: usize,
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
    #[error("the reads and writes of the maps {maps} depend on each other in a circle")]
    Circle {
        /// The names of the maps.
        maps: String,
    },
    /// The dataflow is too large for the passes.
    #[error("the dataflow has {found} nodes, at most {most} are planned")]
    TooManyNodes {
        /// The number of nodes after the pass that exceeded the bound.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// The pipeline is too deep.
    #[error("the pipeline takes {found} stages, at most {most} are planned")]
    TooManyStages {
        /// The number of stages.
        found: u32,
        /// The bound.
        most: u32,
    },
    /// Values cross too many stages.
    #[error("the stages keep {found} values in registers in all, at most {most} are planned")]
    TooManyRegisters {
        /// The number of values, summed over stage boundaries.
        found: u64,
        /// The bound.
        most: u64,
    },
    /// An option names a map that the program does not have.
    #[error("there is no map `{found}`; there are {known}")]
    NoMap {
        /// The given name.
        found: String,
        /// The names of the maps.
        known: String,
    },
}

impl Why {
    /// A short name of the reason, stable between releases; scoreboards count by it.
    pub fn code(&self) -> &'static str {
        match self {
            Why::Dataflow(why) => why.code(),
            Why::Helper(_) => "helper-foreign",
            Why::TraceResult(_) => "trace-result",
            Why::MapOfMaps(_) => "map-of-maps",
            Why::RingOutputs(_) | Why::OldRecord(_) => "record",
            Why::CutTwice => "tail-moved-twice",
            Why::OwnWrite { .. } => "own-write",
            Why::Scheme { .. } => "scheme",
            Why::Circle { .. } => "hazard-circle",
            Why::TooManyNodes { .. } | Why::TooManyStages { .. } | Why::TooManyRegisters { .. } => "budget",
            Why::NoMap { .. } => "no-map",
        }
    }

    /// A way out for the user.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Why::Dataflow(why) => return Some(why.help()),
            Why::Helper(_) => "leave the call to a slow path on a CPU",
            Why::TraceResult(_) => "do not use its result",
            Why::MapOfMaps(_) => "make the number of the inner map a part of the key of one map",
            Why::RingOutputs(_) => "reserve all records, or output all of them",
            Why::OldRecord(_) => "store all bytes that are read",
            Why::CutTwice => "move the end once, by the sum of both distances",
            Why::OwnWrite { .. } => "keep what was found or made in a variable instead of looking it up again",
            Why::Scheme { .. } => "leave the scheme to the planner, or ask for `flush`",
            Why::Circle { .. } => "read all maps before the first one is changed",
            Why::TooManyNodes { .. } | Why::TooManyRegisters { .. } => {
                "split the program, or change fewer entries of one map by keys that may be the same"
            }
            Why::TooManyStages { .. } => {
                "split the program, or let fewer divisions, products and lookups wait for each other"
            }
            Why::NoMap { .. } => return None,
        })
    }
}

/// A refusal: the reason and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The name of the program.
    pub program: String,
    /// The index of the instruction, if any.
    pub insn: Option<usize>,
    /// The source line, if known.
    pub line: Option<LineInfo>,
    /// The reason.
    pub why: Why,
}

impl Refusal {
    pub(crate) fn at(program: &Program, insn: Option<usize>, why: Why) -> Refusal {
        let line = insn.and_then(|insn| program.line_of(insn)).filter(|line| line.line > 0).cloned();
        Refusal { program: program.name.clone(), insn, line, why }
    }
}

impl From<flowloom_ir::Refusal> for Refusal {
    fn from(other: flowloom_ir::Refusal) -> Refusal {
        Refusal { program: other.program, insn: Some(other.insn), line: other.line, why: Why::Dataflow(other.why) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program `{}`", self.program)?;
        if let Some(insn) = self.insn {
            write!(f, ", instruction {insn}")?;
        }
        if let Some(line) = &self.line {
            write!(f, ", {line}")?;
        }
        write!(f, ": {}", self.why)?;
        self.why.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl std::error::Error for Refusal {}
