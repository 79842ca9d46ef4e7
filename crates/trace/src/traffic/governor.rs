// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits new flows: a maximum in any millisecond, a mean rate per second.

use std::collections::VecDeque;

use crate::flows::NEW_WINDOW_NS;

/// True if a packet's source, address pair and 5-tuple, respectively, are seen for the first time.
pub(super) type Novelty = [bool; 3];

/// Sliding-window limiter: caps the number of new flows in any millisecond, per key.
#[derive(Debug)]
pub(super) struct Governor {
    limits: [usize; 3],
    pub(super) recent_ns: [VecDeque<u64>; 3],
}

impl Governor {
    pub(super) fn new(limits: [usize; 3]) -> Governor {
        Governor { limits, recent_ns: [const { VecDeque::new() }; 3] }
    }

    /// Number of new flows that the millisecond ending now still admits, per key.
    pub(super) fn quota(&mut self, now_ns: u64) -> [usize; 3] {
        for recent_ns in &mut self.recent_ns {
            while recent_ns.front().is_some_and(|&then_ns| now_ns - then_ns >= NEW_WINDOW_NS) {
                recent_ns.pop_front();
            }
        }
        [0, 1, 2].map(|key| self.limits[key].saturating_sub(self.recent_ns[key].len()))
    }

    /// True if a packet with this novelty is admitted now, which is accounted for.
    pub(super) fn admit(&mut self, novelty: Novelty, now_ns: u64) -> bool {
        let quota = self.quota(now_ns);
        let is_admitted = novelty.iter().zip(quota).all(|(is_new, quota)| !is_new || quota > 0);
        for (recent_ns, _) in self.recent_ns.iter_mut().zip(novelty).filter(|(_, is_new)| *is_new && is_admitted) {
            recent_ns.push_back(now_ns);
        }
        is_admitted
    }
}

/// Token bucket of new flows per key: earns a number per second, and each new flow pays. A burst may overdraw it.
#[derive(Debug)]
pub(super) struct Credit {
    per_second: [f64; 3],
    due: [f64; 3],
}

impl Credit {
    pub(super) fn new(per_second: [f64; 3], first: [f64; 3]) -> Credit {
        Credit { per_second, due: first }
    }

    pub(super) fn earn(&mut self, seconds: f64) {
        for (due, per_second) in self.due.iter_mut().zip(self.per_second) {
            *due += per_second * seconds;
        }
    }

    pub(super) fn covers(&self, cost: [u8; 3]) -> bool {
        self.due.iter().zip(cost).all(|(due, cost)| cost == 0 || *due >= f64::from(cost))
    }

    pub(super) fn pay(&mut self, cost: [u8; 3]) {
        for (due, cost) in self.due.iter_mut().zip(cost) {
            *due -= f64::from(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_per_millisecond_is_exact() {
        let mut governor = Governor::new([1, 2, 3]);
        let new = |source, pair| [source, pair, true];
        assert_eq!(governor.quota(5), [1, 2, 3]);
        assert!(governor.admit(new(true, true), 5));
        assert!(!governor.admit(new(true, true), 6) && governor.admit(new(false, true), 6));
        assert!(governor.admit(new(false, false), 7) && !governor.admit(new(false, false), 7));
        assert_eq!(governor.quota(1_000_004), [0, 0, 0]);
        assert_eq!(governor.quota(1_000_005), [1, 1, 1]);
        assert!(governor.admit([false; 3], 1_000_006));
    }

    #[test]
    fn credit_accumulates_and_is_consumed() {
        let mut credit = Credit::new([1.0, 2.0, 4.0], [0.0; 3]);
        credit.earn(1.0);
        assert!(credit.covers([1, 2, 2]) && !credit.covers([0, 3, 0]));
        credit.pay([1, 2, 5]);
        assert!(!credit.covers([0, 0, 1]) && credit.covers([0, 0, 0]));
        credit.earn(0.5);
        assert!(credit.covers([0, 1, 1]));
    }
}
