// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resumed code: it goes on where the scout of the same packet has found the first key.
//!
//! Goal: a packet is parsed once. Most programs parse, look a flow up and act; without this, scout and code both parse,
//! and both mispredict the same branches.
//!
//! ```text
//!  scout                           record, with the stack          resumed code
//!  r6 = packet; r7 = *(r6 + 26)
//!  *(u32 *)(r10 - 8) = r7      ──► bytes of the stack
//!  key, point, live registers  ──► key, point, r2, r6         ──►  r2, r6; r10 = the record
//!                                                                  r0 = lookup(flows, r2)
//! ```
//!
//! A lookup is a point of resumption if every path of a scout to it depends on the packet, its arrival and constants
//! alone: on nothing that packets before it change, and with no effect but on the own stack. Then the scout has done
//! what the code would do up to there. All else runs from the beginning: packets whose scout ended early, and lookups
//! behind loads of values, calls of functions or loops without a small bound.
//!
//! The lookup itself is done at its time. The code compares the word of the index that the scout's wave found, and the
//! key of its entry; where they differ, it calls the lookup of the table.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use flowloom_flowtable::RawTable;
use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, AtomicOp, Cond, Op, Operand, Reg, Width};
use flowloom_verifier::{MapId, Memory};
use flowloom_vm::is_constant_data;

use crate::compiled::Source;
use crate::function::{FIELD, MEMORY, Translation};
use crate::state::{MAP_BUCKETS, MAP_ENTRIES, PLACE, POINT, WORD, register};

/// The bytes of keys that are compared without a call.
const COMPARED_BYTES: std::ops::RangeInclusive<u32> = 4..=64;
/// The registers besides `r10`.
const REGISTERS: usize = 10;

/// A call at which code can be resumed.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) at: usize,
    /// The registers whose values it and the code after it read.
    live: Vec<usize>,
}

impl Source<'_> {
    /// The calls at which code can be resumed.
    pub(crate) fn points(&self) -> Vec<Point> {
        // By slot that scouts reach: whether only by paths that depend on the packet alone.
        let mut seen: BTreeMap<usize, bool> = BTreeMap::new();
        let mut work = vec![(0, true)];
        while let Some((at, is_pure)) = work.pop() {
            if seen.get(&at).is_some_and(|seen| !seen || is_pure) {
                continue;
            }
            seen.insert(at, is_pure);
            // The scout ends at the first key.
            let Some(op) = self.code[at].filter(|_| !self.has_key(at)) else { continue };
            let is_pure = is_pure && self.is_pure(at, op);
            work.extend(self.nexts(at, op).into_iter().map(|next| (next, is_pure)));
        }
        let points = seen.into_iter().filter(|(at, is_pure)| *is_pure && self.has_key(*at));
        // The address of a key on the stack is known.
        let is_known = |at, number| number == 2 && self.key_on_stack(at).is_some();
        let is_kept = |at, number| self.is_live(number, at) && !is_known(at, number);
        let live = |at| (0..REGISTERS).filter(|number| is_kept(at, *number)).collect();
        points.map(|(at, _)| Point { at, live: live(at) }).collect()
    }

    /// Where control goes on after a lookup that finds its key, if the next instruction compares the result with null.
    fn if_found(&self, at: usize) -> Option<usize> {
        let next = at + 1;
        let op = self.code[next].filter(|_| !self.proof.loops.contains_key(&next))?;
        let Op::Branch { width: Width::W64, cond, dst: Reg::R0, src: Operand::Imm(0), off } = op else { return None };
        match cond {
            _ if self.nexts(next, op).len() < 2 => None,
            Cond::Eq => Some(next + 1),
            Cond::Ne => usize::try_from(next as i64 + 1 + i64::from(off)).ok(),
            _ => None,
        }
    }

    /// Whether an instruction depends on the packet, its arrival and constants alone, and writes its own stack at most.
    pub(crate) fn is_pure(&self, at: usize, op: Op) -> bool {
        // The code counts these iterations, and the scout stops earlier.
        if self.proof.loops.contains_key(&at) && !self.uncounted.contains(&at) {
            return false;
        }
        let memory = || self.proof.insns[at].memory.keys();
        let is_own = |memory: &Memory| *memory == Memory::Stack { up: 0 };
        let is_known = |memory: &Memory| match memory {
            Memory::Context | Memory::Packet | Memory::Metadata | Memory::Stack { up: 0 } => true,
            Memory::Value(MapId::Of(map)) => is_constant_data(&self.maps[*map as usize]),
            _ => false,
        };
        match op {
            Op::Alu { .. }
            | Op::MovSx { .. }
            | Op::Neg { .. }
            | Op::End { .. }
            | Op::LoadImm { .. }
            | Op::LoadMap { .. }
            | Op::LoadMapValue { .. }
            | Op::Jump { .. }
            | Op::JumpLong { .. }
            | Op::Branch { .. }
            | Op::Exit => true,
            // In a scout, the address is that of a scout.
            Op::LoadFunc { .. } => false,
            Op::Load { .. } => memory().all(is_known),
            Op::Store { .. } | Op::Atomic { .. } => memory().all(is_own),
            Op::Call { helper: helper::KTIME_GET_NS | helper::KTIME_GET_BOOT_NS } => true,
            // The address of an array's element.
            Op::Call { helper: helper::MAP_LOOKUP_ELEM } => {
                let is_array = |map: usize| self.maps[map].kind == MapKind::Array;
                self.map(at).is_some_and(is_array) && memory().all(is_known)
            }
            _ => false,
        }
    }

    /// Whether the value that a register has at an instruction is read there or later.
    pub(crate) fn is_live(&self, number: usize, from: usize) -> bool {
        let (mut seen, mut work) = (BTreeSet::new(), vec![from]);
        while let Some(at) = work.pop() {
            let Some(op) = self.code[at].filter(|_| seen.insert(at)) else { continue };
            if self.reads(at, op, number) {
                return true;
            }
            let is_call = matches!(op, Op::Call { .. } | Op::CallLocal { .. } | Op::CallKfunc { .. });
            let is_written = op.writes().is_some_and(|reg| usize::from(reg.number()) == number);
            if !(is_written || is_call && number <= 5) {
                work.extend(self.nexts(at, op));
            }
        }
        false
    }

    /// Whether an instruction may read a register.
    fn reads(&self, at: usize, op: Op, number: usize) -> bool {
        let is = |reg: flowloom_isa::op::Reg| usize::from(reg.number()) == number;
        let is_operand = |src: Operand| matches!(src, Operand::Reg(reg) if is(reg));
        match op {
            Op::Alu { op: AluOp::Mov, src, .. } => is_operand(src),
            Op::Alu { dst, src, .. } | Op::Branch { dst, src, .. } => is(dst) || is_operand(src),
            Op::MovSx { src, .. } => is(src),
            Op::Neg { dst, .. } | Op::End { dst, .. } => is(dst),
            Op::Load { base, .. } => is(base),
            Op::Store { base, src, .. } => is(base) || is_operand(src),
            Op::Atomic { op, base, src, .. } => is(base) || is(src) || op == AtomicOp::CmpXchg && number == 0,
            // The map is known.
            Op::Call { helper: helper::MAP_LOOKUP_ELEM } if self.has_key(at) => number == 2,
            Op::Call { .. } | Op::CallLocal { .. } | Op::CallKfunc { .. } => (1..=5).contains(&number),
            Op::Exit => number == 0,
            Op::LoadImm { .. }
            | Op::LoadMap { .. }
            | Op::LoadMapValue { .. }
            | Op::Jump { .. }
            | Op::JumpLong { .. }
            | Op::MayGoto { .. } => false,
            _ => true,
        }
    }
}

impl Translation<'_, '_> {
    /// In a scout that ends at a call: notes the point of the call, and its live registers.
    pub(crate) fn note_point(&mut self, at: usize, record: Value) {
        let points = &self.source.points;
        // A function that the program calls has no points of its own.
        let number = points.iter().position(|point| point.at == at && self.has_record);
        let Some(number) = number else {
            self.forget_point(record);
            return;
        };
        for register_number in &points[number].live {
            let value = self.builder.use_var(self.registers[*register_number]);
            self.builder.ins().store(FIELD, value, record, register(*register_number));
        }
        self.flush_live(at);
        let number = self.builder.ins().iconst(types::I32, number as i64 + 1);
        self.builder.ins().store(FIELD, number, record, POINT);
    }

    /// Translates the function that goes on at the point of a record.
    pub(crate) fn resume(&mut self) {
        let params = self.begin();
        self.begin_registers(&params);
        let record = self.record();
        let chosen = self.builder.ins().load(types::I32, FIELD, record, POINT);
        self.translate_points(chosen);
        self.builder.seal_all_blocks();
    }

    /// Translates what is reached from the points; `chosen` is the number of that of the record.
    pub(crate) fn translate_points(&mut self, chosen: Value) {
        let points = &self.source.points;
        let afters: Vec<usize> = points.iter().map(|point| point.at + 1).collect();
        let (slots, starts) = self.source.reached(&afters);
        let calls: Vec<usize> = points.iter().map(|point| point.at).collect();
        self.choose_variables(&slots.iter().chain(&calls).copied().collect(), &calls);
        // Control comes from points to the instruction after them, or past its branch.
        let past = points.iter().filter_map(|point| self.source.if_found(point.at));
        let entries: Vec<usize> = afters.iter().copied().chain(past).collect();
        self.choose_conversions(&slots, &entries);
        self.blocks = starts.iter().map(|start| (*start, self.builder.create_block())).collect();
        let record = self.record();
        for (number, point) in (1..).zip(points) {
            if number < points.len() {
                let (here, others) = (self.builder.create_block(), self.builder.create_block());
                let is_here = self.builder.ins().icmp_imm_u(IntCC::Equal, chosen, number as i64);
                self.builder.ins().brif(is_here, here, &[], others, &[]);
                self.resume_at(point, here, record);
                self.builder.switch_to_block(others);
            } else {
                let here = self.builder.create_block();
                self.builder.ins().jump(here, &[]);
                self.resume_at(point, here, record);
            }
        }
        self.body(slots);
    }

    /// At a point: loads the registers, and does the call.
    fn resume_at(&mut self, point: &Point, block: cranelift_codegen::ir::Block, record: Value) {
        self.builder.switch_to_block(block);
        for number in &point.live {
            let value = self.builder.ins().load(types::I64, FIELD, record, register(*number));
            self.builder.def_var(self.registers[*number], value);
        }
        let at = point.at;
        if let Some(first) = self.source.key_on_stack(at) {
            let end = self.builder.use_var(self.registers[10]);
            let key = self.builder.ins().iadd_imm_s(end, first);
            self.builder.def_var(self.registers[2], key);
        }
        match self.source.code[at] {
            Some(Op::Call { helper: helper::MAP_LOOKUP_ELEM }) if let Some(map) = self.source.table(at) => {
                let found = self.look_up_announced(at, map, record, self.source.if_found(at));
                self.mark(map, found);
                self.builder.def_var(self.registers[0], found);
            }
            Some(Op::Call { helper }) => self.call(at, helper),
            _ => {}
        }
        self.builder.ins().jump(self.blocks[&(at + 1)], &[]);
    }

    /// The lookup of the key that was announced. Where an entry is found at once, control goes on at `if_found`, if
    /// that is known.
    fn look_up_announced(&mut self, at: usize, map: usize, record: Value, if_found: Option<usize>) -> Value {
        let def = &self.source.maps[map];
        // A use of an entry of an LRU table is noted.
        if def.kind.is_lru() || !COMPARED_BYTES.contains(&def.key_bytes) {
            return self.use_entry(at, map);
        }
        // SAFETY: the table belongs to the map, which lives; these fields depend on its layout alone.
        let (slot_mask, stride, value_at) = unsafe {
            let RawTable { slot_mask, stride_bytes, value_at_bytes, .. } = *self.source.refs[map].raw;
            (i64::from(slot_mask), i64::from(stride_bytes), i64::from(value_at_bytes))
        };
        let [has_word, is_used, found, other, done] = [(); 5].map(|()| self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        self.builder.set_cold_block(other);

        let word = self.builder.ins().load(types::I32, FIELD, record, WORD);
        self.builder.ins().brif(word, has_word, &[], other, &[]);

        // While the index has the word, the slot is used.
        self.builder.switch_to_block(has_word);
        let buckets = self.map_field(map, MAP_BUCKETS);
        let place = self.builder.ins().uload32(FIELD, record, PLACE);
        let place = self.builder.ins().ishl_imm_u(place, 2);
        let at_place = self.builder.ins().iadd(buckets, place);
        let current = self.builder.ins().load(types::I32, FIELD, at_place, 0);
        let is_same = self.builder.ins().icmp(IntCC::Equal, current, word);
        self.builder.ins().brif(is_same, is_used, &[], other, &[]);

        self.builder.switch_to_block(is_used);
        let slot = self.builder.ins().band_imm_u(word, slot_mask);
        let slot = self.builder.ins().uextend(types::I64, slot);
        let offset = self.builder.ins().imul_imm_s(slot, stride);
        let entries = self.map_field(map, MAP_ENTRIES);
        let entry = self.builder.ins().iadd(entries, offset);
        let differs = self.differs(entry, def.key_bytes as i32);
        self.builder.ins().brif(differs, other, &[], found, &[]);

        self.builder.switch_to_block(found);
        let value = self.builder.ins().iadd_imm_s(entry, value_at);
        match if_found {
            Some(next) => {
                self.mark(map, value);
                self.builder.def_var(self.registers[0], value);
                self.builder.ins().jump(self.blocks[&next], &[]);
            }
            None => _ = self.builder.ins().jump(done, &[value.into()]),
        }

        self.builder.switch_to_block(other);
        let value = self.call_lookup(at, map);
        self.builder.ins().jump(done, &[value.into()]);

        self.builder.switch_to_block(done);
        result
    }

    /// Not 0 if the key in `r2` differs from that of an entry.
    fn differs(&mut self, entry: Value, key_bytes: i32) -> Value {
        let key = self.builder.use_var(self.registers[2]);
        let (of, bytes) = if key_bytes >= 8 { (types::I64, 8) } else { (types::I32, 4) };
        // The last word ends where the key does, so that it may overlap the one before.
        let starts = (0..key_bytes - bytes).step_by(bytes as usize).chain([key_bytes - bytes]);
        let mut differs = None;
        for start in starts {
            let [a, b] = [key, entry].map(|base| self.builder.ins().load(of, MEMORY, base, start));
            let word = self.builder.ins().bxor(a, b);
            differs = Some(differs.map_or(word, |differs| self.builder.ins().bor(differs, word)));
        }
        // A key has a word at least.
        differs.unwrap_or(key)
    }
}
