// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluator of virtual code: the reference for allocated code.

use std::collections::HashMap;

use flowloom_engine::{Choices, MapState};
use flowloom_isa::alu::{alu32, alu64, holds32, holds64};
use flowloom_isa::insn::helper;
use flowloom_isa::op::AluOp;

use crate::asm::{FP, Label, Op, Operand, R0, R1, Reg};

pub(super) const PACKET_BYTES: usize = 512;
/// Base addresses of packet, frame and context: far apart, so that a wrong base is detected.
const PACKET: u64 = 1 << 40;
const FRAME: u64 = 1 << 41;
const CONTEXT: u64 = 1 << 42;

/// Packet and map at the end of a program.
pub(super) struct Left {
    pub(super) packet: Vec<u8>,
    pub(super) map: MapState,
}

struct State {
    registers: HashMap<Reg, u64>,
    packet: Vec<u8>,
    stack: [Option<u8>; 512],
    map: MapState,
}

impl State {
    fn read(&self, reg: Reg) -> u64 {
        *self.registers.get(&reg).unwrap_or_else(|| panic!("{reg:?} is read before it is written"))
    }

    fn operand(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(reg) => self.read(reg),
            Operand::Imm(imm) => i64::from(imm) as u64,
        }
    }

    fn load(&self, base: Reg, offset: i16, bytes: usize) -> u64 {
        let at = self.read(base).wrapping_add(i64::from(offset) as u64);
        if at == CONTEXT {
            return PACKET;
        }
        if at == CONTEXT + 4 {
            return PACKET + PACKET_BYTES as u64;
        }
        let byte = |i: u64| match at + i {
            at if at >= FRAME - 512 => self.stack[(at + 512 - FRAME) as usize].expect("written before it is read"),
            at => self.packet[(at - PACKET) as usize],
        };
        (0..bytes as u64).fold(0, |value, i| value | u64::from(byte(i)) << (8 * i))
    }

    fn store(&mut self, base: Reg, offset: i16, bytes: usize, value: u64) {
        let at = self.read(base).wrapping_add(i64::from(offset) as u64);
        for (i, byte) in (0..).zip(&value.to_le_bytes()[..bytes]) {
            match at + i {
                at if at >= FRAME - 512 => self.stack[(at + 512 - FRAME) as usize] = Some(*byte),
                at => self.packet[(at - PACKET) as usize] = *byte,
            }
        }
    }

    fn argument(&self, number: u32, bytes: usize) -> Vec<u8> {
        self.load(Reg(number), 0, bytes).to_le_bytes()[..bytes].to_vec()
    }
}

fn compute(wide: bool, op: AluOp, left: u64, right: u64) -> u64 {
    if wide { alu64(op, left, right) } else { alu32(op, left as u32, right as u32).into() }
}

pub(super) fn evaluate(ops: &[Op], packet: &[u8], choices: &Choices, map: MapState) -> Left {
    let places: HashMap<Label, usize> = (0..)
        .zip(ops)
        .filter_map(|(i, op)| match op {
            Op::Label(label) => Some((*label, i)),
            _ => None,
        })
        .collect();
    let registers = HashMap::from([(R1, CONTEXT), (FP, FRAME)]);
    let mut s = State { registers, packet: packet.to_vec(), stack: [None; 512], map };
    let mut drawn = 0;
    let mut at = 0;
    loop {
        let op = ops[at];
        at += 1;
        let value = match op {
            Op::Label(_) | Op::Line(_) | Op::MayGoto(_) => continue,
            Op::Forget { reg } => {
                s.registers.remove(&reg);
                continue;
            }
            Op::Exit => return Left { packet: s.packet, map: s.map },
            Op::Goto(target) => {
                at = places[&target];
                continue;
            }
            Op::Jump { wide, op, left, right, target } => {
                let (left, right) = (s.read(left), s.operand(right));
                if if wide { holds64(op, left, right) } else { holds32(op, left as u32, right as u32) } {
                    at = places[&target];
                }
                continue;
            }
            Op::Store { size, base, offset, src } => {
                let value = s.operand(src);
                s.store(base, offset, size.bytes(), value);
                continue;
            }
            Op::AtomicAdd { size, base, offset, src } => {
                let value = s.load(base, offset, size.bytes()).wrapping_add(s.read(src));
                s.store(base, offset, size.bytes(), value);
                continue;
            }
            Op::Call { helper, .. } => {
                let result = match helper {
                    helper::KTIME_GET_NS => choices.now_ns,
                    helper::GET_PRANDOM_U32 => {
                        drawn += 1;
                        choices.random[(drawn - 1) % choices.random.len()].into()
                    }
                    _ => {
                        let (key, value) = (s.argument(2, 4), s.argument(3, 8));
                        let fits = s.map.contains_key(&key) || s.map.len() < 8;
                        if fits {
                            s.map.insert(key, value);
                        }
                        if fits { 0 } else { -7_i64 as u64 }
                    }
                };
                s.registers.retain(|r, _| r.0 >= 6);
                s.registers.insert(R0, result);
                continue;
            }
            Op::CompareExchange { base, offset, src } => {
                let old = s.load(base, offset, 8);
                if old == s.read(R0) {
                    let new = s.read(src);
                    s.store(base, offset, 8, new);
                }
                old
            }
            Op::Exchange { base, offset, src } => {
                let (old, new) = (s.load(base, offset, 8), s.read(src));
                s.store(base, offset, 8, new);
                old
            }
            Op::Copy { src, .. } => s.read(src),
            Op::Alu { op: AluOp::Mov, wide, src, .. } => compute(wide, AluOp::Mov, 0, s.operand(src)),
            Op::Alu { wide, op, dst, src } => compute(wide, op, s.read(dst), s.operand(src)),
            Op::FromBe { dst, bits } => s.read(dst).swap_bytes() >> (64 - bits),
            Op::Imm64 { value, .. } => value,
            Op::Map { .. } | Op::MapValue { .. } => 0,
            Op::Load { size, base, offset, .. } => s.load(base, offset, size.bytes()),
        };
        if let Some(dst) = op.def() {
            s.registers.insert(dst, value);
        }
    }
}
