// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts that hold on a path: valid headers, test results, loaded values and held locks.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_wire::field::FieldId;

use super::locking::HeldLocks;

/// Facts that hold on a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Facts {
    /// Sets of valid headers that are still possible.
    pub(super) masks: Vec<u32>,
    /// Metadata fields with values known at compile time.
    pub(super) metadata: BTreeMap<u16, u128>,
    /// Results of tests, by the number of the condition.
    pub(super) tested: BTreeMap<usize, bool>,
    /// Values that are in their registers.
    pub(super) loaded: BTreeSet<Item>,
    /// The packet's time has been read.
    pub(super) now_is_known: bool,
    /// Some path to here has read it.
    pub(super) now_may_be_known: bool,
    /// Whether the insertion of an absent context found the table full; if it did not, the context is tentatively
    /// stored.
    pub(super) full: Option<bool>,
    pub(super) held: HeldLocks,
}

/// A value that a path has loaded into its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Item {
    Field(FieldId),
    /// The high or low half of a field in memory byte order; the low half if the field has up to 64 bits.
    Raw(FieldId, Half),
    /// Time in units of this many nanoseconds.
    Clock(u64),
    Register(u16),
    Global(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Half {
    High,
    Low,
}
