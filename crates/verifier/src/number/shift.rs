// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shifts. The distance is the low five or six bits of the second operand.

use std::ops::RangeInclusive;

use super::bits::Bits;
use super::lane::{Lane, width_bits};
use flowloom_isa::op::Width;

/// The possible distances.
struct Counts {
    bits: Bits,
    least: u32,
    most: u32,
}

impl Counts {
    fn of(width: Width, b: &Lane) -> Counts {
        let limit = u64::from(width_bits(width));
        let bits = b.bits.and(Bits::constant(limit - 1));
        // Bounds apply if they do not wrap around.
        let (least, most) = match b.umin / limit == b.umax / limit {
            true => (b.umin % limit, b.umax % limit),
            false => (bits.value(), bits.most()),
        };
        Counts { bits, least: least as u32, most: most as u32 }
    }

    fn all(&self) -> RangeInclusive<u32> {
        self.least..=self.most
    }

    /// The bits common to all of these shifts.
    fn join(&self, width: Width, shifted: impl Fn(u32) -> Bits) -> Bits {
        let counts = self.all().filter(|&count| self.bits.contains(count.into()));
        counts.map(shifted).reduce(Bits::join).unwrap_or(Bits::UNKNOWN.cut(width))
    }
}

/// `a << b`; `low` is the low half of `a`.
pub(super) fn lsh(width: Width, a: &Lane, b: &Lane, low: &Lane) -> Lane {
    let counts = Counts::of(width, b);
    let mut result = Lane::of_bits(width, counts.join(width, |count| a.bits.shift_left(width, count)));
    let (least, most) = (counts.least, counts.most);
    // A distance of at least half the width drops the upper half, so the bounds of the lower half apply; `x <<= 32` and
    // a shift back is how compilers extend 32 bits.
    let halves = if least >= width_bits(width) / 2 && width == Width::W64 { Some(low) } else { None };
    for lane in [Some(a), halves].into_iter().flatten() {
        for (lo, hi) in lane.views() {
            let lo = lo << if lo < 0 { most } else { least };
            let hi = hi << if hi < 0 { least } else { most };
            result.keep(width, lo, hi);
        }
    }
    result
}

/// `a >> b`, logical.
pub(super) fn rsh(width: Width, a: &Lane, b: &Lane) -> Lane {
    let counts = Counts::of(width, b);
    let mut result = Lane::of_bits(width, counts.join(width, |count| a.bits.shift_right(width, count)));
    result.keep_unsigned(a.umin >> counts.most, a.umax >> counts.least);
    result
}

/// `a >> b`, arithmetic.
pub(super) fn arsh(width: Width, a: &Lane, b: &Lane) -> Lane {
    let counts = Counts::of(width, b);
    let mut result = Lane::of_bits(width, counts.join(width, |count| a.bits.shift_right_signed(width, count)));
    let (least, most) = (counts.least, counts.most);
    let lo = a.smin >> if a.smin < 0 { least } else { most };
    let hi = a.smax >> if a.smax < 0 { most } else { least };
    result.keep_signed(lo, hi);
    result
}
