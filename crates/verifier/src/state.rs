// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The abstract state before an instruction on a path.

use super::marks::Place;
use super::origin::Origins;
use super::stack::Stack;
use super::value::{Address, Cause, Number, Region, Value};

pub(super) use flowloom_isa::limits::MAX_FRAMES;
/// `r0` to `r10`.
pub(super) const REGISTERS: usize = 11;
/// The longest packet in bytes.
pub(super) const MAX_PACKET_BYTES: u64 = 0xffff;

#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) registers: [Value; REGISTERS],
    pub(super) stack: Stack,
    /// The call in its caller; 0 for the program itself.
    pub(super) call: usize,
    /// For a callback: the number of resources held when it began.
    pub(super) callback: Option<usize>,
}

/// A resource that has to be released before the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// The id that its addresses share.
    pub(super) reference: u32,
    /// Where it was acquired.
    pub(super) insn: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Locked {
    pub(super) region: Region,
    /// The id of the value that it is in.
    pub(super) id: u32,
    /// Where it was acquired.
    pub(super) insn: usize,
}

/// The abstract state before an instruction on a path.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) at: usize,
    pub(super) frames: Vec<Frame>,
    pub(super) held: Vec<Held>,
    pub(super) locked: Option<Locked>,
}

impl Frame {
    pub(super) fn new(frame: usize, call: usize) -> Frame {
        let mut registers = [Value::Unwritten; REGISTERS];
        registers[10] = Value::Address(Address::new(Region::Stack { frame: frame as u8 }));
        Frame { registers, stack: Stack::default(), call, callback: None }
    }
}

impl State {
    /// The initial state of a program.
    pub(super) fn first() -> State {
        let mut frame = Frame::new(0, 0);
        frame.registers[1] = Value::Address(Address::new(Region::Context));
        State { at: 0, frames: vec![frame], held: Vec::new(), locked: None }
    }

    /// The value in a register or slot, if the frame exists.
    pub(super) fn value(&self, place: Place) -> Option<Value> {
        match place {
            Place::Register { frame, number } => self.frames.get(frame)?.registers.get(number).copied(),
            Place::Slot { frame, number } => Some(self.frames.get(frame)?.stack.slot(number).value),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.frames.len() - 1
    }

    pub(super) fn frame(&self) -> &Frame {
        // There is always one: the program ends when the last one returns.
        &self.frames[self.frames.len() - 1]
    }

    pub(super) fn frame_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Applies `change` to every value, in registers and on stacks, that satisfies `wanted`.
    pub(super) fn change(&mut self, wanted: impl Fn(&Value) -> bool, mut change: impl FnMut(&mut Value)) {
        for frame in &mut self.frames {
            frame.registers.iter_mut().filter(|value| wanted(value)).for_each(&mut change);
            // A stack without changes stays shared.
            if frame.stack.any(&wanted) {
                frame.stack.values_mut().filter(|value| wanted(value)).for_each(&mut change);
            }
        }
    }

    /// Turns every address that satisfies `wanted` into a number, because the instruction in this slot invalidated it.
    pub(super) fn invalidate(
        &mut self,
        origins: &mut Origins,
        cause: Cause,
        insn: usize,
        wanted: impl Fn(Region) -> bool,
    ) {
        let is_wanted = |value: &Value| matches!(value, Value::Address(address) if wanted(address.to));
        self.change(is_wanted, |value| *value = Value::Number(Number::invalid(cause, insn, origins.fresh())));
    }

    /// Applies `change` to every address that satisfies `wanted`.
    pub(super) fn change_addresses(&mut self, wanted: impl Fn(&Address) -> bool, mut change: impl FnMut(&mut Address)) {
        let is_wanted = |value: &Value| matches!(value, Value::Address(address) if wanted(address));
        self.change(is_wanted, |value| {
            if let Value::Address(address) = value {
                change(address);
            }
        });
    }

    /// Applies `change` to every number with the given link.
    pub(super) fn change_family(&mut self, family: u32, mut change: impl FnMut(&mut Number)) {
        let is_wanted =
            |value: &Value| matches!(value, Value::Number(n) if n.link.is_some_and(|link| link.family == family));
        self.change(is_wanted, |value| {
            if let Value::Number(number) = value {
                change(number);
            }
        });
    }
}
