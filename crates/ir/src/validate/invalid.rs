// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants of dataflow, as the faults that break them.

use std::fmt;

use crate::graph::Id;

/// The width of the widest value in bits.
pub(super) const MAX_BITS: u16 = 64;
pub(super) const ADDRESS_BITS: u16 = 64;
/// The width of an offset into the packet, and of the verdict, in bits.
pub(super) const OFFSET_BITS: u16 = 32;

/// A user of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// A node.
    Node(Id),
    /// An output: `verdict`, `head`, `tail`, `kept`, `slow`.
    Output(&'static str),
    /// The byte of the packet that leaves at this offset.
    Packet(i64),
    /// An overlay, by its index.
    Overlay(usize),
    /// A wait, by its read.
    Wait(Id),
    /// The predicate of a speculated lookup.
    Wanted(Id),
    /// A reach, by its index.
    Reach(usize),
    /// A pattern, by its index.
    Pattern(usize),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Node(id) => write!(f, "{id}"),
            Site::Output(name) => write!(f, "output `{name}`"),
            Site::Packet(at) => write!(f, "output `packet {at}`"),
            Site::Overlay(number) => write!(f, "overlay {number}"),
            Site::Wait(read) => write!(f, "the wait of {read}"),
            Site::Wanted(lookup) => write!(f, "the predicate of {lookup}"),
            Site::Reach(number) => write!(f, "reach {number}"),
            Site::Pattern(number) => write!(f, "pattern {number}"),
        }
    }
}

/// A violated invariant: where, what was found, what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Invalid {
    /// A reference to a node that does not exist.
    #[error("{site} refers to {found}, expected a node below v{nodes}")]
    UnknownNode { site: Site, found: Id, nodes: usize },
    /// An argument that is not an earlier node: the order is not topological, or the graph has a cycle.
    #[error("{node} takes {found}, expected an earlier node")]
    Order { node: Id, found: Id },
    /// Too few or too many arguments.
    #[error("{node} has {found} arguments, expected {expected}")]
    Arity { node: Id, found: usize, expected: usize },
    /// A concatenation of nothing.
    #[error("concatenation {node} has no arguments")]
    EmptyConcat { node: Id },
    /// A select without (condition, value) pairs and a default.
    #[error("select {node} has {found} arguments, expected (condition, value) pairs, then the default")]
    Select { node: Id, found: usize },
    /// A condition of a select that is not one bit wide.
    #[error("condition {found} of select {node} has {bits} bits, expected 1")]
    Condition { node: Id, found: Id, bits: u16 },
    /// An effect whose predicate is not one bit wide.
    #[error("predicate {found} of {node} has {bits} bits, expected 1")]
    Predicate { node: Id, found: Id, bits: u16 },
    /// An argument of the wrong width.
    #[error("argument {argument} of {node} has {found} bits, expected {expected}")]
    ArgumentWidth { node: Id, argument: usize, found: u16, expected: u16 },
    /// A result or an output of the wrong width.
    #[error("{site} has {found} bits, expected {expected}")]
    Width { site: Site, found: u16, expected: u16 },
    /// A value of no bits, or of too many.
    #[error("{node} has {found} bits, expected 1 to {MAX_BITS}")]
    WidthRange { node: Id, found: u16 },
    /// A slice beyond its argument.
    #[error("slice {node} takes bits {low} to {end} of {bits}")]
    Slice { node: Id, low: u16, end: u32, bits: u16 },
    /// A constant with bits above its width.
    #[error("constant {node} is {value:#x}, expected at most {bits} bits")]
    Constant { node: Id, value: u64, bits: u16 },
    /// A packet access of a part of a byte.
    #[error("packet access {node} has {found} bits, expected whole bytes")]
    PartialByte { node: Id, found: u16 },
    /// A pure node equal to an earlier one.
    #[error("{node} equals {first}, expected one hash-consed node")]
    Duplicate { node: Id, first: Id },
    /// A pattern that does not exist.
    #[error("call {node} has pattern {found}, expected one below {patterns}")]
    UnknownPattern { node: Id, found: u16, patterns: usize },
    /// A map that does not exist.
    #[error("{site} refers to map {found}, expected one below {maps}")]
    UnknownMap { site: Site, found: u32, maps: usize },
    /// A call whose pattern belongs to another helper.
    #[error("call {node} is of helper {found}, its pattern of helper {expected}")]
    PatternHelper { node: Id, found: i32, expected: i32 },
    /// Arguments that the helper does not take, or a helper without dataflow.
    #[error("pattern {pattern} has arguments that helper {helper} does not take")]
    PatternForm { pattern: usize, helper: i32 },
    /// A map of a kind that the helper does not take.
    #[error("pattern {pattern} gives map {map} to helper {helper}, which does not take maps of its kind")]
    MapKind { pattern: usize, helper: i32, map: u32 },
    /// A key of the wrong size.
    #[error("pattern {pattern} has a key of {found} bytes, map {map} expects {expected}")]
    KeyBytes { pattern: usize, map: u32, found: u32, expected: u32 },
    /// A value of the wrong size.
    #[error("pattern {pattern} has a value of {found} bytes, map {map} expects {expected}")]
    ValueBytes { pattern: usize, map: u32, found: u32, expected: u32 },
    /// A byte of memory whose argument is not a call.
    #[error("{node} is a byte that {found} wrote, expected a call")]
    NotACall { node: Id, found: Id },
    /// A byte that the call does not write.
    #[error("{node} is byte {found} of those that its call may write, expected one below {bytes}")]
    ChangedByte { node: Id, found: u16, bytes: usize },
    /// A base that is not the address of a value of one map.
    #[error("effect {node} has base {found}, expected the address of a value of one map")]
    Base { node: Id, found: Id },
    /// The only value of a map with several entries.
    #[error("{node} is the only value of map {map}, which has {found} entries")]
    SeveralEntries { node: Id, map: u32, found: u32 },
    /// An access at a constant offset beyond the value of its map.
    #[error("effect {node} ends at byte {end} of a value of map {map}, which has {bytes} bytes")]
    Extent { node: Id, map: u32, end: u64, bytes: u32 },
    /// A bit that has to be known before any effect, and depends on one.
    #[error("{site} depends on effect {effect}, expected inputs only")]
    EarlyEffect { site: Site, effect: Id },
    /// A comparison of offsets that is none.
    #[error("{site} is about {found}, expected a comparison")]
    ReachKind { site: Site, found: Id },
    /// A reach after the pass that chooses the window.
    #[error("{site} remains after the slow-path bit {slow} was computed")]
    StaleReach { site: Site, slow: Id },
    /// A wait of a node that accesses no entry.
    #[error("{read} waits, expected a lookup, a load, a store or an atomic operation")]
    WaitingNode { read: Id },
    /// A wait for a node that does not write the map of the read.
    #[error("{read} waits for {found}, expected a write of the same map")]
    AwaitedNode { read: Id, found: Id },
    /// A wait for a later effect.
    #[error("{read} waits for {found}, expected an earlier effect")]
    WaitOrder { read: Id, found: Id },
}
