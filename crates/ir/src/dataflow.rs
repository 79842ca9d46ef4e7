// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form of a program as dataflow: graph, maps, patterns of calls, outputs.

use std::collections::BTreeMap;

use flowloom_isa::MapKind;

use crate::graph::{Graph, Id};

/// The form of an argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    /// A number: one node.
    Number,
    /// The context: no node.
    Context,
    /// A map: no node.
    Map(u32),
    /// Memory that is read: one node of 8 bits for each byte.
    Read(u16),
    /// The same for memory that may be written; its new contents are nodes `Kind::Changed`.
    Changed(u16),
    /// The start of the packet at the call: one node of 32 bits. The state of the packet comes after the arguments in
    /// registers.
    Head,
    /// The end of the packet: one node of 32 bits.
    Tail,
    /// The offset from which on bytes are no longer those received: one node of 32 bits.
    Kept,
    /// The base of an [`Overlay`], whose bytes follow: one node of 32 bits.
    Base,
    /// A byte of the last overlay at this offset: whether it was written, and the byte.
    Laid(i64),
    /// The byte at this offset from the packet's first byte as received, above all overlays.
    Byte(i64),
    /// The byte at this offset of a ring buffer record that the call gives back: whether the program has stored it, and
    /// the byte.
    Stored(u32),
}

impl Argument {
    /// The number of nodes that it takes.
    pub fn nodes(self) -> usize {
        match self {
            Argument::Context | Argument::Map(_) => 0,
            Argument::Number | Argument::Head | Argument::Tail | Argument::Kept => 1,
            Argument::Base | Argument::Byte(_) => 1,
            Argument::Laid(_) | Argument::Stored(_) => 2,
            Argument::Read(bytes) | Argument::Changed(bytes) => bytes.into(),
        }
    }
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The number of the helper.
    pub helper: i32,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

impl Pattern {
    /// The map that the call is given by its index.
    pub fn map(&self) -> Option<u32> {
        self.arguments.iter().find_map(|argument| match argument {
            Argument::Map(map) => Some(*map),
            _ => None,
        })
    }

    /// The bytes of memory that the call may write.
    pub fn changed_bytes(&self) -> usize {
        let bytes = self.arguments.iter().map(|argument| match argument {
            Argument::Changed(bytes) => usize::from(*bytes),
            _ => 0,
        });
        bytes.sum()
    }
}

/// The outputs: verdict and packet.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The return value of the program: 32 bits.
    pub verdict: Id,
    /// The start of the packet, relative to its first byte as received: 32 bits, signed.
    pub head: Id,
    /// The end of the packet: 32 bits.
    pub tail: Id,
    /// Bytes from this offset on are zeros unless written: the packet was cut there and grew again. 32 bits.
    pub kept: Option<Id>,
    /// Bytes that differ from those received, by their offset from the first byte as received: 8 bits each.
    pub packet: BTreeMap<i64, Id>,
    /// Bytes at offsets known only at run time: later overlays lie above earlier ones, `packet` above all.
    pub overlays: Vec<Overlay>,
    /// Whether the program accesses bytes beyond the window, so that the packet takes the slow path: one bit. Then no
    /// effect happens, and the other outputs are meaningless. 0 until the pass `one-hot-offsets` has chosen a window.
    pub slow: Id,
}

/// An access or comparison that depends on an offset known only at run time; a pipeline sees the first bytes of a
/// packet only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// A bit that is implied by its path condition.
    pub when: Id,
    /// The access or comparison.
    pub by: Reaching,
}

/// The kinds of dependence on an offset known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaching {
    /// An access to bytes of the packet before `end`, counted from `base`: 32 bits, signed, from the packet's first
    /// byte.
    Access {
        /// The base offset.
        base: Id,
        /// The end of the access.
        end: i64,
    },
    /// A comparison of offsets.
    Test(Id),
}

impl Reaching {
    /// The node concerned.
    pub fn subject(self) -> Id {
        match self {
            Reaching::Access { base, .. } => base,
            Reaching::Test(test) => test,
        }
    }

    /// The same for another node.
    #[must_use]
    pub fn about(self, subject: Id) -> Reaching {
        match self {
            Reaching::Access { end, .. } => Reaching::Access { base: subject, end },
            Reaching::Test(_) => Reaching::Test(subject),
        }
    }
}

/// Bytes of the packet that were written at one base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The base, from the packet's first byte as received: 32 bits, signed.
    pub base: Id,
    /// The bytes, by their offset from the base.
    pub bytes: BTreeMap<i64, Laid>,
}

/// A byte that may have been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laid {
    /// Whether it was written: one bit.
    pub when: Id,
    /// The value: 8 bits.
    pub byte: Id,
}

impl Ending {
    /// The nodes that the ending uses.
    pub fn nodes(&self) -> impl Iterator<Item = Id> + '_ {
        let laid = |overlay: &Overlay| {
            let bytes: Vec<Id> = overlay.bytes.values().flat_map(|laid| [laid.when, laid.byte]).collect();
            bytes.into_iter().chain([overlay.base])
        };
        let packet = self.packet.values().copied().chain(self.overlays.iter().flat_map(laid));
        [self.verdict, self.head, self.tail, self.slow].into_iter().chain(self.kept).chain(packet)
    }

    /// The ending with its nodes replaced.
    pub fn map(&self, mut to: impl FnMut(Id) -> Id) -> Ending {
        let packet = self.packet.iter().map(|(at, byte)| (*at, to(*byte))).collect();
        let overlays = self.overlays.iter().map(|overlay| Overlay {
            base: to(overlay.base),
            bytes: overlay
                .bytes
                .iter()
                .map(|(at, laid)| (*at, Laid { when: to(laid.when), byte: to(laid.byte) }))
                .collect(),
        });
        let overlays = overlays.collect();
        let [verdict, head, tail, slow] = [self.verdict, self.head, self.tail, self.slow].map(&mut to);
        Ending { verdict, head, tail, kept: self.kept.map(to), packet, overlays, slow }
    }
}

/// The definition of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: MapKind,
    /// The key size in bytes.
    pub key_bytes: u32,
    /// The value size in bytes.
    pub value_bytes: u32,
    /// The capacity in entries.
    pub max_entries: u32,
}

/// A program as dataflow.
#[derive(Debug, Clone)]
pub struct Dataflow {
    /// The name of the program.
    pub name: String,
    /// The values and effects.
    pub graph: Graph,
    /// The argument patterns of calls, by index.
    pub patterns: Vec<Pattern>,
    /// The maps of the program, by index.
    pub maps: Vec<Table>,
    /// The outputs.
    pub ending: Ending,
    /// Accesses to maps that must not overtake these earlier effects of the same packet although no value connects them.
    pub waits: BTreeMap<Id, Vec<Id>>,
    /// By lookup in a map that packets write and by change of its entries, a predicate that holds wherever the program
    /// makes the access: that of the lookup before speculation. Where it is false, the packet has nothing to do with
    /// the entry.
    pub wanted: BTreeMap<Id, Id>,
    /// Accesses and comparisons at offsets known only at run time; empty after the pass `one-hot-offsets`.
    pub reaches: Vec<Reach>,
}
