// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges in messages.

use std::fmt;

use super::bits::Bits;
use super::lane::Lane;
use super::range::{Range, settle};
use flowloom_isa::op::Width;

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = self.as_constant() {
            return write!(f, "{}", value as i64);
        }
        let bottom = known_bottom(self.bits());
        let bounds = self.telling_bounds(bottom);
        let half = self.telling_half();
        // Bits are shown unless they follow from the bounds.
        let follows = {
            let [wide, low] = [(Width::W64, bounds), (Width::W32, half)].map(|(width, told)| match told {
                Some(_) => Lane { bits: Bits::UNKNOWN.cut(width), ..self.lane(width) },
                None => Lane::any(width),
            });
            settle(wide, low).unwrap_or(Range::ANY).bits()
        };
        let news = !self.bits().mask() & follows.mask();

        let mut comma = "";
        if let Some((lo, hi)) = bounds {
            write!(f, "{}..={}", Named(lo), Named(hi))?;
            comma = ", ";
        }
        if news & bottom != 0 {
            write!(f, "{comma}multiple of {}", u128::from(bottom) + 1)?;
            match self.bits().value() & bottom {
                0 => {}
                rest => write!(f, " plus {rest}")?,
            }
            comma = ", ";
        }
        if news & !bottom != 0 {
            write!(f, "{comma}bits {:#x} are {:#x}", news & !bottom, self.bits().value() & news & !bottom)?;
            comma = ", ";
        }
        if let Some((lo, hi)) = half {
            write!(f, "{comma}low half {}..={}", Named(lo), Named(hi))?;
            comma = ", ";
        }
        if comma.is_empty() { f.write_str("any") } else { Ok(()) }
    }
}

/// A mask of the known low bits: one less than the modulus of which the number has a known remainder.
const fn known_bottom(bits: Bits) -> u64 {
    match bits.mask() {
        0 => u64::MAX,
        mask => (1 << mask.trailing_zeros()) - 1,
    }
}

impl Range {
    /// The bounds of the whole, if they tell more than the low half and the low bits do: signed, if negative values are
    /// possible.
    fn telling_bounds(&self, bottom: u64) -> Option<(i128, i128)> {
        let bits = Bits::new(self.bits().value(), !bottom);
        let free = settle(Lane::of_bits(Width::W64, bits), self.lane(Width::W32)).unwrap_or(Range::ANY);
        let ([unsigned, sign], [free_unsigned, free_sign]) =
            (self.lane(Width::W64).views(), free.lane(Width::W64).views());
        let signed = (sign.0 < 0 && sign != free_sign).then_some(sign);
        signed.or_else(|| (unsigned != free_unsigned).then_some(unsigned))
    }

    /// The bounds of the low half, if they tell more than those of the whole and the bits do.
    fn telling_half(&self) -> Option<(i128, i128)> {
        let free = settle(self.lane(Width::W64), Lane::any(Width::W32)).unwrap_or(Range::ANY);
        let ([unsigned, sign], [free_unsigned, free_sign]) =
            (self.lane(Width::W32).views(), free.lane(Width::W32).views());
        let unsigned = (unsigned != free_unsigned).then_some(unsigned);
        unsigned.or_else(|| (sign != free_sign).then_some(sign))
    }
}

/// A bound; the ends of types by their names, which read better than ten or twenty digits.
struct Named(i128);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ENDS: [(i128, &str); 6] = [
            (u64::MAX as i128, "u64::MAX"),
            (i64::MAX as i128, "i64::MAX"),
            (i64::MIN as i128, "i64::MIN"),
            (u32::MAX as i128, "u32::MAX"),
            (i32::MAX as i128, "i32::MAX"),
            (i32::MIN as i128, "i32::MIN"),
        ];
        match ENDS.into_iter().find(|&(end, _)| end == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}
