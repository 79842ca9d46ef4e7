// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random virtual programs with high register pressure run in an evaluator over virtual registers and, after
//! allocation, in the interpreter: packet and map must be equal at the end.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests stop and speak")]

mod evaluator;

use std::collections::BTreeSet;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
use flowloom_isa::insn::{class, helper, jmp};
use flowloom_isa::{BPF_F_NO_PREALLOC, Insn, MapDef, MapKind, Program};
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;

use super::super::asm::{AluOp, Builder, Cond, FP, Label, Op, Operand, R0, R1, R2, R3, R4, Reg, Size};
use super::{STACK_BYTES, finish};
use evaluator::{PACKET_BYTES, evaluate};
use flowloom_efsm::model::{Source, Span};

const PROGRAMS: usize = 1500;
/// Offset of the first result byte in the packet; bytes before it are read-only.
const RESULTS: i16 = 64;

/// A program under construction, with the registers that are definitely assigned.
struct Maker<'a> {
    b: Builder,
    rng: &'a mut Rng,
    data: Reg,
    known: Vec<Reg>,
    key_slot: i16,
    value_slot: i16,
    scratch: i16,
    scratch_is_written: bool,
    calls: usize,
    jumps: usize,
}

fn source() -> Source {
    Source { name: "r.efsm".to_owned(), text: "one\ntwo\nthree\n".to_owned() }
}

impl Maker<'_> {
    fn any(&mut self) -> Reg {
        *self.rng.pick(&self.known)
    }

    fn operand(&mut self) -> Operand {
        if self.rng.chance(1, 3) {
            let any = self.rng.next_u64() as i32;
            Operand::Imm(*self.rng.pick(&[0, 1, -1, 2, 255, 0xffff, i32::MIN, i32::MAX, any]))
        } else {
            Operand::Reg(self.any())
        }
    }

    /// A register that the next instruction may change: a new copy or an existing one.
    fn target(&mut self) -> Reg {
        if self.rng.chance(1, 2) {
            let from = self.any();
            let new = self.b.dup(from);
            self.known.push(new);
            new
        } else {
            self.any()
        }
    }

    fn piece(&mut self, depth: usize) {
        match self.rng.below(16) {
            0..=4 => self.arithmetic(),
            5 => {
                let dst = self.target();
                let bits = *self.rng.pick(&[16, 32, 64]);
                self.b.push(Op::FromBe { dst, bits });
            }
            6 => {
                let value = self.rng.next_u64() >> self.rng.below(64);
                let reg = self.b.reg();
                if self.rng.chance(1, 2) {
                    self.b.push(Op::Forget { reg });
                }
                self.b.set(reg, value);
                self.known.push(reg);
            }
            7 | 8 => {
                // A chain of copies for coalescing.
                let (from, to) = (self.any(), self.any());
                self.b.copy(to, from);
                let (from, new) = (self.any(), self.b.reg());
                self.b.copy(new, from);
                self.known.push(new);
            }
            9 => self.memory(),
            10 => self.call(),
            11 => {
                let start = self.rng.below(12);
                self.b.push(Op::Line(Span { start, end: start + 1 }));
            }
            12..=14 if depth > 0 => self.branch(depth - 1),
            15 if depth > 0 => self.correlated(depth - 1),
            _ => self.arithmetic(),
        }
    }

    fn arithmetic(&mut self) {
        let dst = self.target();
        let wide = self.rng.chance(1, 2);
        let width = if wide { 64 } else { 32 };
        let (op, src) = match self.rng.below(9) {
            0 => (AluOp::Add, self.operand()),
            1 => (AluOp::Sub, self.operand()),
            2 => (AluOp::Or, self.operand()),
            3 => (AluOp::And, self.operand()),
            4 => (AluOp::Xor, self.operand()),
            5 => (AluOp::Mov, self.operand()),
            6 => (AluOp::Div, Operand::Imm(1 + self.rng.below(1000) as i32)),
            7 => (*self.rng.pick(&[AluOp::Lsh, AluOp::Rsh, AluOp::Arsh]), Operand::Imm(self.rng.below(width) as i32)),
            _ => (*self.rng.pick(&[AluOp::Lsh, AluOp::Rsh, AluOp::Arsh]), Operand::Reg(self.any())),
        };
        self.b.push(Op::Alu { wide, op, dst, src });
    }

    fn memory(&mut self) {
        let (size, bytes) = *self.rng.pick(&[(Size::B, 1), (Size::H, 2), (Size::W, 4), (Size::Dw, 8)]);
        let place = |rng: &mut Rng, from: i16, to: i16| from + bytes * rng.below(((to - from) / bytes) as usize) as i16;
        match self.rng.below(4) {
            0 => {
                let at = place(self.rng, RESULTS, PACKET_BYTES as i16);
                let (base, src) = (self.data, self.operand());
                self.b.store(size, base, at, src);
            }
            1 => {
                let (at, new) = (place(self.rng, 0, PACKET_BYTES as i16), self.b.reg());
                self.b.load(size, new, self.data, at);
                self.known.push(new);
            }
            2 => {
                let src = self.operand();
                self.b.store(Size::Dw, FP, self.scratch, src);
                self.scratch_is_written = true;
            }
            _ if self.scratch_is_written => {
                let at = self.scratch + place(self.rng, 0, 8);
                let new = self.b.reg();
                self.b.load(size, new, FP, at);
                self.known.push(new);
            }
            _ => {}
        }
    }

    fn call(&mut self) {
        self.calls += 1;
        if self.rng.chance(1, 2) {
            self.b.call(*self.rng.pick(&[helper::KTIME_GET_NS, helper::GET_PRANDOM_U32]), 0);
        } else {
            let (key, value) = (self.any(), self.operand());
            self.b.store(Size::W, FP, self.key_slot, Operand::Reg(key));
            self.b.store(Size::Dw, FP, self.value_slot, value);
            self.b.push(Op::Map { dst: R1, map: 0 });
            for (argument, slot) in [(R2, self.key_slot), (R3, self.value_slot)] {
                self.b.copy(argument, FP);
                self.b.alu64(AluOp::Add, argument, Operand::Imm(slot.into()));
            }
            // An unrelated instruction between the arguments and the call.
            if self.rng.chance(1, 2) {
                self.arithmetic();
            }
            self.b.set(R4, 0);
            self.b.call(helper::MAP_UPDATE_ELEM, 4);
        }
        let result = self.b.dup(R0);
        self.known.push(result);
    }

    fn jump(&mut self, target: Label) {
        self.jumps += 1;
        let (wide, op) = (self.rng.chance(1, 2), *self.rng.pick(&Cond::ALL));
        let (left, right) = (self.any(), self.operand());
        self.b.push(Op::Jump { wide, op, left, right, target });
    }

    /// An if, with or without else, in the form of the lowering or inverted.
    fn branch(&mut self, depth: usize) {
        let (other, join) = (self.b.label(), self.b.label());
        if self.rng.chance(1, 2) {
            self.jump(other);
        } else {
            let here = self.b.label();
            self.jump(here);
            self.b.goto(other);
            self.b.place(here);
        }
        let (before, scratch) = (self.known.clone(), self.scratch_is_written);
        for _ in 0..self.rng.below(5) {
            self.piece(depth);
        }
        self.b.goto(join);
        self.b.place(other);
        let scratch_there = std::mem::replace(&mut self.scratch_is_written, scratch);
        let there = std::mem::replace(&mut self.known, before);
        for _ in 0..self.rng.below(4) {
            self.piece(depth);
        }
        self.b.place(join);
        let there: BTreeSet<Reg> = there.into_iter().collect();
        self.known.retain(|r| there.contains(r));
        self.scratch_is_written &= scratch_there;
    }

    /// A register that is assigned on some paths only, and read only if a flag says so.
    fn correlated(&mut self, depth: usize) {
        let (is_set, value) = (self.b.reg(), self.b.reg());
        self.b.set(is_set, 0);
        let (skip, unused) = (self.b.label(), self.b.label());
        self.jump(skip);
        let from = self.any();
        self.b.copy(value, from);
        self.b.set(is_set, 1);
        self.b.place(skip);
        let before = self.known.clone();
        for _ in 0..self.rng.below(6) {
            self.piece(depth);
        }
        self.b.jump64(Cond::Eq, is_set, Operand::Imm(0), unused);
        let to = *self.rng.pick(&before);
        self.b.alu64(AluOp::Add, to, Operand::Reg(value));
        self.b.place(unused);
    }
}

fn random_program(rng: &mut Rng) -> (Builder, usize, usize) {
    let mut b = Builder::new();
    let (key_slot, value_slot, scratch) = (b.stack(4), b.stack(8), b.stack(8));
    let (data, end) = (b.reg(), b.reg());
    b.load(Size::W, data, R1, 0);
    b.load(Size::W, end, R1, 4);
    let short = b.label();
    let limit = b.dup(data);
    b.alu64(AluOp::Add, limit, Operand::Imm(PACKET_BYTES as i32));
    b.jump64(Cond::Gt, limit, Operand::Reg(end), short);
    b.store(Size::W, FP, key_slot, Operand::Imm(0));
    let mut known = Vec::new();
    let inputs = 2 + rng.below(24);
    for i in 0..inputs {
        let value = b.reg();
        b.load(Size::Dw, value, data, (i * 2) as i16);
        known.push(value);
    }
    let pieces = 4 + rng.below(30);
    let mut maker =
        Maker { b, rng, data, known, key_slot, value_slot, scratch, scratch_is_written: false, calls: 0, jumps: 0 };
    for _ in 0..pieces {
        maker.piece(3);
    }
    // All known values are written to the packet, so that none of the code above is dead.
    let results: Vec<Reg> = maker.known.iter().rev().take((PACKET_BYTES - RESULTS as usize) / 8).copied().collect();
    let Maker { mut b, calls, jumps, .. } = maker;
    for (i, reg) in results.into_iter().enumerate() {
        b.store(Size::Dw, data, RESULTS + 8 * i as i16, Operand::Reg(reg));
    }
    b.exit_with(Verdict::Pass.number());
    b.place(short);
    b.exit_with(Verdict::Drop.number());
    (b, calls, jumps)
}

/// Number of reachable slots; a wide instruction counts both of its slots.
fn reached(insns: &[Insn]) -> usize {
    let mut seen = vec![false; insns.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        let insn = insns[at];
        let next = at + insn.slots();
        if insn.is_wide() {
            seen[at + 1] = true;
        }
        let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
        let target = (next as i64 + i64::from(insn.off)) as usize;
        match insn.op() {
            jmp::EXIT if is_jump => {}
            jmp::JA if is_jump => open.push(target),
            jmp::CALL if is_jump => open.push(next),
            _ if is_jump => open.extend([next, target]),
            _ => open.push(next),
        }
    }
    seen.iter().filter(|s| **s).count()
}

#[test]
fn allocated_code_equals_virtual_code() {
    let mut rng = Rng::from_env(0x616c_6c6f);
    let (mut spilled, mut deepest, mut slots, mut calls, mut jumps, mut copies, mut lines) = (0, 0, 0, 0, 0, 0, 0);
    for number in 0..PROGRAMS {
        let (builder, made_calls, made_jumps) = random_program(&mut rng);
        let own_bytes = builder.stack_bytes as i16;
        let ops = builder.ops.clone();
        let (insns, line_info) = match finish(builder, &source()) {
            Ok(done) => done,
            Err(error) => panic!("program {number}: {error}"),
        };
        let is_spill = |i: &Insn| i.class() == class::LDX && i.src == 10 && -i.off > own_bytes;
        spilled += usize::from(insns.iter().any(is_spill));
        let accesses = insns.iter().filter(|i| is_spill(i)).map(|i| -i.off);
        deepest = deepest.max(accesses.max().unwrap_or(0));
        slots += insns.len();
        calls += made_calls;
        jumps += made_jumps;
        copies += ops.iter().filter(|op| matches!(op, Op::Copy { .. })).count();
        lines += line_info.len();
        assert_eq!(reached(&insns), insns.len(), "program {number} has code that no path reaches");
        assert!(line_info.iter().all(|l| l.insn < insns.len()) && line_info.is_sorted_by_key(|l| l.insn));

        let map = MapDef {
            name: "map".to_owned(),
            kind: MapKind::Hash,
            key_bytes: 4,
            value_bytes: 8,
            max_entries: 8,
            flags: BPF_F_NO_PREALLOC,
            ..MapDef::default()
        };
        let program = Program { section: "xdp".to_owned(), insns, maps: vec![map], ..Program::default() };
        let mut interp = Interpreter::new(Arc::new(program)).expect("code is well formed").with_strict_stack();
        for round in 0..3 {
            let bytes = rng.bytes(PACKET_BYTES);
            let choices = Choices::seeded(rng.next_u64(), 7, round);
            let start = interp.snapshot().expect("a snapshot");
            let expected = evaluate(&ops, &bytes, &choices, start.maps["map"].clone());
            let packet = Packet { bytes: &bytes, port: Port(1) };
            let found = interp.process(&packet, &choices).unwrap_or_else(|e| panic!("program {number}: {e}"));
            assert_eq!(found.verdict, Verdict::Pass);
            assert_eq!(found.outputs[0].bytes, expected.packet, "program {number}: {ops:#?}");
            assert_eq!(interp.snapshot().expect("a snapshot").maps["map"], expected.map, "program {number}");
        }
    }
    println!(
        "{PROGRAMS} programs of {slots} instructions with {jumps} jumps, {calls} calls, {copies} copies; {spilled} with \
         spills, the deepest at {deepest} of {STACK_BYTES} bytes"
    );
    assert!(
        spilled > PROGRAMS / 2 && calls > PROGRAMS && jumps > PROGRAMS && lines > PROGRAMS,
        "{spilled} {calls} {jumps}"
    );
}

#[test]
fn too_large_stack_frames_are_rejected() {
    let mut b = Builder::new();
    let data = b.reg();
    b.load(Size::W, data, R1, 0);
    let values: Vec<Reg> = (0..90).map(|_| b.reg()).collect();
    values.iter().for_each(|&v| b.load(Size::Dw, v, data, 0));
    values.iter().for_each(|&v| b.store(Size::Dw, data, 8, Operand::Reg(v)));
    b.exit_with(2);
    let error = finish(b, &source()).expect_err("90 values do not fit ten registers and 512 bytes");
    assert!(
        matches!(error, super::LowerError::Stack { found, limit: STACK_BYTES, .. } if found > STACK_BYTES),
        "{error}"
    );
}

#[test]
fn too_far_jumps_are_rejected() {
    let mut b = Builder::new();
    let far = b.label();
    let r = b.reg();
    b.load(Size::W, r, R1, 12);
    b.jump64(Cond::Eq, r, Operand::Imm(1), far);
    (0..=i16::MAX).for_each(|i| b.alu64(AluOp::Xor, r, Operand::Imm(i.into())));
    b.place(far);
    b.copy(R0, r);
    b.push(Op::Exit);
    let error = finish(b, &source()).expect_err("32768 instructions lie between");
    assert!(matches!(error, super::LowerError::TooFar { found: 32771, limit: 32767, .. }), "{error}");
}
