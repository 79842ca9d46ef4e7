// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons why a program has no dataflow.

use flowloom_isa::Explained;

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A loop with two entries.
    #[error("a loop is entered at instructions {0} and {1}, expected one entry")]
    TwoEntries(usize, usize),
    /// A loop without a bound of its own.
    #[error("a loop has no constant bound on its trip count")]
    Unbounded,
    /// Too many instructions after unrolling.
    #[error("the program has more than {0} instructions once loops are unrolled and calls inlined")]
    TooLong(usize),
    /// The path conditions exceed their budget.
    #[error("the conditions of the program's paths take more than {0} tests")]
    TooManyPaths(usize),
    /// A helper without an equivalent in hardware.
    #[error("`{0}` is called, which has no dataflow")]
    Helper(String),
    /// An instruction without an equivalent in hardware.
    #[error("`{0}` has no dataflow")]
    Instruction(String),
    /// The numeric value of an address differs between targets.
    #[error("an address is used as a number")]
    AddressAsNumber,
    /// A value is a number on some paths and an address on others.
    #[error("a value is a number on some paths and an address on others")]
    Mixed,
    /// An access of the stack or of a record at a variable offset.
    #[error("an access of the stack or of a record has {} possible offsets, expected at most {most}", .found.map_or("any number of".to_owned(), |found| found.to_string()))]
    ManyOffsets {
        /// The number of offsets, if known.
        found: Option<usize>,
        /// The most offsets.
        most: usize,
    },
    /// An address in a stack slot at a variable offset.
    #[error("an address is stored to or read from a stack slot whose offset is known only at run time")]
    SpillOffset,
    /// A field of the context that hardware does not have.
    #[error("byte {0} of the context is read, which hardware does not have")]
    Context(i64),
    /// A call on one of several maps.
    #[error("a call may use any of {found} maps, expected at most {most}")]
    SeveralMaps {
        /// The number of maps.
        found: usize,
        /// The most maps.
        most: usize,
    },
    /// A program that a tail call may lead to.
    #[error("program `{0}`, which a tail call may lead to, is not proved safe")]
    Sibling(String),
    /// Targets of tail calls: too many, or too long together.
    #[error(
        "a tail call may lead to any of {programs} programs of the object, and all sequences of them are too long for a pipeline"
    )]
    TailCallSequences {
        /// The number of targets.
        programs: usize,
    },
    /// The result of a trace call of unknown length is used.
    #[error("the result of `{0}` is used, which depends on an address or on a string known only at run time")]
    TraceResult(String),
    /// A tail call that exceeds the limit on some paths only.
    #[error("a tail call is the {0}th one on some paths only")]
    TailCalls(u32),
    /// A helper is given one of several callbacks.
    #[error("a helper is given one of several callbacks, expected the same one on all paths")]
    SeveralFunctions,
    /// Flags that are known only at run time.
    #[error("a helper with a callback is given flags, expected 0")]
    Flags,
    /// Callback iterations that are unknown or too many.
    #[error("the trip count of a callback has no known bound, expected at most {most}")]
    Iterations {
        /// The most iterations.
        most: u64,
    },
    /// Iteration over a map that is no array.
    #[error("a callback iterates over map `{0}`, expected an array")]
    Entries(String),
    /// One of several ring buffer records is submitted or discarded.
    #[error("one of several records is submitted or discarded, expected the same one on all paths")]
    SeveralRecords,
    /// A string that is not a null-terminated constant.
    #[error("a string argument is not a null-terminated constant")]
    Text,
    /// A length that is not constant, or too long.
    #[error("a length argument is not a constant of at most {most} bytes")]
    Length {
        /// The most bytes.
        most: usize,
    },
    /// A call reads too much memory.
    #[error("a call is given {found} bytes, expected at most {most} in all")]
    ManyBytes {
        /// The number of bytes.
        found: usize,
        /// The most bytes.
        most: usize,
    },
    /// The dataflow exceeds its budget of construction.
    #[error(
        "the dataflow has more than {most} {unit} at this instruction, and grows with each header at an offset known only at run time"
    )]
    Budget {
        /// The unit that is counted.
        unit: &'static str,
        /// The budget.
        most: usize,
    },
    /// A question to the parser that is not a constant.
    #[error("the question of `fl_parse` is known only at run time")]
    Question,
    /// A parse after a change of the packet.
    #[error("`fl_parse` is called after a change of the packet")]
    LateParse,
    /// No path reaches an exit.
    #[error("no path of the program ends")]
    NoEnd,
    /// The proof does not belong to the program.
    #[error("the proof has no path to instruction {0}")]
    Unseen(usize),
}

impl Reason {
    /// A short name of the reason, stable between releases; scoreboards count by it.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::TwoEntries(..) => "loop-entries",
            Reason::Unbounded => "loop-unbounded",
            Reason::TooLong(_) | Reason::TooManyPaths(_) | Reason::Budget { .. } => "budget",
            Reason::Helper(_) => "helper-foreign",
            Reason::Instruction(_) => "instruction-foreign",
            Reason::AddressAsNumber => "address-as-number",
            Reason::Mixed => "number-or-address",
            Reason::ManyOffsets { .. } => "stack-offset",
            Reason::SpillOffset => "stack-spill-offset",
            Reason::Context(_) => "context-field",
            Reason::SeveralMaps { .. } => "several-maps",
            Reason::Sibling(_) | Reason::TailCalls(_) | Reason::TailCallSequences { .. } => "tail-call",
            Reason::SeveralFunctions => "several-functions",
            Reason::Flags => "callback-flags",
            Reason::Iterations { .. } => "callback-rounds",
            Reason::Entries(_) => "callback-entries",
            Reason::SeveralRecords => "several-records",
            Reason::Text => "text",
            Reason::TraceResult(_) => "trace-result",
            Reason::Length { .. } | Reason::ManyBytes { .. } => "call-length",
            Reason::Question | Reason::LateParse => "parse",
            Reason::NoEnd => "no-end",
            Reason::Unseen(_) => "proof",
        }
    }
}

impl Explained for Reason {
    fn help(&self) -> Option<&'static str> {
        Some(match self {
            Reason::TwoEntries(..) => "write the loop with `for` or `while`: a jump into its middle has no dataflow",
            Reason::Unbounded => "count the iterations, and leave the loop at a constant",
            Reason::TooLong(_) => "bound the loop by a smaller constant",
            Reason::TooManyPaths(_) => "split the function, or make fewer branches depend on each other",
            Reason::Helper(_) => "leave the call to a slow path on a CPU",
            Reason::Instruction(_) | Reason::Context(_) => "leave the program to a CPU",
            Reason::AddressAsNumber => "use the difference of two packet addresses",
            Reason::Mixed => "assign the value on every path to this instruction",
            Reason::ManyOffsets { .. } => "mask the index, or keep the array in a map",
            Reason::SpillOffset => {
                "keep the address in a variable of its own, or store an index and compute the address from it"
            }
            Reason::SeveralMaps { .. } => "use one map whose key has one more field that tells the maps apart",
            Reason::Sibling(_) => "verify it, or leave it out of the object",
            Reason::TailCallSequences { .. } => {
                "make tail calls outside of functions, keep programs that make tail calls themselves out of the object, or increase the index with each tail call"
            }
            Reason::TraceResult(_) => "do not use its result",
            Reason::TailCalls(_) => "make tail calls only to programs that make none themselves",
            Reason::SeveralFunctions => "call the helper once for each callback, after a branch",
            Reason::Flags => "give the constant 0",
            Reason::Iterations { .. } => "mask the trip count, or return 1 from the callback to stop",
            Reason::Entries(_) => "use an array, or leave the call to a slow path on a CPU",
            Reason::SeveralRecords => "submit or discard each record where it was reserved",
            Reason::Text => "use a string constant of the program",
            Reason::Length { .. } => "give a constant, in a branch for each length",
            Reason::ManyBytes { .. } => "give fewer bytes to one call",
            Reason::Budget { .. } => {
                "unroll the parse of extensions or options fewer times, and write at offsets known only at run time in one place"
            }
            Reason::Question => "give a constant, in a branch for each question",
            Reason::LateParse => "call it before the packet is changed",
            Reason::NoEnd => "add a path to `exit`",
            Reason::Unseen(_) => "verify the program again",
        })
    }
}

/// A refusal: the reason and its place.
pub type Refusal = flowloom_isa::Refusal<Reason>;
