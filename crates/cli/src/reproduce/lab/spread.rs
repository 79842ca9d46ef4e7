// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of several rounds.

use serde_json::{Value as Json, json};

/// Median and quartiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    /// The spread of at least one value.
    pub(super) fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| sorted[(last as f64 * share).round() as usize];
        Some(Spread { median: at(0.5), low: at(0.25), high: at(0.75) })
    }

    /// `12.3 (12.1 to 12.6)`.
    pub(super) fn text(self, digits: usize) -> String {
        let Spread { median, low, high } = self;
        format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }

    pub(super) fn json(self) -> Json {
        json!({ "median": self.median, "low": self.low, "high": self.high })
    }
}

/// Ratios of values of the same rounds.
pub(super) fn ratio(values: &[f64], others: &[f64]) -> Option<Spread> {
    let ratios: Vec<f64> = values.iter().zip(others).map(|(value, other)| value / other).collect();
    Spread::of(&ratios)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn median_and_quartiles_are_values_of_the_list() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
        assert_eq!(spread.text(1), "3.0 (2.0 to 4.0)");
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The second round was slow for both.
        let spread = ratio(&[4.0, 2.0, 4.0], &[2.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 2.0, 2.0));
    }
}
