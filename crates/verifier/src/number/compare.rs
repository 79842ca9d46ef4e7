// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparisons: their results, and the refinement of their operands.

use super::bits::{Bits, ones};
use super::bitwise::and;
use super::lane::{Lane, signed};
use super::range::Range;
use flowloom_isa::op::{Cond, Width};

/// Whether the comparison always holds, or never; `None` if it depends on the values.
pub(crate) fn decide(cond: Cond, width: Width, a: &Range, b: &Range) -> Option<bool> {
    let (x, y) = (a.lane(width), b.lane(width));
    match cond {
        Cond::Eq => equal(width, &x, &y),
        Cond::Ne => equal(width, &x, &y).map(|equal| !equal),
        Cond::Lt => below(&x, &y),
        Cond::Ge => below(&x, &y).map(|below| !below),
        Cond::Gt => below(&y, &x),
        Cond::Le => below(&y, &x).map(|below| !below),
        Cond::Slt => below_signed(&x, &y),
        Cond::Sge => below_signed(&x, &y).map(|below| !below),
        Cond::Sgt => below_signed(&y, &x),
        Cond::Sle => below_signed(&y, &x).map(|below| !below),
        Cond::Set => {
            let common = and(width, &x, &y).sharpen(width)?;
            match (common.umin, common.umax) {
                (_, 0) => Some(false),
                (1.., _) => Some(true),
                (0, _) => None,
            }
        }
    }
}

fn equal(width: Width, x: &Lane, y: &Lane) -> Option<bool> {
    match (x.as_constant(), y.as_constant()) {
        (Some(x), Some(y)) => Some(x == y),
        _ => match x.meet(y).and_then(|both| both.sharpen(width)) {
            Some(_) => None,
            None => Some(false),
        },
    }
}

fn below(x: &Lane, y: &Lane) -> Option<bool> {
    if x.umax < y.umin {
        Some(true)
    } else if x.umin >= y.umax {
        Some(false)
    } else {
        None
    }
}

fn below_signed(x: &Lane, y: &Lane) -> Option<bool> {
    if x.smax < y.smin {
        Some(true)
    } else if x.smin >= y.smax {
        Some(false)
    } else {
        None
    }
}

/// Both operands refined by the result of the comparison; `None` if that is infeasible.
///
/// A 32-bit comparison compares the low halves. It bounds the whole register as far as the upper half is known.
pub(crate) fn refine(cond: Cond, width: Width, holds: bool, a: &Range, b: &Range) -> Option<(Range, Range)> {
    let (mut x, mut y) = (a.lane(width), b.lane(width));
    match (cond, holds) {
        (Cond::Eq, true) | (Cond::Ne, false) => {
            if width == Width::W64 {
                let both = a.meet(b)?;
                return Some((both, both));
            }
            x = x.meet(&y)?;
            y = x;
        }
        (Cond::Eq, false) | (Cond::Ne, true) => {
            let (only_x, only_y) = (x.as_constant(), y.as_constant());
            exclude(width, &mut x, only_y);
            exclude(width, &mut y, only_x);
        }
        (Cond::Lt, true) | (Cond::Ge, false) => keep_below(&mut x, &mut y)?,
        (Cond::Gt, true) | (Cond::Le, false) => keep_below(&mut y, &mut x)?,
        (Cond::Le, true) | (Cond::Gt, false) => keep_not_above(&mut x, &mut y),
        (Cond::Ge, true) | (Cond::Lt, false) => keep_not_above(&mut y, &mut x),
        (Cond::Slt, true) | (Cond::Sge, false) => keep_below_signed(&mut x, &mut y)?,
        (Cond::Sgt, true) | (Cond::Sle, false) => keep_below_signed(&mut y, &mut x)?,
        (Cond::Sle, true) | (Cond::Sgt, false) => keep_not_above_signed(&mut x, &mut y),
        (Cond::Sge, true) | (Cond::Slt, false) => keep_not_above_signed(&mut y, &mut x),
        (Cond::Set, true) => {
            // Some common bit is set: if only one is possible, both have it.
            let common = x.bits.most() & y.bits.most();
            let lowest = common & common.wrapping_neg();
            if common == 0 {
                return None;
            }
            for lane in [&mut x, &mut y] {
                lane.keep_unsigned(lowest, u64::MAX);
                if common == lowest && !lane.keep_bits(Bits::new(lowest, !lowest)) {
                    return None;
                }
            }
        }
        (Cond::Set, false) => {
            // No common bit is set: where one has a 1, the other has a 0.
            let (with_x, with_y) = (x.bits.value(), y.bits.value());
            if !x.keep_bits(Bits::new(0, !with_y)) || !y.keep_bits(Bits::new(0, !with_x)) {
                return None;
            }
        }
    }
    Some((a.narrowed(width, x)?, b.narrowed(width, y)?))
}

/// Excludes a number, which matters at the bounds.
fn exclude(width: Width, lane: &mut Lane, number: Option<u64>) {
    let Some(number) = number else { return };
    let (unsigned, sign) = (number & ones(width), signed(width, number));
    // If it was the only value, the bounds cross, or the other bounds stop at the end of the range.
    lane.umin = if lane.umin == unsigned { unsigned.saturating_add(1) } else { lane.umin };
    lane.umax = if lane.umax == unsigned { unsigned.saturating_sub(1) } else { lane.umax };
    lane.smin = if lane.smin == sign { sign.saturating_add(1) } else { lane.smin };
    lane.smax = if lane.smax == sign { sign.saturating_sub(1) } else { lane.smax };
}

/// `x < y`.
fn keep_below(x: &mut Lane, y: &mut Lane) -> Option<()> {
    x.keep_unsigned(0, y.umax.checked_sub(1)?);
    y.keep_unsigned(x.umin.checked_add(1)?, u64::MAX);
    Some(())
}

/// `x <= y`.
fn keep_not_above(x: &mut Lane, y: &mut Lane) {
    x.keep_unsigned(0, y.umax);
    y.keep_unsigned(x.umin, u64::MAX);
}

/// `x < y`, signed.
fn keep_below_signed(x: &mut Lane, y: &mut Lane) -> Option<()> {
    x.keep_signed(i64::MIN, y.smax.checked_sub(1)?);
    y.keep_signed(x.smin.checked_add(1)?, i64::MAX);
    Some(())
}

/// `x <= y`, signed.
fn keep_not_above_signed(x: &mut Lane, y: &mut Lane) {
    x.keep_signed(i64::MIN, y.smax);
    y.keep_signed(x.smin, i64::MAX);
}
