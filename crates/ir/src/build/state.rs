// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The abstract state of a path: registers, stack, packet.

use std::collections::BTreeMap;
use std::rc::Rc;

use flowloom_isa::op::{Reg, Size};

use crate::bdd::Bdd;
use crate::dataflow::{Laid, Overlay};
use crate::graph::Id;
use crate::live::Needed;
use crate::refusal::Reason;

pub(super) const SLOT_BYTES: i64 = 8;

/// The stored bytes of a record, by their offset.
pub(super) type Record = BTreeMap<i64, Laid>;

/// The objects that an address may point into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Region {
    Null,
    Context,
    /// The stack of a frame; offsets are relative to its end.
    Stack(u8),
    /// The packet; offsets are relative to its first byte as received.
    Packet,
    /// The current end of the packet.
    End,
    Map(u32),
    /// A map value or ring buffer record that a call returned.
    Value {
        map: u32,
        call: Id,
    },
    /// A map that a lookup in a map of maps returned.
    Inner {
        map: u32,
        call: Id,
    },
    /// The value of a map with one entry.
    Only(u32),
    Function(u32),
    /// The key of an index of an array.
    Key(u32),
    /// Not an address but this number, 64 bits; the path decides between the two.
    Number(Id),
}

/// A place that an address may point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) region: Region,
    pub(super) offset: i64,
    /// A variable offset from there: 64 bits; in the packet 32 bits, a sum without a constant.
    pub(super) moved: Option<Id>,
}

impl Place {
    pub(super) fn of(region: Region) -> Place {
        Place { region, offset: 0, moved: None }
    }
}

/// The places that an address may point to, each with its condition.
pub(super) type Places = Rc<[(Bdd, Place)]>;

/// The contents of a register or a stack slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// No usable value.
    Nothing,
    /// A number of 64 bits.
    Number(Id),
    /// An address: one of these places, each under its condition.
    Address(Places),
    /// The low 32 bits of an address, usable only for the distance to another one.
    Low(Places),
}

/// A byte of the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Byte {
    /// No usable value.
    Nothing,
    /// A number of 8 bits.
    Bits(Id),
    /// The byte of an address with this index.
    Of(Places, u8),
}

#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// `r0` to `r9`.
    pub(super) registers: [Value; 10],
    pub(super) stack: BTreeMap<i64, Byte>,
    /// The return address.
    pub(super) back: usize,
    /// The helper call that repeats the function, for a callback.
    pub(super) again: Option<Iterations>,
    /// The caller's function, position and loop iterations.
    pub(super) entry: usize,
    pub(super) position: Vec<u32>,
    pub(super) iterations: Vec<(u32, u32)>,
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
            iterations: Vec::new(),
        }
    }
}

impl Frame {
    /// Drops what is not live.
    pub(super) fn keep(&mut self, needed: &Needed) {
        let registers = self.registers.iter_mut().enumerate();
        registers.filter(|(number, _)| !needed.has_register(*number)).for_each(|(_, value)| *value = Value::Nothing);
        self.stack.retain(|at, _| needed.has_byte(*at));
    }
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) frames: Vec<Frame>,
    /// Bytes of the packet written at constant offsets, from the first byte as received.
    pub(super) packet: BTreeMap<i64, Id>,
    /// Bytes written at other offsets: later overlays above earlier ones, below `packet`.
    pub(super) overlays: Vec<Overlay>,
    /// The reserved ring buffer records, by the call that reserved them.
    pub(super) records: BTreeMap<Id, Record>,
    /// The start of the packet: 32 bits.
    pub(super) head: Id,
    /// The end of the packet: 32 bits.
    pub(super) tail: Id,
    /// The start of the metadata area, which ends at the start of the packet: 32 bits.
    pub(super) meta: Id,
    /// Whether the end has been moved.
    pub(super) is_cut: bool,
    /// The least and greatest number of tail calls so far.
    pub(super) tail_calls: (u32, u32),
    /// Bytes from this offset on are no longer those received, because the end was moved again. 32 bits.
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

/// The helper call that runs a callback.
#[derive(Debug, Clone)]
pub(super) struct Iterations {
    /// The entry of the callback.
    pub(super) entry: usize,
    /// The number of iterations begun.
    pub(super) begun: u64,
    /// The trip count: 64 bits, at most `most`.
    pub(super) count: Id,
    pub(super) most: u64,
    /// The context argument of every iteration.
    pub(super) context: Value,
    /// The map that is iterated over; none for `loop`.
    pub(super) map: Option<u32>,
    /// The position of the call, and the iterations of the loops around it.
    pub(super) position: Vec<u32>,
    pub(super) loops: Vec<(u32, u32)>,
}

pub(super) fn address(place: Place) -> Value {
    Value::Address(Rc::new([(Bdd::TRUE, place)]))
}

pub(super) fn set(state: &mut State, register: Reg, value: Value) {
    state.frame_mut().registers[usize::from(register.number())] = value;
}

pub(super) fn leak() -> Reason {
    Reason::AddressAsNumber
}

pub(super) fn mixed() -> Reason {
    Reason::Mixed
}

pub(super) fn bits_of(size: Size) -> u16 {
    8 * size.bytes() as u16
}

pub(super) fn places(value: Value) -> Result<Places, Reason> {
    match value {
        Value::Address(places) => Ok(places),
        Value::Number(_) | Value::Low(_) => Err(leak()),
        Value::Nothing => Err(mixed()),
    }
}
