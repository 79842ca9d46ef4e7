//! What a path knows: registers, stack, the packet as it is now.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Overlay;
use super::callback::Rounds;
use crate::bdd::Bdd;
use crate::graph::Id;
use crate::live::Needed;

/// What an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Region {
    /// Null.
    Null,
    Context,
    /// The stack of a frame; offsets count from its end.
    Stack(u8),
    /// The packet; offsets count from its first byte as it came.
    Packet,
    /// The end of the packet as it is now.
    End,
    Map(u32),
    /// A value of a map, or a record of a ring, that a call has given.
    Value {
        map: u32,
        call: Id,
    },
    /// The map that a map of maps has given.
    Inner {
        map: u32,
        call: Id,
    },
    /// The only value of a map.
    Only(u32),
    Function(u32),
    /// The key of this number of an array.
    Key(u32),
    /// No address: this number, 64 bits. Which of the two it is the path says.
    Number(Id),
}

/// One place that an address may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) region: Region,
    pub(super) offset: i64,
    /// What is added to that: 64 bits; of the packet 32 bits, a sum without a constant.
    pub(super) moved: Option<Id>,
}

impl Place {
    pub(super) fn of(region: Region) -> Place {
        Place { region, offset: 0, moved: None }
    }
}

/// The places that an address may be, each with the condition that it is there.
pub(super) type Places = Rc<[(Bdd, Place)]>;

/// What a register or a slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing that may be used.
    Nothing,
    /// 64 bits.
    Number(Id),
    /// One of these, each on its paths.
    Address(Places),
    /// The lower 32 bits of one of these: good for the distance to another, and nothing else.
    Low(Places),
}

/// A byte of the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Byte {
    /// Nothing that may be used.
    Nothing,
    /// Eight bits.
    Bits(Id),
    /// The byte of this number of an address.
    Of(Places, u8),
}

/// A function that runs.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// `r0` to `r9`.
    pub(super) registers: [Value; 10],
    pub(super) stack: BTreeMap<i64, Byte>,
    /// Where its caller goes on.
    pub(super) back: usize,
    /// What calls it again, where a helper does.
    pub(super) again: Option<Rounds>,
    /// Where the caller stands: its entry, its position, its rounds.
    pub(super) entry: usize,
    pub(super) position: Vec<u32>,
    pub(super) rounds: Vec<(u32, u32)>,
}

impl Frame {
    pub(super) fn new(entry: usize, back: usize) -> Frame {
        let nothing = std::array::from_fn(|_| Value::Nothing);
        Frame {
            registers: nothing,
            stack: BTreeMap::new(),
            back,
            again: None,
            entry,
            position: Vec::new(),
            rounds: Vec::new(),
        }
    }
}

impl Frame {
    /// Forgets what is not needed.
    pub(super) fn keep(&mut self, needed: &Needed) {
        let registers = self.registers.iter_mut().enumerate();
        registers.filter(|(number, _)| !needed.has_register(*number)).for_each(|(_, value)| *value = Value::Nothing);
        self.stack.retain(|at, _| needed.has_byte(*at));
    }
}

/// All of it.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) frames: Vec<Frame>,
    /// Bytes of the packet that were written, by their offset from the first byte as it came.
    pub(super) packet: BTreeMap<i64, Id>,
    /// Bytes that were written at other offsets: the later above the earlier, below `packet`.
    pub(super) overlays: Vec<Overlay>,
    /// Where the packet begins: 32 bits.
    pub(super) head: Id,
    /// Where it ends: 32 bits.
    pub(super) tail: Id,
    /// Where what is said about it begins, which ends where it begins: 32 bits.
    pub(super) meta: Id,
    /// Its end has been moved.
    pub(super) is_cut: bool,
    /// How many tail calls there were, at least and at most.
    pub(super) tail_calls: (u32, u32),
    /// It has been moved again: bytes from here on are no more those that came. 32 bits.
    pub(super) kept: Option<Id>,
}

impl State {
    pub(super) fn frame(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    pub(super) fn frame_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }
}
