// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A histogram of times with buckets of nearly constant relative width, as in HdrHistogram.
//!
//! ```text
//!  0 1 … 15 │ 16 17 … 31 │ 32 34 … 62 │ 64 68 … 124 │ …     lower bounds: 16 buckets for each power of two
//! ```

/// The buckets of a power of two: a bucket is at most 1/16 of its values wide.
const SUB_BUCKETS: u64 = 16;
const SUB_BITS: u32 = SUB_BUCKETS.ilog2();
/// From 2^40 ns on (18 minutes) all times share one bucket.
const LAST_BIT: u32 = 40;
const BUCKETS: usize = ((LAST_BIT - SUB_BITS + 1) as usize) * SUB_BUCKETS as usize + 1;

/// Counts of times by their size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], total: 0, sum_ns: 0, max_ns: 0 }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < SUB_BUCKETS {
        return ns as usize;
    }
    let bit = ns.ilog2();
    if bit >= LAST_BIT {
        return BUCKETS - 1;
    }
    let sub = (ns >> (bit - SUB_BITS)) - SUB_BUCKETS;
    ((bit - SUB_BITS + 1) as usize) * SUB_BUCKETS as usize + sub as usize
}

/// The largest time of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (power, sub) = (bucket as u64 / SUB_BUCKETS, bucket as u64 % SUB_BUCKETS);
    match power {
        0 => sub,
        power => ((SUB_BUCKETS + sub + 1) << (power - 1)) - 1,
    }
}

impl Histogram {
    /// Counts `count` packets with this time.
    #[inline]
    pub fn add(&mut self, ns: u64, count: u64) {
        self.counts[bucket(ns)] += count;
        self.total += count;
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(count));
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
        self.total += other.total;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The number of packets counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The sum of their times.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest time.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time that a share of the packets does not exceed, from 0 to 1, rounded up by at most 1/16; `None` without
    /// packets.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let position = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(upper_ns(position).min(self.max_ns))
    }

    /// The number of packets of at most `ns`; exact where `ns + 1` is a power of two.
    pub fn at_most(&self, ns: u64) -> u64 {
        self.counts.iter().enumerate().filter(|(bucket, _)| upper_ns(*bucket) <= ns).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_without_gaps() {
        let mut before = None;
        for index in 0..BUCKETS - 1 {
            let upper = upper_ns(index);
            assert_eq!(bucket(upper), index);
            let lower = before.map_or(0, |before: u64| before + 1);
            assert_eq!(bucket(lower), index, "{lower}");
            assert!((upper - lower) * SUB_BUCKETS <= lower.max(1), "{lower} to {upper}");
            before = Some(upper);
        }
        assert_eq!((bucket(1 << LAST_BIT), bucket(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn quantiles_and_cumulative_counts_are_those_of_the_values() {
        let mut all = Histogram::default();
        let mut half = Histogram::default();
        for ns in 1..=1000 {
            (if ns % 2 == 0 { &mut all } else { &mut half }).add(ns, 3);
        }
        all.merge(&half);
        assert_eq!((all.total(), all.sum_ns(), all.max_ns()), (3000, 3 * 500_500, 1000));
        for (share, exact) in [(0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let found = all.quantile_ns(share).expect("not empty");
            assert!(found >= exact && found <= exact + exact / 16, "{share}: {found}");
        }
        assert_eq!([all.at_most(0), all.at_most(255), all.at_most(u64::MAX)], [0, 3 * 255, 3000]);
        assert_eq!(Histogram::default().quantile_ns(0.5), None);
    }
}
