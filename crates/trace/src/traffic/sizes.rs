// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet lengths: a bimodal distribution with feedback that maintains the class shares and the mean.

use super::frame::{FULL_BYTES, SMALLEST_BYTES};
use flowloom_random::{Draw, SplitMix64};

/// Length classes: below 80 bytes, 1400 bytes or more, and the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Small,
    Middle,
    Large,
}

const MIDDLE_FROM_BYTES: u32 = 80;
const LARGE_FROM_BYTES: u32 = 1400;
/// Range of large packets that are not full.
const LARGE_BYTES: (u32, u32) = (1400, 1460);
/// Approximate mean of small packets.
const SMALL_MEAN_BYTES: f64 = 63.0;
/// Number of packets over which a deficit is corrected.
const CORRECTION_PACKETS: f64 = 200.0;

/// Draws lengths and tracks the lengths sent, including those of packets that are not drawn here.
#[derive(Debug)]
pub(super) struct Sizes {
    shares: [f64; 3],
    mean_bytes: f64,
    middle_mean_bytes: f64,
    full: f64,
    /// Deficit so far, in packets by class and in bytes.
    deficit: [f64; 3],
    deficit_bytes: f64,
}

impl Sizes {
    pub(super) fn new(small: f64, large: f64, full: f64, mean_bytes: f64) -> Sizes {
        let middle = 1.0 - small - large;
        let other_large = f64::from(LARGE_BYTES.0 + LARGE_BYTES.1) / 2.0;
        let large_mean_bytes = full * f64::from(FULL_BYTES) + (1.0 - full) * other_large;
        Sizes {
            shares: [small, middle, large],
            mean_bytes,
            middle_mean_bytes: (mean_bytes - small * SMALL_MEAN_BYTES - large * large_mean_bytes) / middle,
            full,
            deficit: [0.0; 3],
            deficit_bytes: 0.0,
        }
    }

    pub(super) fn class(&self, draw: &mut SplitMix64) -> Class {
        let weights = [0, 1, 2].map(|i| (self.shares[i] + self.deficit[i] / CORRECTION_PACKETS).max(0.0));
        let drawn = draw.unit() * weights.iter().sum::<f64>();
        if drawn < weights[0] {
            Class::Small
        } else if drawn < weights[0] + weights[1] {
            Class::Middle
        } else {
            Class::Large
        }
    }

    pub(super) fn draw(&self, class: Class, draw: &mut SplitMix64) -> u32 {
        match class {
            Class::Small => SMALLEST_BYTES + draw.below(u64::from(MIDDLE_FROM_BYTES - SMALLEST_BYTES)) as u32,
            Class::Large if draw.chance(self.full) => FULL_BYTES,
            Class::Large => LARGE_BYTES.0 + draw.below(u64::from(LARGE_BYTES.1 - LARGE_BYTES.0) + 1) as u32,
            Class::Middle => {
                let mean = (self.middle_mean_bytes + self.deficit_bytes / CORRECTION_PACKETS).clamp(90.0, 900.0);
                let beyond = draw.exponential() * (mean - f64::from(MIDDLE_FROM_BYTES));
                MIDDLE_FROM_BYTES + (beyond as u32).min(LARGE_FROM_BYTES - MIDDLE_FROM_BYTES - 1)
            }
        }
    }

    pub(super) fn count(&mut self, len_bytes: u32) {
        for (deficit, share) in self.deficit.iter_mut().zip(self.shares) {
            *deficit += share;
        }
        let class = match len_bytes {
            ..MIDDLE_FROM_BYTES => Class::Small,
            MIDDLE_FROM_BYTES..LARGE_FROM_BYTES => Class::Middle,
            LARGE_FROM_BYTES.. => Class::Large,
        };
        self.deficit[class as usize] -= 1.0;
        self.deficit_bytes += self.mean_bytes - f64::from(len_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_shares_and_mean_converge() {
        let mut draw = SplitMix64::new(1);
        let mut sizes = Sizes::new(0.3, 0.48, 0.85, 778.0);
        let (mut small, mut large, mut bytes) = (0.0, 0.0, 0.0);
        for i in 0..50_000 {
            // A third of all packets have a fixed length.
            let len_bytes = if i % 3 == 0 {
                74
            } else {
                let class = sizes.class(&mut draw);
                sizes.draw(class, &mut draw)
            };
            sizes.count(len_bytes);
            small += f64::from(u8::from(len_bytes < 80)) / 5e4;
            large += f64::from(u8::from(len_bytes >= 1400)) / 5e4;
            bytes += f64::from(len_bytes) / 5e4;
            assert!((60..=1514).contains(&len_bytes));
        }
        // A third exceeds the small share of 0.3: the other two classes keep their ratio.
        assert!((small - 1.0 / 3.0).abs() < 0.01, "{small}");
        assert!((large / (1.0 - small) - 0.48 / 0.7).abs() < 0.03, "{large}");
        assert!((bytes / 778.0 - 1.0).abs() < 0.03, "{bytes}");
    }
}
