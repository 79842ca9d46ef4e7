// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Abstract values of registers, for labels: the memory that an address points to, and constants.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::op::{AluOp, Operand, Reg, Width};
use flowloom_verifier::MapId;

/// The value of a register or of eight bytes of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Value {
    /// Top: any value.
    #[default]
    Unknown,
    /// A constant.
    Number(u64),
    /// An address in a memory, with its offset if known.
    Address(Memory, Option<i64>),
    PacketEnd,
    Map(u32),
}

/// The memory that an address points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Context,
    Stack { depth: u8 },
    Packet,
    Metadata,
    Value(MapId),
    Record,
}

impl Value {
    fn join(self, other: Value) -> Value {
        match (self, other) {
            (a, b) if a == b => a,
            (Value::Address(a, _), Value::Address(b, _)) if a == b => Value::Address(a, None),
            _ => Value::Unknown,
        }
    }

    fn number(self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Transfer function of arithmetic.
    pub(super) fn alu(self, width: Width, op: AluOp, other: Value) -> Value {
        if width == Width::W64 {
            match (op, self, other) {
                (AluOp::Mov, _, value) => return value,
                (AluOp::Add | AluOp::Sub, Value::Address(to, at), Value::Number(by)) => {
                    let by = if op == AluOp::Add { by as i64 } else { (by as i64).wrapping_neg() };
                    return Value::Address(to, at.map(|at| at.wrapping_add(by)));
                }
                (AluOp::Add, Value::Number(by), Value::Address(to, at)) => {
                    return Value::Address(to, at.map(|at| at.wrapping_add(by as i64)));
                }
                (AluOp::Sub, Value::Address(..), Value::Address(..) | Value::PacketEnd) => return Value::Unknown,
                (AluOp::Add | AluOp::Sub, Value::Address(to, _), Value::Unknown)
                | (AluOp::Add, Value::Unknown, Value::Address(to, _)) => return Value::Address(to, None),
                _ => {}
            }
        }
        let (Some(a), Some(b)) = (self.number().or((op == AluOp::Mov).then_some(0)), other.number()) else {
            return Value::Unknown;
        };
        let bits = if width == Width::W64 { 64 } else { 32 };
        let (a, b) = if bits == 64 { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
        let shift = b as u32 & (bits - 1);
        let result = match op {
            AluOp::Mov => b,
            AluOp::Add => a.wrapping_add(b),
            AluOp::Sub => a.wrapping_sub(b),
            AluOp::Mul => a.wrapping_mul(b),
            AluOp::Or => a | b,
            AluOp::And => a & b,
            AluOp::Xor => a ^ b,
            AluOp::Lsh => a << shift,
            AluOp::Rsh => a >> shift,
            // Rare in loop conditions.
            AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod | AluOp::Arsh => return Value::Unknown,
        };
        Value::Number(if bits == 64 { result } else { result & 0xffff_ffff })
    }
}

/// An active function.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// Its first instruction.
    pub(super) entry: usize,
    /// Position of the call; its blocks come after it.
    pub(super) position: Vec<u32>,
    /// The same by address, for the layout order of blocks.
    pub(super) place: Vec<u32>,
    /// The caller's loop iterations at the call, and the return address.
    pub(super) return_to: Option<(Vec<Iteration>, usize)>,
    pub(super) registers: [Value; 11],
    /// Registers with addresses that the pipeline provides (of context, packet and stack): constants that no stage
    /// carries.
    pub(super) wires: [bool; 11],
    /// Values of eight-byte stack slots written by one store, by offset from the end.
    stack: BTreeMap<i64, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Iteration {
    /// The index of the loop head in its function's block order.
    pub(super) order: u32,
    /// The first instruction of the loop head.
    pub(super) head: usize,
    /// The iteration, from 0.
    pub(super) round: u32,
}

impl Frame {
    pub(super) fn new(depth: u8, entry: usize) -> Frame {
        let mut registers = [Value::Unknown; 11];
        registers[10] = Value::Address(Memory::Stack { depth }, Some(0));
        let mut wires = [false; 11];
        wires[10] = true;
        Frame {
            entry,
            position: Vec::new(),
            place: Vec::new(),
            return_to: None,
            registers,
            wires,
            stack: BTreeMap::new(),
        }
    }

    pub(super) fn value(&self, operand: Operand) -> Value {
        match operand {
            Operand::Reg(reg) => self.get(reg),
            Operand::Imm(imm) => Value::Number(i64::from(imm) as u64),
        }
    }

    pub(super) fn get(&self, reg: Reg) -> Value {
        self.registers[usize::from(reg.number())]
    }

    pub(super) fn set(&mut self, reg: Reg, value: Value) {
        let number = usize::from(reg.number());
        (self.registers[number], self.wires[number]) = (value, false);
    }

    pub(super) fn set_wire(&mut self, reg: Reg, value: Value) {
        let number = usize::from(reg.number());
        (self.registers[number], self.wires[number]) = (value, true);
    }

    pub(super) fn after_call(&mut self, result: Value) {
        self.registers[..6].fill(Value::Unknown);
        self.wires[..6].fill(false);
        self.registers[0] = result;
    }
}

/// Known values at the start of a block.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// The active functions, the innermost last.
    pub(super) frames: Vec<Frame>,
    /// The start of the packet relative to its start on arrival, if known.
    pub(super) head: Option<i64>,
    /// Stack bytes that may have been written.
    pub(super) written: BTreeSet<(u8, i64)>,
}

impl State {
    pub(super) fn depth(&self) -> u8 {
        // The verifier allows eight frames.
        (self.frames.len() - 1) as u8
    }

    pub(super) fn frame(&self) -> &Frame {
        self.frames.last().expect("a program runs in a frame")
    }

    pub(super) fn frame_mut(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a program runs in a frame")
    }

    pub(super) fn join(&mut self, other: &State) {
        for (mine, theirs) in self.frames.iter_mut().zip(&other.frames) {
            for (mine, theirs) in mine.registers.iter_mut().zip(&theirs.registers) {
                *mine = mine.join(*theirs);
            }
            for (mine, theirs) in mine.wires.iter_mut().zip(theirs.wires) {
                *mine &= theirs;
            }
            mine.stack.retain(|at, value| {
                *value = value.join(theirs.stack.get(at).copied().unwrap_or_default());
                *value != Value::Unknown
            });
        }
        if self.head != other.head {
            self.head = None;
        }
        self.written.extend(&other.written);
    }

    /// The known value of eight stack bytes.
    pub(super) fn known_slot(&self, depth: u8, at: i64) -> Value {
        self.frames.get(usize::from(depth)).and_then(|frame| frame.stack.get(&at)).copied().unwrap_or_default()
    }

    /// Records a write to stack bytes, and its value if it has eight bytes and is known.
    pub(super) fn write_slot(&mut self, depth: u8, (first, end): (i64, i64), value: Value) {
        self.written.extend((first..end).map(|at| (depth, at)));
        let Some(frame) = self.frames.get_mut(usize::from(depth)) else { return };
        frame.stack.retain(|at, _| at + 8 <= first || *at >= end);
        if end - first == 8 && value != Value::Unknown {
            frame.stack.insert(first, value);
        }
    }
}
