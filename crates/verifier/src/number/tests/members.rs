// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Soundness: what the interpreter makes of members is a member of what is said of the result.

use flowloom_testkit::Rng;

use super::{Range, members, number, range_of, sample};
use crate::number::arithmetic::{byte_order, combine, neg};
use crate::number::compare::{decide, refine};
use flowloom_isa::alu as exact;
use flowloom_isa::op::{AluOp, Cond, EndOp, Size, Width};

const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

fn exact_alu(op: AluOp, width: Width, a: u64, b: u64) -> u64 {
    match width {
        Width::W32 => u64::from(exact::alu32(op, a as u32, b as u32)),
        Width::W64 => exact::alu64(op, a, b),
    }
}

fn exact_holds(cond: Cond, width: Width, a: u64, b: u64) -> bool {
    match width {
        Width::W32 => exact::holds32(cond, a as u32, b as u32),
        Width::W64 => exact::holds64(cond, a, b),
    }
}

#[test]
fn arithmetic_of_members() {
    let mut rng = Rng::from_env(0x5eed_0001);
    let mut checked = 0usize;
    for _ in 0..1500 {
        for op in AluOp::ALL {
            for width in WIDTHS {
                let ((a, in_a), (b, in_b)) = (sample(&mut rng), sample(&mut rng));
                let result = combine(op, width, &a, &b).expect("both have members");
                for &x in &in_a {
                    for &y in &in_b {
                        let value = exact_alu(op, width, x, y);
                        assert!(
                            result.contains(value),
                            "{op:?} {width:?} of {x:#x} in {a:?} and {y:#x} in {b:?} is {value:#x}, not in {result:?}"
                        );
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 2_000_000, "only {checked} members were checked");
}

#[test]
fn arithmetic_of_every_small_range() {
    // Every range of up to five numbers about the places where numbers turn over, with every other.
    let near = |middle: u64| {
        let ends = (0..5).flat_map(|lo| (lo..5).map(move |hi| (lo, hi)));
        ends.map(move |(lo, hi)| (middle.wrapping_add(lo).wrapping_sub(2), hi - lo))
    };
    let all: Vec<(u64, u64)> = [0, 1 << 31, 1 << 32, 1 << 63].into_iter().flat_map(near).collect();
    let ranges: Vec<(Range, Vec<u64>)> = all
        .iter()
        .map(|&(first, more)| {
            let values: Vec<u64> = (0..=more).map(|at| first.wrapping_add(at)).collect();
            let consts = values.iter().map(|&value| Range::constant(value));
            (consts.reduce(|all, one| all.join(&one)).expect("one at least"), values)
        })
        .collect();
    for (a, in_a) in &ranges {
        for (b, in_b) in &ranges {
            for op in AluOp::ALL {
                for width in WIDTHS {
                    let result = combine(op, width, a, b).expect("both have members");
                    for (&x, &y) in in_a.iter().flat_map(|x| in_b.iter().map(move |y| (x, y))) {
                        let value = exact_alu(op, width, x, y);
                        assert!(
                            result.contains(value),
                            "{op:?} {width:?} of {x:#x} in {a:?} and {y:#x} in {b:?} is {value:#x}, not in {result:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn one_operand() {
    let mut rng = Rng::from_env(0x5eed_0002);
    for _ in 0..15_000 {
        let (a, in_a) = sample(&mut rng);
        for &x in &in_a {
            for width in WIDTHS {
                let (result, value) = (neg(width, &a), exact_alu(AluOp::Sub, width, 0, x));
                assert!(result.contains(value), "minus {x:#x} in {a:?}, {width:?}, is {value:#x}, not in {result:?}");
                for from in Size::ALL {
                    let (result, value) = (a.sign_extended(from, width), exact::sign_extend(from, x));
                    let value = if width == Width::W32 { value & 0xffff_ffff } else { value };
                    assert!(
                        result.contains(value),
                        "{from:?} of {x:#x} in {a:?}, {width:?}: {value:#x} not in {result:?}"
                    );
                }
            }
            for size in Size::ALL {
                let (result, value) = (a.low(size), exact::zero_extend(size, x));
                assert!(result.contains(value), "{size:?} of {x:#x} in {a:?} is {value:#x}, not in {result:?}");
                for op in [EndOp::Le, EndOp::Be, EndOp::Swap] {
                    let (result, value) = (byte_order(op, size, &a), exact::byte_order(op, size, x));
                    assert!(result.contains(value), "{op:?} {size:?} of {x:#x} in {a:?}: {value:#x} not in {result:?}");
                }
            }
        }
    }
}

#[test]
fn comparisons_of_members() {
    let mut rng = Rng::from_env(0x5eed_0003);
    let mut decided = 0;
    for _ in 0..1200 {
        for cond in Cond::ALL {
            for width in WIDTHS {
                let ((a, in_a), (mut b, mut in_b)) = (sample(&mut rng), sample(&mut rng));
                if rng.chance(1, 3) {
                    // Near each other, where the edges meet.
                    let member = *rng.pick(&in_a);
                    b = range_of(&mut rng, member);
                    in_b = members(&mut rng, &b);
                    in_b.push(member);
                }
                let answer = decide(cond, width, &a, &b);
                decided += usize::from(answer.is_some());
                let left = [false, true].map(|holds| refine(cond, width, holds, &a, &b));
                for (&x, &y) in in_a.iter().flat_map(|x| in_b.iter().map(move |y| (x, y))) {
                    let holds = exact_holds(cond, width, x, y);
                    let of = format_args!("{cond:?} {width:?} of {x:#x} in {a:?} and {y:#x} in {b:?}").to_string();
                    assert!(answer.is_none_or(|answer| answer == holds), "{of} is {holds}, not {answer:?}");
                    let after = &left[usize::from(holds)];
                    let kept = after.is_some_and(|(a, b)| a.contains(x) && b.contains(y));
                    assert!(kept, "{of} is {holds}, which leaves {after:?}");
                }
                for (a_left, b_left) in left.into_iter().flatten() {
                    let narrower = a_left.is_within(&a) && b_left.is_within(&b);
                    assert!(narrower, "{cond:?} {width:?} of {a:?} and {b:?} widens them to {a_left:?} and {b_left:?}");
                }
            }
        }
    }
    assert!(decided > 1000, "only {decided} comparisons were decided");
}

#[test]
fn both_and_either() {
    let mut rng = Rng::from_env(0x5eed_0004);
    for _ in 0..40_000 {
        let member = number(&mut rng);
        let (a, b) = (range_of(&mut rng, member), range_of(&mut rng, member));
        let (meet, join) = (a.meet(&b).expect("they have a member in common"), a.join(&b));
        for (one, other) in [(&a, &b), (&b, &a)] {
            for value in members(&mut rng, one) {
                assert!(join.contains(value), "{value:#x} is in {one:?}, not in {join:?} with {other:?}");
                let both = other.contains(value);
                assert!(!both || meet.contains(value), "{value:#x} is in {one:?} and {other:?}, not in {meet:?}");
            }
        }
    }
}
