// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Division and remainder. By zero, the quotient is 0 and the remainder is the dividend.

use super::bits::Bits;
use super::lane::Lane;
use super::shift::rsh;
use flowloom_isa::op::Width;

/// `a / b`, unsigned.
pub(super) fn div(width: Width, a: &Lane, b: &Lane) -> Lane {
    if let Some(divisor) = b.as_constant().filter(|divisor| divisor.is_power_of_two()) {
        return rsh(width, a, &Lane::constant(width, divisor.trailing_zeros().into()));
    }
    let mut quotient = Lane::any(width);
    // A divisor that may be zero gives zero then, and otherwise is at least 1.
    let lo = if b.umin == 0 { 0 } else { a.umin / b.umax };
    let hi = if b.umax == 0 { 0 } else { a.umax / b.umin.max(1) };
    quotient.keep_unsigned(lo, hi);
    quotient
}

/// `a / b`, signed, rounding towards zero.
pub(super) fn sdiv(width: Width, a: &Lane, b: &Lane) -> Lane {
    if a.smin >= 0 && b.smin >= 0 {
        return div(width, a, b);
    }
    // For divisors of one sign the quotient is monotonic in both operands, so the corners bound it. The bounds are
    // unbounded integers; the smallest number divided by -1 is one too large, and overflows when it is stored.
    let mut bounds: Option<(i128, i128)> = (b.umin == 0).then_some((0, 0));
    for (blo, bhi) in [(b.smin, b.smax.min(-1)), (b.smin.max(1), b.smax)] {
        if blo > bhi {
            continue;
        }
        for (dividend, divisor) in [(a.smin, blo), (a.smin, bhi), (a.smax, blo), (a.smax, bhi)] {
            let corner = match dividend.checked_div(divisor) {
                Some(quotient) => i128::from(quotient),
                None => -i128::from(dividend),
            };
            let (lo, hi) = bounds.unwrap_or((corner, corner));
            bounds = Some((lo.min(corner), hi.max(corner)));
        }
    }
    let mut quotient = Lane::any(width);
    if let Some((lo, hi)) = bounds {
        quotient.keep(width, lo, hi);
    }
    quotient
}

/// `a % b`, unsigned.
pub(super) fn modulo(width: Width, a: &Lane, b: &Lane) -> Lane {
    // If the dividend is below every divisor, or the divisor is zero, the remainder is the dividend.
    if b.umax == 0 || (b.umin > 0 && a.umax < b.umin) {
        return *a;
    }
    let mut rest = Lane::of_bits(width, low_bits(a, b));
    rest.keep_unsigned(0, if b.umin == 0 { a.umax } else { a.umax.min(b.umax - 1) });
    if let Some(divisor) = b.as_constant().filter(|&divisor| a.umin / divisor == a.umax / divisor) {
        rest.keep_unsigned(a.umin % divisor, a.umax % divisor);
    }
    rest
}

/// `a % b`, signed, with the sign of the dividend.
pub(super) fn smod(width: Width, a: &Lane, b: &Lane) -> Lane {
    if a.smin >= 0 && b.smin >= 0 {
        return modulo(width, a, b);
    }
    let (far_a, far_b) =
        (a.smin.unsigned_abs().max(a.smax.unsigned_abs()), b.smin.unsigned_abs().max(b.smax.unsigned_abs()));
    let near_b = match (b.smin, b.smax) {
        (1.., _) => b.smin.unsigned_abs(),
        (_, ..=-1) => b.smax.unsigned_abs(),
        // Both signs are possible; zero may be excluded.
        _ => u64::from(b.umin > 0),
    };
    if far_b == 0 || far_a < near_b {
        return *a;
    }
    let mut rest = Lane::of_bits(width, low_bits(a, b));
    rest.keep_signed(a.smin.min(0), a.smax.max(0));
    if near_b > 0 {
        let most = i64::try_from(far_b - 1).unwrap_or(i64::MAX);
        rest.keep_signed(-most, most);
    }
    rest
}

/// The low bits of a remainder that equal those of its dividend: a multiple of the divisor is subtracted.
fn low_bits(a: &Lane, b: &Lane) -> Bits {
    let same = match b.bits.most() {
        0 => u64::MAX,
        most => (1u64 << most.trailing_zeros()) - 1,
    };
    Bits::new(a.bits.value() & same, a.bits.mask() | !same)
}
