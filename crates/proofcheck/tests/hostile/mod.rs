// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are expensive to verify: they have many instructions, branches, paths, iterations or frames.
#![allow(unreachable_pub, clippy::panic)]

use flowloom_isa::op::{AluOp, AtomicOp, Cond, Op, Operand, Reg, Size, Width};
use flowloom_isa::{Insn, Program};

/// Helper `get_prandom_u32`.
const RANDOM: i32 = 7;

/// A program; its name says what makes it expensive.
pub struct Hostile {
    pub name: &'static str,
    pub program: Program,
}

fn program(ops: &[Op]) -> Program {
    let mut insns: Vec<Insn> = Vec::new();
    ops.iter().for_each(|op| op.encode(&mut insns));
    Program {
        name: "hostile".to_owned(),
        section: "xdp".to_owned(),
        insns,
        license: "GPL".to_owned(),
        ..Program::default()
    }
}

fn reg(number: u8) -> Reg {
    Reg::new(number).unwrap_or_else(|| panic!("there is no r{number}"))
}

fn alu(op: AluOp, dst: u8, src: Operand) -> Op {
    Op::Alu { width: Width::W64, op, dst: reg(dst), src }
}

fn set(dst: u8, imm: i32) -> Op {
    alu(AluOp::Mov, dst, Operand::Imm(imm))
}

fn add(dst: u8, imm: i32) -> Op {
    alu(AluOp::Add, dst, Operand::Imm(imm))
}

fn branch(cond: Cond, dst: u8, imm: i32, off: i16) -> Op {
    Op::Branch { width: Width::W64, cond, dst: reg(dst), src: Operand::Imm(imm), off }
}

fn random() -> Op {
    Op::Call { helper: RANDOM }
}

fn end() -> [Op; 2] {
    [set(0, 2), Op::Exit]
}

/// `count` instructions without a branch.
pub fn straight(count: usize) -> Program {
    let mut ops: Vec<Op> = (0..count - 2).map(|at| if at == 0 { set(6, 1) } else { add(6, 3) }).collect();
    ops.extend(end());
    program(&ops)
}

/// 4000 instructions like those of real programs: packet bytes are compared and combined, also on the stack, in blocks
/// with two predecessors.
pub fn ordinary() -> Program {
    let mut ops = vec![
        Op::Load { size: Size::W, signed: false, dst: reg(6), base: reg(1), off: 0 },
        Op::Load { size: Size::W, signed: false, dst: reg(7), base: reg(1), off: 4 },
        alu(AluOp::Mov, 2, Operand::Reg(reg(6))),
        add(2, 200),
        Op::Branch { width: Width::W64, cond: Cond::Le, dst: reg(2), src: Operand::Reg(reg(7)), off: 2 },
        set(0, 1),
        Op::Exit,
        set(8, 0),
    ];
    let mut at = 0i16;
    while ops.len() < 3990 {
        let slot = -8 * (1 + at % 32);
        ops.extend([
            Op::Load { size: Size::H, signed: false, dst: reg(3), base: reg(6), off: at % 190 },
            branch(Cond::Gt, 3, i32::from(at % 7 * 100), 2),
            alu(AluOp::Add, 8, Operand::Reg(reg(3))),
            Op::Store { size: Size::Dw, base: Reg::FP, off: slot, src: Operand::Reg(reg(8)) },
            alu(AluOp::And, 3, Operand::Imm(63)),
            alu(AluOp::Mov, 4, Operand::Reg(reg(6))),
            alu(AluOp::Add, 4, Operand::Reg(reg(3))),
            alu(AluOp::Mov, 5, Operand::Reg(reg(4))),
            add(5, 101),
            Op::Branch { width: Width::W64, cond: Cond::Gt, dst: reg(5), src: Operand::Reg(reg(7)), off: 2 },
            Op::Load { size: Size::B, signed: false, dst: reg(5), base: reg(4), off: 100 },
            alu(AluOp::Xor, 8, Operand::Reg(reg(5))),
            branch(Cond::Set, 8, 1, 1),
            alu(AluOp::Rsh, 8, Operand::Imm(1)),
        ]);
        at += 1;
    }
    while ops.len() < 3998 {
        ops.push(alu(AluOp::Xor, 8, Operand::Imm(1)));
    }
    ops.extend(end());
    program(&ops)
}

/// `count` branches, each of which may set a bit of r6. If `matters`, an address depends on r6.
fn forks(count: usize, matters: bool) -> Program {
    let mut ops = vec![set(6, 0)];
    for bit in 0..count {
        ops.extend([random(), branch(Cond::Gt, 0, 9, 1), alu(AluOp::Or, 6, Operand::Imm(1 << (bit % 31)))]);
    }
    if matters {
        ops.extend([
            alu(AluOp::And, 6, Operand::Imm(255)),
            alu(AluOp::Mov, 2, Operand::Reg(Reg::FP)),
            alu(AluOp::Sub, 2, Operand::Reg(reg(6))),
            Op::Store { size: Size::B, base: reg(2), off: -1, src: Operand::Imm(7) },
        ]);
    }
    ops.extend(end());
    program(&ops)
}

/// Nested loops of `rounds` iterations each, with a branch in the innermost.
fn nested(depth: u8, rounds: i32) -> Program {
    let mut ops: Vec<Op> = Vec::new();
    let mut heads = Vec::new();
    for loops in 0..depth {
        ops.push(set(6 + loops, 0));
        heads.push(ops.len());
    }
    ops.extend([random(), branch(Cond::Gt, 0, 9, 1), set(1, 1)]);
    for loops in (0..depth).rev() {
        ops.push(add(6 + loops, 1));
        let off = heads[usize::from(loops)] as i64 - ops.len() as i64 - 1;
        ops.push(branch(Cond::Lt, 6 + loops, rounds, off as i16));
    }
    ops.extend(end());
    program(&ops)
}

/// Eight nested functions, each of which fills its stack with random numbers, branches, and calls the next one twice.
fn deep() -> Program {
    let mut ops: Vec<Op> = Vec::new();
    let length = 64 * 2 + 8;
    for depth in 0..8 {
        let begins = ops.len();
        for slot in 0..64i16 {
            ops.extend([
                random(),
                Op::Store { size: Size::Dw, base: Reg::FP, off: -8 * (slot + 1), src: Operand::Reg(reg(0)) },
            ]);
        }
        for _ in 0..2 {
            ops.extend([random(), branch(Cond::Gt, 0, 9, 1), set(6, 3)]);
            if depth < 7 {
                let target = begins + length + 2;
                ops.push(Op::CallLocal { distance: (target - ops.len() - 1) as i32 });
            } else {
                ops.push(set(7, 0));
            }
        }
        ops.extend(end());
        debug_assert_eq!(ops.len(), begins + length + 2, "the next function begins here");
    }
    program(&ops)
}

/// `count` instructions, every second of which is a branch over the next one.
fn ladder(count: usize) -> Program {
    let mut ops = vec![random(), alu(AluOp::Mov, 6, Operand::Reg(reg(0)))];
    while ops.len() < count - 2 {
        ops.extend([branch(Cond::Gt, 6, 9, 1), set(7, ops.len() as i32 & 0xff)]);
    }
    ops.extend(end());
    program(&ops)
}

/// The same in a function at call depth eight: each stored state has eight frames.
fn deep_ladder(count: usize) -> Program {
    let mut ops: Vec<Op> = (0..7).flat_map(|_| [Op::CallLocal { distance: 2 }, set(0, 2), Op::Exit]).collect();
    ops.extend([random(), alu(AluOp::Mov, 6, Operand::Reg(reg(0)))]);
    while ops.len() < count - 2 {
        ops.extend([branch(Cond::Gt, 6, 9, 1), set(7, ops.len() as i32 & 0xff)]);
    }
    ops.extend(end());
    program(&ops)
}

/// A loop of atomic exchanges: the old value that each returns is unknown.
fn exchange() -> Program {
    let fetch = Op::Atomic { op: AtomicOp::Xchg, size: Size::Dw, base: Reg::FP, off: -8, src: reg(6) };
    let store = Op::Store { size: Size::Dw, base: Reg::FP, off: -8, src: Operand::Imm(0) };
    let mut ops = vec![set(6, 1), store, fetch, add(6, 1), branch(Cond::Ne, 6, 0, -3)];
    ops.extend(end());
    program(&ops)
}

pub fn all() -> Vec<Hostile> {
    let one = |name, program| Hostile { name, program };
    vec![
        one("a million instructions in a row", straight(1_000_000)),
        one("one more than a million", straight(1_000_001)),
        one("half a million branches in a row", ladder(1_000_000)),
        one("the same in a function eight deep", deep_ladder(999_999)),
        one("2^20 paths, none of which matters", forks(20, false)),
        one("2^20 paths that all matter", forks(20, true)),
        one("2^3000 paths, none of which matters", forks(3000, false)),
        one("2^3000 paths that all matter", forks(3000, true)),
        one("2^20000 paths", forks(20_000, false)),
        one("a loop of 30,000 rounds that fork", nested(1, 30_000)),
        one("loops of 100 rounds in loops of 100", nested(2, 100)),
        one("loops of 1000 rounds in loops of 1000, twice", nested(3, 1000)),
        one("eight functions deep, 2^8 calls, 2^16 paths", deep()),
        one("a loop that goes on as long as memory says so", exchange()),
    ]
}
