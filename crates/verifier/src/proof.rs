// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts that the verifier proves: the memory accesses of each instruction, the directions of each branch.

use std::collections::BTreeMap;

use super::value::MapId;
use flowloom_isa::op::Size;

/// A memory region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
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
    /// A map value; offsets from its start.
    Value(MapId),
    /// A map key that a callback gets.
    Key(MapId),
    /// A reserved ring buffer record.
    Record,
}

/// Whether memory is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touch {
    /// It is read.
    pub reads: bool,
    /// It is written.
    pub writes: bool,
}

/// The bytes that an instruction accesses, over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The first offset.
    pub first: i64,
    /// The offset after the last byte.
    pub end: i64,
    /// The alignment of every access relative to the region's start, a power of two up to 8.
    pub align: u32,
    /// Reads and writes.
    pub touch: Touch,
}

/// The facts about an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Whether an instruction begins in this slot: not in the second slot of a 64-bit load.
    pub begins: bool,
    /// Whether any path reaches it.
    pub reached: bool,
    /// The memory that it accesses, itself or through a helper.
    pub memory: BTreeMap<Memory, Bytes>,
    /// For a branch: whether it ever jumps, and whether it ever falls through.
    pub edges: Edges,
    /// For a helper call on a map: the possible maps.
    pub maps: std::collections::BTreeSet<MapId>,
    /// An address became a number there, whose value differs between targets.
    pub leaks: bool,
    /// It reads stack bytes that may be uninitialised.
    pub reads_unwritten: bool,
    /// It calls a helper that may read other memory at unchecked addresses.
    pub probes: bool,
    /// For an array lookup: whether its key is always out of bounds, so that it always fails.
    pub lookup: Lookup,
    /// Bytes that leave the program and depend on the kernel: the first one and the one after the last, over all paths,
    /// relative to the key, value, record or packet.
    pub sends: BTreeMap<(Sink, Contents), (i64, i64)>,
}

/// The facts about the keys of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lookup {
    /// No lookup that is reached.
    #[default]
    None,
    /// Some key may be in the map.
    MayFind,
    /// Every key is out of the array's bounds; this is the first one seen.
    Outside(u64),
}

/// Where bytes leave the program to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sink {
    /// The key of a map update.
    Key(MapId),
    /// A map value.
    Value(MapId),
    /// A record for user space: of a ring buffer or perf event array.
    Event(MapId),
    /// The packet, or another one that is sent.
    Packet,
}

/// Contents of bytes that differ between kernels and engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contents {
    /// Uninitialised stack bytes.
    Unwritten,
    /// A kernel address.
    Address,
}

/// The feasible edges of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edges {
    /// It jumps on some path.
    pub jumps: bool,
    /// It falls through on some path.
    pub falls: bool,
}

/// The facts about a safe program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// By slot.
    pub insns: Vec<Known>,
    /// By loop header, the greatest trip count. `None` if only its `may_goto` may end the loop, after some millions of
    /// iterations.
    pub loops: BTreeMap<usize, Option<u64>>,
    /// The number of walked instructions over all paths.
    pub processed: u64,
    /// The number of checkpoints.
    pub states: usize,
}

impl Proof {
    /// The bytes of the packet that are accessed at bounded offsets: the offset after the last one.
    pub fn window(&self) -> u64 {
        let packet = self.insns.iter().filter_map(|known| known.memory.get(&Memory::Packet));
        packet.map(|bytes| bytes.end.max(0) as u64).max().unwrap_or(0)
    }

    /// The instructions through which bytes leave the program whose contents depend on the kernel, with these bytes.
    pub fn kernel_dependent(&self) -> impl Iterator<Item = (usize, Sink, Contents, (i64, i64))> + '_ {
        let all = self.insns.iter().enumerate();
        all.flat_map(|(at, known)| known.sends.iter().map(move |((to, what), bytes)| (at, *to, *what, *bytes)))
    }

    pub(super) fn sends(&mut self, at: usize, to: Sink, what: Contents, (first, end): (i64, i64)) {
        let Some(known) = self.insns.get_mut(at) else { return };
        let bytes = known.sends.entry((to, what)).or_insert((first, end));
        *bytes = (bytes.0.min(first), bytes.1.max(end));
    }

    /// Unreachable instructions, by their first slot.
    pub fn dead(&self) -> impl Iterator<Item = usize> + '_ {
        self.insns.iter().enumerate().filter(|(_, known)| known.begins && !known.reached).map(|(at, _)| at)
    }

    pub(super) fn touch(&mut self, at: usize, memory: Memory, (first, end): (i64, i64), align: u32, touch: Touch) {
        let Some(known) = self.insns.get_mut(at) else { return };
        let bytes = known.memory.entry(memory).or_insert(Bytes { first, end, align, touch });
        bytes.first = bytes.first.min(first);
        bytes.end = bytes.end.max(end);
        bytes.align = bytes.align.min(align);
        bytes.touch.reads |= touch.reads;
        bytes.touch.writes |= touch.writes;
    }
}

impl Touch {
    /// A load.
    pub const READ: Touch = Touch { reads: true, writes: false };
    /// A store.
    pub const WRITE: Touch = Touch { reads: false, writes: true };
    /// An atomic operation.
    pub const BOTH: Touch = Touch { reads: true, writes: true };
}

/// The alignment of offsets with so many known zeros as their low bits.
pub(super) fn alignment(known_zeros: u32) -> u32 {
    1 << known_zeros.min(Size::Dw.bytes().trailing_zeros())
}
