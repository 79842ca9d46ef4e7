// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers, what is said of them, and the tests that hold the two together.

mod idioms;
mod members;
mod order;
mod texts;

use flowloom_testkit::Rng;

use super::bits::Bits;
use super::compare::refine;
use super::range::Range;
use flowloom_isa::op::{Cond, Width};

/// Numbers at which something turns over.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    31,
    32,
    63,
    64,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0xffff_ffff_8000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// A number with a liking for edges and for few bits.
fn number(rng: &mut Rng) -> u64 {
    let near = (rng.below(5) as u64).wrapping_sub(2);
    match rng.below(6) {
        0 => *rng.pick(&EDGES),
        1 => rng.pick(&EDGES).wrapping_add(near),
        2 => (1 << rng.below(64)) + near % 2,
        3 => rng.next_u64() >> rng.below(64),
        4 => (rng.next_u64() >> rng.below(64)).wrapping_neg(),
        _ => rng.next_u64(),
    }
}

/// Another number, mostly not far away.
fn beside(rng: &mut Rng, member: u64) -> u64 {
    match rng.below(3) {
        0 => number(rng),
        1 => member.wrapping_add(rng.next_u64() >> rng.below(64)),
        _ => member.wrapping_sub(rng.next_u64() >> rng.below(64)),
    }
}

/// Something that is true of this number.
fn statement(rng: &mut Rng, member: u64) -> Range {
    let (one, other) = (beside(rng, member), beside(rng, member));
    match rng.below(6) {
        0 => Range::unsigned(one.min(other).min(member), one.max(other).max(member)),
        1 => {
            let (one, other, member) = (one as i64, other as i64, member as i64);
            Range::signed(one.min(other).min(member), one.max(other).max(member))
        }
        2 => Range::of_bits(Bits::new(member, rng.next_u64() & rng.next_u64())),
        3 => {
            let high = u64::MAX << rng.below(64);
            Range::of_bits(Bits::new(member, if rng.chance(1, 2) { high } else { !high }))
        }
        4 => Range::constant(member).join(&Range::constant(one)).join(&Range::constant(other)),
        _ => {
            // Of the low half alone.
            let (below, above) = *rng.pick(&[(Cond::Ge, Cond::Le), (Cond::Sge, Cond::Sle)]);
            let mut all = Range::ANY;
            for (cond, number) in [(below, one), (above, other)] {
                if flowloom_isa::alu::holds32(cond, member as u32, number as u32) {
                    let bound = Range::constant(number);
                    (all, _) = refine(cond, Width::W32, true, &all, &bound).expect("the member is left");
                }
            }
            all
        }
    }
}

/// Something that is true of this number, in one to three statements.
fn range_of(rng: &mut Rng, member: u64) -> Range {
    if rng.chance(1, 8) {
        return Range::constant(member);
    }
    let mut all = statement(rng, member);
    for _ in 0..rng.below(3) {
        let more = statement(rng, member);
        let met = all.meet(&more);
        all = met.unwrap_or_else(|| unreachable!("{member:#x} is in {all:?} and in {more:?}, and in nothing of both"));
    }
    assert!(all.contains(member), "{member:#x} is not in {all:?}");
    all
}

/// Numbers of this range: its ends, and others with its bits or within its bounds.
fn members(rng: &mut Rng, range: &Range) -> Vec<u64> {
    let bits = range.bits();
    let mut found = vec![range.umin(), range.umax(), range.smin() as u64, range.smax() as u64];
    let span = range.umax() - range.umin();
    for _ in 0..3 {
        let within = range.umin().wrapping_add(((u128::from(rng.next_u64()) * u128::from(span)) >> 64) as u64);
        let high = within & (u64::MAX << 32);
        found.extend([
            within,
            bits.value() | (rng.next_u64() & bits.mask()),
            range.umin().wrapping_add(rng.below(4) as u64),
        ]);
        found.extend([high | u64::from(range.umin32()), high | u64::from(range.umax32())]);
    }
    found.retain(|&value| range.contains(value));
    found.sort_unstable();
    found.dedup();
    found
}

/// A range and some of its members.
fn sample(rng: &mut Rng) -> (Range, Vec<u64>) {
    let member = number(rng);
    let range = range_of(rng, member);
    let mut all = members(rng, &range);
    all.push(member);
    (range, all)
}
