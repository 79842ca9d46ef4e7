/// Random values that depend on the seed alone.
///
/// # Source
/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// A generator with the seed in the environment variable `FLOWLOOM_SEED` (decimal, or hexadecimal after `0x`), or this
    /// one. Prints the seed on stderr, where the test runner shows it if the test fails.
    ///
    /// # Panics
    /// `FLOWLOOM_SEED` is set to something else.
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
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next_u64()) * end as u128) >> 64) as usize
    }

    /// True in `num` of `den` cases.
    pub fn chance(&mut self, num: usize, den: usize) -> bool {
        self.below(den) < num
    }

    /// One of these.
    ///
    /// # Panics
    /// There are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// So many random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64() as u8).collect()
    }

    /// A generator of its own: what one part of a test draws does not change what another gets.
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
    fn the_published_sequence() {
        // First outputs of the reference implementation for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_below_reach_both_ends() {
        let mut rng = Rng::new(1);
        let drawn: Vec<usize> = (0..200).map(|_| rng.below(3)).collect();
        assert!((0..3).all(|n| drawn.contains(&n)) && drawn.iter().all(|&n| n < 3));
        assert_eq!(rng.below(0), 0);
        assert_eq!(parse_seed("0x10"), Some(16));
        assert_eq!(parse_seed("ten"), None);
    }
}
