// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the lowering.

use super::place::SourceLine;

/// A function that cannot be lowered to eBPF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// Keys, records and values do not fit the frame.
    #[error(
        "the program needs {found} bytes of stack, eBPF has {limit}; {at} needs most of it: shorten keys or contexts"
    )]
    Stack {
        /// Bytes needed.
        found: u32,
        /// Stack limit in bytes.
        limit: u32,
        /// The part that needs most: an element (key and context), an emitted packet, or a row (values).
        at: SourceLine,
    },
    /// The program would be too long.
    #[error(
        "the program would have {found} operations before register allocation, at most {limit} are allowed; \
         {at} has most of them: use fewer rows or states"
    )]
    TooLong {
        /// Number of operations.
        found: usize,
        /// Largest allowed number.
        limit: usize,
        /// The row with most operations, or the element if no row has a large part.
        at: SourceLine,
    },
    /// A jump is too far, and islands cannot bring its target into reach.
    #[error(
        "the program has {found} instructions, and a jump reaches {limit}, even with islands; {at} is the longest part: \
         use fewer rows, or split it"
    )]
    TooFar {
        /// Number of instructions.
        found: usize,
        /// Number of instructions that a jump can pass over.
        limit: usize,
        /// The row with most instructions.
        at: SourceLine,
    },
    /// The program is to run on interfaces, and the function needs something that no kernel offers.
    #[error("no kernel can run this: {feature}")]
    Kernel {
        /// The feature, its place in the source and the reason.
        feature: String,
    },
    /// The frame would grow by more than the headroom.
    #[error("the frame can grow by {found} bytes, XDP has {limit} bytes of headroom; {at} adds most of it: push less")]
    Headroom {
        /// Bytes that steps can add on some path through the elements.
        found: u32,
        /// Headroom in bytes.
        limit: u32,
        /// The row on this path that adds most.
        at: SourceLine,
    },
    /// The function has more counters than a map value holds.
    #[error(
        "the function has {found} counters of states and rows, a map holds {limit}; {at} has most of them: lower it without counters"
    )]
    Counters {
        /// Counters needed.
        found: u32,
        /// Limit on counters.
        limit: u32,
        /// The element with most of them.
        at: SourceLine,
    },
}
