// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What compilers write, and exactly what is known after it.

use super::Range;
use crate::number::arithmetic::{alu, byte_order, neg};
use crate::number::bits::Bits;
use crate::number::compare::{decide, refine};
use flowloom_isa::op::{AluOp, Cond, EndOp, Size, Width};

use AluOp::{Add, And, Arsh, Div, Lsh, Mod, Mul, Or, Rsh, Sdiv, Smod, Sub, Xor};
use Width::{W32, W64};

const U8: fn() -> Range = || Range::of_size(Size::B);
const U16: fn() -> Range = || Range::of_size(Size::H);
const U32: fn() -> Range = || Range::of_size(Size::W);

/// Numbers from `lo` to `hi` that are multiples of `of`.
fn multiple(of: u64, lo: u64, hi: u64) -> Range {
    let bits = Range::of_bits(Bits::new(0, !(of - 1)));
    Range::unsigned(lo, hi).meet(&bits).expect("there are some")
}

/// An operation with a constant.
type Step = (AluOp, Width, i64);

/// A register after these steps.
fn after(start: Range, steps: &[Step]) -> Range {
    steps.iter().fold(start, |now, &(op, width, number)| alu(op, width, &now, &Range::constant(number as u64)))
}

/// The first operand after a comparison with a constant.
fn when(start: &Range, cond: Cond, width: Width, holds: bool, number: i64) -> Option<Range> {
    refine(cond, width, holds, start, &Range::constant(number as u64)).map(|(left, _)| left)
}

#[test]
fn masks_shifts_and_offsets() {
    let any = Range::ANY;
    let low_signed = when(&when(&any, Cond::Sge, W32, true, -5).expect("left"), Cond::Sle, W32, true, 3).expect("left");
    let low_unsigned = when(&any, Cond::Le, W32, true, 99).expect("left");
    let cases: &[(&str, Range, &[Step], Range)] = &[
        ("an index is masked", any, &[(And, W64, 63)], Range::unsigned(0, 63)),
        ("the same in 32 bits", any, &[(And, W32, 63)], Range::unsigned(0, 63)),
        ("an array of words", any, &[(And, W64, 0xff), (Lsh, W64, 2)], multiple(4, 0, 1020)),
        ("an array of 24 bytes each", any, &[(And, W64, 15), (Mul, W64, 24)], multiple(8, 0, 360)),
        ("a byte plus the Ethernet header", U8(), &[(Add, W64, 14)], Range::unsigned(14, 269)),
        ("the length of an IPv4 header", U8(), &[(Lsh, W64, 2), (And, W64, 60)], multiple(4, 0, 60)),
        ("the same in 32 bits", U8(), &[(And, W32, 15), (Lsh, W32, 2)], multiple(4, 0, 60)),
        ("past both headers", U8(), &[(And, W64, 15), (Lsh, W64, 2), (Add, W64, 14)], {
            let bits = Range::of_bits(Bits::new(2, !3));
            Range::unsigned(14, 74).meet(&bits).expect("there are some")
        }),
        ("rounded down to four", Range::unsigned(14, 22), &[(And, W64, -4)], multiple(4, 12, 20)),
        ("rounded up to four", Range::unsigned(13, 22), &[(Add, W64, 3), (And, W64, -4)], multiple(4, 16, 24)),
        ("rounded up in 32 bits", Range::unsigned(13, 22), &[(Add, W32, 3), (And, W32, -4)], multiple(4, 16, 24)),
        ("extended by zeros", any, &[(Lsh, W64, 32), (Rsh, W64, 32)], Range::unsigned(0, u32::MAX.into())),
        ("extended by zeros, bounded", low_unsigned, &[(Lsh, W64, 32), (Rsh, W64, 32)], Range::unsigned(0, 99)),
        (
            "extended by the sign",
            any,
            &[(Lsh, W64, 32), (Arsh, W64, 32)],
            Range::signed(i32::MIN.into(), i32::MAX.into()),
        ),
        ("extended by the sign, bounded", low_signed, &[(Lsh, W64, 32), (Arsh, W64, 32)], Range::signed(-5, 3)),
        ("a byte extended by its sign", U8(), &[(Lsh, W64, 56), (Arsh, W64, 56)], Range::signed(-128, 127)),
        ("a high bit field", any, &[(Rsh, W64, 60)], Range::unsigned(0, 15)),
        ("a bit field of 32 bits", any, &[(Rsh, W32, 28)], Range::unsigned(0, 15)),
        ("a bit field in the middle", U16(), &[(Rsh, W64, 4), (And, W64, 15)], Range::unsigned(0, 15)),
        ("the sign as a mask", any, &[(Arsh, W64, 63)], Range::signed(-1, 0)),
        ("an index times a size", Range::unsigned(3, 7), &[(Mul, W64, 12)], multiple(4, 36, 84)),
        ("what is left after a header", Range::unsigned(20, 60), &[(Sub, W64, 20)], Range::unsigned(0, 40)),
        ("a difference below zero", Range::unsigned(0, 7), &[(Sub, W64, 3)], Range::signed(-3, 4)),
        ("counted down in 32 bits", Range::unsigned(0, 7), &[(Sub, W32, 1), (Add, W32, 1)], Range::unsigned(0, 7)),
        ("overflow of 64 bits", Range::unsigned(u64::MAX - 1, u64::MAX), &[(Add, W64, 2)], Range::unsigned(0, 1)),
        ("overflow of 32 bits", Range::unsigned(0xffff_fffe, 0xffff_ffff), &[(Add, W32, 3)], Range::unsigned(1, 2)),
        ("divided", U16(), &[(Div, W64, 10)], Range::unsigned(0, 6553)),
        ("divided by a power of two", multiple(8, 0, 80), &[(Div, W64, 4)], multiple(2, 0, 20)),
        ("divided by zero", U16(), &[(Div, W64, 0)], Range::constant(0)),
        ("divided with signs", Range::signed(-7, 20), &[(Sdiv, W64, 2)], Range::signed(-3, 10)),
        (
            "divided by minus one",
            Range::signed(i64::MIN, i64::MIN),
            &[(Sdiv, W64, -1)],
            Range::signed(i64::MIN, i64::MIN),
        ),
        ("a bucket", any, &[(Mod, W64, 10)], Range::unsigned(0, 9)),
        ("a bucket by a power of two", any, &[(Mod, W32, 16)], Range::unsigned(0, 15)),
        ("a remainder of few", Range::unsigned(12, 17), &[(Mod, W64, 10)], Range::unsigned(2, 7)),
        ("a remainder by zero", Range::unsigned(12, 17), &[(Mod, W64, 0)], Range::unsigned(12, 17)),
        ("a remainder with signs", Range::signed(-100, 3), &[(Smod, W64, 10)], Range::signed(-9, 3)),
        ("a flag set", Range::unsigned(0, 7), &[(Or, W64, 8)], Range::unsigned(8, 15)),
        ("all bits turned", Range::unsigned(0, 7), &[(Xor, W64, -1)], Range::signed(-8, -1)),
        ("the sign turned", Range::signed(-3, 4), &[(Xor, W64, i64::MIN)], {
            Range::unsigned((1 << 63) - 3, (1 << 63) + 4)
        }),
        ("a bit turned", Range::unsigned(0, 1), &[(Xor, W32, 1)], Range::unsigned(0, 1)),
        (
            "cut to 32 bits",
            Range::signed(-1, 0),
            &[(AluOp::Add, W32, 0)],
            Range::constant(0).join(&Range::constant(u32::MAX.into())),
        ),
    ];
    for (name, start, steps, expected) in cases {
        assert_eq!(after(*start, steps), *expected, "{name}: from {start}");
    }
}

#[test]
fn two_unknown_operands() {
    let small = Range::unsigned(0, 3);
    let cases = [
        (
            "one shifted by a few",
            alu(Lsh, W64, &Range::constant(1), &small),
            Range::of_bits(Bits::new(0, 15)).meet(&Range::unsigned(1, 8)).expect("left"),
        ),
        ("a word shifted by a few", alu(Rsh, W64, &U16(), &small), U16()),
        ("shifted to the left by a few", alu(Lsh, W32, &U8(), &small), Range::unsigned(0, 2040)),
        ("two bytes put together", alu(Or, W64, &after(U8(), &[(Lsh, W64, 8)]), &U8()), U16()),
        ("put together in 32 bits", alu(Or, W32, &after(U16(), &[(Lsh, W32, 16)]), &U16()), U32()),
        ("a sum of two", alu(Add, W64, &U8(), &U16()), Range::unsigned(0, 65790)),
        ("a difference of two", alu(Sub, W64, &U8(), &U8()), Range::signed(-255, 255)),
        ("a product of two", alu(Mul, W64, &U8(), &U16()), Range::unsigned(0, 255 * 65535)),
        ("a product with signs", alu(Mul, W64, &Range::signed(-3, 5), &Range::signed(-7, 2)), Range::signed(-35, 21)),
        ("a mask of unknown bits", alu(And, W64, &Range::ANY, &U8()), U8()),
        ("a sign as mask over a byte", alu(And, W64, &Range::signed(-1, 0), &U8()), U8()),
        ("or of what is disjoint", alu(Or, W64, &multiple(4, 8, 20), &small), Range::unsigned(8, 23)),
        ("or with signs", alu(Or, W64, &Range::signed(-3, 4), &small), Range::signed(-3, 7)),
        ("exclusive or of two", alu(Xor, W64, &U8(), &Range::unsigned(0, 15)), U8()),
        ("a remainder by what is not zero", alu(Mod, W64, &U16(), &Range::unsigned(1, 8)), Range::unsigned(0, 7)),
        ("a remainder by what may be zero", alu(Mod, W64, &U8(), &Range::unsigned(0, 8)), U8()),
        (
            "divided by what is not zero",
            alu(Div, W64, &Range::unsigned(10, 20), &Range::unsigned(2, 5)),
            Range::unsigned(2, 10),
        ),
        (
            "divided by what may be zero",
            alu(Div, W64, &Range::unsigned(10, 20), &Range::unsigned(0, 5)),
            Range::unsigned(0, 20),
        ),
        ("the smallest by minus one", alu(Sdiv, W32, &Range::signed(i32::MIN.into(), -2), &Range::signed(-2, -1)), {
            // 1 to 2^31, of which the last is the sign again.
            Range::unsigned(1, 1 << 31)
        }),
        ("minus a byte", neg(W64, &U8()), Range::signed(-255, 0)),
        ("minus a byte in 32 bits", neg(W32, &Range::unsigned(1, 3)), Range::unsigned(0xffff_fffd, 0xffff_ffff)),
        ("a port in network order", byte_order(EndOp::Be, Size::H, &Range::ANY), U16()),
        ("a byte in network order", byte_order(EndOp::Be, Size::H, &U8()), multiple(256, 0, 0xff00)),
        ("what is in host order", byte_order(EndOp::Le, Size::W, &Range::unsigned(3, 9)), Range::unsigned(3, 9)),
        ("an EtherType", byte_order(EndOp::Swap, Size::H, &Range::constant(0x0800)), Range::constant(8)),
        ("the low byte", Range::unsigned(0x105, 0x107).low(Size::B), Range::unsigned(5, 7)),
        ("the low byte of two blocks", Range::unsigned(0xfe, 0x101).low(Size::B), U8()),
        ("a byte's sign", U8().sign_extended(Size::B, W64), Range::signed(-128, 127)),
        (
            "a byte's sign in 32 bits",
            Range::unsigned(0xfe, 0xff).sign_extended(Size::B, W32),
            Range::unsigned(0xffff_fffe, 0xffff_ffff),
        ),
        ("a positive half word", Range::unsigned(3, 900).sign_extended(Size::H, W64), Range::unsigned(3, 900)),
        (
            "a negative word",
            Range::unsigned(0xffff_fff0, 0xffff_ffff).sign_extended(Size::W, W64),
            Range::signed(-16, -1),
        ),
    ];
    for (name, found, expected) in cases {
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn bounds_from_branches() {
    let any = Range::ANY;
    let cases = [
        ("not above, 64 bits", when(&any, Cond::Gt, W64, false, 63), Range::unsigned(0, 63)),
        ("not above, 32 bits, of a load", when(&U32(), Cond::Gt, W32, false, 63), Range::unsigned(0, 63)),
        ("above, 32 bits", when(&U16(), Cond::Gt, W32, true, 63), Range::unsigned(64, 0xffff)),
        (
            "below in both signs",
            when(&when(&any, Cond::Sge, W64, true, 0).expect("left"), Cond::Slt, W64, true, 10),
            Range::unsigned(0, 9),
        ),
        (
            "the same in 32 bits",
            when(&when(&U32(), Cond::Sge, W32, true, 0).expect("left"), Cond::Slt, W32, true, 10),
            Range::unsigned(0, 9),
        ),
        (
            "the other order",
            when(&when(&any, Cond::Slt, W64, true, 10).expect("left"), Cond::Sge, W64, true, 0),
            Range::unsigned(0, 9),
        ),
        ("equal", when(&U16(), Cond::Eq, W64, true, 8), Range::constant(8)),
        ("equal, 32 bits of a load", when(&U32(), Cond::Ne, W32, false, 8), Range::constant(8)),
        ("not zero", when(&U8(), Cond::Ne, W64, true, 0), Range::unsigned(1, 255)),
        ("not zero, 32 bits", when(&U8(), Cond::Eq, W32, false, 0), Range::unsigned(1, 255)),
        ("not the last", when(&U8(), Cond::Ne, W64, true, 255), Range::unsigned(0, 254)),
        ("not the first multiple", when(&multiple(4, 0, 60), Cond::Ne, W64, true, 0), multiple(4, 4, 60)),
        ("not minus one", when(&Range::signed(-1, 5), Cond::Ne, W64, true, -1), Range::unsigned(0, 5)),
        ("not the least, 32 bits", when(&Range::signed(-4, 5), Cond::Ne, W32, true, -4), Range::signed(-3, 5)),
        ("not one of two", when(&Range::unsigned(0, 1), Cond::Ne, W64, true, 1), Range::constant(0)),
        ("at least a header of five words", when(&multiple(4, 0, 60), Cond::Lt, W64, false, 20), multiple(4, 20, 60)),
        ("above what is no multiple", when(&multiple(4, 0, 60), Cond::Gt, W64, true, 18), multiple(4, 20, 60)),
        ("a flag is set", when(&Range::unsigned(0, 1), Cond::Set, W64, true, 1), Range::constant(1)),
        ("a flag is not set", when(&Range::unsigned(0, 7), Cond::Set, W64, false, 4), Range::unsigned(0, 3)),
        ("some flag is set", when(&Range::unsigned(0, 7), Cond::Set, W32, true, 6), Range::unsigned(2, 7)),
        ("a multiple", when(&Range::unsigned(0, 61), Cond::Set, W64, false, 3), multiple(4, 0, 60)),
        (
            "a negative result is an error",
            when(&Range::signed(-4095, 64), Cond::Slt, W64, true, 0),
            Range::signed(-4095, -1),
        ),
        ("and else a length", when(&Range::signed(-4095, 64), Cond::Slt, W64, false, 0), Range::unsigned(0, 64)),
        (
            "a length in 32 bits that was extended by its sign",
            when(&Range::signed(-4095, 64), Cond::Slt, W32, false, 0),
            Range::unsigned(0, 64),
        ),
        (
            "of what was extended by its sign before",
            when(&Range::signed(i32::MIN.into(), i32::MAX.into()), Cond::Sgt, W32, true, -3),
            Range::signed(-2, i32::MAX.into()),
        ),
        (
            "upper half one",
            when(&Range::unsigned(0x1_0000_0000, 0x1_ffff_ffff), Cond::Lt, W32, true, 7),
            Range::unsigned(0x1_0000_0000, 0x1_0000_0006),
        ),
    ];
    for (name, found, expected) in cases {
        assert_eq!(found, Some(expected), "{name}");
    }
}

#[test]
fn bounds_of_both_operands() {
    let (a, b) = (Range::unsigned(10, 100), Range::unsigned(0, 50));
    let below = refine(Cond::Lt, W64, true, &a, &b);
    assert_eq!(below, Some((Range::unsigned(10, 49), Range::unsigned(11, 50))));
    let not_below = refine(Cond::Lt, W64, false, &b, &a);
    assert_eq!(not_below, Some((Range::unsigned(10, 50), Range::unsigned(10, 50))));
    let equal = refine(Cond::Eq, W64, true, &a, &multiple(4, 0, 50));
    assert_eq!(equal, Some((multiple(4, 12, 48), multiple(4, 12, 48))));

    // The smaller of a length and a limit: one branch keeps it, the other takes the limit.
    let (length, limit) = (U16(), Range::constant(1500));
    let (kept, _) = refine(Cond::Gt, W64, false, &length, &limit).expect("left");
    assert_eq!(kept.join(&limit), Range::unsigned(0, 1500));
    // The larger of a number and a floor.
    let floor = Range::constant(60);
    let (kept, _) = refine(Cond::Lt, W32, false, &length, &floor).expect("left");
    assert_eq!(kept.join(&floor), Range::unsigned(60, 65535));
}

#[test]
fn what_is_decided() {
    let (low, high) = (Range::unsigned(0, 9), Range::unsigned(10, 20));
    let always =
        [(Cond::Lt, W64), (Cond::Le, W64), (Cond::Slt, W32), (Cond::Sle, W32), (Cond::Ne, W64), (Cond::Ne, W32)];
    let never =
        [(Cond::Gt, W64), (Cond::Ge, W32), (Cond::Sgt, W64), (Cond::Sge, W32), (Cond::Eq, W64), (Cond::Eq, W32)];
    for (conds, holds) in [(always, true), (never, false)] {
        for (cond, width) in conds {
            assert_eq!(decide(cond, width, &low, &high), Some(holds), "{cond:?} {width:?}");
            assert_eq!(refine(cond, width, !holds, &low, &high), None, "{cond:?} {width:?}");
            assert!(refine(cond, width, holds, &low, &high).is_some(), "{cond:?} {width:?}");
        }
    }
    let is = |cond, width, a: &Range, number: u64| decide(cond, width, a, &Range::constant(number));
    assert_eq!(is(Cond::Eq, W64, &Range::constant(7), 7), Some(true));
    assert_eq!(is(Cond::Eq, W64, &multiple(4, 0, 60), 6), Some(false));
    assert_eq!(is(Cond::Set, W64, &multiple(4, 0, 60), 3), Some(false));
    assert_eq!(when(&multiple(4, 0, 60), Cond::Set, W64, true, 3), None);
    assert_eq!(is(Cond::Set, W64, &Range::unsigned(8, 15), 8), Some(true));
    assert_eq!(is(Cond::Set, W64, &Range::unsigned(8, 15), 1), None);
    assert_eq!(is(Cond::Eq, W32, &Range::constant(0x1_0000_0007), 7), Some(true));
    assert_eq!(is(Cond::Lt, W64, &low, 9), None);
    assert_eq!(is(Cond::Le, W64, &low, 9), Some(true));
    assert_eq!(is(Cond::Slt, W64, &Range::signed(-4, -1), 0), Some(true));
    assert_eq!(is(Cond::Slt, W64, &Range::signed(-4, 9), -4i64 as u64), Some(false));
    assert_eq!(is(Cond::Slt, W64, &Range::signed(-4, 9), -3i64 as u64), None);
    assert_eq!(is(Cond::Lt, W64, &Range::signed(-4, -1), 5), Some(false));
    assert_eq!(is(Cond::Ge, W64, &Range::ANY, 0), Some(true));
}
