// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Liveness of registers and stack bytes. Values that are not live need no select at join points.
//!
//! ```text
//!   0: r1 = 5            live out of 0: r1
//!   1: r2 = r1           live out of 1: r2
//!   2: *(r10 - 8) = r2   live out of 2: eight bytes of the stack
//! ```
//!
//! The stack bytes that an instruction reads are taken from the proof, those that a helper reads too.

use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, AtomicOp, Op, Operand, Reg};
use flowloom_verifier::{Memory, Proof};

/// The size of a stack frame in bytes.
const STACK_BYTES: usize = flowloom_isa::limits::STACK_BYTES;
const WORDS: usize = STACK_BYTES / 64;

/// A set of registers and stack bytes of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Needed {
    registers: u16,
    stack: [u64; WORDS],
}

impl Needed {
    pub(crate) fn has_register(&self, number: usize) -> bool {
        self.registers >> number & 1 == 1
    }

    /// Whether a stack byte is in the set, by its offset from the frame pointer.
    pub(crate) fn has_byte(&self, at: i64) -> bool {
        place(at).is_some_and(|place| self.stack[place / 64] >> (place % 64) & 1 == 1)
    }

    fn set(&mut self, register: Reg, is_needed: bool) {
        let bit = 1 << register.number();
        self.registers = if is_needed { self.registers | bit } else { self.registers & !bit };
    }

    fn set_bytes(&mut self, first: i64, end: i64, is_needed: bool) {
        for place in (first..end).filter_map(place) {
            let bit = 1 << (place % 64);
            let word = &mut self.stack[place / 64];
            *word = if is_needed { *word | bit } else { *word & !bit };
        }
    }

    fn with(mut self, other: &Needed) -> Needed {
        self.registers |= other.registers;
        self.stack.iter_mut().zip(other.stack).for_each(|(own, other)| *own |= other);
        self
    }
}

/// The index of a stack byte, counted from the lowest address.
fn place(at: i64) -> Option<usize> {
    usize::try_from(at + STACK_BYTES as i64).ok().filter(|place| *place < STACK_BYTES)
}

/// The live-in set of each instruction, within its function.
#[derive(Debug)]
pub(crate) struct Live(Vec<Needed>);

impl Live {
    pub(crate) fn of(code: &[Option<Op>], proof: &Proof) -> Live {
        let mut live = vec![Needed::default(); code.len()];
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); code.len()];
        for (at, op) in code.iter().enumerate() {
            let successors = op.iter().flat_map(|op| op.successors(at)).filter(|next| *next < code.len());
            successors.for_each(|next| before[next].push(at));
        }
        let mut work: Vec<usize> = (0..code.len()).filter(|at| code[*at].is_some()).collect();
        let mut waits = vec![true; code.len()];
        while let Some(at) = work.pop() {
            waits[at] = false;
            let Some(op) = code[at] else { continue };
            let live_out = op.successors(at).filter_map(|next| live.get(next)).fold(Needed::default(), Needed::with);
            let needed = needed(op, at, proof, live_out);
            if needed != live[at] {
                live[at] = needed;
                for from in &before[at] {
                    if !std::mem::replace(&mut waits[*from], true) {
                        work.push(*from);
                    }
                }
            }
        }
        Live(live)
    }

    /// The live-in set of an instruction.
    pub(crate) fn before(&self, at: usize) -> Option<&Needed> {
        self.0.get(at)
    }
}

/// The transfer function: the live-in set from the live-out set.
fn needed(op: Op, at: usize, proof: &Proof, mut needed: Needed) -> Needed {
    let memory = proof.insns.get(at).map(|known| &known.memory);
    if let Op::Store { size, base: Reg::FP, off, .. } = op {
        needed.set_bytes(off.into(), i64::from(off) + size.bytes() as i64, false);
    }
    if let Some(written) = op.writes() {
        needed.set(written, false);
    }
    match op {
        Op::Call { .. } | Op::CallLocal { .. } => {
            needed.set(Reg::R0, false);
            // All five argument registers; one that the helper does not take is never read.
            (1..=5).filter_map(Reg::new).for_each(|argument| needed.set(argument, true));
        }
        Op::Exit => needed.set(Reg::R0, true),
        _ => {}
    }
    // A callback may be given any address in this stack frame.
    let calls_back = matches!(op, Op::Call { helper: helper::LOOP | helper::FOR_EACH_MAP_ELEM });
    if calls_back || matches!(op, Op::CallLocal { .. }) {
        needed.set_bytes(-(STACK_BYTES as i64), 0, true);
    }
    read(op).into_iter().flatten().for_each(|register| needed.set(register, true));
    if let Some(bytes) =
        memory.and_then(|memory| memory.get(&Memory::Stack { up: 0 })).filter(|bytes| bytes.touch.reads)
    {
        needed.set_bytes(bytes.first, bytes.end, true);
    }
    needed
}

fn read(op: Op) -> [Option<Reg>; 3] {
    let operand = |src: Operand| if let Operand::Reg(register) = src { Some(register) } else { None };
    match op {
        Op::Alu { op: AluOp::Mov, src, .. } => [operand(src), None, None],
        Op::Alu { dst, src, .. } | Op::Branch { dst, src, .. } => [Some(dst), operand(src), None],
        Op::MovSx { src, .. } => [Some(src), None, None],
        Op::Neg { dst, .. } | Op::End { dst, .. } => [Some(dst), None, None],
        Op::Load { base, .. } => [Some(base), None, None],
        Op::Store { base, src, .. } => [Some(base), operand(src), None],
        Op::Atomic { op, base, src, .. } => [Some(base), Some(src), (op == AtomicOp::CmpXchg).then_some(Reg::R0)],
        _ => [None; 3],
    }
}
