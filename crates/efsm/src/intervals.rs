// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of a field for which a condition holds, as intervals.

use flowloom_wire::field::FieldId;

use crate::model::{Condition, Expr, Relation, Wide};

/// First and last value.
pub type Interval = (u128, u128);

/// The largest value of a field.
pub fn largest(field: FieldId) -> u128 {
    u128::MAX >> (128 - u32::from(field.width_bits().clamp(1, 128)))
}

/// The field that a condition compares with constants, and the values for which it holds: ascending, non-adjacent
/// intervals. `None` for other conditions.
pub fn of(condition: &Condition) -> Option<(FieldId, Vec<Interval>)> {
    let (field, intervals, negated) = match condition {
        Condition::Compare { left: Expr::Field(field), relation, right: Expr::Constant(value), signed, .. } => {
            let (value, most) = (u128::from(*value), largest(*field));
            let is_order = !matches!(relation, Relation::Equal | Relation::NotEqual);
            if value > most || *signed && is_order {
                return None;
            }
            let below = || value.checked_sub(1).map(|high| (0, high));
            let above = || (value < most).then(|| (value + 1, most));
            match relation {
                Relation::Equal => (*field, vec![(value, value)], false),
                Relation::NotEqual => (*field, vec![(value, value)], true),
                Relation::Less => (*field, below().into_iter().collect(), false),
                Relation::LessEqual => (*field, vec![(0, value)], false),
                Relation::Greater => (*field, above().into_iter().collect(), false),
                Relation::GreaterEqual => (*field, vec![(value, most)], false),
            }
        }
        Condition::Masked { operand: Wide::Field(field), mask, value, negated } => {
            let free = largest(*field) & !mask;
            if free & free.wrapping_add(1) != 0 || mask & !largest(*field) != 0 && *mask != u128::MAX {
                return None;
            }
            (*field, vec![(*value, value | free)], *negated)
        }
        Condition::Range { field, low, high, negated } => (*field, vec![((*low).into(), (*high).into())], *negated),
        Condition::OneOf { operand: Expr::Field(field), values, negated, .. } => {
            let mut intervals: Vec<Interval> = Vec::new();
            for value in values.iter().copied().map(u128::from) {
                match intervals.last_mut() {
                    Some((_, last)) if *last + 1 == value => *last = value,
                    _ => intervals.push((value, value)),
                }
            }
            (*field, intervals, *negated)
        }
        Condition::Within { operand: Wide::Field(field), values, negated } => (*field, values.to_vec(), *negated),
        _ => return None,
    };
    Some((field, if negated { complement(&intervals, largest(field)) } else { intervals }))
}

/// The union of intervals as ascending, non-adjacent intervals.
pub fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::new();
    for (low, high) in intervals {
        match merged.last_mut() {
            Some((_, last)) if low <= last.saturating_add(1) => *last = high.max(*last),
            _ => merged.push((low, high)),
        }
    }
    merged
}

/// Whether a value is in one of the intervals, which ascend.
pub fn contain(intervals: &[Interval], value: u128) -> bool {
    let after = intervals.partition_point(|(low, _)| *low <= value);
    intervals[..after].last().is_some_and(|(_, high)| value <= *high)
}

/// The values up to `most` outside of the intervals.
fn complement(intervals: &[Interval], most: u128) -> Vec<Interval> {
    let mut others = Vec::new();
    let mut next = Some(0);
    for &(low, high) in intervals {
        others.extend(next.filter(|&next| next < low).map(|next| (next, low - 1)));
        next = high.checked_add(1).filter(|&next| next <= most);
    }
    others.extend(next.map(|next| (next, most)));
    others
}

/// The intersection.
pub fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while let (Some(&(a_low, a_high)), Some(&(b_low, b_high))) = (a.get(i), b.get(j)) {
        let (low, high) = (a_low.max(b_low), a_high.min(b_high));
        if low <= high {
            both.push((low, high));
        }
        if a_high < b_high { i += 1 } else { j += 1 }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_operations_equal_a_model() {
        let values = |set: &[Interval]| -> Vec<u128> {
            (0..=15).filter(|v| set.iter().any(|(l, h)| (l..=h).contains(&v))).collect()
        };
        let sets: [&[Interval]; 6] =
            [&[], &[(0, 15)], &[(0, 0)], &[(15, 15)], &[(2, 3), (7, 9)], &[(0, 4), (6, 6), (14, 15)]];
        for a in sets {
            let not: Vec<u128> = (0..=15).filter(|v| !values(a).contains(v)).collect();
            assert_eq!(values(&complement(a, 15)), not, "{a:?}");
            for b in sets {
                let both: Vec<u128> = values(a).into_iter().filter(|v| values(b).contains(v)).collect();
                assert_eq!(values(&intersect(a, b)), both, "{a:?} {b:?}");
            }
        }
        assert_eq!(complement(&[(0, 5)], u128::MAX), [(6, u128::MAX)]);
        assert_eq!(complement(&[(5, u128::MAX)], u128::MAX), [(0, 4)]);
    }
}
