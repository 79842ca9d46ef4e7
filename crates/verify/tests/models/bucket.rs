//! The policer beside token buckets.

use flowloom_engine::{Choices, Packet, Port, Verdict};
use flowloom_testkit::{PacketBuilder, Rng};

use super::{engines, function};

/// 32 bits of microseconds.
const WRAP_NS: u64 = (1 << 32) * 1000;
const SECOND_NS: u64 = 1_000_000_000;
const HOSTS: usize = 4;

/// A token bucket in nanoseconds that never wraps: a token is `interval_ns` high.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    interval_ns: i128,
    full_ns: i128,
    /// What must be in it for a packet to pass.
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

    /// Brings the level up to date; says whether the bucket is full.
    fn fill(&mut self, now_ns: u64) -> bool {
        self.level_ns = (self.level_ns + i128::from(now_ns - self.at_ns)).min(self.full_ns);
        self.at_ns = now_ns;
        self.level_ns == self.full_ns
    }

    /// Takes a token if it may.
    fn take(&mut self) -> bool {
        let passes = self.level_ns >= self.needed_ns;
        if passes {
            self.level_ns -= self.interval_ns;
            self.passed += 1;
        }
        passes
    }
}

/// What a host sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// More than it may, without a pause.
    Flood,
    /// Everything, one after the other: floods, packets at the very rate, now and then a packet, bursts, silences around the
    /// time that the policer remembers a host, and around half a wrap and a whole one of its registers.
    Mixed,
}

/// How a host goes on until the next change.
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
    /// How long after its packet the next one comes.
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

/// What a run counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub packets: u64,
    pub passed: u64,
    /// What the bucket passed.
    pub in_bucket: u64,
    /// The most that one host's counts were apart.
    pub apart: u64,
    /// What the bucket passed that wants a whole token.
    pub in_strict: u64,
    /// The most that one host's counts and those of that bucket were apart since both were full.
    pub strict_apart: u64,
    /// How often the microseconds of the registers wrapped.
    pub wraps: u64,
}

/// Runs the policer on every engine beside a token bucket for each host, and says what was counted.
///
/// The bucket passes a packet once the next token has begun to come, as the paper's rows do: `level > 0`. A second one
/// wants a whole token.
///
/// # Panics
/// Engines part; a host's count and that of its bucket are more than a burst apart at any moment; or more than a packet
/// and the strict bucket since both were full.
pub fn run(test: &str, seed: u64, interval_us: u64, burst: u64, start_ns: u64, traffic: Traffic, packets: u64) -> Tally {
    let title = format!("seed {seed}, interval {interval_us} us, burst {burst}, start {start_ns}, {traffic:?}");
    let params = [("interval", format!("{interval_us}us")), ("burst", burst.to_string())];
    let policer = function("policer", &params);
    let mut engines = engines(&policer, test);
    let interval_ns = interval_us * 1000;
    let mut rng = Rng::new(seed);
    let frames: Vec<Vec<u8>> = (0..HOSTS as u8)
        .map(|i| match i % 2 {
            0 => PacketBuilder::new().ipv4([10, 0, 0, i], [10, 1, 0, 1]).udp(1, 2).build(),
            _ => PacketBuilder::new().ipv6([i; 16], [9; 16]).udp(1, 2).build(),
        })
        .collect();
    let mut senders: Vec<Sender> = (0..HOSTS)
        .map(|_| Sender { rng: rng.fork(), mood: Mood::Flood, left: 0, next_ns: start_ns })
        .collect();
    let mut buckets = [Bucket { at_ns: start_ns, ..Bucket::new(interval_ns, burst, 1) }; HOSTS];
    let mut strict = [Bucket { at_ns: start_ns, ..Bucket::new(interval_ns, burst, interval_ns.into()) }; HOSTS];
    let mut passed = [0u64; HOSTS];
    let mut passed_before = [(0u64, 0u64); HOSTS];
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

        let is_full = buckets[host].fill(now_ns) & strict[host].fill(now_ns);
        if is_full {
            passed_before[host] = (passed[host] - u64::from(verdicts[0] == Verdict::Pass), strict[host].passed);
        }
        let (_, _) = (buckets[host].take(), strict[host].take());
        let apart = passed[host].abs_diff(buckets[host].passed);
        assert!(apart <= burst, "{title}: packet {number} at {now_ns}: {apart} packets apart");
        tally.apart = tally.apart.max(apart);
        let (before, strict_before) = passed_before[host];
        let strict_apart = (passed[host] - before).abs_diff(strict[host].passed - strict_before);
        // Times are rounded down, so that a token may be there a microsecond early.
        assert!(strict_apart <= 2, "{title}: packet {number} at {now_ns}: {strict_apart} packets apart");
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

/// Times at which a run begins: 0, and shortly before the registers wrap, or are half round.
pub fn starts_ns() -> [u64; 4] {
    [0, WRAP_NS / 2 - SECOND_NS / 1000, WRAP_NS - SECOND_NS / 500, 1000 * WRAP_NS - 1]
}
