// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The semantics of arithmetic, byte order and comparisons [RFC 9669 4.1-4.3].

use crate::op::{AluOp, AtomicOp, Cond, EndOp, Size, Width};

/// Arithmetic of this width, as [`alu64`] and [`alu32`]; the result is zero-extended.
#[inline]
pub fn alu(width: Width, op: AluOp, a: u64, b: u64) -> u64 {
    match width {
        Width::W64 => alu64(op, a, b),
        Width::W32 => alu32(op, a as u32, b as u32).into(),
    }
}

/// Whether a comparison of this width holds.
#[inline]
pub fn holds(width: Width, cond: Cond, a: u64, b: u64) -> bool {
    match width {
        Width::W64 => holds64(cond, a, b),
        Width::W32 => holds32(cond, a as u32, b as u32),
    }
}

/// 64-bit arithmetic. Division by zero gives 0, the remainder by zero is the dividend, shifts take the low six bits.
#[inline]
pub fn alu64(op: AluOp, a: u64, b: u64) -> u64 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => (a as i64).wrapping_div(b as i64) as u64,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Lsh => a << (b & 63),
        AluOp::Rsh => a >> (b & 63),
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => (a as i64).wrapping_rem(b as i64) as u64,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Arsh => (a as i64 >> (b & 63)) as u64,
    }
}

/// 32-bit arithmetic, as [`alu64`] on the low halves; shifts take the low five bits.
#[inline]
pub fn alu32(op: AluOp, a: u32, b: u32) -> u32 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => (a as i32).wrapping_div(b as i32) as u32,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Lsh => a << (b & 31),
        AluOp::Rsh => a >> (b & 31),
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => (a as i32).wrapping_rem(b as i32) as u32,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Arsh => (a as i32 >> (b & 31)) as u32,
    }
}

/// Whether a 64-bit comparison holds.
#[inline]
pub fn holds64(cond: Cond, a: u64, b: u64) -> bool {
    let (sa, sb) = (a as i64, b as i64);
    match cond {
        Cond::Eq => a == b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Set => a & b != 0,
        Cond::Ne => a != b,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
    }
}

/// Whether a comparison of the low halves holds: sign-extended, they compare equally, signed and unsigned.
#[inline]
pub fn holds32(cond: Cond, a: u32, b: u32) -> bool {
    holds64(cond, a as i32 as u64, b as i32 as u64)
}

/// The low `size` bytes, sign-extended to 64 bits.
#[inline]
pub fn sign_extend(size: Size, value: u64) -> u64 {
    match size {
        Size::B => value as i8 as u64,
        Size::H => value as i16 as u64,
        Size::W => value as i32 as u64,
        Size::Dw => value,
    }
}

/// The low `size` bytes, zero-extended.
#[inline]
pub fn zero_extend(size: Size, value: u64) -> u64 {
    match size {
        Size::B => u64::from(value as u8),
        Size::H => u64::from(value as u16),
        Size::W => u64::from(value as u32),
        Size::Dw => value,
    }
}

/// Byte order on the little-endian machine that Flowloom's eBPF is compiled for: `le` only truncates.
#[inline]
pub fn byte_order(op: EndOp, size: Size, value: u64) -> u64 {
    match (op, size) {
        (EndOp::Le, _) | (_, Size::B) => zero_extend(size, value),
        (_, Size::H) => u64::from((value as u16).swap_bytes()),
        (_, Size::W) => u64::from((value as u32).swap_bytes()),
        (_, Size::Dw) => value.swap_bytes(),
    }
}

/// The new value of an atomic operation, from the old value, the source register and `r0`; the caller truncates it.
#[inline]
pub fn atomic(op: AtomicOp, size: Size, old: u64, src: u64, r0: u64) -> u64 {
    match op {
        AtomicOp::Add { .. } => old.wrapping_add(src),
        AtomicOp::Or { .. } => old | src,
        AtomicOp::And { .. } => old & src,
        AtomicOp::Xor { .. } => old ^ src,
        AtomicOp::Xchg => src,
        AtomicOp::CmpXchg if old == zero_extend(size, r0) => src,
        AtomicOp::CmpXchg => old,
    }
}
