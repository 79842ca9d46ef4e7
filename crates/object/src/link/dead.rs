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
use flowloom_isa::BPF_F_RDONLY_PROG;
use flowloom_isa::insn::{Insn, SRC_REG, alu, call, class, imm64, jmp, mode, size};

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
    /// The states at jump targets.
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
                let (falls, jumps) = self.ways(insn, &state)?;
                if jumps && let Some(target) = code::jump_target(insn, at) {
                    self.join(usize::try_from(target).ok()?, &state)?;
                }
                if !falls {
                    break;
                }
                self.step(insn, at, &mut state);
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

    /// Whether the fall-through and the jump of a branch are feasible; `None` for unknown jumps.
    fn ways(&self, insn: Insn, state: &State) -> Option<(bool, bool)> {
        if !matches!(insn.class(), class::JMP | class::JMP32) {
            return Some((true, false));
        }
        let is_64 = insn.class() == class::JMP;
        match insn.op() {
            jmp::CALL => return Some((true, false)),
            jmp::EXIT => return Some((false, false)),
            jmp::JA if insn.code & SRC_REG == 0 && insn.src == 0 => return Some((false, true)),
            jmp::JA | 0xf0 => return None,
            jmp::JCOND => return Some((true, true)),
            _ => {}
        }
        let left = state[usize::from(insn.dst)];
        let right = match insn.code & SRC_REG {
            0 => Value::Number(i64::from(insn.imm) as u64),
            _ => state[usize::from(insn.src)],
        };
        let (Value::Number(left), Value::Number(right)) = (left, right) else { return Some((true, true)) };
        let (left, right) = if is_64 { (left, right) } else { (left & 0xffff_ffff, right & 0xffff_ffff) };
        let signed = |v: u64| if is_64 { v as i64 } else { i64::from(v as u32 as i32) };
        let taken = match insn.op() {
            jmp::JEQ => left == right,
            jmp::JNE => left != right,
            jmp::JGT => left > right,
            jmp::JGE => left >= right,
            jmp::JLT => left < right,
            jmp::JLE => left <= right,
            jmp::JSET => left & right != 0,
            jmp::JSGT => signed(left) > signed(right),
            jmp::JSGE => signed(left) >= signed(right),
            jmp::JSLT => signed(left) < signed(right),
            jmp::JSLE => signed(left) <= signed(right),
            _ => return Some((true, true)),
        };
        Some((!taken, taken))
    }

    /// The transfer function.
    fn step(&self, insn: Insn, at: usize, state: &mut State) {
        let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
        match insn.class() {
            class::ALU64 | class::ALU => state[dst] = arithmetic(insn, state),
            class::LD if insn.is_wide() => state[dst] = self.wide(insn, at),
            class::LD => state.fill(Value::Unknown),
            class::LDX => state[dst] = self.load(insn, state[src]).unwrap_or(Value::Unknown),
            class::STX if insn.code & 0xe0 == mode::ATOMIC => (state[src], state[0]) = (Value::Unknown, Value::Unknown),
            class::JMP | class::JMP32 if insn.op() == jmp::CALL => {
                // Any call may clobber r0 to r5.
                state[..6].fill(Value::Unknown);
                let is_any = !matches!(insn.src, call::HELPER | call::LOCAL | call::KFUNC);
                if is_any {
                    state.fill(Value::Unknown);
                }
            }
            _ => {}
        }
    }

    fn wide(&self, insn: Insn, at: usize) -> Value {
        let high = self.insns.get(at + 1).map_or(0, |second| second.imm);
        match insn.src {
            imm64::NUMBER => Value::Number(u64::from(high as u32) << 32 | u64::from(insn.imm as u32)),
            imm64::MAP_VALUE => match usize::try_from(insn.imm) {
                Ok(map) => Value::Data(map, i64::from(high)),
                Err(_) => Value::Unknown,
            },
            _ => Value::Unknown,
        }
    }

    /// A load from constant data.
    fn load(&self, insn: Insn, base: Value) -> Option<Value> {
        let Value::Data(map, offset) = base else { return None };
        let map = self.maps.get(map).filter(|map| map.def.flags & BPF_F_RDONLY_PROG != 0 && map.wants.is_empty())?;
        let bytes = map.def.initial.as_ref()?;
        let from = usize::try_from(offset.checked_add(insn.off.into())?).ok()?;
        let len = match insn.code & 0x18 {
            size::B => 1,
            size::H => 2,
            size::W => 4,
            _ => 8,
        };
        let found = bytes.get(from..from.checked_add(len)?)?;
        let mut number = [0; 8];
        number[..len].copy_from_slice(found);
        let number = u64::from_le_bytes(number);
        match insn.code & 0xe0 {
            mode::MEM => Some(Value::Number(number)),
            mode::MEMSX => {
                let unused = 64 - 8 * len as u32;
                Some(Value::Number(((number << unused) as i64 >> unused) as u64))
            }
            _ => None,
        }
    }
}

fn arithmetic(insn: Insn, state: &State) -> Value {
    let is_64 = insn.class() == class::ALU64;
    let left = state[usize::from(insn.dst)];
    let right = match insn.code & SRC_REG {
        0 => Value::Number(i64::from(insn.imm) as u64),
        _ => state[usize::from(insn.src)],
    };
    // Sign extension and byte order are not tracked.
    if insn.off != 0 || matches!(insn.op(), alu::END | alu::NEG) {
        return Value::Unknown;
    }
    match (insn.op(), left, right) {
        (alu::MOV, _, Value::Number(n)) => Value::Number(if is_64 { n } else { n & 0xffff_ffff }),
        (alu::MOV, _, address) if is_64 => address,
        (alu::ADD, Value::Data(map, offset), Value::Number(n)) if is_64 => {
            Value::Data(map, offset.wrapping_add(n as i64))
        }
        (op, Value::Number(a), Value::Number(b)) => {
            let (a, b, width) = if is_64 { (a, b, 64) } else { (a & 0xffff_ffff, b & 0xffff_ffff, 32) };
            let shift = b as u32 % width;
            let found = match op {
                alu::ADD => a.wrapping_add(b),
                alu::SUB => a.wrapping_sub(b),
                alu::MUL => a.wrapping_mul(b),
                alu::AND => a & b,
                alu::OR => a | b,
                alu::XOR => a ^ b,
                alu::LSH => a << shift,
                alu::RSH => a >> shift,
                alu::ARSH if is_64 => ((a as i64) >> shift) as u64,
                alu::ARSH => ((a as u32 as i32) >> shift) as u32 as u64,
                _ => return Value::Unknown,
            };
            Value::Number(if is_64 { found } else { found & 0xffff_ffff })
        }
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
    fn constants_decide_branches_and_nothing_else_does() {
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
    fn many_places_to_jump_to_are_not_followed() {
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
