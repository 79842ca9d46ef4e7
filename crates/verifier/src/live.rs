// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Static liveness of registers: those that an instruction, or one after it in its function, may read before they are
//! written.
//!
//! ```text
//!   r1 = 0                     live before: r0 r6
//!   r2 = *(u8 *)(r0 + 24)      live before: r0 r6          r1 is written below before anything reads it
//!   r1 = *(u8 *)(r0 + 1)       live before: r0 r6
//! ```
//!
//! States whose paths are not all verified are compared by everything that is live here: the reads on the remaining
//! paths are not known then, but no path reads a dead register. A backward dataflow analysis of each function, as the
//! kernel's `compute_live_registers` [Linux 6.15 kernel/bpf/verifier.c].

use super::loops;
use super::marks::Marks;
use super::state::State;
use flowloom_isa::helpers;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, AtomicOp, Op, Operand, Reg};

/// By instruction, a bit mask of live registers.
#[derive(Debug, Clone, Default)]
pub(super) struct Live(Vec<u16>);

/// `r0` to `r5`: the caller-saved registers.
const CALLER_SAVED: u16 = 0x3f;
/// `r1` to `r5`.
const ARGUMENTS: u16 = 0x3e;
const R0: u16 = 1;
/// The frame pointer is never written.
const FRAME_POINTER: u16 = 1 << 10;

impl Live {
    /// # Cost
    /// Linear in the program for straight code; at most 11 visits of each instruction of a loop.
    pub(super) fn of(code: &[Option<Op>]) -> Live {
        let nexts = |at| loops::successors(code, at, (true, true));
        let before = loops::predecessors(code.len(), nexts);
        let mut live = vec![FRAME_POINTER; code.len()];
        let mut waits = vec![true; code.len()];
        let mut work: Vec<usize> = (0..code.len()).collect();
        while let Some(at) = work.pop() {
            waits[at] = false;
            let Some(op) = code[at] else { continue };
            let after = nexts(at).filter_map(|next| live.get(next)).fold(0, |all, one| all | one);
            let (reads, writes) = effect(op);
            let found = (after & !writes) | reads | FRAME_POINTER;
            if found != live[at] {
                live[at] = found;
                work.extend(before[at].iter().filter(|previous| !std::mem::replace(&mut waits[**previous], true)));
            }
        }
        Live(live)
    }

    fn before(&self, at: usize) -> u16 {
        self.0.get(at).copied().unwrap_or(u16::MAX)
    }

    /// What may be read of a state: live registers of every frame, and all stack slots.
    pub(super) fn marks(&self, state: &State) -> Marks {
        let mut marks = Marks::default();
        for number in 0..state.frames.len() {
            // A caller reads its live registers after the call; a helper passes the same arguments to the next
            // iteration.
            let registers = match state.frames.get(number + 1) {
                None => self.before(state.at),
                Some(called) if called.callback.is_some() => {
                    self.before(called.call + 1) & !CALLER_SAVED | self.before(called.call)
                }
                Some(called) => self.before(called.call + 1) & !CALLER_SAVED,
            };
            marks.add_live(number, registers);
        }
        marks
    }
}

fn bit(register: Reg) -> u16 {
    1 << register.number()
}

fn operand(operand: Operand) -> u16 {
    if let Operand::Reg(register) = operand { bit(register) } else { 0 }
}

/// The registers that an instruction reads, and those that it writes.
fn effect(op: Op) -> (u16, u16) {
    match op {
        Op::Alu { op: AluOp::Mov, dst, src, .. } => (operand(src), bit(dst)),
        Op::Alu { dst, src, .. } => (bit(dst) | operand(src), 0),
        Op::MovSx { dst, src, .. } => (bit(src), bit(dst)),
        Op::Neg { .. } | Op::End { .. } => (op.writes().map_or(0, bit), 0),
        Op::Load { dst, base, .. } => (bit(base), bit(dst)),
        Op::Store { base, src, .. } => (bit(base) | operand(src), 0),
        Op::Atomic { op, base, src, .. } => (bit(base) | bit(src) | if op == AtomicOp::CmpXchg { R0 } else { 0 }, 0),
        Op::LoadImm { dst, .. }
        | Op::LoadMap { dst, .. }
        | Op::LoadMapValue { dst, .. }
        | Op::LoadVar { dst, .. }
        | Op::LoadFunc { dst, .. }
        | Op::LoadMapIdx { dst, .. }
        | Op::LoadMapIdxValue { dst, .. } => (0, bit(dst)),
        Op::Jump { .. } | Op::JumpLong { .. } | Op::MayGoto { .. } => (0, 0),
        Op::Branch { dst, src, .. } => (bit(dst) | operand(src), 0),
        // It reads as many registers as its format has arguments.
        Op::Call { helper: helper::TRACE_PRINTK } => (ARGUMENTS, CALLER_SAVED),
        Op::Call { helper } => {
            let arguments = helpers::by_number(helper).map_or(5, |helper| helper.parameters.len());
            (ARGUMENTS & ((2 << arguments) - 1), CALLER_SAVED)
        }
        Op::CallLocal { .. } | Op::CallKfunc { .. } => (ARGUMENTS, CALLER_SAVED),
        Op::Exit => (R0, 0),
        Op::LoadPacket { .. } => (u16::MAX, 0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::asm;
    use flowloom_isa::decoded;

    /// The registers live before each instruction, without the frame pointer.
    fn live(text: &str) -> Vec<Vec<u8>> {
        let program = asm::program("f.bpf", &format!(".program f\n.license \"GPL\"\n{text}")).unwrap();
        let live = Live::of(&decoded(&program).unwrap());
        (0..program.insns.len()).map(|at| (0..10).filter(|r| live.before(at) & 1 << r != 0).collect()).collect()
    }

    #[test]
    fn a_register_is_live_up_to_its_last_read() {
        let found = live("r6 = r1\nr1 = 0\nr1 = 5\nr0 = r1\nif r0 == 0 goto +1\nr0 += r6\nexit");
        let expected: [&[u8]; 7] = [&[1], &[6], &[6], &[1, 6], &[0, 6], &[0, 6], &[0]];
        assert_eq!(found, expected);
    }

    #[test]
    fn loops_and_calls() {
        let found = live("r6 = 0\nr7 = 1\ncall ktime_get_ns\nr6 += r7\nif r6 < r0 goto -3\nr0 = 2\nexit");
        let expected: [&[u8]; 7] = [&[], &[6], &[6, 7], &[0, 6, 7], &[0, 6, 7], &[], &[0]];
        assert_eq!(found, expected);
    }
}
