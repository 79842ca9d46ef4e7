// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Zipf distribution.

use flowloom_random::{Draw, SplitMix64};

/// Draws ranks from 1 with probability proportional to rank^-exponent, in constant memory.
///
/// # Source
/// Rejection-inversion: Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6(3), 1996.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    exponent: f64,
    count: f64,
    area_first: f64,
    area_all: f64,
    shortcut: f64,
}

impl Zipf {
    pub(super) fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { exponent, count: count as f64, area_first: 0.0, area_all: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_all = zipf.area(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    pub(super) fn draw(&self, draw: &mut SplitMix64) -> u64 {
        loop {
            let area = self.area_all + draw.unit() * (self.area_first - self.area_all);
            let x = self.area_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of the height, up to a constant.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        // (x^(1-s) - 1) / (1-s), without cancellation near s = 1.
        log * if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 * (1.0 + t / 3.0) }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        let log = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 + t * t / 3.0 };
        (log * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_zipfs_law() {
        for exponent in [0.1, 0.99, 1.0, 1.3, 3.0] {
            for count in [1u32, 2, 500] {
                let zipf = Zipf::new(u64::from(count), exponent);
                let weights: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).collect();
                let (mut draw, mut found) = (SplitMix64::new(7), vec![0.0; count as usize]);
                (0..200_000).for_each(|_| found[zipf.draw(&mut draw) as usize - 1] += 1.0);
                for (found, weight) in found.iter().zip(&weights) {
                    let expected: f64 = 200_000.0 * weight / weights.iter().sum::<f64>();
                    // Five standard deviations.
                    let is_near = (found - expected).abs() <= 5.0 * expected.sqrt() + 1.0;
                    assert!(is_near, "exponent {exponent}: {found} of weight {weight}, expected {expected}");
                }
            }
        }
    }
}
