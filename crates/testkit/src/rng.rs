// SPDX-License-Identifier: Apache-2.0 OR MIT
use flowloom_random::{Draw, SplitMix64};

/// Random values for tests; `FLOWLOOM_SEED` overrides the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(SplitMix64);

impl Rng {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::new(seed))
    }

    /// Creates a generator with the seed in the environment variable `FLOWLOOM_SEED` (decimal, or hexadecimal after
    /// `0x`), or `default`. Prints the seed on stderr, which the test runner shows if the test fails.
    ///
    /// # Panics
    /// `FLOWLOOM_SEED` is not such a number.
    #[allow(
        clippy::print_stderr,
        clippy::panic,
        reason = "tests speak on stderr, and a wrong seed must not pass for another"
    )]
    pub fn from_env(default: u64) -> Rng {
        let seed = match std::env::var("FLOWLOOM_SEED") {
            Ok(text) => match parse_seed(&text) {
                Some(seed) => seed,
                None => panic!("FLOWLOOM_SEED is `{text}`, expected a number of 64 bits"),
            },
            Err(_) => default,
        };
        eprintln!("seed {seed}: repeat with FLOWLOOM_SEED={seed}");
        Rng::new(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    /// True with probability `num` / `den`.
    pub fn chance(&mut self, num: usize, den: usize) -> bool {
        self.below(den) < num
    }

    /// A random item.
    ///
    /// # Panics
    /// `items` is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64() as u8).collect()
    }

    /// Derives an independent generator: draws from one do not change the sequence of the other.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

fn parse_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(parse_seed("0x10"), Some(16));
        assert_eq!(parse_seed("ten"), None);
    }
}
