// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of `loop` that the kernel inlines.
//!
//! **Goal.** The kernel's verifier inlines a call of `loop` if on every path the callback is one function and the flags
//! are known to be 0. Its results then differ from the helper's in the two points listed in [`super::run`], so these
//! calls have to be known.
//!
//! ```text
//!   r2 = subprog[f] ll    r2: f           │   r4 = *(u64 *)(r6 + 0)    r4: unknown
//!   r4 = 0                r4: 0           │   call loop                the helper, whatever the value of r4
//!   call loop             inlined         │
//! ```
//!
//! **Steps.** Forward constant propagation through every function, over moves and arithmetic; at join points, registers
//! that differ become unknown. Calls clobber `r0` to `r5`.
//!
//! **Limits.** The verifier also tracks the stack and branch conditions, path by path. If a call is inlined only
//! because of those, the helper's form is used here. The two differ only for more than 2^23 iterations and for trip
//! counts that exceed 32 bits.
//!
//! # Source
//! [Linux kernel/bpf/verifier.c: update_loop_inline_state, optimize_bpf_loop]

use flowloom_isa::alu;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Op, Operand, Width};

/// The known value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(u64),
    /// The function that begins at this slot.
    Function(usize),
    Unknown,
}

type Registers = [Value; 11];

const UNKNOWN: Registers = [Value::Unknown; 11];

/// The slots of those calls, ascending.
pub fn loops(code: &[Option<Op>]) -> Vec<usize> {
    let is_loop = |op: &Option<Op>| matches!(op, Some(Op::Call { helper: helper::LOOP }));
    if !code.iter().any(is_loop) {
        return Vec::new();
    }
    let before = values(code);
    let is_known = |slot: &usize| {
        is_loop(&code[*slot])
            && before[*slot].is_some_and(|regs| matches!(regs[2], Value::Function(_)) && regs[4] == Value::Number(0))
    };
    (0..code.len()).filter(is_known).collect()
}

/// The registers before each instruction; `None` if it is unreachable.
fn values(code: &[Option<Op>]) -> Vec<Option<Registers>> {
    let mut before: Vec<Option<Registers>> = vec![None; code.len()];
    let mut work = Vec::new();
    let reach = |slot: usize, regs: &Registers, before: &mut Vec<Option<Registers>>, work: &mut Vec<usize>| {
        let Some(known) = before.get_mut(slot) else { return };
        let met = match known {
            None => *regs,
            Some(known) => std::array::from_fn(|i| if known[i] == regs[i] { regs[i] } else { Value::Unknown }),
        };
        if known.replace(met) != Some(met) {
            work.push(slot);
        }
    };
    let functions = (0..).zip(code).filter_map(|(slot, op)| match op {
        Some(Op::CallLocal { distance } | Op::LoadFunc { distance, .. }) => Some(target(slot, (*distance).into())),
        _ => None,
    });
    for start in std::iter::once(0).chain(functions) {
        reach(start, &UNKNOWN, &mut before, &mut work);
    }
    while let Some(slot) = work.pop() {
        let (Some(Some(op)), Some(Some(regs))) = (code.get(slot).copied(), before.get(slot).copied()) else { continue };
        let regs = after(op, slot, regs);
        for next in op.successors(slot) {
            reach(next, &regs, &mut before, &mut work);
        }
    }
    before
}

fn target(slot: usize, distance: i64) -> usize {
    // The check has made sure that the target is in the program.
    (slot as i64 + 1 + distance) as usize
}

/// The transfer function.
fn after(op: Op, slot: usize, mut regs: Registers) -> Registers {
    if matches!(op, Op::Call { .. } | Op::CallLocal { .. } | Op::CallKfunc { .. }) {
        regs[..6].fill(Value::Unknown);
        return regs;
    }
    let Some(dst) = op.writes() else { return regs };
    let value = match op {
        Op::Alu { width, op, dst, src } => {
            let operand = match src {
                Operand::Imm(imm) => Value::Number(imm as u64),
                Operand::Reg(src) => regs[usize::from(src.number())],
            };
            match (op, width, regs[usize::from(dst.number())], operand) {
                (AluOp::Mov, Width::W64, _, source) => source,
                (AluOp::Mov, Width::W32, _, Value::Number(source)) => Value::Number(source as u32 as u64),
                (_, _, Value::Number(a), Value::Number(b)) => Value::Number(alu::alu(width, op, a, b)),
                _ => Value::Unknown,
            }
        }
        Op::LoadImm { value, .. } => Value::Number(value),
        Op::LoadFunc { distance, .. } => Value::Function(target(slot, distance.into())),
        _ => Value::Unknown,
    };
    regs[usize::from(dst.number())] = value;
    regs
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::asm::assemble;

    fn found(text: &str) -> usize {
        let insns = assemble(text, &[]).unwrap();
        let program = flowloom_isa::Program { section: "xdp".into(), insns, ..flowloom_isa::Program::default() };
        let code = flowloom_isa::decoded(&program).unwrap();
        loops(&code).len()
    }

    #[test]
    fn constants_on_every_path_are_inlined() {
        let end = "r3 = 0\ncall loop\nr0 = 0\nexit\nf: r0 = 0\nexit\n";
        for (count, text) in [
            (1, "r6 = r1\nr1 = 5\nr2 = subprog[f] ll\nr4 = 0\n"),
            (1, "r1 = 5\nr6 = subprog[f] ll\nw7 = 0\nr2 = r6\nr4 = r7\n"),
            (1, "r5 = *(u32 *)(r1 + 12)\nr2 = subprog[f] ll\nr4 = 0\nif r5 == 1 goto on\nr4 = 0\non: r1 = 5\n"),
            (0, "r5 = *(u32 *)(r1 + 12)\nr2 = subprog[f] ll\nr4 = 0\nif r5 == 1 goto on\nr4 = 1\non: r1 = 5\n"),
            (
                0,
                "r5 = *(u32 *)(r1 + 12)\nr2 = subprog[f] ll\nr4 = 0\nif r5 == 1 goto on\nr2 = subprog[g] ll\non: r1 = 5\n",
            ),
            (0, "r4 = *(u32 *)(r1 + 12)\nr2 = subprog[f] ll\nr1 = 5\n"),
            (1, "r1 = 5\nr2 = subprog[f] ll\nr4 = 5\nw4 -= 5\n"),
        ] {
            let other = if text.contains("[g]") { "g: r0 = 1\nexit" } else { "" };
            assert_eq!(found(&format!("{text}{end}{other}")), count, "{text}");
        }
        // A call clobbers its arguments, and a loop iterates.
        let twice = "r6 = subprog[f] ll\nr1 = 1\nr2 = r6\nr3 = 0\nr4 = 0\ncall loop\nr1 = 1\nr2 = r6\nr3 = 0\nr4 = r0\ncall loop\n";
        assert_eq!(found(&format!("{twice}r0 = 0\nexit\nf: r0 = 0\nexit")), 1);
        let again = "r6 = subprog[f] ll\nr7 = 0\nagain: r1 = 1\nr2 = r6\nr3 = 0\nr4 = r7\ncall loop\nr7 = r0\nif r0 > 5 goto again\n";
        assert_eq!(found(&format!("{again}r0 = 0\nexit\nf: r0 = 0\nexit")), 0);
    }
}
