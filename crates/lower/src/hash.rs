// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Code for the hash function: its steps on three 32-bit registers.

use flowloom_isa::op::AluOp;

use super::asm::{Operand, Reg};
use super::lowering::Lowering;
use super::value::{Env, Value};
use flowloom_efsm::hash::{FINAL, MIX, Step, start};
use flowloom_efsm::model::{Expr, Width};

impl Lowering<'_> {
    pub(super) fn hash(&mut self, words: &[Expr], env: &Env) -> Value {
        // Load the words before the state registers become live.
        let words: Vec<Value> = words.iter().map(|word| self.eval(word, Width::W32, env)).collect();
        let state = [(); 3].map(|()| self.own(Value::Const(start(words.len()).into())));
        let blocks = words.len().div_ceil(3);
        for (i, block) in words.chunks(3).enumerate() {
            for (&state, &word) in state.iter().zip(block) {
                let word = match word {
                    Value::Const(c) => Operand::Imm(c as u32 as i32),
                    Value::Reg(reg) => Operand::Reg(reg),
                };
                self.builder.alu32(AluOp::Add, state, word);
            }
            let steps: &[Step] = if i + 1 < blocks { &MIX } else { &FINAL };
            for &step in steps {
                self.hash_step(&state, step);
            }
        }
        Value::Reg(state[2])
    }

    fn hash_step(&mut self, state: &[Reg; 3], step: Step) {
        match step {
            Step::Mix { to, other, third, by } => {
                self.builder.alu32(AluOp::Sub, state[to], Operand::Reg(state[other]));
                let turned = self.rotated(state[other], by);
                self.builder.alu32(AluOp::Xor, state[to], Operand::Reg(turned));
                self.builder.alu32(AluOp::Add, state[other], Operand::Reg(state[third]));
            }
            Step::Final { to, other, by } => {
                self.builder.alu32(AluOp::Xor, state[to], Operand::Reg(state[other]));
                let turned = self.rotated(state[other], by);
                self.builder.alu32(AluOp::Sub, state[to], Operand::Reg(turned));
            }
        }
    }

    /// A 32-bit value, rotated left.
    fn rotated(&mut self, value: Reg, by: u32) -> Reg {
        let b = &mut self.builder;
        let (left, right) = (b.dup(value), b.dup(value));
        b.alu32(AluOp::Lsh, left, Operand::Imm(by as i32));
        b.alu32(AluOp::Rsh, right, Operand::Imm(32 - by as i32));
        b.alu32(AluOp::Or, left, Operand::Reg(right));
        left
    }
}
