// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfer functions of AND, OR and XOR.
//!
//! Known bits tell most about the result. The bounds add what bits cannot express, e.g. that `x & ~3` of 14 to 21 is 12
//! to 20:
//!
//! ```text
//!   a & b  =  a - (a & !b)          a | b  =  a + (b & !a)          a - b  ≤  a ^ b  ≤  a | b
//! ```
//!
//! where the subtracted or added part is bounded by the bits that may be set in it.

use super::arithmetic::{add, sub};
use super::bits::ones;
use super::lane::{Lane, width_bits};
use flowloom_isa::op::Width;

pub(super) fn and(width: Width, a: &Lane, b: &Lane) -> Lane {
    let mut result = of_signs(width, a, b);
    result.bits = a.bits.and(b.bits);
    for (a, b) in [(a, b), (b, a)] {
        let taken = a.bits.most() & !b.bits.value();
        result.keep_unsigned(a.umin.saturating_sub(taken), a.umax);
        if let Some(mask) = b.as_constant() {
            // The known ones of `a` are taken out first: the rest is closer to its bounds.
            let ones = a.bits.value();
            let taken = a.bits.mask() & !mask;
            let lo = a.umin.saturating_sub(ones).saturating_sub(taken);
            let hi = a.umax.saturating_sub(ones);
            result.keep_unsigned(lo.saturating_add(ones & mask), hi.saturating_add(ones & mask));
        }
    }
    // Unless both are negative, the result is at most the non-negative one.
    result.keep_signed(i64::MIN, a.smax.max(b.smax));
    result
}

pub(super) fn or(width: Width, a: &Lane, b: &Lane) -> Lane {
    let mut result = match a.bits.most() & b.bits.most() {
        0 => add(width, a, b),
        _ => of_signs(width, a, b),
    };
    result.bits = a.bits.or(b.bits);
    for (a, b) in [(a, b), (b, a)] {
        result.keep_unsigned(a.umin, most_added(a, b));
    }
    result.keep_signed(a.smin.min(b.smin), i64::MAX);
    result
}

pub(super) fn xor(width: Width, a: &Lane, b: &Lane) -> Lane {
    let mut result = match a.bits.most() & b.bits.most() {
        0 => add(width, a, b),
        _ => of_signs(width, a, b),
    };
    for (a, b) in [(a, b), (b, a)] {
        let taken = a.bits.most() & b.bits.most();
        result.keep_unsigned(a.umin.saturating_sub(taken), most_added(a, b));
        // Turning all bits and turning the sign are a difference and a sum; the bits of those are not better.
        let turned = match b.as_constant() {
            Some(all) if all == ones(width) => sub(width, b, a),
            Some(sign) if sign == 1 << (width_bits(width) - 1) => add(width, a, b),
            _ => continue,
        };
        result.keep_unsigned(turned.umin, turned.umax);
        result.keep_signed(turned.smin, turned.smax);
    }
    result.bits = a.bits.xor(b.bits);
    result
}

/// The most that `a | b` is.
fn most_added(a: &Lane, b: &Lane) -> u64 {
    a.umax.saturating_add(b.bits.most() & !a.bits.value())
}

/// Numbers with as many copies of the sign in front as both have: no bitwise operation makes fewer of them.
fn of_signs(width: Width, a: &Lane, b: &Lane) -> Lane {
    let without_sign = |bound: i64| (bound ^ (bound >> 63)) as u64;
    let most = [a.smin, a.smax, b.smin, b.smax].into_iter().map(without_sign).fold(0, |all, bits| all | bits);
    let top = if most == 0 { 0 } else { (u64::MAX >> most.leading_zeros()) as i64 };
    let mut result = Lane::any(width);
    result.keep_signed(-top - 1, top);
    result
}
