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
    #[error("a loop has no bound, expected one that the program itself ends")]
    Unbounded,
    /// Too many instructions after unrolling.
    #[error("with all rounds of its loops the program has more than {0} instructions")]
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
    #[error("what is used is a number on some paths and an address on others")]
    Mixed,
    /// An access of the stack or of a record at a variable offset.
    #[error("an access of the stack or of a record has {} offsets, expected at most {most} that it may have", .found.map_or("any number of".to_owned(), |found| found.to_string()))]
    ManyOffsets {
        /// The number of offsets, if known.
        found: Option<usize>,
        /// The most offsets.
        most: usize,
    },
    /// An address in a stack slot at a variable offset.
    #[error("an address is stored to or read from a stack slot whose offset only the run knows")]
    SpillOffset,
    /// A field of the context that hardware does not have.
    #[error("byte {0} of the context is read, which hardware does not have")]
    Context(i64),
    /// A call on one of several maps.
    #[error("a call is given one of {found} maps by its path, expected at most {most}")]
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
        "a tail call leads to any of {programs} programs of the object, and all sequences of them that it may begin are too long for a pipeline"
    )]
    TailCallSequences {
        /// The number of targets.
        programs: usize,
    },
    /// The result of a trace call of unknown length is used.
    #[error("the result of `{0}` is used, which depends on an address or on a text that only the run knows")]
    TraceResult(String),
    /// A tail call that exceeds the limit on some paths only.
    #[error("a tail call is the {0}th one on some paths only")]
    TailCalls(u32),
    /// A helper is given one of several callbacks.
    #[error("a helper is given one of several functions, expected the same one on all paths")]
    SeveralFunctions,
    /// Flags that are known only at run time.
    #[error("a helper that calls functions is given flags, expected 0")]
    Flags,
    /// Callback iterations that are unknown or too many.
    #[error("a function is called back any number of times, expected at most {most} for sure")]
    Rounds {
        /// The most iterations.
        most: u64,
    },
    /// Iteration over a map that is no array.
    #[error("all entries of map `{0}` are gone through, which is no array")]
    Entries(String),
    /// One of several ring buffer records is submitted or discarded.
    #[error("one of several records is given back, expected the same one on all paths")]
    SeveralRecords,
    /// A text that is not a terminated constant.
    #[error("a call is given a text that is no constant with its end")]
    Text,
    /// A length that is not constant, or too long.
    #[error("a call's length is no constant, or more than {most} bytes")]
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
        "the dataflow has more than {most} {unit} there, and grows with each header whose offset only the run knows"
    )]
    Budget {
        /// The unit that is counted.
        unit: &'static str,
        /// The budget.
        most: usize,
    },
    /// No path reaches an exit.
    #[error("no path of the program ends")]
    NoEnd,
    /// The proof does not belong to the program.
    #[error("no path was seen to lead to instruction {0}")]
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
            Reason::Rounds { .. } => "callback-rounds",
            Reason::Entries(_) => "callback-entries",
            Reason::SeveralRecords => "several-records",
            Reason::Text => "text",
            Reason::TraceResult(_) => "trace-result",
            Reason::Length { .. } | Reason::ManyBytes { .. } => "call-length",
            Reason::NoEnd => "no-end",
            Reason::Unseen(_) => "proof",
        }
    }
}

impl Explained for Reason {
    fn help(&self) -> Option<&'static str> {
        Some(match self {
            Reason::TwoEntries(..) => "write the loop with `for` or `while`: a jump into its middle has no form",
            Reason::Unbounded => "count the rounds, and leave at a constant",
            Reason::TooLong(_) => "bound the loop by a smaller constant",
            Reason::TooManyPaths(_) => "split the function, or let fewer branches depend on each other",
            Reason::Helper(_) => "leave the call to a slow path on a CPU",
            Reason::Instruction(_) | Reason::Context(_) => "leave the program to a CPU",
            Reason::AddressAsNumber => "reckon with the distance of two addresses of the packet",
            Reason::Mixed => "set what is used on every path that leads there",
            Reason::ManyOffsets { .. } => "mask the index, or keep the array in a map",
            Reason::SpillOffset => {
                "keep the address in a variable of its own, or store an index in the array and find the address by it"
            }
            Reason::SeveralMaps { .. } => "use one map whose key has one more field that says which it was",
            Reason::Sibling(_) => "verify it, or leave it out of the object",
            Reason::TailCallSequences { .. } => {
                "make tail calls outside of functions, keep programs that make tail calls themselves out of the object, or let an index grow with each tail call"
            }
            Reason::TraceResult(_) => "do not use its result",
            Reason::TailCalls(_) => "let tail calls lead to programs that call no others",
            Reason::SeveralFunctions => "call the helper once for each function, behind a branch",
            Reason::Flags => "give the constant 0",
            Reason::Rounds { .. } => "mask the number of rounds, and leave the callback early",
            Reason::Entries(_) => "keep what is gone through in an array, or leave the call to a slow path on a CPU",
            Reason::SeveralRecords => "submit or discard each record where it was reserved",
            Reason::Text => "let it be a constant of the program",
            Reason::Length { .. } => "give a constant, in a branch for each length",
            Reason::ManyBytes { .. } => "give fewer bytes to one call",
            Reason::Budget { .. } => {
                "unroll the parse of extensions or options fewer times, and write at offsets that only the run knows in one place"
            }
            Reason::NoEnd => "let a path lead to `exit`",
            Reason::Unseen(_) => "verify the program again, as it is",
        })
    }
}

/// A refusal: the reason and its place.
pub type Refusal = flowloom_isa::Refusal<Reason>;
