// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What says more than what: the order of ranges.

use flowloom_testkit::Rng;

use super::{Range, members, number, range_of, sample};
use crate::number::bits::Bits;
use flowloom_isa::op::Width;

#[test]
fn a_settled_range_has_nothing_more_to_learn_from_itself() {
    let mut rng = Rng::from_env(0x5eed_0011);
    for _ in 0..40_000 {
        let (a, _) = sample(&mut rng);
        let again = a.meet(&a);
        assert_eq!(again, Some(a), "{a} is not at rest");
        assert_eq!(a.join(&a), a);
        let (wide, low) = (a.lane(Width::W64), a.lane(Width::W32));
        assert_eq!((wide.sharpen(Width::W64), low.sharpen(Width::W32)), (Some(wide), Some(low)));
        // The ends of each of the bounds are members as far as their own width goes.
        for end in [a.umin(), a.umax(), a.smin() as u64, a.smax() as u64] {
            assert!(a.bits().contains(end), "{a:?} ends at {end:#x}");
        }
    }
}

#[test]
fn within_is_an_order_and_join_is_an_upper_bound() {
    let mut rng = Rng::from_env(0x5eed_0012);
    let mut ordered = 0;
    for _ in 0..40_000 {
        let ((a, in_a), (b, _), (c, _)) = (sample(&mut rng), sample(&mut rng), sample(&mut rng));
        assert!(a.is_within(&a) && a.is_within(&Range::ANY));
        let (ab, ba) = (a.join(&b), b.join(&a));
        assert_eq!(ab, ba);
        assert!(a.is_within(&ab) && b.is_within(&ab), "{a:?} or {b:?} is not within {ab:?}");
        let abc = ab.join(&c);
        assert!(ab.is_within(&abc) && a.is_within(&abc) && c.is_within(&abc), "{a:?}, {b:?}, {c:?}: {abc:?}");
        if b.is_within(&a) && a.is_within(&b) {
            assert_eq!(a, b);
        }
        // What is within has no other members.
        let near = range_of(&mut rng, in_a[0]);
        if near.is_within(&a) {
            ordered += 1;
            for value in members(&mut rng, &near) {
                assert!(a.contains(value), "{value:#x} is in {near:?} but not in {a:?}");
            }
        }
        let met = a.meet(&near).expect("they have a member in common");
        assert!(met.is_within(&a) && met.is_within(&near), "{a:?} and {near:?} meet in {met:?}");
    }
    assert!(ordered > 1000, "only {ordered} pairs were one within the other");
}

#[test]
fn the_member_beside_a_bound() {
    // Few bits, so that looking at all of them is the model.
    for mask in 0..64u64 {
        for value in (0..64u64).filter(|value| value & mask == 0) {
            let bits = Bits::new(value, mask);
            let all: Vec<u64> = (0..64).filter(|&number| bits.contains(number)).collect();
            for bound in 0..64 {
                assert_eq!(bits.at_least(bound), all.iter().copied().find(|&member| member >= bound));
                assert_eq!(bits.at_most(bound), all.iter().copied().rfind(|&member| member <= bound));
            }
        }
    }
    assert_eq!(Bits::new(1, u64::MAX - 1).at_least(u64::MAX - 1), Some(u64::MAX));
    assert_eq!(Bits::new(0, u64::MAX - 1).at_least(u64::MAX), None);
}

#[test]
fn known_bits_of_few_bits() {
    // Sum, difference and the bitwise operations say all that can be said; a product not always.
    let all: Vec<Bits> = (0..16u64)
        .flat_map(|mask| (0..16).filter(move |value| value & mask == 0).map(move |v| Bits::new(v, mask)))
        .collect();
    let of = |bits: Bits| (0..16u64).filter(move |&number| bits.contains(number));
    for &a in &all {
        for &b in &all {
            let best = |op: fn(u64, u64) -> u64| {
                let results = of(a).flat_map(|x| of(b).map(move |y| Bits::constant(op(x, y))));
                results.reduce(Bits::join).expect("both have members")
            };
            assert_eq!(a.add(b), best(u64::wrapping_add), "{a:?} + {b:?}");
            assert_eq!(a.sub(b), best(u64::wrapping_sub), "{a:?} - {b:?}");
            assert_eq!(a.and(b), best(|x, y| x & y), "{a:?} & {b:?}");
            assert_eq!(a.or(b), best(|x, y| x | y), "{a:?} | {b:?}");
            assert_eq!(a.xor(b), best(|x, y| x ^ y), "{a:?} ^ {b:?}");
            assert!(best(u64::wrapping_mul).is_within(a.mul(b)), "{a:?} * {b:?}");
        }
    }
}

#[test]
fn what_is_far_apart_has_nothing_in_common() {
    let mut rng = Rng::from_env(0x5eed_0013);
    for _ in 0..10_000 {
        let (one, other) = (number(&mut rng), number(&mut rng));
        let both = Range::constant(one).meet(&Range::constant(other));
        assert_eq!(both, (one == other).then(|| Range::constant(one)));
        assert_eq!(Range::constant(one).contains(other), one == other);
    }
    assert_eq!(Range::unsigned(0, 9).meet(&Range::unsigned(10, 20)), None);
    assert_eq!(Range::signed(-9, -1).meet(&Range::unsigned(0, 20)), None);
    assert_eq!(Range::unsigned(5, 7).meet(&Range::of_bits(Bits::new(0, !7))), None);
    // 4 to 7 and -4 to -1 have one bit in common.
    let both_signs = Range::signed(-4, 7).meet(&Range::unsigned(4, u64::MAX)).expect("some are left");
    assert_eq!(both_signs.bits(), Bits::new(4, !4));
    assert_eq!(size_of::<Range>(), 64);
}
