// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time of looking for packets before the loop sleeps.
//!
//! A thread that sleeps wakes some tens of microseconds after a packet has arrived. If the next packet comes sooner
//! than that, it is faster to look for it; if it comes later, looking wastes a processor. So the time of looking
//! grows while packets end short waits, and shrinks while they end long ones, as in the halt polling of hypervisors
//! [Linux Documentation/virt/kvm/halt-polling.rst]. Between two looks the processor is offered to other threads,
//! which may be those that send.
//!
//! ```text
//!  packet      packet                        packet           packet
//!  ──┴──looks────┴──looks──────┬──sleeps───────┴──looks─┬─sleeps─┴──
//!                              └─ a long wait: looks shorter     └─ a short wait: looks longer
//! ```

use std::time::{Duration, Instant};

/// The shortest time of looking besides none.
const LEAST: Duration = Duration::from_micros(8);
/// The longest time of looking.
const MOST: Duration = Duration::from_micros(128);
/// The time in which a sleeping thread wakes: 15 to 70 us, the longer times in virtual machines.
const WAKES_IN: Duration = Duration::from_micros(70);

/// The time of looking, and the wait that it is in.
#[derive(Debug)]
pub(super) struct Patience {
    looks_for: Duration,
    /// The time up to which waits are short.
    short: Duration,
    waits_since: Option<Instant>,
    has_slept: bool,
}

impl Patience {
    /// For devices that wake the loop, or whose loop sleeps for `sleep`, whatever arrives. A wait that ends with a
    /// sleep has the time of waking in it.
    pub(super) fn new(sleep: Option<Duration>) -> Patience {
        Patience {
            looks_for: MOST,
            short: MOST + WAKES_IN + sleep.unwrap_or_default(),
            waits_since: None,
            has_slept: false,
        }
    }

    /// Packets have arrived, and were seen by a look at this time.
    pub(super) fn found(&mut self, now: Instant) {
        let Some(since) = self.waits_since.take() else { return };
        if !std::mem::take(&mut self.has_slept) {
            return;
        }
        self.looks_for = if now - since <= self.short {
            (2 * self.looks_for).clamp(LEAST, MOST)
        } else {
            Some(self.looks_for / 2).filter(|half| *half >= LEAST).unwrap_or_default()
        };
    }

    /// True if the loop is to sleep, since nothing has arrived, now neither.
    pub(super) fn sleeps(&mut self, now: Instant) -> bool {
        let since = *self.waits_since.get_or_insert(now);
        self.has_slept |= now - since >= self.looks_for;
        self.has_slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the loop sleeps in a wait of this length.
    fn waits(patience: &mut Patience, start: &mut Instant, wait: Duration) -> bool {
        assert_eq!(patience.sleeps(*start), patience.looks_for.is_zero());
        let sleeps = patience.sleeps(*start + wait);
        *start += wait;
        patience.found(*start);
        sleeps
    }

    #[test]
    fn looking_grows_with_short_waits_and_shrinks_with_long_ones() {
        let (mut patience, mut now) = (Patience::new(None), Instant::now());
        let (short, long) = (Duration::from_micros(40), Duration::from_millis(5));
        assert!(!waits(&mut patience, &mut now, short));
        for _ in 0..5 {
            assert!(waits(&mut patience, &mut now, long));
        }
        assert_eq!(patience.looks_for, Duration::ZERO);
        // A packet that wakes the thread ends the wait later.
        for looks_for in [8, 16, 32, 64] {
            assert!(waits(&mut patience, &mut now, short + WAKES_IN));
            assert_eq!(patience.looks_for, Duration::from_micros(looks_for));
        }
        assert!(!waits(&mut patience, &mut now, short));
        assert_eq!(patience.looks_for, Duration::from_micros(64));
    }

    #[test]
    fn a_wait_goes_on_until_packets_arrive() {
        let (mut patience, now) = (Patience::new(None), Instant::now());
        assert!(!patience.sleeps(now));
        assert!(patience.sleeps(now + MOST));
        assert!(patience.sleeps(now + 2 * MOST));
        patience.found(now + 3 * MOST);
        assert_eq!(patience.looks_for, MOST / 2);
        // Without a wait, nothing is known.
        patience.found(now + 4 * MOST);
        assert_eq!(patience.looks_for, MOST / 2);
    }

    #[test]
    fn a_sleep_that_nothing_ends_may_be_longer() {
        let sleep = Duration::from_micros(100);
        let (mut patience, mut now) = (Patience::new(Some(sleep)), Instant::now());
        assert!(waits(&mut patience, &mut now, MOST + WAKES_IN + sleep));
        assert_eq!(patience.looks_for, MOST);
        assert!(waits(&mut patience, &mut now, MOST + WAKES_IN + 2 * sleep));
        assert_eq!(patience.looks_for, MOST / 2);
    }
}
