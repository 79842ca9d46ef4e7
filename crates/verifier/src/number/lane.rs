// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One width of a register, the whole or its low half, with known bits and bounds.

use super::bits::{Bits, ones};
use flowloom_isa::op::Width;

/// The known bits and bounds in one width.
///
/// # Layout
/// In 32 bits, unsigned bounds and bits are zero-extended and signed bounds sign-extended, so that both widths share
/// their code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) bits: Bits,
    pub(super) umin: u64,
    pub(super) umax: u64,
    pub(super) smin: i64,
    pub(super) smax: i64,
}

pub(super) const fn width_bits(width: Width) -> u32 {
    match width {
        Width::W32 => 32,
        Width::W64 => 64,
    }
}

/// The low bits of `value` as a signed number.
pub(super) const fn signed(width: Width, value: u64) -> i64 {
    match width {
        Width::W32 => value as i32 as i64,
        Width::W64 => value as i64,
    }
}

/// The limit of intermediate integers: larger intervals tell nothing about 64 bits.
const LIMIT: i128 = 1 << 126;

impl Lane {
    pub(super) const fn any(width: Width) -> Lane {
        let top = (ones(width) >> 1) as i64;
        Lane { bits: Bits::UNKNOWN.cut(width), umin: 0, umax: ones(width), smin: -top - 1, smax: top }
    }

    /// A constant; its low bits count.
    pub(super) const fn constant(width: Width, value: u64) -> Lane {
        let (value, sign) = (value & ones(width), signed(width, value));
        Lane { bits: Bits::constant(value), umin: value, umax: value, smin: sign, smax: sign }
    }

    /// Any number with these known bits.
    pub(super) const fn of_bits(width: Width, bits: Bits) -> Lane {
        Lane { bits: bits.cut(width), ..Lane::any(width) }
    }

    /// The constant, if there is only one value.
    pub(super) const fn as_constant(&self) -> Option<u64> {
        if self.umin == self.umax { Some(self.umin) } else { None }
    }

    /// The unsigned and the signed interval; a value is in both, modulo the width.
    pub(super) const fn views(&self) -> [(i128, i128); 2] {
        [self.unsigned(), self.signed()]
    }

    pub(super) const fn unsigned(&self) -> (i128, i128) {
        (self.umin as i128, self.umax as i128)
    }

    pub(super) const fn signed(&self) -> (i128, i128) {
        (self.smin as i128, self.smax as i128)
    }

    /// Intersects with the integers from `lo` to `hi`, modulo the width.
    ///
    /// The interval bounds the unsigned values if it contains no wrap at a multiple of 2^width, and the signed ones if
    /// it contains none at an odd multiple of 2^(width-1): this is where overflow of every operation is noticed.
    pub(super) const fn keep(&mut self, width: Width, lo: i128, hi: i128) {
        if lo < -LIMIT || hi > LIMIT {
            return;
        }
        let bits = width_bits(width);
        if lo >> bits == hi >> bits {
            self.keep_unsigned(lo as u64 & ones(width), hi as u64 & ones(width));
        }
        let half = 1 << (bits - 1);
        if (lo + half) >> bits == (hi + half) >> bits {
            self.keep_signed(signed(width, lo as u64), signed(width, hi as u64));
        }
    }

    pub(super) const fn keep_unsigned(&mut self, lo: u64, hi: u64) {
        if lo > self.umin {
            self.umin = lo;
        }
        if hi < self.umax {
            self.umax = hi;
        }
    }

    pub(super) const fn keep_signed(&mut self, lo: i64, hi: i64) {
        if lo > self.smin {
            self.smin = lo;
        }
        if hi < self.smax {
            self.smax = hi;
        }
    }

    pub(super) const fn keep_bits(&mut self, bits: Bits) -> bool {
        match self.bits.meet(bits) {
            Some(met) => {
                self.bits = met;
                true
            }
            None => false,
        }
    }

    /// The intersection.
    pub(super) const fn meet(mut self, other: &Lane) -> Option<Lane> {
        self.keep_unsigned(other.umin, other.umax);
        self.keep_signed(other.smin, other.smax);
        if self.keep_bits(other.bits) { Some(self) } else { None }
    }

    /// The union (join).
    #[cfg(test)]
    pub(super) fn join(&self, other: &Lane) -> Lane {
        Lane {
            bits: self.bits.join(other.bits),
            umin: self.umin.min(other.umin),
            umax: self.umax.max(other.umax),
            smin: self.smin.min(other.smin),
            smax: self.smax.max(other.smax),
        }
    }

    pub(super) const fn is_within(&self, other: &Lane) -> bool {
        self.umin >= other.umin
            && self.umax <= other.umax
            && self.smin >= other.smin
            && self.smax <= other.smax
            && self.bits.is_within(other.bits)
    }

    /// Propagates between bits and bounds; `None` if the set is empty.
    ///
    /// The values are split by sign: in each part, unsigned and signed order agree, so its bounds are the tighter of
    /// both, moved to the nearest numbers with the known bits. Together they give all four bounds.
    pub(super) fn sharpen(mut self, width: Width) -> Option<Lane> {
        if self.umin > self.umax || self.smin > self.smax {
            return None;
        }
        self.bits = self.bits.meet(Bits::from_range(self.umin, self.umax))?;
        let positive = match self.smax >= 0 {
            true => self.part(self.smin.max(0) as u64, self.smax as u64),
            false => None,
        };
        let negative = match self.smin < 0 {
            true => self.part(self.smin as u64 & ones(width), self.smax.min(-1) as u64 & ones(width)),
            false => None,
        };
        let (first, last) = match (positive, negative) {
            (None, None) => return None,
            (Some(only), None) | (None, Some(only)) => (only, only),
            (Some(positive), Some(negative)) => (positive, negative),
        };
        (self.umin, self.umax) = (first.0, last.1);
        (self.smin, self.smax) = (signed(width, last.0), signed(width, first.1));
        let common = Bits::from_range(first.0, first.1).join(Bits::from_range(last.0, last.1));
        self.bits = self.bits.meet(common)?;
        Some(self)
    }

    /// The first and last value from `lo` to `hi`, which have the same sign.
    fn part(&self, lo: u64, hi: u64) -> Option<(u64, u64)> {
        let lo = self.bits.at_least(lo.max(self.umin))?;
        let hi = self.bits.at_most(hi.min(self.umax))?;
        (lo <= hi).then_some((lo, hi))
    }
}
