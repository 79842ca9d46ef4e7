// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A histogram of latencies: exact for small values, within one per mille for large ones.

/// The significant bits kept of a large value.
const KEPT_BITS: u32 = 11;

/// A histogram of numbers of cycles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

/// Values below 2^11 have buckets of their own; larger ones share a bucket with those that have the same first 11 bits.
fn bucket(number: u64) -> usize {
    let shift = (u64::BITS - number.leading_zeros()).saturating_sub(KEPT_BITS);
    ((u64::from(shift) << (KEPT_BITS - 1)) + (number >> shift)) as usize
}

/// The largest value of a bucket.
fn largest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> (KEPT_BITS - 1)).saturating_sub(1);
    let first = bucket - (shift << (KEPT_BITS - 1));
    (u128::from(first + 1) << shift).saturating_sub(1).min(u128::from(u64::MAX)) as u64
}

impl Histogram {
    pub(super) fn add(&mut self, number: u64) {
        let at = bucket(number);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.most = self.most.max(number);
    }

    /// A quantile, in thousandths; 0 for an empty histogram.
    pub(super) fn permille(&self, permille: u64) -> u64 {
        let rank = (u128::from(self.total) * u128::from(permille)).div_ceil(1000).max(1) as u64;
        let mut cumulative = 0;
        let reached = self.counts.iter().position(|count| {
            cumulative += count;
            cumulative >= rank
        });
        reached.map_or(0, |at| largest(at).min(self.most))
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_and_narrow() {
        let numbers =
            (0..5000).chain((12..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])).chain([u64::MAX]);
        let mut last = 0;
        for number in numbers {
            let (at, most) = (bucket(number), largest(bucket(number)));
            assert!(at >= last || number < 1 << 13, "{number}");
            last = at;
            assert!(most >= number && most - number <= number / 1000, "{number}: {most}");
            assert!(number >= 2048 || most == number);
        }
    }

    #[test]
    fn percentiles_equal_those_of_the_sorted_numbers() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.permille(500), histogram.most()), (0, 0));
        let mut numbers: Vec<u64> = (0..1999u64).map(|i| i * i % 1009 + 12).collect();
        numbers.iter().for_each(|number| histogram.add(*number));
        numbers.sort_unstable();
        for permille in [1, 500, 900, 990, 999, 1000] {
            let at = (numbers.len() * permille as usize).div_ceil(1000) - 1;
            assert_eq!(histogram.permille(permille), numbers[at], "{permille}");
        }
        histogram.add(1_000_000);
        assert_eq!(histogram.permille(1000), 1_000_000);
    }
}
