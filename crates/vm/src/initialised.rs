// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers that are initialised wherever an instruction reads them.
//!
//! **Goal.** A program that reads no register before it is written needs no check of that at run time: no program that
//! the verifier accepts reads one, and almost all can be seen not to without the values.
//!
//! ```text
//!   r1 = *(u32 *)(r6 + 0)              r1: written
//!   if r1 == 0 goto on                 ┐ r2: written on one of two paths
//!   r2 = 5                             ┘
//!   on: r0 = r2                        not sure: the program runs with checks
//! ```
//!
//! **Steps.** Forward data flow over all functions at once, with two sets for each instruction: the registers written
//! on every path, and those written on any. A function begins with the arguments of its calls; every `exit` has to have
//! written `r0`, so that a call writes it.
//!
//! **Limits.** Paths are not told apart by their conditions, and functions without a result count as not sure.

use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, AtomicOp, Op, Operand, Reg};

/// `r6` to `r9`, the callee-saved registers.
pub(super) const CALLEE_SAVED: u16 = 0b11_1100_0000;
/// `r1` to `r5`, which calls clobber.
pub(super) const CALLER_SAVED: u16 = 0b11_1110;
const R0: u16 = 1;
const FP: u16 = 1 << 10;

/// Calls of helpers whose arguments are known to be initialised or not.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By slot, the registers that a helper may be given, as a bit mask.
    given: Vec<u8>,
}

impl Calls {
    /// The argument registers that are initialised at a call.
    pub(super) fn given(&self, slot: usize) -> u8 {
        self.given.get(slot).copied().unwrap_or_default()
    }
}

/// Registers written before an instruction: on every path, and on any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    always: u16,
    ever: u16,
}

/// Registers that the instruction reads, but for helpers' arguments.
fn reads(op: Op) -> u16 {
    let bit = |reg: Reg| 1 << reg.number();
    let operand = |src: Operand| match src {
        Operand::Reg(reg) => bit(reg),
        Operand::Imm(_) => 0,
    };
    match op {
        Op::Alu { op: AluOp::Mov, src, .. } => operand(src),
        Op::Alu { dst, src, .. } | Op::Branch { dst, src, .. } => bit(dst) | operand(src),
        Op::MovSx { src, .. } => bit(src),
        Op::Neg { dst, .. } | Op::End { dst, .. } => bit(dst),
        Op::Load { base, .. } => bit(base),
        Op::Store { base, src, .. } => bit(base) | operand(src),
        Op::Atomic { op: AtomicOp::CmpXchg, base, src, .. } => bit(base) | bit(src) | R0,
        Op::Atomic { base, src, .. } => bit(base) | bit(src),
        Op::Exit => R0,
        _ => 0,
    }
}

/// The calls of code in which no instruction can read a register that is not initialised; `None` if one may. The
/// program begins with this number of arguments; `arguments_of` gives the number of argument registers that a helper
/// reads.
pub(super) fn calls(code: &[Option<Op>], arguments: usize, arguments_of: impl Fn(i32) -> usize) -> Option<Calls> {
    let mut before: Vec<Option<Written>> = vec![None; code.len()];
    let mut work = Vec::new();
    let entry = ((1 << arguments) - 1) << 1 | FP;
    reach(&mut before, &mut work, 0, Written { always: entry, ever: entry });
    while let Some(slot) = work.pop() {
        let (Some(op), Some(now)) = (code.get(slot).copied().flatten(), before[slot]) else { continue };
        let start = op.distance().and_then(|distance| usize::try_from(slot as i64 + 1 + distance).ok());
        match (op, start) {
            (Op::CallLocal { .. }, Some(start)) => {
                let passed = |set: u16| set & CALLER_SAVED | FP;
                reach(&mut before, &mut work, start, Written { always: passed(now.always), ever: passed(now.ever) });
            }
            // Callbacks have two arguments or four.
            (Op::LoadFunc { .. }, Some(start)) => {
                reach(&mut before, &mut work, start, Written { always: 0b110 | FP, ever: 0b1_1110 | FP });
            }
            _ => {}
        }
        let after = after(op, now);
        for next in op.successors(slot) {
            reach(&mut before, &mut work, next, after);
        }
    }
    let mut given = vec![0; code.len()];
    for (slot, op) in code.iter().enumerate() {
        let (Some(op), Some(now)) = (*op, before[slot]) else { continue };
        let mut needed = reads(op);
        if let Op::Call { helper } = op {
            needed = ((1 << arguments_of(helper)) - 1) << 1;
            // Beyond its arguments a helper gets what is initialised, and that has to be the same on all paths.
            if (now.always ^ now.ever) & CALLER_SAVED & !needed != 0 {
                return None;
            }
            given[slot] = (now.always & CALLER_SAVED) as u8;
        }
        if needed & !now.always != 0 {
            return None;
        }
    }
    Some(Calls { given })
}

fn reach(before: &mut [Option<Written>], work: &mut Vec<usize>, slot: usize, written: Written) {
    let Some(known) = before.get_mut(slot) else { return };
    let met = match known {
        None => written,
        Some(known) => Written { always: known.always & written.always, ever: known.ever | written.ever },
    };
    if known.replace(met) != Some(met) {
        work.push(slot);
    }
}

/// The transfer function.
fn after(op: Op, now: Written) -> Written {
    let change = |clobbered: u16, written: u16| Written {
        always: now.always & !clobbered | written,
        ever: now.ever & !clobbered | written,
    };
    match op {
        // Where it returns, there is no result.
        Op::Call { helper: helper::TAIL_CALL } => change(CALLER_SAVED | R0, 0),
        Op::Call { .. } | Op::CallLocal { .. } | Op::CallKfunc { .. } => change(CALLER_SAVED, R0),
        op => change(0, op.writes().map_or(0, |reg| 1 << reg.number())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::asm::assemble;
    use flowloom_isa::helpers::by_number;

    fn found(text: &str) -> Option<Calls> {
        let insns = assemble(text, &[]).unwrap();
        let program = flowloom_isa::Program { section: "xdp".into(), insns, ..flowloom_isa::Program::default() };
        let code = flowloom_isa::decoded(&program).unwrap();
        calls(&code, 1, |number| by_number(number).map_or(0, |helper| helper.parameters.len()))
    }

    #[test]
    fn reads_of_registers_that_some_path_leaves_out_are_found() {
        for (is_sure, text) in [
            (true, "r0 = 1\nexit"),
            (false, "r0 = r2\nexit"),
            (false, "exit"),
            (true, "r2 = 3\nr0 = r2\nr0 += r1\nexit"),
            (false, "if r1 == 0 goto on\nr2 = 5\non: r0 = r2\nexit"),
            (true, "r2 = 4\nif r1 == 0 goto on\nr2 = 5\non: r0 = r2\nexit"),
            // A call clobbers its arguments, and saves `r6` to `r9` only.
            (false, "r2 = 7\ncall ktime_get_ns\nr0 += r2\nexit"),
            (true, "r6 = 7\ncall ktime_get_ns\nr0 += r6\nexit"),
            (true, "r2 = 2\ncall f\nexit\nf: r0 = r2\nexit"),
            (false, "call f\nexit\nf: r0 = r2\nexit"),
            (false, "r6 = 1\ncall f\nexit\nf: r0 = r6\nexit"),
            (false, "call f\nr0 = 0\nexit\nf: exit"),
            // The second call passes one argument less.
            (false, "r2 = 1\nr6 = r1\ncall f\nr1 = r6\ncall f\nexit\nf: r0 = r2\nexit"),
            (false, "*(u64 *)(r10 - 8) = r3\nr0 = 0\nexit"),
            (true, "r1 = 1\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\nexit\nf: r0 = r2\nexit"),
            (false, "r1 = 1\nr2 = subprog[f] ll\nr3 = 0\nr4 = 0\ncall loop\nexit\nf: r0 = r3\nexit"),
        ] {
            assert_eq!(found(text).is_some(), is_sure, "{text}");
        }
    }

    #[test]
    fn helpers_get_the_registers_that_are_initialised() {
        assert_eq!(found("r3 = 1\ncall ktime_get_ns\nexit").unwrap().given(1), 0b1010);
        assert!(found("if r1 == 0 goto on\nr3 = 1\non: call ktime_get_ns\nexit").is_none());
    }
}
