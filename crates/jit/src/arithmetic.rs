// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arithmetic and comparisons, as [`flowloom_isa::alu`] defines them.

use std::cmp::Ordering;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Type, Value, ValueDef, types};
use cranelift_frontend::FunctionBuilder;
use flowloom_isa::op::{AluOp, Cond, EndOp, Size, Width};

use crate::function::MEMORY;

/// A second operand, with its value if it is constant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Second {
    pub(crate) value: Value,
    pub(crate) constant: Option<i64>,
}

pub(crate) fn of_width(width: Width) -> Type {
    if width == Width::W64 { types::I64 } else { types::I32 }
}

pub(crate) fn of_size(size: Size) -> Type {
    match size {
        Size::B => types::I8,
        Size::H => types::I16,
        Size::W => types::I32,
        Size::Dw => types::I64,
    }
}

/// The low bits of a number. Those of an extended one are taken from the number itself, so that chains of 32-bit
/// operations have no moves in between.
pub(crate) fn low(builder: &mut FunctionBuilder<'_>, to: Type, value: Value) -> Value {
    if to == types::I64 {
        return value;
    }
    let dfg = &builder.func.dfg;
    if let ValueDef::Result(inst, 0) = dfg.value_def(value)
        && let InstructionData::Unary { opcode: opcode @ (Opcode::Uextend | Opcode::Sextend), arg } = dfg.insts[inst]
    {
        let of = dfg.value_type(arg);
        return match (of.bits().cmp(&to.bits()), opcode) {
            (Ordering::Equal, _) => arg,
            (Ordering::Greater, _) => builder.ins().ireduce(to, arg),
            (Ordering::Less, Opcode::Uextend) => builder.ins().uextend(to, arg),
            (Ordering::Less, _) => builder.ins().sextend(to, arg),
        };
    }
    builder.ins().ireduce(to, value)
}

/// A number as 64 bits, zero-extended.
pub(crate) fn wide(builder: &mut FunctionBuilder<'_>, value: Value) -> Value {
    let dfg = &builder.func.dfg;
    if let ValueDef::Result(inst, 0) = dfg.value_def(value)
        && let InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } = dfg.insts[inst]
        && dfg.value_type(value) == types::I32
    {
        return builder.ins().iconst(types::I64, i64::from(imm.bits() as u32));
    }
    if builder.func.dfg.value_type(value) == types::I64 { value } else { builder.ins().uextend(types::I64, value) }
}

/// A number as 64 bits, sign-extended.
pub(crate) fn signed(builder: &mut FunctionBuilder<'_>, value: Value) -> Value {
    if builder.func.dfg.value_type(value) == types::I64 { value } else { builder.ins().sextend(types::I64, value) }
}

/// A number in memory, extended to 64 bits by the load itself.
pub(crate) fn load(builder: &mut FunctionBuilder<'_>, size: Size, is_signed: bool, base: Value, off: i32) -> Value {
    let ins = builder.ins();
    match (size, is_signed) {
        (Size::B, false) => ins.uload8(types::I64, MEMORY, base, off),
        (Size::H, false) => ins.uload16(types::I64, MEMORY, base, off),
        (Size::W, false) => ins.uload32(MEMORY, base, off),
        (Size::B, true) => ins.sload8(types::I64, MEMORY, base, off),
        (Size::H, true) => ins.sload16(types::I64, MEMORY, base, off),
        (Size::W, true) => ins.sload32(MEMORY, base, off),
        (Size::Dw, _) => ins.load(types::I64, MEMORY, base, off),
    }
}

/// `a op b` of one width.
pub(crate) fn alu(builder: &mut FunctionBuilder<'_>, op: AluOp, a: Value, b: Second) -> Value {
    let of = builder.func.dfg.value_type(a);
    match op {
        AluOp::Add => builder.ins().iadd(a, b.value),
        AluOp::Sub => builder.ins().isub(a, b.value),
        AluOp::Mul => product(builder, of, a, b),
        AluOp::Or => builder.ins().bor(a, b.value),
        AluOp::And => builder.ins().band(a, b.value),
        AluOp::Xor => builder.ins().bxor(a, b.value),
        // Distances are taken modulo the width, as here.
        AluOp::Lsh => builder.ins().ishl(a, b.value),
        AluOp::Rsh => builder.ins().ushr(a, b.value),
        AluOp::Arsh => builder.ins().sshr(a, b.value),
        AluOp::Mov => b.value,
        AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod => divided(builder, of, op, a, b),
    }
}

/// Products. Those by a power of 2, or by a neighbour of one, are shifts, which take less time.
fn product(builder: &mut FunctionBuilder<'_>, of: Type, a: Value, b: Second) -> Value {
    let factor = b.constant.map_or(0, |factor| if of == types::I64 { factor as u64 } else { u64::from(factor as u32) });
    let shifted = |builder: &mut FunctionBuilder<'_>, power: u64| builder.ins().ishl_imm_u(a, i64::from(power.ilog2()));
    match factor {
        2.. if factor.is_power_of_two() => shifted(builder, factor),
        3.. if (factor - 1).is_power_of_two() => {
            let shifted = shifted(builder, factor - 1);
            builder.ins().iadd(a, shifted)
        }
        3..=0xffff_ffff if (factor + 1).is_power_of_two() && factor != u64::from(u32::MAX) => {
            let shifted = shifted(builder, factor + 1);
            builder.ins().isub(shifted, a)
        }
        _ => builder.ins().imul(a, b.value),
    }
}

/// Divisions: by zero the quotient is 0 and the remainder the dividend; the least number by -1 is itself.
fn divided(builder: &mut FunctionBuilder<'_>, of: Type, op: AluOp, a: Value, b: Second) -> Value {
    let is_signed = matches!(op, AluOp::Sdiv | AluOp::Smod);
    let is_quotient = matches!(op, AluOp::Div | AluOp::Sdiv);
    let plain = |builder: &mut FunctionBuilder<'_>, by: Value| match op {
        AluOp::Div => builder.ins().udiv(a, by),
        AluOp::Mod => builder.ins().urem(a, by),
        AluOp::Sdiv => builder.ins().sdiv(a, by),
        _ => builder.ins().srem(a, by),
    };
    if b.constant.is_some_and(|by| by != 0 && !(is_signed && by == -1)) {
        return plain(builder, b.value);
    }
    let (zero, one) = (builder.ins().iconst(of, 0), builder.ins().iconst(of, 1));
    let by_zero = builder.ins().icmp_imm_s(IntCC::Equal, b.value, 0);
    let by_minus_one = is_signed.then(|| builder.ins().icmp_imm_s(IntCC::Equal, b.value, -1));
    let is_special = match by_minus_one {
        Some(by_minus_one) => builder.ins().bor(by_zero, by_minus_one),
        None => by_zero,
    };
    let by = builder.ins().select(is_special, one, b.value);
    let mut result = plain(builder, by);
    if let Some(by_minus_one) = by_minus_one {
        let special = if is_quotient { builder.ins().ineg(a) } else { zero };
        result = builder.ins().select(by_minus_one, special, result);
    }
    let special = if is_quotient { zero } else { a };
    builder.ins().select(by_zero, special, result)
}

/// Whether a comparison holds: one bit, in 8.
pub(crate) fn holds(builder: &mut FunctionBuilder<'_>, cond: Cond, a: Value, b: Value) -> Value {
    let how = match cond {
        Cond::Eq => IntCC::Equal,
        Cond::Ne => IntCC::NotEqual,
        Cond::Gt => IntCC::UnsignedGreaterThan,
        Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
        Cond::Lt => IntCC::UnsignedLessThan,
        Cond::Le => IntCC::UnsignedLessThanOrEqual,
        Cond::Sgt => IntCC::SignedGreaterThan,
        Cond::Sge => IntCC::SignedGreaterThanOrEqual,
        Cond::Slt => IntCC::SignedLessThan,
        Cond::Sle => IntCC::SignedLessThanOrEqual,
        Cond::Set => {
            let common = builder.ins().band(a, b);
            return builder.ins().icmp_imm_s(IntCC::NotEqual, common, 0);
        }
    };
    builder.ins().icmp(how, a, b)
}

/// A change of the byte order on a little-endian machine; the result has 64 bits.
pub(crate) fn byte_order(builder: &mut FunctionBuilder<'_>, op: EndOp, size: Size, value: Value) -> Value {
    let part = low(builder, of_size(size), value);
    let part = if op == EndOp::Le || size == Size::B { part } else { builder.ins().bswap(part) };
    wide(builder, part)
}
