//! Known bits.
//!
//! # Source
//! Addition, subtraction and multiplication follow [Tnum]; the smallest and largest member beside a bound is worked out here.

use crate::op::{Size, Width};

/// Which bits of a number are known, and what they are.
///
/// # Layout
/// A bit that is set in `mask` is unknown, and clear in `value`; the others are as in `value`. Numbers of 32 bits have an
/// upper half of known zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bits {
    value: u64,
    mask: u64,
}

/// All bits of a number of this width.
pub(super) const fn ones(width: Width) -> u64 {
    match width {
        Width::W32 => u32::MAX as u64,
        Width::W64 => u64::MAX,
    }
}

impl Bits {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Bits = Bits { value: 0, mask: u64::MAX };

    /// This number.
    pub(crate) const fn constant(value: u64) -> Bits {
        Bits { value, mask: 0 }
    }

    /// Any number of which the bits outside of `mask` are as in `value`.
    pub(crate) const fn new(value: u64, mask: u64) -> Bits {
        Bits { value: value & !mask, mask }
    }

    /// What all numbers from `lo` to `hi` have in common: the bits above the first that differs.
    pub(crate) const fn from_range(lo: u64, hi: u64) -> Bits {
        let differs = lo ^ hi;
        let mask = if differs == 0 { 0 } else { u64::MAX >> differs.leading_zeros() };
        Bits::new(lo, mask)
    }

    /// The known ones; also the smallest member.
    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// The unknown bits.
    pub(crate) const fn mask(self) -> u64 {
        self.mask
    }

    /// Every bit that may be set; also the largest member.
    pub(crate) const fn most(self) -> u64 {
        self.value | self.mask
    }

    /// Whether the number can be this one.
    pub(crate) const fn contains(self, value: u64) -> bool {
        value & !self.mask == self.value
    }

    /// Whether every member of this is one of `other`.
    pub(crate) const fn is_within(self, other: Bits) -> bool {
        self.mask & !other.mask == 0 && self.value & !other.mask == other.value
    }

    /// What both say, `None` if they contradict each other.
    pub(crate) const fn meet(self, other: Bits) -> Option<Bits> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        Some(Bits::new(self.value | other.value, self.mask & other.mask))
    }

    /// What holds for the members of either.
    pub(crate) const fn join(self, other: Bits) -> Bits {
        Bits::new(self.value, self.mask | other.mask | (self.value ^ other.value))
    }

    /// The smallest member that is not below `lo`.
    pub(crate) const fn at_least(self, lo: u64) -> Option<u64> {
        // As `lo` where the bits are free. The highest bit in which that differs from `lo` is a known one.
        let near = self.value | (lo & self.mask);
        if near == lo {
            return Some(lo);
        }
        let top = 63 - (near ^ lo).leading_zeros();
        let below = (1u64 << top) - 1;
        if near > lo {
            // Larger from that bit on whatever follows: nothing free needs to be set below it.
            return Some(near & !(self.mask & below));
        }
        // Smaller from that bit on: the next free bit above, which `lo` has clear, has to be set.
        let free = self.mask & !lo & !below;
        if free == 0 {
            return None;
        }
        let carry = free & free.wrapping_neg();
        Some((near & !(self.mask & (carry - 1))) | carry)
    }

    /// The largest member that is not above `hi`.
    pub(crate) const fn at_most(self, hi: u64) -> Option<u64> {
        match self.not().at_least(!hi) {
            Some(found) => Some(!found),
            None => None,
        }
    }

    /// All bits turned.
    const fn not(self) -> Bits {
        Bits::new(!self.value, self.mask)
    }

    /// Sum, modulo 2^64.
    pub(crate) const fn add(self, other: Bits) -> Bits {
        let least = self.value.wrapping_add(other.value);
        let most = least.wrapping_add(self.mask.wrapping_add(other.mask));
        // A carry into a bit is known where the two extremes agree on it [Tnum].
        Bits::new(least, (least ^ most) | self.mask | other.mask)
    }

    /// Difference, modulo 2^64.
    pub(crate) const fn sub(self, other: Bits) -> Bits {
        let middle = self.value.wrapping_sub(other.value);
        let (least, most) = (middle.wrapping_sub(other.mask), middle.wrapping_add(self.mask));
        Bits::new(middle, (least ^ most) | self.mask | other.mask)
    }

    /// Bits that both have.
    pub(crate) const fn and(self, other: Bits) -> Bits {
        let value = self.value & other.value;
        Bits::new(value, self.most() & other.most() & !value)
    }

    /// Bits that either has.
    pub(crate) const fn or(self, other: Bits) -> Bits {
        let value = self.value | other.value;
        Bits { value, mask: (self.mask | other.mask) & !value }
    }

    /// Bits that one of them has.
    pub(crate) const fn xor(self, other: Bits) -> Bits {
        Bits::new(self.value ^ other.value, self.mask | other.mask)
    }

    /// Product, modulo 2^64.
    ///
    /// Written as a sum over the bits of one factor, of which the known parts multiply as numbers and the unknown rest of
    /// each partial product is added up as known bits [Tnum].
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

    /// Shifted to the left by less than the width.
    pub(crate) const fn shift_left(self, width: Width, by: u32) -> Bits {
        Bits { value: self.value << (by & 63), mask: self.mask << (by & 63) }.cut(width)
    }

    /// Shifted to the right by less than the width, zeros coming in.
    pub(crate) const fn shift_right(self, width: Width, by: u32) -> Bits {
        let from = self.cut(width);
        Bits { value: from.value >> (by & 63), mask: from.mask >> (by & 63) }
    }

    /// Shifted to the right by less than the width, the sign coming in.
    pub(crate) const fn shift_right_signed(self, width: Width, by: u32) -> Bits {
        // An unknown sign comes in as unknown bits, which is what shifting the mask by its sign gives.
        let (value, mask) = match width {
            Width::W32 => (self.value as i32 as i64, self.mask as i32 as i64),
            Width::W64 => (self.value as i64, self.mask as i64),
        };
        Bits { value: (value >> (by & 63)) as u64, mask: (mask >> (by & 63)) as u64 }.cut(width)
    }

    /// The low bits, zeros above.
    pub(crate) const fn cut(self, width: Width) -> Bits {
        Bits { value: self.value & ones(width), mask: self.mask & ones(width) }
    }

    /// The low `size` bytes in reverse order, zeros above.
    pub(super) const fn swapped(self, size: Size) -> Bits {
        let by = 64 - 8 * size.bytes() as u32;
        Bits { value: self.value.swap_bytes() >> by, mask: self.mask.swap_bytes() >> by }
    }
}
