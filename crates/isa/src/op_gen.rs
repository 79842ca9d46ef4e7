// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random instructions for tests.

use flowloom_testkit::Rng;

use flowloom_isa::op::{AluOp, AtomicOp, Cond, EndOp, Op, Operand, Reg, Size, Width};

/// A register; `r10` only where it is allowed.
pub(crate) fn reg(rng: &mut Rng, with_fp: bool) -> Reg {
    Reg::new(rng.below(if with_fp { 11 } else { 10 }) as u8).expect("below 11")
}

fn width(rng: &mut Rng) -> Width {
    *rng.pick(&[Width::W32, Width::W64])
}

/// An immediate, often a boundary value.
pub(crate) fn imm(rng: &mut Rng) -> i32 {
    let edges = [0, 1, -1, i32::MIN, i32::MAX, 31, 32, 63, 64, 255, 256, 65535];
    if rng.chance(1, 2) { *rng.pick(&edges) } else { rng.next_u64() as i32 }
}

fn off(rng: &mut Rng) -> i16 {
    if rng.chance(1, 4) { *rng.pick(&[0, -1, 1, i16::MIN, i16::MAX]) } else { rng.next_u64() as i16 }
}

pub(crate) fn operand(rng: &mut Rng) -> Operand {
    if rng.chance(1, 2) { Operand::Reg(reg(rng, true)) } else { Operand::Imm(imm(rng)) }
}

/// Any instruction that can be encoded.
pub(crate) fn op(rng: &mut Rng) -> Op {
    let (dst, src, base) = (reg(rng, false), reg(rng, true), reg(rng, true));
    let size = *rng.pick(&Size::ALL);
    let narrow = *rng.pick(&[Size::B, Size::H, Size::W]);
    match rng.below(23) {
        0..=3 => Op::Alu { width: width(rng), op: *rng.pick(&AluOp::ALL), dst, src: operand(rng) },
        4 => match width(rng) {
            Width::W64 => Op::MovSx { width: Width::W64, from: narrow, dst, src },
            Width::W32 => Op::MovSx { width: Width::W32, from: *rng.pick(&[Size::B, Size::H]), dst, src },
        },
        5 => Op::Neg { width: width(rng), dst },
        6 => Op::End {
            op: *rng.pick(&[EndOp::Le, EndOp::Be, EndOp::Swap]),
            size: *rng.pick(&[Size::H, Size::W, Size::Dw]),
            dst,
        },
        7 => Op::Load { size, signed: false, dst, base, off: off(rng) },
        8 => Op::Load { size: narrow, signed: true, dst, base, off: off(rng) },
        9 => Op::Store { size, base, off: off(rng), src: operand(rng) },
        10 => Op::Atomic {
            op: *rng.pick(&AtomicOp::ALL),
            size: *rng.pick(&[Size::W, Size::Dw]),
            base,
            off: off(rng),
            src,
        },
        11 => Op::LoadPacket { size: narrow, index: rng.chance(1, 2).then_some(src), off: imm(rng) },
        12 => Op::LoadImm { dst, value: rng.next_u64() >> rng.below(64) },
        13 => Op::LoadMap { dst, map: if rng.chance(1, 2) { rng.below(4) as i32 } else { imm(rng) } },
        14 => Op::LoadMapValue { dst, map: rng.below(4) as i32, off: imm(rng) as u32 },
        15 => Op::LoadFunc { dst, distance: imm(rng) },
        16 => match rng.below(3) {
            0 => Op::LoadVar { dst, id: imm(rng) },
            1 => Op::LoadMapIdx { dst, map: imm(rng) },
            _ => Op::LoadMapIdxValue { dst, map: imm(rng), off: imm(rng) as u32 },
        },
        17 => Op::Jump { off: off(rng) },
        18 => Op::JumpLong { distance: imm(rng) },
        19 => {
            Op::Branch { width: width(rng), cond: *rng.pick(&Cond::ALL), dst: base, src: operand(rng), off: off(rng) }
        }
        20 => match rng.below(3) {
            0 => Op::Call { helper: rng.below(220) as i32 - 4 },
            1 => Op::CallLocal { distance: imm(rng) },
            _ => Op::CallKfunc { id: imm(rng) },
        },
        21 => Op::MayGoto { off: off(rng) },
        _ => Op::Exit,
    }
}
