// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lookups whose keys the scouts of the pipeline announce after the first key.
//!
//! Goal: programs with two tables need no second scout that parses the packet again.
//!
//! ```text
//!  r0 = lookup(flows, key)      key, point; then r0 = the address of some entry
//!  if r0 == 0 goto new          not taken
//!  r1 = *(u64 *)(r0 + 0)        of that entry
//!  if r1 < now goto old         a guess
//!  r0 = lookup(hosts, other)    announced, as `other` depends on the packet alone
//! ```
//!
//! The entry is a guess: the code finds out what is in the right one. So a value may decide on the way, but a key that
//! is computed from a value would be wrong most of the time. Such programs have a second wave of scouts instead.
//!
//! A forward dataflow analysis marks registers and bytes of the stack that depend on values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flowloom_isa::insn::helper;
use flowloom_isa::limits::STACK_BYTES;
use flowloom_isa::op::{AluOp, Cond, Op, Operand, Reg};
use flowloom_verifier::{MapId, Memory};
use flowloom_vm::is_constant_data;

use crate::compiled::Source;
use crate::resume::Point;
use crate::scout::HASHED_BYTES;

/// What depends on values: registers, and bytes of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    /// A bit for each register, and for each byte.
    registers: u16,
    stack: [u64; STACK_BYTES / u64::BITS as usize],
}

impl Marks {
    fn has(&self, register: Reg) -> bool {
        self.registers >> register.number() & 1 != 0
    }

    fn set(&mut self, register: Reg, is_marked: bool) {
        self.registers = self.registers & !(1 << register.number()) | u16::from(is_marked) << register.number();
    }

    fn has_operand(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Reg(register) if self.has(register))
    }

    /// The bits of bytes in a range of offsets from the end of the stack: word, and bit in it.
    fn bits(range: Range<i64>) -> impl Iterator<Item = (usize, u64)> {
        let place = |offset: i64| (offset + STACK_BYTES as i64).clamp(0, STACK_BYTES as i64) as usize;
        (place(range.start)..place(range.end)).map(|at| (at / 64, 1 << (at % 64)))
    }

    fn has_byte(&self, range: Range<i64>) -> bool {
        Marks::bits(range).any(|(word, bit)| self.stack[word] & bit != 0)
    }

    fn set_bytes(&mut self, range: Range<i64>, is_marked: bool) {
        for (word, bit) in Marks::bits(range) {
            self.stack[word] = if is_marked { self.stack[word] | bit } else { self.stack[word] & !bit };
        }
    }

    /// Adds those of another path; false if there is none that is new.
    fn join(&mut self, other: &Marks) -> bool {
        let before = *self;
        self.registers |= other.registers;
        self.stack.iter_mut().zip(other.stack).for_each(|(own, other)| *own |= other);
        *self != before
    }
}

impl Source<'_> {
    /// The lookups after a point whose keys a scout can announce that goes on as if the first key were there. None, if
    /// a key depends on a value, or if the way there would change what the code goes on with at the point.
    pub(crate) fn seconds(&self) -> BTreeSet<usize> {
        // Functions that the code calls may read the stack that the scout has changed.
        if self.calls_functions() {
            return BTreeSet::new();
        }
        let is_lookup = |at: &usize| matches!(self.code[*at], Some(Op::Call { helper: helper::MAP_LOOKUP_ELEM }));
        let firsts = self.points.iter().map(|point| point.at).filter(is_lookup);
        // By slot, and whether `r0` is the address that the lookup returned.
        let mut seen: BTreeMap<(usize, bool), Marks> = BTreeMap::new();
        let mut work: Vec<_> = firsts.map(|at| (at + 1, true, Marks::default())).collect();
        while let Some((at, is_found, marks)) = work.pop() {
            let mut marks = match seen.get_mut(&(at, is_found)) {
                Some(known) => {
                    if !known.join(&marks) {
                        continue;
                    }
                    *known
                }
                None => *seen.entry((at, is_found)).or_insert(marks),
            };
            let Some(op) = self.code[at].filter(|op| !self.has_key(at) && self.is_passed(at, op)) else { continue };
            self.mark_results(at, op, &mut marks);
            let goes_on = |next: &usize| match op {
                // The address is not null.
                Op::Branch { cond: Cond::Eq, dst: Reg::R0, src: Operand::Imm(0), .. } if is_found => *next == at + 1,
                Op::Branch { cond: Cond::Ne, dst: Reg::R0, src: Operand::Imm(0), .. } if is_found => *next != at + 1,
                _ => true,
            };
            let is_found = is_found && op.writes() != Some(Reg::R0) && !matches!(op, Op::Call { .. });
            work.extend(self.nexts(at, op).into_iter().filter(goes_on).map(|next| (next, is_found, marks)));
        }
        let mut seconds = BTreeSet::new();
        for ((at, _), marks) in &seen {
            if self.has_key(*at) && is_lookup(at) {
                let is_hashed = self.map(*at).is_some_and(|map| HASHED_BYTES.contains(&self.maps[map].key_bytes));
                let key = self.key_on_stack(*at).and(self.of_stack(*at)).filter(|_| is_hashed);
                if key.is_none_or(|key| marks.has_byte(key.first..key.end)) {
                    return BTreeSet::new();
                }
                seconds.insert(*at);
            }
        }
        if !seconds.is_empty() {
            let chunks = self.chunks(&self.reached(&[0]).0);
            if seen.keys().any(|(at, _)| self.changes_stack(*at, &chunks)) {
                seconds.clear();
            }
        }
        seconds
    }

    /// True if a scout of the pipeline goes on after an instruction.
    fn is_passed(&self, at: usize, op: &Op) -> bool {
        match op {
            Op::Call { helper } => self.is_inlined(at, *helper),
            Op::CallLocal { .. } | Op::CallKfunc { .. } | Op::Exit => false,
            _ => true,
        }
    }

    /// Marks what an instruction computes from values, or from what is marked.
    fn mark_results(&self, at: usize, op: Op, marks: &mut Marks) {
        let bytes = self.of_stack(at).map(|bytes| bytes.first..bytes.end);
        let is_known = |memory: &Memory| match memory {
            Memory::Context | Memory::Packet | Memory::Metadata | Memory::Stack { up: 0 } => true,
            Memory::Value(MapId::Of(map)) => is_constant_data(&self.maps[*map as usize]),
            _ => false,
        };
        match op {
            Op::Alu { op: AluOp::Mov, dst, src, .. } => marks.set(dst, marks.has_operand(src)),
            Op::Alu { dst, src, .. } => marks.set(dst, marks.has(dst) || marks.has_operand(src)),
            Op::MovSx { dst, src, .. } => marks.set(dst, marks.has(src)),
            Op::Load { dst, base, .. } => {
                let from_stack = bytes.is_some_and(|range| marks.has_byte(range));
                let is_marked = marks.has(base) || from_stack || !self.proof.insns[at].memory.keys().all(is_known);
                marks.set(dst, is_marked);
            }
            Op::Store { src, .. } => {
                let (is_marked, is_exact) = (marks.has_operand(src), self.exact(at).is_some());
                let Some(range) = bytes.filter(|_| is_marked || is_exact) else { return };
                marks.set_bytes(range, is_marked);
            }
            Op::Atomic { .. } => {
                if let Some(range) = bytes {
                    marks.set_bytes(range, true);
                }
                if let Some(fetched) = op.writes() {
                    marks.set(fetched, true);
                }
            }
            // Times and addresses of elements are those that the code will have.
            Op::Call { .. } => marks.registers &= !0x3f,
            Op::LoadImm { dst, .. } | Op::LoadMap { dst, .. } | Op::LoadMapValue { dst, .. } => marks.set(dst, false),
            _ => {}
        }
    }

    /// True if an instruction writes bytes of the stack that are in memory, which the code may read after a point.
    fn changes_stack(&self, at: usize, chunks: &[(i64, i64)]) -> bool {
        // The key of an array that has no fixed place is stored before the lookup.
        let is_writer = match self.code[at] {
            Some(Op::Store { .. } | Op::Atomic { .. }) => true,
            Some(Op::Call { .. }) => !self.has_key(at) && !self.has_fixed_key(at),
            _ => false,
        };
        let Some(bytes) = self.of_stack(at).filter(|_| is_writer) else { return false };
        let in_variables = |range: &Range<i64>| {
            let within = |(first, bytes): &&(i64, i64)| range.start <= *first && first + bytes <= range.end;
            chunks.iter().filter(within).map(|(_, bytes)| bytes).sum::<i64>() == range.end - range.start
        };
        let is_read = |point: &Point| self.is_read_later(&(bytes.first..bytes.end), point.at);
        !self.exact(at).is_some_and(|range| in_variables(&range)) && self.points.iter().any(is_read)
    }
}
