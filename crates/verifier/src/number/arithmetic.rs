// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfer functions of arithmetic.
//!
//! Sums, differences and products are computed on unbounded integers, which [`Lane::keep`] reduces to 32 or 64 bits.
//! Known bits are computed separately, and both are reconciled at the end.

use super::bitwise::{and, or, xor};
use super::division::{div, modulo, sdiv, smod};
use super::lane::Lane;
use super::range::{Range, settle};
use super::shift::{arsh, lsh, rsh};
use flowloom_isa::alu as exact;
use flowloom_isa::op::{AluOp, EndOp, Size, Width};

/// `a op b`: contains the result of `flowloom_vm` for any two values of the operands.
pub(crate) fn alu(op: AluOp, width: Width, a: &Range, b: &Range) -> Range {
    combine(op, width, a, b).unwrap_or(Range::ANY)
}

/// As [`alu`]; `None` only for empty operands.
pub(super) fn combine(op: AluOp, width: Width, a: &Range, b: &Range) -> Option<Range> {
    if op == AluOp::Mov {
        return Some(match width {
            Width::W32 => b.low(Size::W),
            Width::W64 => *b,
        });
    }
    let (wide_a, wide_b) = (a.lane(width), b.lane(width));
    if let (Some(a), Some(b)) = (wide_a.as_constant(), wide_b.as_constant()) {
        return Some(Range::constant(match width {
            Width::W32 => u64::from(exact::alu32(op, a as u32, b as u32)),
            Width::W64 => exact::alu64(op, a, b),
        }));
    }
    let wide = |low: &Lane| on_lane(op, width, &wide_a, &wide_b, low);
    if width == Width::W32 {
        return Range::zero_extended(wide(&wide_a));
    }
    let (low_a, low_b) = (a.lane(Width::W32), b.lane(Width::W32));
    let low = match op {
        // The low half of the result depends on the low halves alone.
        AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor => {
            on_lane(op, Width::W32, &low_a, &low_b, &low_a)
        }
        AluOp::Lsh if wide_b.umax < 32 => on_lane(op, Width::W32, &low_a, &low_b, &low_a),
        _ => Lane::any(Width::W32),
    };
    settle(wide(&low_a), low)
}

pub(crate) fn neg(width: Width, a: &Range) -> Range {
    alu(AluOp::Sub, width, &Range::constant(0), a)
}

/// The low `size` bytes of `a` in the byte order of `op`.
pub(crate) fn byte_order(op: EndOp, size: Size, a: &Range) -> Range {
    match (op, size) {
        (EndOp::Le, _) | (_, Size::B) => a.low(size),
        (EndOp::Be | EndOp::Swap, _) => Range::of_bits(a.low(size).bits().swapped(size)),
    }
}

/// `a op b` in one width; `low` is the low half of `a`, for operations that only keep that.
fn on_lane(op: AluOp, width: Width, a: &Lane, b: &Lane, low: &Lane) -> Lane {
    match op {
        AluOp::Add => add(width, a, b),
        AluOp::Sub => sub(width, a, b),
        AluOp::Mul => mul(width, a, b),
        AluOp::Div => div(width, a, b),
        AluOp::Sdiv => sdiv(width, a, b),
        AluOp::Mod => modulo(width, a, b),
        AluOp::Smod => smod(width, a, b),
        AluOp::And => and(width, a, b),
        AluOp::Or => or(width, a, b),
        AluOp::Xor => xor(width, a, b),
        AluOp::Lsh => lsh(width, a, b, low),
        AluOp::Rsh => rsh(width, a, b),
        AluOp::Arsh => arsh(width, a, b),
        AluOp::Mov => *b,
    }
}

pub(super) fn add(width: Width, a: &Lane, b: &Lane) -> Lane {
    let mut sum = Lane::of_bits(width, a.bits.add(b.bits));
    for (alo, ahi) in a.views() {
        for (blo, bhi) in b.views() {
            sum.keep(width, alo + blo, ahi + bhi);
        }
    }
    sum
}

pub(super) fn sub(width: Width, a: &Lane, b: &Lane) -> Lane {
    let mut difference = Lane::of_bits(width, a.bits.sub(b.bits));
    for (alo, ahi) in a.views() {
        for (blo, bhi) in b.views() {
            difference.keep(width, alo - bhi, ahi - blo);
        }
    }
    difference
}

/// `a * b`: between the products of the bounds.
fn mul(width: Width, a: &Lane, b: &Lane) -> Lane {
    let mut product = Lane::of_bits(width, a.bits.mul(b.bits));
    for ((alo, ahi), (blo, bhi)) in a.views().into_iter().zip(b.views()) {
        let ends = [alo.checked_mul(blo), alo.checked_mul(bhi), ahi.checked_mul(blo), ahi.checked_mul(bhi)];
        if let [Some(one), Some(two), Some(three), Some(four)] = ends {
            let ends = [one, two, three, four];
            let lo = ends.into_iter().fold(one, i128::min);
            let hi = ends.into_iter().fold(one, i128::max);
            product.keep(width, lo, hi);
        }
    }
    product
}
