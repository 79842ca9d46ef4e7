// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Known bits.
//!
//! # Source
//! Addition, subtraction and multiplication follow [Tnum]; the smallest and largest value beside a bound is our own.

use flowloom_isa::op::{Size, Width};

/// The known bits of a number.
///
/// # Layout
/// A bit that is set in `mask` is unknown, and clear in `value`; the others are as in `value`. Numbers of 32 bits have
/// an upper half of known zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bits {
    value: u64,
    mask: u64,
}

/// A mask of the width.
pub(super) const fn ones(width: Width) -> u64 {
    match width {
        Width::W32 => u32::MAX as u64,
        Width::W64 => u64::MAX,
    }
}

impl Bits {
    /// All bits unknown.
    pub(crate) const UNKNOWN: Bits = Bits { value: 0, mask: u64::MAX };

    pub(crate) const fn constant(value: u64) -> Bits {
        Bits { value, mask: 0 }
    }

    /// The bits outside of `mask` are known, as in `value`.
    pub(crate) const fn new(value: u64, mask: u64) -> Bits {
        Bits { value: value & !mask, mask }
    }

    /// The common prefix of all numbers from `lo` to `hi`.
    pub(crate) const fn from_range(lo: u64, hi: u64) -> Bits {
        let differs = lo ^ hi;
        let mask = if differs == 0 { 0 } else { u64::MAX >> differs.leading_zeros() };
        Bits::new(lo, mask)
    }

    /// The known ones; also the smallest value.
    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// The unknown bits.
    pub(crate) const fn mask(self) -> u64 {
        self.mask
    }

    /// The bits that may be set; also the largest value.
    pub(crate) const fn most(self) -> u64 {
        self.value | self.mask
    }

    /// Whether the number can have this value.
    pub(crate) const fn contains(self, value: u64) -> bool {
        value & !self.mask == self.value
    }

    pub(crate) const fn is_within(self, other: Bits) -> bool {
        self.mask & !other.mask == 0 && self.value & !other.mask == other.value
    }

    /// The intersection; `None` if it is empty.
    pub(crate) const fn meet(self, other: Bits) -> Option<Bits> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        Some(Bits::new(self.value | other.value, self.mask & other.mask))
    }

    /// The union (join).
    pub(crate) const fn join(self, other: Bits) -> Bits {
        Bits::new(self.value, self.mask | other.mask | (self.value ^ other.value))
    }

    /// The smallest value not below `lo`.
    pub(crate) const fn at_least(self, lo: u64) -> Option<u64> {
        // As `lo` in the unknown bits. The highest bit in which this differs from `lo` is a known one.
        let near = self.value | (lo & self.mask);
        if near == lo {
            return Some(lo);
        }
        let top = 63 - (near ^ lo).leading_zeros();
        let below = (1u64 << top) - 1;
        if near > lo {
            // Greater from that bit on: all unknown bits below it can be 0.
            return Some(near & !(self.mask & below));
        }
        // Smaller from that bit on: the next unknown bit above that is clear in `lo` has to be set.
        let free = self.mask & !lo & !below;
        if free == 0 {
            return None;
        }
        let carry = free & free.wrapping_neg();
        Some((near & !(self.mask & (carry - 1))) | carry)
    }

    /// The largest value not above `hi`.
    pub(crate) const fn at_most(self, hi: u64) -> Option<u64> {
        match self.not().at_least(!hi) {
            Some(found) => Some(!found),
            None => None,
        }
    }

    const fn not(self) -> Bits {
        Bits::new(!self.value, self.mask)
    }

    /// The sum modulo 2^64.
    pub(crate) const fn add(self, other: Bits) -> Bits {
        let least = self.value.wrapping_add(other.value);
        let most = least.wrapping_add(self.mask.wrapping_add(other.mask));
        // A carry into a bit is known if both extremes agree on it [Tnum].
        Bits::new(least, (least ^ most) | self.mask | other.mask)
    }

    /// The difference modulo 2^64.
    pub(crate) const fn sub(self, other: Bits) -> Bits {
        let middle = self.value.wrapping_sub(other.value);
        let (least, most) = (middle.wrapping_sub(other.mask), middle.wrapping_add(self.mask));
        Bits::new(middle, (least ^ most) | self.mask | other.mask)
    }

    pub(crate) const fn and(self, other: Bits) -> Bits {
        let value = self.value & other.value;
        Bits::new(value, self.most() & other.most() & !value)
    }

    pub(crate) const fn or(self, other: Bits) -> Bits {
        let value = self.value | other.value;
        Bits { value, mask: (self.mask | other.mask) & !value }
    }

    pub(crate) const fn xor(self, other: Bits) -> Bits {
        Bits::new(self.value ^ other.value, self.mask | other.mask)
    }

    /// The product modulo 2^64.
    ///
    /// A sum of partial products over the bits of one factor: their known parts multiply as numbers, and the unknown
    /// rest of each is added up as known bits [Tnum].
    pub(crate) const fn mul(self, other: Bits) -> Bits {
        let (few, many) =
            if self.most().count_ones() <= other.most().count_ones() { (self, other) } else { (other, self) };
        let mut rest = Bits::constant(0);
        let mut left = few.most();
        while left != 0 {
            let at = left.trailing_zeros();
            let bit = 1 << at;
            let unknown = if few.mask & bit != 0 { many.most() } else { many.mask };
            rest = rest.add(Bits::new(0, unknown << at));
            left &= left - 1;
        }
        Bits::constant(few.value.wrapping_mul(many.value)).add(rest)
    }

    /// Shifts left by less than the width.
    pub(crate) const fn shift_left(self, width: Width, by: u32) -> Bits {
        Bits { value: self.value << (by & 63), mask: self.mask << (by & 63) }.cut(width)
    }

    /// Shifts right by less than the width, logically.
    pub(crate) const fn shift_right(self, width: Width, by: u32) -> Bits {
        let from = self.cut(width);
        Bits { value: from.value >> (by & 63), mask: from.mask >> (by & 63) }
    }

    /// Shifts right by less than the width, arithmetically.
    pub(crate) const fn shift_right_signed(self, width: Width, by: u32) -> Bits {
        // An unknown sign bit becomes unknown bits, which is an arithmetic shift of the mask.
        let (value, mask) = match width {
            Width::W32 => (self.value as i32 as i64, self.mask as i32 as i64),
            Width::W64 => (self.value as i64, self.mask as i64),
        };
        Bits { value: (value >> (by & 63)) as u64, mask: (mask >> (by & 63)) as u64 }.cut(width)
    }

    /// Truncates to a width.
    pub(crate) const fn cut(self, width: Width) -> Bits {
        Bits { value: self.value & ones(width), mask: self.mask & ones(width) }
    }

    /// Reverses the low `size` bytes, with zeros above.
    pub(super) const fn swapped(self, size: Size) -> Bits {
        let by = 64 - 8 * size.bytes() as u32;
        Bits { value: self.value.swap_bytes() >> by, mask: self.mask.swap_bytes() >> by }
    }
}
