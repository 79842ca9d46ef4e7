//! What the verification found out: for each instruction which memory it touches, for each branch which way it goes.

use std::collections::BTreeMap;

use super::value::MapId;
use crate::op::Size;

/// Memory that an instruction touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// `struct xdp_md`; offsets from its start.
    Context,
    /// The stack of the frame so many calls up, 0 being the one that runs; offsets from its end.
    Stack {
        /// How many calls up.
        up: u8,
    },
    /// The packet; offsets from its first byte at that time.
    Packet,
    /// What lies before the packet; offsets from `data_meta`.
    Metadata,
    /// A value of a map; offsets from its start.
    Value(MapId),
    /// A key of a map that a callback is shown.
    Key(MapId),
    /// A record reserved in a ring buffer.
    Record,
}

/// How memory is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touch {
    /// It is read.
    pub reads: bool,
    /// It is written.
    pub writes: bool,
}

/// Bytes that an instruction touches, over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The first offset.
    pub first: i64,
    /// The offset behind the last.
    pub end: i64,
    /// Every access begins at a multiple of this, a power of two up to 8, from where the offsets count.
    pub align: u32,
    /// How.
    pub touch: Touch,
}

/// What is known of an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Whether an instruction begins there: not in the second slot of a 64-bit load.
    pub begins: bool,
    /// Whether any path leads there.
    pub reached: bool,
    /// The memory that it touches, by itself or through a helper that is given its address.
    pub memory: BTreeMap<Memory, Bytes>,
    /// For a branch: whether it ever jumps, and whether it ever falls through.
    pub ways: Ways,
    /// For a call of a helper on a map: which.
    pub maps: std::collections::BTreeSet<MapId>,
    /// An address became a number there: what other targets make of it differs.
    pub leaks: bool,
    /// It reads bytes of the stack that were perhaps never written.
    pub reads_unwritten: bool,
    /// It calls a helper that may read besides what lies at addresses that nobody has checked.
    pub probes: bool,
    /// For a lookup in an array: whether its key is always a number outside of the array, so that it always fails.
    pub lookup: Lookup,
    /// Bytes that leave the program and hold what depends on the kernel: the first and the one behind the last, over all paths,
    /// from the start of the key, value, record or packet.
    pub sends: BTreeMap<(Sink, Contents), (i64, i64)>,
}

/// What is known of the keys of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lookup {
    /// It is no lookup that is reached.
    #[default]
    None,
    /// Some key may be in the map.
    MayFind,
    /// Every key is outside of the array: this one is the first that was seen.
    Outside(u64),
}

/// Where bytes leave the program to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sink {
    /// A key that a map is given.
    Key(MapId),
    /// A value of a map.
    Value(MapId),
    /// A record for user space: a ring buffer's or a perf event.
    Event(MapId),
    /// The packet, or another one that is sent.
    Packet,
}

/// What bytes hold that differs from kernel to kernel and from engine to engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contents {
    /// Bytes of the stack that the program never wrote.
    Unwritten,
    /// An address of the kernel.
    Address,
}

/// Which ways a branch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ways {
    /// It jumps on some path.
    pub jumps: bool,
    /// It falls through on some path.
    pub falls: bool,
}

/// What is known of a program that is safe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// By slot.
    pub insns: Vec<Known>,
    /// By the first instruction of a loop, how often a path comes there again before it leaves the loop, at most. `None` where
    /// nothing may end the loop but its `may_goto`, after some millions of rounds.
    pub loops: BTreeMap<usize, Option<u64>>,
    /// How many instructions were looked at, on all paths together.
    pub looked_at: u64,
    /// How many states were kept to compare others with.
    pub states: usize,
}

impl Proof {
    /// The bytes of the packet that are touched at fixed or bounded places: the offset behind the last one.
    pub fn window(&self) -> u64 {
        let packet = self.insns.iter().filter_map(|known| known.memory.get(&Memory::Packet));
        packet.map(|bytes| bytes.end.max(0) as u64).max().unwrap_or(0)
    }

    /// Instructions that let bytes out whose contents depend on the kernel, with what they let out.
    pub fn kernel_dependent(&self) -> impl Iterator<Item = (usize, Sink, Contents, (i64, i64))> + '_ {
        let all = self.insns.iter().enumerate();
        all.flat_map(|(at, known)| known.sends.iter().map(move |((to, what), bytes)| (at, *to, *what, *bytes)))
    }

    pub(super) fn sends(&mut self, at: usize, to: Sink, what: Contents, (first, end): (i64, i64)) {
        let Some(known) = self.insns.get_mut(at) else { return };
        let bytes = known.sends.entry((to, what)).or_insert((first, end));
        *bytes = (bytes.0.min(first), bytes.1.max(end));
    }

    /// Instructions that no path leads to, by their first slot.
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

/// The alignment of offsets that all have so many zeros as their low bits.
pub(super) fn alignment(known_zeros: u32) -> u32 {
    1 << known_zeros.min(Size::Dw.bytes().trailing_zeros())
}
