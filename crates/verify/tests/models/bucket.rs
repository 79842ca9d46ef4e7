// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the policer with token buckets.

use flowloom_engine::{Choices, Packet, Port, Verdict};
use flowloom_testkit::{PacketBuilder, Rng};

use super::engines;
use crate::common::shipped::function;

/// Range of 32 bits of microseconds.
const WRAP_NS: u64 = (1 << 32) * 1000;
const SECOND_NS: u64 = 1_000_000_000;
const HOSTS: usize = 4;

/// A token bucket in nanoseconds that never wraps: a token is `interval_ns` of level.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    interval_ns: i128,
    full_ns: i128,
    /// Level at which a packet passes.
    needed_ns: i128,
    level_ns: i128,
    at_ns: u64,
    passed: u64,
}

impl Bucket {
    fn new(interval_ns: u64, burst: u64, needed_ns: i128) -> Bucket {
        let full_ns = i128::from(burst) * i128::from(interval_ns);
        Bucket { interval_ns: interval_ns.into(), full_ns, needed_ns, level_ns: full_ns, at_ns: 0, passed: 0 }
    }

    /// Takes a token if the level suffices.
    fn take(&mut self, now_ns: u64) {
        self.level_ns = (self.level_ns + i128::from(now_ns - self.at_ns)).min(self.full_ns);
        self.at_ns = now_ns;
        if self.level_ns >= self.needed_ns {
            self.level_ns -= self.interval_ns;
            self.passed += 1;
        }
    }
}

/// Traffic of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Above the rate, continuously.
    Flood,
    /// A mix: floods, packets at exactly the rate, rare packets, bursts, silences around the policer's timeout for a
    /// host, and around half a wrap and a full wrap of its registers.
    Mixed,
}

/// Current traffic pattern of a host.
#[derive(Debug, Clone, Copy)]
enum Mood {
    Flood,
    Rate,
    Sparse,
    Bursts,
    Silences,
}

struct Sender {
    rng: Rng,
    mood: Mood,
    left: usize,
    next_ns: u64,
}

impl Sender {
    /// Gap until the next packet.
    fn gap_ns(&mut self, traffic: Traffic, interval_ns: u64, burst: u64) -> u64 {
        let rng = &mut self.rng;
        let below = |rng: &mut Rng, end_ns: u64| rng.below(end_ns as usize + 1) as u64;
        if traffic == Traffic::Flood {
            return below(rng, interval_ns);
        }
        if self.left == 0 {
            self.left = 1 + rng.below(4 * burst as usize + 20);
            self.mood = *rng.pick(&[Mood::Flood, Mood::Rate, Mood::Sparse, Mood::Bursts, Mood::Silences]);
        }
        self.left -= 1;
        match self.mood {
            Mood::Flood => below(rng, interval_ns / 2),
            Mood::Rate => (interval_ns - 1) + below(rng, 2),
            Mood::Sparse => below(rng, 3 * interval_ns),
            Mood::Bursts if rng.chance(1, burst as usize + 2) => below(rng, (burst + 2) * interval_ns),
            Mood::Bursts => 0,
            Mood::Silences if rng.chance(9, 10) => below(rng, interval_ns),
            Mood::Silences => {
                let remembered_ns = (burst + 1) * interval_ns + 10 * SECOND_NS;
                let around = [remembered_ns, WRAP_NS / 2, WRAP_NS, 3 * WRAP_NS, 3600 * SECOND_NS, burst * interval_ns];
                let (about, spread) = (*rng.pick(&around), *rng.pick(&[2, 2000, 2 * interval_ns]));
                (about + below(rng, 2 * spread)).saturating_sub(spread)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub packets: u64,
    pub passed: u64,
    /// Packets that the bucket passed.
    pub in_bucket: u64,
    /// Maximum difference between a host's count and its bucket's.
    pub apart: u64,
    /// Packets that the whole-token bucket passed.
    pub in_strict: u64,
    /// Maximum difference between a host's count and that bucket's.
    pub strict_apart: u64,
    /// Number of wraps of the registers' microseconds.
    pub wraps: u64,
}

/// Runs the policer on every engine against three token buckets per host and returns the counts.
///
/// - One passes a packet once the next token has begun to arrive, like the paper's rows, with a clock in whole
///   microseconds, like the policer: both must be equal.
/// - One has a nanosecond clock.
/// - A strict one requires a whole token. With sparse packets it overflows more than the others, so it is compared with
///   the policer in a flood only.
///
/// # Panics
/// Engines disagree; the policer differs from the first bucket; or a host's count and that of its second bucket, in a
/// flood also of the third, are ever more than a burst apart.
pub fn run(
    test: &str,
    seed: u64,
    interval_us: u64,
    burst: u64,
    start_ns: u64,
    traffic: Traffic,
    packets: u64,
) -> Tally {
    let title = format!("seed {seed}, interval {interval_us} us, burst {burst}, start {start_ns}, {traffic:?}");
    let (interval, tokens) = (format!("{interval_us}us"), burst.to_string());
    let policer = function("policer", &[("interval", &interval), ("burst", &tokens)]);
    let mut engines = engines(&policer, test);
    let interval_ns = interval_us * 1000;
    let mut rng = Rng::new(seed);
    let frames: Vec<Vec<u8>> = (0..HOSTS as u8)
        .map(|i| match i % 2 {
            0 => PacketBuilder::new().ipv4([10, 0, 0, i], [10, 1, 0, 1]).udp(1, 2).build(),
            _ => PacketBuilder::new().ipv6([i; 16], [9; 16]).udp(1, 2).build(),
        })
        .collect();
    let mut senders: Vec<Sender> =
        (0..HOSTS).map(|_| Sender { rng: rng.fork(), mood: Mood::Flood, left: 0, next_ns: start_ns }).collect();
    let bucket = |needed_ns| [Bucket::new(interval_ns, burst, needed_ns); HOSTS];
    let (mut same, mut buckets, mut strict) = (bucket(1), bucket(1), bucket(interval_ns.into()));
    let mut passed = [0u64; HOSTS];
    let mut tally = Tally::default();
    let mut now_ns = start_ns;
    for number in 0..packets {
        let host = (0..HOSTS).min_by_key(|&h| senders[h].next_ns).unwrap();
        now_ns = now_ns.max(senders[host].next_ns);
        if rng.chance(1, 50) {
            engines.iter_mut().for_each(|engine| engine.sweep(now_ns).unwrap());
        }
        let packet = Packet { bytes: &frames[host], port: Port(1) };
        let choices = Choices::seeded(now_ns, 0, number);
        let verdicts: Vec<Verdict> =
            engines.iter_mut().map(|engine| engine.process(&packet, &choices).unwrap().verdict).collect();
        assert!(verdicts.iter().all(|v| *v == verdicts[0]), "{title}: packet {number} at {now_ns}: {verdicts:?}");
        passed[host] += u64::from(verdicts[0] == Verdict::Pass);

        same[host].take(now_ns / 1000 * 1000);
        buckets[host].take(now_ns);
        strict[host].take(now_ns);
        assert_eq!(passed[host], same[host].passed, "{title}: packet {number} at {now_ns}");
        let apart = passed[host].abs_diff(buckets[host].passed);
        let strict_apart = passed[host].abs_diff(strict[host].passed);
        let most = if traffic == Traffic::Flood { apart.max(strict_apart) } else { apart };
        assert!(most <= burst, "{title}: packet {number} at {now_ns}: {most} packets apart");
        tally.apart = tally.apart.max(apart);
        tally.strict_apart = tally.strict_apart.max(strict_apart);
        senders[host].next_ns = now_ns + senders[host].gap_ns(traffic, interval_ns, burst);
    }
    tally.packets = packets;
    tally.passed = passed.iter().sum();
    tally.in_bucket = buckets.iter().map(|bucket| bucket.passed).sum();
    tally.in_strict = strict.iter().map(|bucket| bucket.passed).sum();
    tally.wraps = now_ns / WRAP_NS - start_ns / WRAP_NS;
    tally
}

/// Start times of runs: 0, and shortly before the registers reach half their range or wrap.
pub fn starts_ns() -> [u64; 4] {
    [0, WRAP_NS / 2 - SECOND_NS / 1000, WRAP_NS - SECOND_NS / 500, 1000 * WRAP_NS - 1]
}
