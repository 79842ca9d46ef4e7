// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reachability of instructions, by constant propagation.
//!
//! A program checks whether a function, a type or a setting exists and skips what it cannot use. These checks are
//! constants by now, so their branches are decided: code on the other edge is never run, and unresolved references
//! there do not matter. The kernel's verifier drops the same code.
//!
//! Goal: `reached[slot]`, never false for an instruction that a run can reach. Steps: follow the code from the start of
//! each reached function with the constants in registers; join at jump targets. Limits: the stack, packets and maps are
//! unknown but for constants (`.rodata`); past a bounded number of steps or jump targets everything counts as reached.

use std::collections::HashMap;

use super::code;
use crate::maps::ObjectMap;
use flowloom_isa::insn::{Insn, alu, class};
use flowloom_isa::op::{AluOp, Op, Operand, Reg, Size, Width};
use flowloom_isa::{BPF_F_RDONLY_PROG, alu as arithmetic};

/// The mean number of visits to an instruction after which the search is given up.
const MAX_VISITS: usize = 32;

/// The most jump targets with a saved state; past it the search is given up. The states take some ten megabytes then.
const MAX_JOINS: usize = 1 << 16;

/// The known value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Unknown,
    Number(u64),
    /// The address of a byte of a data section: map and offset.
    Data(usize, i64),
}

type State = [Value; 16];

/// Whether each slot can be reached.
pub(super) fn reached(insns: &[Insn], maps: &[ObjectMap]) -> Vec<bool> {
    let mut search = Search { insns, maps, joins: vec![false; insns.len()], states: HashMap::new(), todo: Vec::new() };
    search.run().unwrap_or_else(|| vec![true; insns.len()])
}

/// Puts a load of zero in place of an unreachable instruction.
pub(super) fn neutralise(insns: &mut [Insn], at: usize) {
    let Some(insn) = insns.get(at).copied() else { return };
    if insn.is_wide() {
        insns[at] = Insn { code: insn.code, dst: insn.dst, ..Insn::default() };
        if let Some(second) = insns.get_mut(at + 1) {
            *second = Insn::default();
        }
    } else {
        insns[at] = Insn { code: class::ALU64 | alu::MOV, ..Insn::default() };
    }
}

struct Search<'a> {
    insns: &'a [Insn],
    maps: &'a [ObjectMap],
    /// Jump targets.
    joins: Vec<bool>,
    states: HashMap<usize, State>,
    todo: Vec<usize>,
}

impl Search<'_> {
    fn run(&mut self) -> Option<Vec<bool>> {
        for (at, insn) in code::instructions(self.insns) {
            if let Some(target) = code::jump_target(insn, at) {
                *self.joins.get_mut(usize::try_from(target).ok()?)? = true;
            }
        }
        let mut reached = vec![false; self.insns.len()];
        let mut left = self.insns.len().saturating_mul(MAX_VISITS) + 1000;
        self.join(0, &[Value::Unknown; 16])?;
        while let Some(start) = self.todo.pop() {
            let mut state = *self.states.get(&start)?;
            let mut at = start;
            loop {
                left = left.checked_sub(1)?;
                let insn = *self.insns.get(at)?;
                *reached.get_mut(at)? = true;
                if let Some(callee) = code::callee(insn, at) {
                    self.join(usize::try_from(callee).ok()?, &[Value::Unknown; 16])?;
                }
                let next = at + insn.slots();
                let op = Op::decode(self.insns, at).ok();
                let (falls, jumps) = edges(insn, op, &state)?;
                if jumps && let Some(target) = code::jump_target(insn, at) {
                    self.join(usize::try_from(target).ok()?, &state)?;
                }
                if !falls {
                    break;
                }
                match op {
                    Some(op) => self.step(op, &mut state),
                    None => state.fill(Value::Unknown),
                }
                if next >= self.insns.len() {
                    break;
                }
                if self.joins[next] {
                    self.join(next, &state)?;
                    break;
                }
                at = next;
            }
        }
        Some(reached)
    }

    /// Adds an edge to `at`; `None` past the limit of jump targets.
    fn join(&mut self, at: usize, state: &State) -> Option<()> {
        let places = self.states.len();
        match self.states.get_mut(&at) {
            None if places >= MAX_JOINS => return None,
            None => {
                self.states.insert(at, *state);
                self.todo.push(at);
            }
            Some(known) => {
                let mut changed = false;
                for (known, new) in known.iter_mut().zip(state) {
                    if *known != *new && *known != Value::Unknown {
                        *known = Value::Unknown;
                        changed = true;
                    }
                }
                if changed {
                    self.todo.push(at);
                }
            }
        }
        Some(())
    }

    /// The transfer function.
    fn step(&self, op: Op, state: &mut State) {
        let value = match op {
            Op::Alu { width, op, dst, src } => computed(width, op, register(dst, state), operand(src, state)),
            Op::LoadImm { value, .. } => Value::Number(value),
            Op::LoadMapValue { map, off, .. } => match usize::try_from(map) {
                Ok(map) => Value::Data(map, i64::from(off as i32)),
                Err(_) => Value::Unknown,
            },
            Op::Load { size, signed, base, off, .. } => {
                self.load(size, signed, register(base, state), off).unwrap_or(Value::Unknown)
            }
            Op::LoadPacket { .. } => return state.fill(Value::Unknown),
            // Calls clobber r0 to r5.
            Op::Call { .. } | Op::CallLocal { .. } | Op::CallKfunc { .. } => return state[..6].fill(Value::Unknown),
            _ => Value::Unknown,
        };
        if let Some(dst) = op.writes() {
            state[usize::from(dst.number())] = value;
        }
    }

    /// A load from constant data.
    fn load(&self, size: Size, signed: bool, base: Value, off: i16) -> Option<Value> {
        let Value::Data(map, offset) = base else { return None };
        let map =
            self.maps.get(map).filter(|map| map.def.flags & BPF_F_RDONLY_PROG != 0 && map.unresolved.is_empty())?;
        let bytes = map.def.initial.as_ref()?;
        let from = usize::try_from(offset.checked_add(off.into())?).ok()?;
        let found = bytes.get(from..from.checked_add(size.bytes())?)?;
        let mut number = [0; 8];
        number[..found.len()].copy_from_slice(found);
        let number = u64::from_le_bytes(number);
        Some(Value::Number(if signed { arithmetic::sign_extend(size, number) } else { number }))
    }
}

fn register(register: Reg, state: &State) -> Value {
    state[usize::from(register.number())]
}

fn operand(operand: Operand, state: &State) -> Value {
    match operand {
        Operand::Reg(source) => register(source, state),
        Operand::Imm(imm) => Value::Number(i64::from(imm) as u64),
    }
}

/// Whether the fall-through and the jump of an instruction are feasible; `None` for unknown jumps.
fn edges(insn: Insn, op: Option<Op>, state: &State) -> Option<(bool, bool)> {
    let (width, cond, left, right) = match op {
        Some(Op::Branch { width, cond, dst, src, .. }) => (width, cond, register(dst, state), operand(src, state)),
        Some(Op::MayGoto { .. }) => return Some((true, true)),
        Some(Op::Jump { .. } | Op::JumpLong { .. }) => return Some((false, true)),
        Some(Op::Exit) => return Some((false, false)),
        None if matches!(insn.class(), class::JMP | class::JMP32) => return None,
        _ => return Some((true, false)),
    };
    let (Value::Number(left), Value::Number(right)) = (left, right) else { return Some((true, true)) };
    let taken = arithmetic::holds(width, cond, left, right);
    Some((!taken, taken))
}

/// The result of an operation. Division is not tracked, as in the kernel's verifier.
fn computed(width: Width, op: AluOp, left: Value, right: Value) -> Value {
    match (op, width, left, right) {
        (AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod, ..) => Value::Unknown,
        (AluOp::Mov, Width::W64, _, source) => source,
        (AluOp::Mov, Width::W32, _, Value::Number(source)) => Value::Number(source & 0xffff_ffff),
        (AluOp::Add, Width::W64, Value::Data(map, offset), Value::Number(n)) => {
            Value::Data(map, offset.wrapping_add(n as i64))
        }
        (_, _, Value::Number(a), Value::Number(b)) => Value::Number(arithmetic::alu(width, op, a, b)),
        _ => Value::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use flowloom_isa::asm::assemble;

    /// The unreachable instructions, by their slots.
    fn dead(text: &str) -> Vec<usize> {
        let insns = assemble(text, &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let reached = reached(&insns, &[]);
        code::instructions(&insns).map(|(slot, _)| slot).filter(|slot| !reached[*slot]).collect()
    }

    #[test]
    fn only_constants_decide_branches() {
        for (text, expected) in [
            ("r1 = 1\nif r1 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![2]),
            ("r1 = 1\nif r1 != 1 goto end\nr0 = 7\nexit\nend: r0 = 2\nexit", vec![4, 5]),
            // The upper half does not count in 32 bits.
            ("r1 = 0x100000001 ll\nif w1 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![3]),
            ("r1 = 0x100000001 ll\nif r1 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![]),
            ("r1 = -1\nif r1 s< 0 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![2]),
            ("w1 = -1\nif r1 s< 0 goto end\nr0 = 7\nexit\nend: r0 = 2\nexit", vec![4, 5]),
            // A loop: the initial value of a register is not its value.
            ("r1 = 1\nloop: r1 += 1\nif r1 != 5 goto loop\nr0 = 0\nexit", vec![]),
            // Two paths to one place.
            ("r2 = 1\nif r1 == 0 goto one\nr2 = 2\none: if r2 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![]),
            // The results of loads and calls are unknown.
            ("r1 = 1\nr1 = *(u32 *)(r6 + 0)\nif r1 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![]),
            ("r0 = 1\ncall 5\nif r0 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![]),
            ("r6 = 1\ncall 5\nif r6 == 1 goto end\nr0 = 7\nend: r0 = 2\nexit", vec![3]),
        ] {
            assert_eq!(dead(text), expected, "{text}");
        }
    }

    #[test]
    fn past_the_limit_of_jump_targets_everything_is_reached() {
        // Code after the decided branch is known to be dead unless there are too many jump targets before it.
        for (places, is_seen) in [(1000, true), (MAX_JOINS + 1, false)] {
            let mut insns = assemble(&"if r1 == r2 goto +0\n".repeat(places), &[]).unwrap();
            insns.extend(assemble("r3 = 1\nif r3 == 1 goto +1\nr0 = 7\nr0 = 2\nexit", &[]).unwrap());
            let reached = reached(&insns, &[]);
            assert_eq!(!reached[places + 2], is_seen, "{places}");
            assert!(reached[places + 3]);
        }
    }

    #[test]
    fn a_dead_instruction_becomes_a_load_of_zero() {
        let mut insns = assemble("r3 = 0x1234567890 ll\ncall 5\nexit", &[]).unwrap();
        neutralise(&mut insns, 0);
        neutralise(&mut insns, 2);
        assert_eq!(insns, assemble("r3 = 0 ll\nr0 = 0\nexit", &[]).unwrap());
    }
}
