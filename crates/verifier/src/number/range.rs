// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The set of values of a register.
//!
//! # Settling
//!
//! Bits, bounds of the whole register and bounds of its low half constrain the same number. [`settle`] lets each refine
//! the others:
//!
//! ```text
//!   bits 0..0xx00   0 ≤ u64      s32 ≤ 10          before
//!   bits 0..0xx00   0 ≤ u64 ≤ 8  0 ≤ u32, s32 ≤ 8  after
//! ```
//!
//! 1. In one width: bits, unsigned and signed bounds ([`Lane::sharpen`]).
//! 2. From the whole to its low half: the low bits, and the bounds if the interval stays within one high half.
//! 3. From the low half to the whole: the bits, and each bound moves to the next number whose low half is allowed.
//!
//! Each step only removes values that one of the parts excludes, and is monotonic, so the order does not matter and the
//! result is a fixed point. It is reached after two or three refinements; [`MAX_REFINEMENTS`] costs precision at most.

use super::bits::Bits;
use super::lane::{Lane, width_bits};
use flowloom_isa::op::{Size, Width};

/// The set of values of a register: 64-bit numbers, given by known bits and bounds.
///
/// `Display` is for messages: `5`, `0..=63`, `-4..=12`, `any`, `0..=60, multiple of 4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    bits: Bits,
    umin: u64,
    umax: u64,
    smin: i64,
    smax: i64,
    umin32: u32,
    umax32: u32,
    smin32: i32,
    smax32: i32,
}

/// Limit on refinements.
const MAX_REFINEMENTS: usize = 8;

/// Refines both widths by each other; `None` if no value is left.
pub(super) fn settle(mut wide: Lane, mut low: Lane) -> Option<Range> {
    for _ in 0..MAX_REFINEMENTS {
        let before = (wide, low);
        wide = wide.sharpen(Width::W64)?;
        if let Some(value) = wide.as_constant() {
            let exact = Lane::constant(Width::W32, value);
            let met = exact.meet(&low)?;
            return (met == exact).then(|| Range::constant(value));
        }
        if !low.keep_bits(wide.bits.cut(Width::W32)) {
            return None;
        }
        for (lo, hi) in wide.views() {
            low.keep(Width::W32, lo, hi);
        }
        low = low.sharpen(Width::W32)?;
        let high_unknown = u64::MAX << width_bits(Width::W32);
        if !wide.keep_bits(Bits::new(low.bits.value(), low.bits.mask() | high_unknown)) {
            return None;
        }
        for (lo, hi) in [(low.umin as u32, low.umax as u32), (low.smin as u32, low.smax as u32)] {
            let span = hi.wrapping_sub(lo);
            let (up, down) = (steps_up(wide.umin as u32, lo, span), steps_down(wide.umax as u32, lo, span));
            wide.keep_unsigned(wide.umin.checked_add(up)?, wide.umax.checked_sub(down)?);
            let (up, down) = (steps_up(wide.smin as u32, lo, span), steps_down(wide.smax as u32, lo, span));
            wide.keep_signed(wide.smin.checked_add_unsigned(up)?, wide.smax.checked_sub_unsigned(down)?);
        }
        if (wide, low) == before {
            break;
        }
    }
    if wide.umin > wide.umax || wide.smin > wide.smax {
        return None;
    }
    Some(Range {
        bits: wide.bits,
        umin: wide.umin,
        umax: wide.umax,
        smin: wide.smin,
        smax: wide.smax,
        umin32: low.umin as u32,
        umax32: low.umax as u32,
        smin32: low.smin as i32,
        smax32: low.smax as i32,
    })
}

/// The distance from `from` up to the next number in `lo` to `lo + span`, modulo 2^32.
const fn steps_up(from: u32, lo: u32, span: u32) -> u64 {
    if from.wrapping_sub(lo) <= span { 0 } else { lo.wrapping_sub(from) as u64 }
}

/// The distance from `from` down to the next one.
const fn steps_down(from: u32, lo: u32, span: u32) -> u64 {
    if from.wrapping_sub(lo) <= span { 0 } else { from.wrapping_sub(lo.wrapping_add(span)) as u64 }
}

impl Range {
    pub(crate) const ANY: Range = Range {
        bits: Bits::UNKNOWN,
        umin: 0,
        umax: u64::MAX,
        smin: i64::MIN,
        smax: i64::MAX,
        umin32: 0,
        umax32: u32::MAX,
        smin32: i32::MIN,
        smax32: i32::MAX,
    };

    pub(crate) const fn constant(value: u64) -> Range {
        Range {
            bits: Bits::constant(value),
            umin: value,
            umax: value,
            smin: value as i64,
            smax: value as i64,
            umin32: value as u32,
            umax32: value as u32,
            smin32: value as i32,
            smax32: value as i32,
        }
    }

    /// The numbers between these two, unsigned, both included.
    pub(crate) fn unsigned(one: u64, other: u64) -> Range {
        let mut wide = Lane::any(Width::W64);
        wide.keep_unsigned(one.min(other), one.max(other));
        settle(wide, Lane::any(Width::W32)).unwrap_or(Range::ANY)
    }

    /// The numbers between these two, signed, both included.
    pub(crate) fn signed(one: i64, other: i64) -> Range {
        let mut wide = Lane::any(Width::W64);
        wide.keep_signed(one.min(other), one.max(other));
        settle(wide, Lane::any(Width::W32)).unwrap_or(Range::ANY)
    }

    pub(crate) fn of_bits(bits: Bits) -> Range {
        settle(Lane::of_bits(Width::W64, bits), Lane::any(Width::W32)).unwrap_or(Range::ANY)
    }

    /// The result of a load of this size.
    pub(crate) fn of_size(size: Size) -> Range {
        Range::unsigned(0, u64::MAX >> (64 - 8 * size.bytes()))
    }

    /// The constant, if there is only one value.
    pub(crate) const fn as_constant(&self) -> Option<u64> {
        if self.umin == self.umax { Some(self.umin) } else { None }
    }

    pub(crate) const fn bits(&self) -> Bits {
        self.bits
    }

    pub(crate) const fn umin(&self) -> u64 {
        self.umin
    }

    pub(crate) const fn umax(&self) -> u64 {
        self.umax
    }

    pub(crate) const fn smin(&self) -> i64 {
        self.smin
    }

    pub(crate) const fn smax(&self) -> i64 {
        self.smax
    }

    /// The unsigned minimum of the low half.
    #[cfg(test)]
    pub(crate) const fn umin32(&self) -> u32 {
        self.umin32
    }

    /// The unsigned maximum of the low half.
    #[cfg(test)]
    pub(crate) const fn umax32(&self) -> u32 {
        self.umax32
    }

    /// Whether the set contains a value.
    #[cfg(test)]
    pub(crate) const fn contains(&self, value: u64) -> bool {
        Lane::constant(Width::W64, value).is_within(&self.lane(Width::W64))
            && Lane::constant(Width::W32, value).is_within(&self.lane(Width::W32))
    }

    /// Whether each bound and known bit of `other` is implied by this one.
    pub(crate) const fn is_within(&self, other: &Range) -> bool {
        self.lane(Width::W64).is_within(&other.lane(Width::W64))
            && self.lane(Width::W32).is_within(&other.lane(Width::W32))
    }

    /// The union (join).
    #[cfg(test)]
    pub(crate) fn join(&self, other: &Range) -> Range {
        let [wide, low] = [Width::W64, Width::W32].map(|width| self.lane(width).join(&other.lane(width)));
        settle(wide, low).unwrap_or(Range::ANY)
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn meet(&self, other: &Range) -> Option<Range> {
        let wide = self.lane(Width::W64).meet(&other.lane(Width::W64))?;
        settle(wide, self.lane(Width::W32).meet(&other.lane(Width::W32))?)
    }

    /// The low `size` bytes, zero-extended.
    pub(crate) fn low(&self, size: Size) -> Range {
        let mask = match size {
            Size::Dw => return *self,
            Size::W => return Range::zero_extended(self.lane(Width::W32)).unwrap_or(Range::ANY),
            Size::H => u64::from(u16::MAX),
            Size::B => u64::from(u8::MAX),
        };
        super::arithmetic::alu(flowloom_isa::op::AluOp::And, Width::W32, self, &Range::constant(mask))
    }

    /// The low `from` bytes, sign-extended to `width`, zero-extended from there.
    pub(crate) fn sign_extended(&self, from: Size, width: Width) -> Range {
        let bits = 8 * from.bytes() as u32;
        let full = match from {
            Size::Dw => *self,
            Size::B | Size::H | Size::W => {
                let up = 64 - bits;
                let known = self.bits.shift_left(Width::W64, up).shift_right_signed(Width::W64, up);
                let mut wide = Lane::of_bits(Width::W64, known);
                let half = 1i128 << (bits - 1);
                wide.keep_signed(-half as i64, (half - 1) as i64);
                for (lo, hi) in self.lane(Width::W32).views() {
                    // The interval stays within the numbers of this size around one multiple of 2^bits.
                    let turn = (lo + half) >> bits;
                    if turn == (hi + half) >> bits {
                        wide.keep(Width::W64, lo - (turn << bits), hi - (turn << bits));
                    }
                }
                settle(wide, Lane::any(Width::W32)).unwrap_or(Range::ANY)
            }
        };
        match width {
            Width::W64 => full,
            Width::W32 => full.low(Size::W),
        }
    }

    /// The whole register or its low half.
    pub(super) const fn lane(&self, width: Width) -> Lane {
        match width {
            Width::W64 => Lane { bits: self.bits, umin: self.umin, umax: self.umax, smin: self.smin, smax: self.smax },
            Width::W32 => Lane {
                bits: self.bits.cut(Width::W32),
                umin: self.umin32 as u64,
                umax: self.umax32 as u64,
                smin: self.smin32 as i64,
                smax: self.smax32 as i64,
            },
        }
    }

    /// A register with this low half and an upper half of zeros.
    pub(super) fn zero_extended(low: Lane) -> Option<Range> {
        let (smin, smax) = (low.umin as i64, low.umax as i64);
        settle(Lane { smin, smax, ..low }, low)
    }

    /// The register with a refined whole or low half.
    pub(super) fn narrowed(&self, width: Width, to: Lane) -> Option<Range> {
        match width {
            Width::W64 => settle(to, self.lane(Width::W32)),
            Width::W32 => settle(self.lane(Width::W64), to),
        }
    }
}
