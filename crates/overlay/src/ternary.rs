// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ternary rows: intervals as prefixes, sets of states as few cubes, and rows that differ in one bit as one row.

use crate::image::{Ternary, TernaryRow};

/// A prefix: the bits from `free_bits` on have the value's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// The value; its free bits are 0.
    pub(crate) value: u128,
    /// The number of low bits that are not compared.
    pub(crate) free_bits: u32,
}

/// The fewest prefixes whose union is the interval from `first` to `last` of numbers of `width_bits`.
///
/// # Cost
/// At most `2 * width_bits - 2` prefixes.
pub(crate) fn prefixes(first: u128, last: u128, width_bits: u32) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    let mut at = first;
    while at <= last {
        let mut free_bits = at.trailing_zeros().min(width_bits);
        // The largest aligned block that begins here and ends within the interval.
        while free_bits > 0 && block_end(at, free_bits) > last {
            free_bits -= 1;
        }
        prefixes.push(Prefix { value: at, free_bits });
        match block_end(at, free_bits).checked_add(1) {
            Some(next) => at = next,
            None => break,
        }
    }
    prefixes
}

fn block_end(first: u128, free_bits: u32) -> u128 {
    first | u128::MAX.checked_shr(128 - free_bits).unwrap_or(0)
}

/// The intervals between ascending, non-adjacent ones, of numbers of `width_bits`.
pub(crate) fn complement(intervals: &[(u128, u128)], width_bits: u32) -> Vec<(u128, u128)> {
    let max = u128::MAX.checked_shr(128 - width_bits).unwrap_or(0);
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for &(first, last) in intervals {
        if let Some(start) = next
            && start < first
        {
            gaps.push((start, first - 1));
        }
        next = last.checked_add(1).filter(|&next| next <= max);
    }
    gaps.extend(next.map(|start| (start, max)));
    gaps
}

/// Few cubes whose union is `set`, among the labels 0 to `labels - 1`: labels above do not occur.
///
/// # Cost
/// Tries all cubes of the label's bits, up to 5 bits; above that, merges pairs.
pub(crate) fn cubes_of_labels(set: &[u16], labels: u16) -> Vec<Ternary> {
    if set.len() == usize::from(labels) {
        return vec![Ternary::default()];
    }
    let bits = u16::BITS - labels.saturating_sub(1).leading_zeros();
    let whole = u32::MAX.checked_shr(32 - bits).unwrap_or(0);
    if bits > 5 {
        let mut cubes: Vec<Ternary> = set.iter().map(|&label| Ternary { mask: whole, value: label.into() }).collect();
        merge_pairs(&mut cubes);
        return cubes;
    }
    let covers = |cube: Ternary, label: u16| cube.matches(label.into());
    let fits = |cube: &Ternary| (0..labels).all(|label| !covers(*cube, label) || set.contains(&label));
    let candidates: Vec<Ternary> = (0..=whole)
        .flat_map(|mask| (0..=whole).filter(move |value| value & !mask == 0).map(move |value| Ternary { mask, value }))
        .filter(fits)
        .collect();
    let mut left: Vec<u16> = set.to_vec();
    let mut cubes = Vec::new();
    while let Some(best) = candidates.iter().max_by_key(|cube| left.iter().filter(|&&l| covers(**cube, l)).count())
        && !left.is_empty()
    {
        cubes.push(*best);
        left.retain(|&label| !covers(*best, label));
    }
    cubes
}

fn merge_pairs(cubes: &mut Vec<Ternary>) {
    while let Some((at, merged)) = pair(cubes, |a, b| merged(*a, *b)) {
        cubes.remove(at.1);
        cubes[at.0] = merged;
    }
}

/// The first two items for which `combine` has a result.
fn pair<T, R>(items: &[T], combine: impl Fn(&T, &T) -> Option<R>) -> Option<((usize, usize), R)> {
    let pairs = (0..items.len()).flat_map(|a| (a + 1..items.len()).map(move |b| (a, b)));
    pairs.into_iter().find_map(|(a, b)| combine(&items[a], &items[b]).map(|result| ((a, b), result)))
}

/// The union of two cubes, if it is one: they differ in one compared bit, or one contains the other.
fn merged(a: Ternary, b: Ternary) -> Option<Ternary> {
    if a.mask == b.mask && (a.value ^ b.value).count_ones() <= 1 {
        let mask = a.mask & !(a.value ^ b.value);
        return Some(Ternary { mask, value: a.value & mask });
    }
    let contains = |outer: Ternary, inner: Ternary| outer.mask & !inner.mask == 0 && outer.matches(inner.value);
    [(a, b), (b, a)].into_iter().find_map(|(outer, inner)| contains(outer, inner).then_some(outer))
}

/// Merges rows of one element row: their order does not matter, since they do the same.
///
/// # Cost
/// Quadratic in the number of rows, for each merge.
pub(crate) fn minimise(rows: &mut Vec<TernaryRow>) {
    while let Some((at, merged)) = pair(rows, merged_rows) {
        rows.remove(at.1);
        rows[at.0] = merged;
    }
}

fn merged_rows(a: &TernaryRow, b: &TernaryRow) -> Option<TernaryRow> {
    let cubes = |row: &TernaryRow| {
        let mut cubes = vec![row.state, row.conditions, row.presence, row.full];
        cubes.extend(&row.words);
        cubes
    };
    let (of_a, of_b) = (cubes(a), cubes(b));
    // The union is a cube if all parts but one are equal, or if one row contains the other.
    let differing: Vec<usize> = (0..of_a.len()).filter(|&at| of_a[at] != of_b[at]).collect();
    let union = match differing[..] {
        [] => of_a,
        [at] => {
            let mut union = of_a;
            union[at] = merged(union[at], of_b[at])?;
            union
        }
        _ => {
            let contains = |outer: &[Ternary], inner: &[Ternary]| {
                outer.iter().zip(inner).all(|(o, i)| o.mask & !i.mask == 0 && o.matches(i.value))
            };
            match (contains(&of_a, &of_b), contains(&of_b, &of_a)) {
                (true, _) => of_a,
                (_, true) => of_b,
                _ => return None,
            }
        }
    };
    Some(TernaryRow {
        state: union[0],
        conditions: union[1],
        presence: union[2],
        full: union[3],
        words: union[4..].to_vec(),
        ..a.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_an_interval_exactly() {
        for first in 0..32_u128 {
            for last in first..32 {
                let found = prefixes(first, last, 5);
                for value in 0..32 {
                    let covered = found.iter().filter(|p| value >> p.free_bits << p.free_bits == p.value).count();
                    assert_eq!(covered, usize::from((first..=last).contains(&value)), "{value} in {first}..={last}");
                }
                assert!(found.len() <= 8, "{first}..={last} takes {}", found.len());
            }
        }
        assert_eq!(prefixes(0, u128::MAX, 128), [Prefix { value: 0, free_bits: 128 }]);
        assert_eq!(prefixes(u128::MAX, u128::MAX, 128).len(), 1);
    }

    #[test]
    fn a_complement_has_all_other_numbers() {
        let intervals = [(0, 1), (4, 4), (9, 15)];
        let gaps = complement(&intervals, 4);
        for value in 0..16 {
            let is_in = |all: &[(u128, u128)]| all.iter().any(|&(first, last)| (first..=last).contains(&value));
            assert_ne!(is_in(&intervals), is_in(&gaps), "{value}");
        }
        assert_eq!(complement(&[], 128), [(0, u128::MAX)]);
        assert_eq!(complement(&[(0, u128::MAX)], 128), []);
    }

    #[test]
    fn cubes_of_labels_have_these_labels_only() {
        for labels in 1..=9_u16 {
            for bits in 1..1_u16 << labels {
                let set: Vec<u16> = (0..labels).filter(|label| bits >> label & 1 == 1).collect();
                let cubes = cubes_of_labels(&set, labels);
                for label in 0..labels {
                    let is_covered = cubes.iter().any(|cube| cube.matches(label.into()));
                    assert_eq!(is_covered, set.contains(&label), "{label} of {set:?}");
                }
                assert!(cubes.len() <= set.len());
            }
        }
        assert_eq!(cubes_of_labels(&[1, 2, 3], 4).len(), 2);
        assert_eq!(cubes_of_labels(&[4, 5, 6, 7], 8).len(), 1);
        assert_eq!(cubes_of_labels(&[40, 41], 64).len(), 1);
    }
}
