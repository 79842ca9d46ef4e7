// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The value of a pure node for one packet.

use flowloom_ir::{Kind, apply};

/// A mask of the low `bits` bits.
pub(super) fn mask(bits: u16) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A value of `bits` bits, sign-extended.
pub(super) fn signed(value: u64, bits: u16) -> i64 {
    let above = 64 - u32::from(bits.clamp(1, 64));
    ((value << above) as i64) >> above
}

/// Evaluates a node; arguments come with their widths.
pub(super) fn value(kind: Kind, args: &[(u64, u16)], bits: u16) -> u64 {
    let (values, widths): (Vec<u64>, Vec<u16>) = args.iter().copied().unzip();
    apply(kind, &values, &widths, bits)
}

#[cfg(test)]
mod tests {
    use flowloom_ir::{Binary, Compare};

    use super::*;

    #[test]
    fn arithmetic_equals_that_of_the_instructions() {
        let min = 1 << 31;
        let cases: [(Binary, u64, u64, u64); 17] = [
            (Binary::Add, 0xffff_ffff, 2, 1),
            (Binary::Sub, 1, 2, 0xffff_ffff),
            (Binary::Mul, 0x1_0001, 0x1_0001, 0x0002_0001),
            (Binary::Div, 7, 2, 3),
            (Binary::Div, 7, 0, 0),
            (Binary::SignedDiv, 0xffff_fff9, 2, 0xffff_fffd),
            (Binary::SignedDiv, 7, 0, 0),
            (Binary::SignedDiv, min, 0xffff_ffff, min),
            (Binary::Mod, 7, 4, 3),
            (Binary::Mod, 7, 0, 7),
            (Binary::SignedMod, 0xffff_fff9, 4, 0xffff_fffd),
            (Binary::SignedMod, 0xffff_fff9, 0, 0xffff_fff9),
            (Binary::SignedMod, min, 0xffff_ffff, 0),
            (Binary::ShiftLeft, 3, 33, 6),
            (Binary::ShiftRight, 0x8000_0000, 31, 1),
            (Binary::SignedShiftRight, 0x8000_0000, 31, 0xffff_ffff),
            (Binary::Xor, 5, 6, 3),
        ];
        for (op, a, b, expected) in cases {
            assert_eq!(value(Kind::Binary(op), &[(a, 32), (b, 32)], 32), expected, "{op:?} {a} {b}");
        }
        let below = |how| value(Kind::Compare(how), &[(0x80, 8), (1, 8)], 1);
        assert_eq!([below(Compare::Below), below(Compare::SignedBelow), below(Compare::Equal)], [0, 1, 0]);
        assert_eq!(value(Kind::SignExtend, &[(0x80, 8)], 16), 0xff80);
    }
}
