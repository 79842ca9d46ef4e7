// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How numbers read.

use super::Range;
use crate::number::bits::Bits;
use crate::number::compare::refine;
use flowloom_isa::op::{Cond, Size, Width};

#[test]
fn numbers_in_messages() {
    let of_bits = |value, mask| Range::of_bits(Bits::new(value, mask));
    let low_half = |cond, number| {
        let (left, _) = refine(cond, Width::W32, true, &Range::ANY, &Range::constant(number)).expect("some are left");
        left
    };
    let cases = [
        (Range::ANY, "any"),
        (Range::constant(5), "5"),
        (Range::constant(-5i64 as u64), "-5"),
        (Range::unsigned(0, 63), "0..=63"),
        (Range::signed(-4, 12), "-4..=12"),
        (Range::signed(-4, -1), "-4..=-1"),
        (Range::of_size(Size::W), "0..=u32::MAX"),
        (Range::unsigned(1, u64::MAX), "1..=u64::MAX"),
        (Range::signed(i64::MIN, 7), "i64::MIN..=7"),
        (of_bits(0, 0x3c), "0..=60, multiple of 4"),
        (of_bits(2, 0x3c), "2..=62, multiple of 4 plus 2"),
        (of_bits(0, !7), "multiple of 8"),
        (of_bits(0x10, 0x103), "16..=275, bits 0xfc are 0x10"),
        (of_bits(0x80, !0x80), "bits 0x80 are 0x80"),
        (low_half(Cond::Le, 9), "low half 0..=9"),
        (low_half(Cond::Sge, -9i64 as u64), "low half -9..=i32::MAX"),
        (Range::unsigned(1 << 63, (1 << 63) + 4), "i64::MIN..=-9223372036854775804"),
        (Range::signed(i64::MIN + 1, 7), "-9223372036854775807..=7"),
    ];
    for (range, expected) in cases {
        assert_eq!(range.to_string(), expected, "{range:?}");
    }
}
