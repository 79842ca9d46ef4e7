// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several threads or one for a batch: the way that took less time a packet at the last trial.
//!
//! Threads gain where packets take long. Where they take tens of nanoseconds, handing them over takes longer: a line of
//! the cache takes 100 to 140 ns from core to core, and a waiting thread takes time of a processor from those that send.
//! Results do not depend on the way: state belongs to a core, not to a thread.
//!
//! ```text
//!  trial                            term                        trial
//!  ──┬─ way in use ─┬─ other way ─┬─ the way with less time ──┬─ way in use ─┬─ other way ─┬──
//! ```
//!
//! The time of a batch is that of its spreading and running. It has no part of what threads cost besides: later loads
//! of lines that another core has written, and processor time of the waiting thread. So one thread is the way at first,
//! and a change takes a twentieth less time.

use std::time::{Duration, Instant};

/// The batches of each way in a trial.
const TRIAL: u32 = 16;
/// The first batches of a way in a trial do not count: its thread may sleep, and its lines are in the other cache.
const COLD: u32 = 4;
/// A term ends after this number of batches, or after this time.
const TERM: u32 = 4096;
const TERM_TIME: Duration = Duration::from_secs(1);

/// The threads of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Threads,
    Alone,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Threads => Way::Alone,
            Way::Alone => Way::Threads,
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// The way in use is timed.
    Own,
    /// The other way is timed; the least time of the way in use.
    Other { own_ps: u64 },
    /// Batches run the faster way, since the time of the first one.
    Term(Option<Instant>),
}

/// The choice between several threads and one. Batches should have about the same length.
#[derive(Debug)]
pub struct Pace {
    /// The way in use; in the second part of a trial, batches run the other way.
    way: Way,
    phase: Phase,
    /// The batches that the phase has had.
    batches: u32,
    /// The least time a packet of the phase, in picoseconds: other processes only make batches longer.
    least_ps: u64,
    threaded: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { way: Way::Alone, phase: Phase::Own, batches: 0, least_ps: u64::MAX, threaded: 0 }
    }
}

impl Pace {
    /// Runs a batch of this number of packets: `task` gets true if it is to use several threads.
    pub fn run<T>(&mut self, packets: usize, task: impl FnOnce(bool) -> T) -> T {
        let way = self.due();
        self.threaded += u64::from(way == Way::Threads);
        let began = Instant::now();
        let result = task(way == Way::Threads);
        self.ran(packets, began, began.elapsed());
        result
    }

    /// The batches that were run by several threads.
    pub fn threaded(&self) -> u64 {
        self.threaded
    }

    fn due(&self) -> Way {
        if matches!(self.phase, Phase::Other { .. }) { self.way.other() } else { self.way }
    }

    /// A batch has run the way that was due.
    fn ran(&mut self, packets: usize, began: Instant, spent: Duration) {
        self.batches += 1;
        match self.phase {
            Phase::Term(since) => {
                let since = since.unwrap_or(began);
                let has_ended = self.batches >= TERM || began.duration_since(since) >= TERM_TIME;
                self.phase = Phase::Term(Some(since));
                if has_ended {
                    self.begin(Phase::Own);
                }
            }
            _ if self.batches <= COLD => {}
            _ => self.least_ps = self.least_ps.min(1000 * spent.as_nanos() as u64 / packets.max(1) as u64),
        }
        if self.batches < TRIAL {
            return;
        }
        match self.phase {
            Phase::Own => self.begin(Phase::Other { own_ps: self.least_ps }),
            Phase::Other { own_ps } => {
                if self.least_ps < own_ps - own_ps / 20 {
                    self.way = self.way.other();
                }
                self.begin(Phase::Term(None));
            }
            Phase::Term(_) => {}
        }
    }

    fn begin(&mut self, phase: Phase) {
        (self.phase, self.batches, self.least_ps) = (phase, 0, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ways of batches of 64 packets that take these nanoseconds: with threads, alone. One begins each microsecond.
    fn ways(pace: &mut Pace, batches: u32, times_ns: [u64; 2]) -> Vec<Way> {
        let start = Instant::now();
        let run = |number: u32| {
            let way = pace.due();
            pace.ran(64, start + Duration::from_micros(number.into()), Duration::from_nanos(times_ns[way as usize]));
            way
        };
        (0..batches).map(run).collect()
    }

    #[test]
    fn the_faster_way_is_used_from_a_trial_to_the_next() {
        let mut pace = Pace::default();
        let trial = ways(&mut pace, 2 * TRIAL, [2000, 1900]);
        assert_eq!(trial, [[Way::Alone; 16], [Way::Threads; 16]].concat());
        assert!(ways(&mut pace, TERM, [1, 1900]).iter().all(|way| *way == Way::Alone));
        let trial = ways(&mut pace, 2 * TRIAL, [1800, 1900]);
        assert_eq!(trial, [[Way::Alone; 16], [Way::Threads; 16]].concat());
        assert!(ways(&mut pace, TERM, [1800, 1]).iter().all(|way| *way == Way::Threads));
        // The way in use comes first.
        let trial = ways(&mut pace, 2 * TRIAL, [1800, 1750]);
        assert_eq!(trial, [[Way::Threads; 16], [Way::Alone; 16]].concat());
        assert_eq!(pace.due(), Way::Threads, "a thirtieth less");
    }

    #[test]
    fn the_least_time_counts_and_the_first_ones_do_not() {
        let mut pace = Pace::default();
        ways(&mut pace, TRIAL, [0, 1900]);
        // Were these counted, threads would win.
        ways(&mut pace, COLD, [1, 0]);
        ways(&mut pace, 3, [90_000, 0]);
        ways(&mut pace, 1, [1850, 0]);
        ways(&mut pace, TRIAL - COLD - 4, [90_000, 0]);
        assert_eq!(pace.due(), Way::Alone);
        ways(&mut pace, TERM, [0, 0]);
        ways(&mut pace, TRIAL, [0, 1900]);
        ways(&mut pace, TRIAL - 1, [90_000, 0]);
        ways(&mut pace, 1, [1800, 0]);
        assert_eq!(pace.due(), Way::Threads);
    }

    #[test]
    fn times_are_those_of_a_packet() {
        let mut pace = Pace::default();
        let began = Instant::now();
        (0..TRIAL).for_each(|_| pace.ran(64, began, Duration::from_nanos(6400)));
        (0..TRIAL).for_each(|_| pace.ran(32, began, Duration::from_nanos(3300)));
        assert_eq!(pace.due(), Way::Alone);
        assert!(matches!(pace.phase, Phase::Term(None)));
        // A batch without packets divides by nothing.
        let mut pace = Pace::default();
        (0..TRIAL).for_each(|_| pace.ran(0, began, Duration::ZERO));
    }

    #[test]
    fn a_term_ends_after_its_time_too() {
        let mut pace = Pace::default();
        let began = Instant::now();
        (0..2 * TRIAL).for_each(|_| pace.ran(1, began, Duration::from_nanos(5)));
        for (seconds, is_over) in [(0, false), (0, false), (1, true)] {
            pace.ran(1, began + Duration::from_secs(seconds), Duration::from_nanos(5));
            assert_eq!(matches!(pace.phase, Phase::Own), is_over, "{seconds}");
        }
    }

    #[test]
    fn a_task_is_told_its_way() {
        let mut pace = Pace::default();
        let told: Vec<bool> = (0..2 * TRIAL).map(|_| pace.run(1, |is_parallel| is_parallel)).collect();
        assert_eq!(told, [[false; 16], [true; 16]].concat());
        assert_eq!(pace.threaded(), u64::from(TRIAL));
    }
}
