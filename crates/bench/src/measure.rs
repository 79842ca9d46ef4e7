// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of contenders, taken by turns: times of the thread on the processor, so that other processes count less.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::error::BenchError;

/// A comparison with a peer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    pub(crate) flows: u64,
    pub(crate) ours: String,
    pub(crate) ours_ns: f64,
    pub(crate) peer: String,
    pub(crate) peer_ns: f64,
    /// The median of `peer_ns / ours_ns` over the rounds: both ran one shortly after the other.
    pub(crate) ratio: f64,
    /// The first and the third quartile of the ratio.
    pub(crate) ratio_low: f64,
    pub(crate) ratio_high: f64,
    /// The ratio that is asked for.
    pub(crate) bar: Option<f64>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { name, flows, ours, ours_ns, peer, peer_ns, ratio, ratio_low, ratio_high, bar } = self;
        write!(
            f,
            "{name:<24} {flows:>9}  {ours_ns:>7.1} ns : {peer_ns:>7.1} ns  {ratio:>6.2} ({ratio_low:.2} to {ratio_high:.2})"
        )?;
        if let Some(bar) = bar {
            write!(f, "  bar {bar:.2} {}", if ratio >= bar { "met" } else { "missed" })?;
        }
        write!(f, "  {ours} : {peer}")
    }
}

/// The times of one operation of a contender, by round, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) name: String,
    ns: Vec<f64>,
}

impl Times {
    pub(crate) fn median(&self) -> f64 {
        quantile(&self.ns, 0.5)
    }

    /// The first and the third quartile.
    pub(crate) fn spread(&self) -> (f64, f64) {
        (quantile(&self.ns, 0.25), quantile(&self.ns, 0.75))
    }

    /// This contender as ours, beside a peer.
    pub(crate) fn beside(&self, peer: &Times, name: &str, flows: u64) -> Comparison {
        let ratios: Vec<f64> = self.ns.iter().zip(&peer.ns).map(|(ours, peer)| peer / ours).collect();
        Comparison {
            name: name.to_owned(),
            flows,
            ours: self.name.clone(),
            ours_ns: self.median(),
            peer: peer.name.clone(),
            peer_ns: peer.median(),
            ratio: quantile(&ratios, 0.5),
            ratio_low: quantile(&ratios, 0.25),
            ratio_high: quantile(&ratios, 0.75),
            bar: None,
        }
    }

    /// Prints times that alternate between a harness and its contender, and the contenders' without their harness, which
    /// it returns.
    pub(crate) fn net(what: &str, times: &[Times]) -> Vec<Times> {
        Times::print(what, 0, times);
        let net: Vec<Times> = times.chunks_exact(2).map(|pair| pair[1].without(&pair[0], &pair[1].name)).collect();
        let shown: Vec<Times> = net.iter().map(|times| times.clone().named("net")).collect();
        Times::print(what, 0, &shown);
        net
    }

    /// The times without those of a harness, round by round.
    pub(crate) fn without(&self, harness: &Times, name: &str) -> Times {
        let ns = self.ns.iter().zip(&harness.ns).map(|(whole, harness)| (whole - harness).max(MIN_NET_NS)).collect();
        Times { name: name.to_owned(), ns }
    }

    /// The same times under a name that says more.
    pub(crate) fn named(self, what: &str) -> Times {
        Times { name: format!("{}, {what}", self.name), ..self }
    }

    /// Prints a line for each contender.
    pub(crate) fn print(what: &str, flows: u64, times: &[Times]) {
        for times in times {
            let (low, high) = times.spread();
            println!("{what:<24} {flows:>9}  {:<28} {:>7.1} ns  ({low:.1} to {high:.1})", times.name, times.median());
        }
    }
}

/// What is shorter than its harness takes this time, so that ratios stay finite.
const MIN_NET_NS: f64 = 0.1;

fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The time that a contender takes, without its preparations.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    elapsed: Duration,
    operations: u64,
}

impl Clock {
    /// Runs what is measured; it returns the number of its operations.
    pub(crate) fn time(&mut self, run: impl FnOnce() -> Result<u64, BenchError>) -> Result<(), BenchError> {
        let start = processor_time();
        let operations = run()?;
        self.elapsed += processor_time().saturating_sub(start);
        self.operations += operations;
        Ok(())
    }

    /// Adds what another clock has measured.
    pub(crate) fn add(&mut self, elapsed: Duration, operations: u64) {
        self.elapsed += elapsed;
        self.operations += operations;
    }
}

/// The time since the system was started, in nanoseconds.
#[allow(unsafe_code, reason = "the standard library hides the number")]
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time that it is given. It fails only for unknown clocks.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The time that the thread has spent on a processor.
pub(crate) fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// A contender: a name, and one round of it.
pub(crate) type Contender<'a> = (&'a str, Box<dyn FnMut(&mut Clock) -> Result<(), BenchError> + 'a>);

/// Runs contenders by turns, once to warm up and then `rounds` times each.
pub(crate) fn by_turns(contenders: &mut [Contender<'_>], rounds: usize) -> Result<Vec<Times>, BenchError> {
    let named = contenders.iter().map(|(name, _)| Times { name: (*name).to_owned(), ns: Vec::new() });
    let mut times: Vec<Times> = named.collect();
    for round in 0..=rounds {
        for ((_, run), times) in contenders.iter_mut().zip(&mut times) {
            let mut clock = Clock::default();
            run(&mut clock)?;
            if round > 0 {
                times.ns.push(clock.elapsed.as_nanos() as f64 / clock.operations as f64);
            }
        }
    }
    Ok(times)
}

/// The resident memory of the process in bytes, 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
}
