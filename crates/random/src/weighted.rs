// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::Draw;

/// Draws items by weight in constant time.
///
/// # Source
/// The alias method: Walker, "An efficient method for generating discrete random variables with general distributions",
/// ACM TOMS 3(3), 1977; built as Vose proposed.
#[derive(Debug, Clone, Default)]
pub struct Weighted {
    /// Alias table: for each cell, the fraction of its own item in units of 2^-32, and the alias item.
    cells: Vec<(u32, u32)>,
}

impl Weighted {
    /// Builds the table for these weights.
    pub fn new(weights: &[f64]) -> Weighted {
        let total: f64 = weights.iter().sum();
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight * weights.len() as f64 / total).collect();
        let mut cells: Vec<(u32, u32)> = (0..weights.len() as u32).map(|i| (u32::MAX, i)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|&i| shares[i] < 1.0);
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            cells[poor] = ((shares[poor] * 4_294_967_296.0) as u32, rich as u32);
            shares[rich] -= 1.0 - shares[poor];
            if shares[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Weighted { cells }
    }

    /// Power-law weights: the n-th item has weight n^-`exponent`.
    pub fn by_rank(count: usize, exponent: f64) -> Weighted {
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
        Weighted::new(&weights)
    }

    /// True if there are no items.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Draws an item; 0 if there is none.
    #[inline]
    pub fn draw(&self, rng: &mut impl Draw) -> usize {
        let bits = rng.next_u64();
        let item = ((bits >> 32) * self.cells.len() as u64) >> 32;
        match self.cells.get(item as usize) {
            Some((own, other)) if bits as u32 > *own => *other as usize,
            _ => item as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

    /// Asserts that frequencies match the weights within five standard deviations.
    fn assert_shares(table: &Weighted, weights: &[f64]) {
        let (mut rng, mut found) = (SplitMix64::new(7), vec![0.0; weights.len()]);
        (0..200_000).for_each(|_| found[table.draw(&mut rng)] += 1.0);
        let total = weights.iter().sum::<f64>();
        for (i, (found, weight)) in found.iter().zip(weights).enumerate() {
            let expected = 200_000.0 * weight / total;
            assert!((found - expected).abs() <= 5.0 * expected.sqrt() + 1.0, "item {i}: {found}, expected {expected}");
        }
    }

    #[test]
    fn items_come_by_their_weights() {
        let weights = [0.5, 3.0, 0.0, 1.0, 10.0, 0.01];
        assert_shares(&Weighted::new(&weights), &weights);
        let weights: Vec<f64> = (1..=300).map(|rank| f64::from(rank).powf(-1.1)).collect();
        assert_shares(&Weighted::by_rank(300, 1.1), &weights);
        assert_eq!(Weighted::default().draw(&mut SplitMix64::new(1)), 0);
    }
}
