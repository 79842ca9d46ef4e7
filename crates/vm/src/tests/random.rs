// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs: none panics; checked ones end in a verdict or a fault.

use flowloom_testkit::Rng;

use super::*;
use crate::op_gen;
use flowloom_isa::insn::Insn;
use flowloom_isa::op::{Op, Operand, Reg, Size, Width};

/// Runs a program on a few packets; returns whether it passed the check, and the number of packets with a verdict.
fn try_out(rng: &mut Rng, insns: Vec<Insn>) -> (bool, u32) {
    let program = Program { section: "xdp".into(), insns, maps: maps(), ..Program::default() };
    let Ok(interp) = Interpreter::new(Arc::new(program)) else { return (false, 0) };
    let mut interp = interp.with_budget(2_000).with_profile();
    let mut verdicts = 0;
    for _ in 0..3 {
        let len = rng.below(100);
        let packet = rng.bytes(len);
        match interp.send(&packet) {
            Ok(outcome) => {
                verdicts += 1;
                assert!(outcome.outputs.iter().all(|o| o.bytes.len() == packet.len()));
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("engine `interp` stopped at instruction "), "{text}");
                assert!(!text.contains("that the program's check let through"), "{text}");
            }
        }
        interp.environment.space.maps.iter().for_each(Map::check_invariants);
    }
    let state = interp.snapshot().unwrap();
    interp.restore(&state).unwrap();
    assert_eq!(interp.snapshot().unwrap(), state);
    assert_eq!(interp.profile().unwrap().iter().sum::<u64>(), interp.executed());
    (true, verdicts)
}

#[test]
fn garbage_slots() {
    let mut rng = Rng::from_env(0x6a5b_0001);
    let mut taken = 0;
    for _ in 0..30_000 {
        let len = rng.below(6);
        let mut insns: Vec<Insn> = (0..len)
            .map(|_| {
                let mask = *rng.pick(&[u64::MAX, 0x0000_0007_0003_ffff, 0x0000_0000_0000_11ff]);
                Insn::from_bytes((rng.next_u64() & mask).to_le_bytes())
            })
            .collect();
        Op::Exit.encode(&mut insns);
        taken += u32::from(try_out(&mut rng, insns).0);
    }
    assert!(taken > 500, "{taken} taken is no test");
}

/// An instruction that is often meaningful: short jumps, real maps and helpers, addresses near their objects.
fn sensible(rng: &mut Rng) -> Op {
    let small = rng.below(6) as i16 - 1;
    let off = *rng.pick(&[-8, -16, -4, 0, 1, 4, 8, 12, 64]);
    match op_gen::op(rng) {
        Op::Jump { .. } | Op::JumpLong { .. } => Op::Jump { off: small },
        Op::MayGoto { .. } => Op::MayGoto { off: small },
        Op::Branch { width, cond, dst, src, .. } => Op::Branch { width, cond, dst, src, off: small },
        Op::Call { .. } | Op::CallKfunc { .. } | Op::LoadPacket { .. } => {
            Op::Call { helper: *rng.pick(&[1, 2, 3, 5, 7, 8, 23, 51]) }
        }
        Op::CallLocal { .. } => Op::CallLocal { distance: rng.below(12) as i32 },
        Op::LoadMap { .. } | Op::LoadVar { .. } | Op::LoadMapIdx { .. } => {
            Op::LoadMap { dst: Reg::R1, map: rng.below(5) as i32 }
        }
        Op::LoadMapValue { dst, .. } | Op::LoadMapIdxValue { dst, .. } => {
            Op::LoadMapValue { dst, map: 3 + rng.below(2) as i32, off: rng.below(8) as u32 }
        }
        Op::LoadFunc { dst, .. } => {
            Op::Alu { width: Width::W64, op: flowloom_isa::op::AluOp::Mov, dst, src: Operand::Reg(Reg::FP) }
        }
        Op::Load { size, signed, dst, .. } => {
            let base = *rng.pick(&[Reg::FP, dst, Reg::R0]);
            Op::Load { size, signed, dst, base, off }
        }
        Op::Store { size, src, .. } => Op::Store { size, base: *rng.pick(&[Reg::FP, Reg::R0]), off, src },
        Op::Atomic { op, size, src, .. } => Op::Atomic { op, size, base: Reg::FP, off, src },
        op => op,
    }
}

#[test]
fn sensible_programs() {
    let mut rng = Rng::from_env(0x6a5b_0002);
    let (mut taken, mut verdicts) = (0, 0);
    for _ in 0..30_000 {
        let mut insns = Vec::new();
        // All registers readable, the top of the stack written: faults should come late.
        let mov = |dst, src| Op::Alu { width: Width::W64, op: flowloom_isa::op::AluOp::Mov, dst, src };
        Op::Load { size: Size::W, signed: false, dst: Reg::R0, base: Reg::R1, off: 0 }.encode(&mut insns);
        for number in 2..=9 {
            let dst = Reg::new(number).unwrap();
            let src = if number == 2 { Operand::Reg(Reg::FP) } else { Operand::Imm(op_gen::imm(&mut rng)) };
            mov(dst, src).encode(&mut insns);
        }
        Op::Alu {
            width: Width::W64,
            op: flowloom_isa::op::AluOp::Add,
            dst: Reg::new(2).unwrap(),
            src: Operand::Imm(-16),
        }
        .encode(&mut insns);
        for off in [-8, -16, -24] {
            Op::Store { size: Size::Dw, base: Reg::FP, off, src: Operand::Imm(rng.below(4) as i32) }.encode(&mut insns);
        }
        for _ in 0..rng.below(14) {
            sensible(&mut rng).encode(&mut insns);
        }
        if rng.chance(1, 2) {
            mov(Reg::R0, Operand::Imm(rng.below(5) as i32)).encode(&mut insns);
        }
        Op::Exit.encode(&mut insns);
        let (ok, count) = try_out(&mut rng, insns);
        taken += u32::from(ok);
        verdicts += count;
    }
    assert!(taken > 5_000 && verdicts > 5_000, "{taken} taken, {verdicts} verdicts are no test");
}
