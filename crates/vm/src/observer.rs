// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observers: code that follows a run instruction by instruction and may stop it.

use flowloom_isa::op::Op;

/// The place of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The program: 0, or the index of a sibling plus 1.
    pub program: usize,
    /// The slot of the instruction.
    pub slot: usize,
}

/// A memory region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// `struct xdp_md`; offsets from its start.
    Context,
    /// The stack of a frame; offsets from its end.
    Stack {
        /// The number of calls up from the current frame, which is 0.
        up: u8,
    },
    /// The packet; offsets from its first byte at that time.
    Packet,
    /// The metadata area; offsets from `data_meta`.
    Metadata,
    /// A value of this map, which may come from a map of maps; offsets from its start.
    Value(u32),
    /// A key that a callback gets.
    Key,
    /// A reserved ring buffer record.
    Record,
}

/// An access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The region.
    pub region: Region,
    /// The offset of the first byte.
    pub first: i64,
    /// The length in bytes.
    pub len: usize,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
}

/// What an observer wants to know of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watch {
    /// Nothing: it need not be told of it.
    Nothing,
    /// Accesses other than these, before they are made.
    Accesses(Box<[Allowed]>),
    /// Every execution.
    Everything,
}

/// Accesses that an observer need not be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// The region.
    pub region: Region,
    /// The offset of the first byte.
    pub first: i64,
    /// The offset after the last byte.
    pub end: i64,
    /// What the offset of an access is a multiple of: a power of 2.
    pub align: u32,
}

impl Allowed {
    /// Whether it includes an access.
    #[inline]
    pub fn has(&self, region: Region, first: i64, len: i64) -> bool {
        let is_inside = self.first <= first && first + len <= self.end;
        is_inside && self.region == region && first & (i64::from(self.align) - 1) == 0
    }
}

/// Follows the runs of a program; a message stops the run with a fault at the instruction.
pub trait Observer: Send {
    /// What it wants to know of an instruction; asked once, before the first run.
    fn watch(&self, _: At, _: Op) -> Watch {
        Watch::Everything
    }

    /// A packet begins.
    fn begin(&mut self) {}

    /// An instruction is about to run. `access` is the access of a load, store or atomic operation to a known region.
    ///
    /// # Errors
    /// The message of the fault.
    fn before(&mut self, at: At, op: Op, access: Option<Access>) -> Result<(), String>;

    /// An instruction has run. `next` follows, in a function at this call depth; `accesses` are those of a helper.
    ///
    /// # Errors
    /// The message of the fault.
    fn after(&mut self, at: At, op: Op, next: At, depth: usize, accesses: &[Access]) -> Result<(), String>;
}
