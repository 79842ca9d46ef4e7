//! Random draws: numbers, and ranks of popularity.

/// Random values that depend on the seed alone.
///
/// # Source
/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub(super) struct Draw {
    state: u64,
}

/// 64 bits that look random, the same ones for the same number.
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw { state: mix(seed) }
    }

    pub(super) fn bits(&mut self) -> u64 {
        let drawn = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        drawn
    }

    /// A number below `end`; 0 where `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// An index into something of this length.
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `0.0..1.0`.
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number that is distributed exponentially with mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Puts the items in a random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

/// Draws items by weight in constant time.
///
/// # Source
/// The alias method: Walker, "An efficient method for generating discrete random variables with general distributions",
/// ACM TOMS 3(3), 1977; built as Vose proposed.
#[derive(Debug, Clone, Default)]
pub(super) struct Weighted {
    /// For each item, its own share of its cell, in units of 2^-32, and the item that has the rest.
    cells: Vec<(u32, u32)>,
}

impl Weighted {
    pub(super) fn new(weights: &[f64]) -> Weighted {
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

    /// Weights that fall with the rank: the first has the weight 1, the n-th n^-exponent.
    pub(super) fn by_rank(count: usize, exponent: f64) -> Weighted {
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
        Weighted::new(&weights)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// An item; 0 where there is none.
    pub(super) fn draw(&self, draw: &mut Draw) -> usize {
        let bits = draw.bits();
        let item = ((bits >> 32) * self.cells.len() as u64) >> 32;
        match self.cells.get(item as usize) {
            Some((own, other)) if bits as u32 > *own => *other as usize,
            _ => item as usize,
        }
    }
}

/// Ranks from 1 whose probability falls as rank^-exponent, however many there are, in constant memory.
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

    pub(super) fn draw(&self, draw: &mut Draw) -> u64 {
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
        // (x^(1-s) - 1) / (1-s) without loss near s = 1.
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

    /// Draws so often; how often each item came.
    fn histogram(count: usize, draws: usize, mut item: impl FnMut(&mut Draw) -> usize) -> Vec<f64> {
        let mut draw = Draw::new(7);
        let mut found = vec![0.0; count];
        (0..draws).for_each(|_| found[item(&mut draw)] += 1.0);
        found
    }

    /// Each item comes as often as its weight says, but for five standard deviations.
    fn assert_shares(found: &[f64], weights: &[f64]) {
        let (draws, total) = (found.iter().sum::<f64>(), weights.iter().sum::<f64>());
        for (i, (found, weight)) in found.iter().zip(weights).enumerate() {
            let expected = draws * weight / total;
            assert!((found - expected).abs() <= 5.0 * expected.sqrt() + 1.0, "item {i}: {found}, expected {expected}");
        }
    }

    #[test]
    fn items_come_by_their_weights() {
        let weights = [0.5, 3.0, 0.0, 1.0, 10.0, 0.01];
        let table = Weighted::new(&weights);
        assert_shares(&histogram(6, 200_000, |draw| table.draw(draw)), &weights);
        let table = Weighted::by_rank(300, 1.1);
        let weights: Vec<f64> = (1..=300).map(|rank| f64::from(rank).powf(-1.1)).collect();
        assert_shares(&histogram(300, 300_000, |draw| table.draw(draw)), &weights);
        assert_eq!(Weighted::default().draw(&mut Draw::new(1)), 0);
    }

    #[test]
    fn ranks_follow_zipfs_law() {
        for exponent in [0.1, 0.99, 1.0, 1.3, 3.0] {
            for count in [1u32, 2, 500] {
                let zipf = Zipf::new(u64::from(count), exponent);
                let weights: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).collect();
                let found = histogram(count as usize, 200_000, |draw| zipf.draw(draw) as usize - 1);
                assert_shares(&found, &weights);
            }
        }
    }

    #[test]
    fn numbers_are_exponential() {
        let mut draw = Draw::new(3);
        let drawn: Vec<f64> = (0..100_000).map(|_| draw.exponential()).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let beyond = drawn.iter().filter(|x| **x > 2.0).count() as f64 / 1e5;
        assert!((mean - 1.0).abs() < 0.02 && (beyond - (-2.0f64).exp()).abs() < 0.005, "{mean} {beyond}");
        let mut items: Vec<u32> = (0..100).collect();
        draw.shuffle(&mut items);
        assert!(items[..10] != [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
