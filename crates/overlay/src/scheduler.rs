// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flow scheduler of an element, cycle by cycle: a header waits while another header of its flow is in flight.
//!
//! ```text
//!                      ┌─► queue 0 ──┐
//!  header, hash ─scale─┼─► queue 1 ──┼─ round robin ─► element
//!                      └─► queue Q-1 ┘       ▲
//!                                            └── hashes of the last grants
//! ```
//!
//! In each cycle:
//!
//! 1. At most one header enters. Its queue is its hash scaled to the number of queues, so that headers of a flow keep
//!    their order. A queue that is full at the begin of the cycle refuses the header, which holds the input: no header
//!    enters before it.
//! 2. At most one header is granted: round robin from the queue after the last one that was granted, the head of the
//!    first queue whose hash is not in flight. An empty queue is transparent: a header may be granted in the cycle in
//!    which it enters.
//!
//! A hash is in flight for fewer than `hold_cycles` cycles after its grant. Two flows with the same hash wait for each
//! other.
//!
//! # Source
//! [FlowBlaze 4.3, Table 4]

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::error::{OverlayError, check_ranges};
use crate::parameters::Parameters;

/// Accepted distances between grants of the same hash.
pub(crate) const HOLD_CYCLES: RangeInclusive<u64> = 1..=64;

/// The parameters of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerParameters {
    /// nq: queues, 1 to 64.
    pub queues: u32,
    /// mqs: headers that a queue holds, 1 to 65,536.
    pub queue_depth: u32,
    /// Least distance between grants of the same hash, 1 to 64. With 1, no header waits for its flow.
    pub hold_cycles: u32,
    /// Bits of FK1, the hash of the flow key, 1 to 16.
    pub hash_bits: u32,
}

impl SchedulerParameters {
    /// Bits of FK1 in a machine.
    pub const HASH_BITS: u32 = 16;

    /// The scheduler of a machine whose element holds a flow for a number of cycles.
    pub fn of(machine: &Parameters, hold_cycles: u32) -> SchedulerParameters {
        let Parameters { queues, queue_depth, .. } = *machine;
        SchedulerParameters { queues, queue_depth, hold_cycles, hash_bits: Self::HASH_BITS }
    }

    /// Checks that a scheduler can have these parameters.
    ///
    /// # Errors
    /// If one is out of its range.
    pub fn validate(&self) -> Result<(), OverlayError> {
        check_ranges(&[
            ("queues", self.queues.into(), 1, 64),
            ("queue_depth", self.queue_depth.into(), 1, 1 << 16),
            ("hold_cycles", self.hold_cycles.into(), *HOLD_CYCLES.start(), *HOLD_CYCLES.end()),
            ("hash_bits", self.hash_bits.into(), 1, 16),
        ])
    }
}

/// A granted header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The cycle in which the header leaves for the element.
    pub cycle: u64,
    /// The tag with which the header was offered.
    pub tag: u64,
}

/// A header in a queue.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    hash: u16,
    tag: u64,
}

/// A scheduler, driven header by header: an outer model offers headers in the order of their cycles, and receives the
/// grants.
///
/// ```
/// use flowloom_overlay::{Grant, Scheduler, SchedulerParameters};
///
/// let parameters = SchedulerParameters { queues: 1, queue_depth: 20, hold_cycles: 5, hash_bits: 16 };
/// let (mut scheduler, mut grants) = (Scheduler::new(parameters)?, Vec::new());
/// // Two headers of one flow, then one of another flow.
/// for (tag, (cycle, hash)) in [(10, 7), (12, 7), (14, 8)].into_iter().enumerate() {
///     scheduler.offer(cycle, hash, tag as u64, &mut grants);
/// }
/// scheduler.drain(&mut grants);
/// assert_eq!(grants.iter().map(|grant| grant.cycle).collect::<Vec<_>>(), [10, 15, 16]);
/// # Ok::<(), flowloom_overlay::OverlayError>(())
/// ```
///
/// # Cost
/// A grant compares the heads of the occupied queues with at most `hold_cycles - 1` hashes; idle cycles cost nothing.
#[derive(Debug, Clone)]
pub struct Scheduler {
    parameters: SchedulerParameters,
    queues: Vec<VecDeque<Waiting>>,
    /// Bit mask of the queues that hold headers.
    occupied: u64,
    /// Cycles and hashes of the last grants, at most `hold_cycles - 1`, the oldest first.
    in_flight: VecDeque<(u64, u16)>,
    /// The queue that round robin considers first.
    turn: u32,
    /// The first cycle whose grant is not determined.
    now: u64,
    /// The first cycle in which a header may enter.
    free: u64,
}

impl Scheduler {
    /// Creates a scheduler without headers, at cycle 0.
    ///
    /// # Errors
    /// If a parameter is out of its range.
    pub fn new(parameters: SchedulerParameters) -> Result<Scheduler, OverlayError> {
        parameters.validate()?;
        let depth = parameters.queue_depth as usize;
        Ok(Scheduler {
            parameters,
            queues: (0..parameters.queues).map(|_| VecDeque::with_capacity(depth)).collect(),
            occupied: 0,
            in_flight: VecDeque::with_capacity(parameters.hold_cycles as usize),
            turn: 0,
            now: 0,
            free: 0,
        })
    }

    /// Offers a header from `cycle` on, with the low `hash_bits` of `hash`, and appends the grants of all cycles before
    /// its entry. Returns the cycle in which the header enters: `cycle`, or the first later one in which the previous
    /// header has entered and the header's queue has room.
    pub fn offer(&mut self, cycle: u64, hash: u16, tag: u64, grants: &mut Vec<Grant>) -> u64 {
        let hash = hash & (u16::MAX >> (u16::BITS - self.parameters.hash_bits));
        let queue = ((u64::from(hash) * u64::from(self.parameters.queues)) >> self.parameters.hash_bits) as usize;
        let mut entry = cycle.max(self.free);
        while let Some((cycle, queue)) = self.next_grant()
            && cycle < entry
        {
            grants.push(self.grant(cycle, queue));
        }
        self.now = self.now.max(entry);
        while self.queues[queue].len() == self.parameters.queue_depth as usize {
            let (cycle, queue) = self.next_grant().expect("a full queue has a head");
            grants.push(self.grant(cycle, queue));
            entry = self.now;
        }
        self.queues[queue].push_back(Waiting { hash, tag });
        self.occupied |= 1 << queue;
        self.free = entry + 1;
        entry
    }

    /// Appends the grants of all headers that wait.
    pub fn drain(&mut self, grants: &mut Vec<Grant>) {
        while let Some((cycle, queue)) = self.next_grant() {
            grants.push(self.grant(cycle, queue));
        }
        self.free = self.free.max(self.now);
    }

    /// Number of headers that wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// The first cycle in which a hash may be granted.
    fn release(&self, hash: u16) -> u64 {
        let last = self.in_flight.iter().rev().find(|(_, granted)| *granted == hash);
        last.map_or(0, |(cycle, _)| cycle + u64::from(self.parameters.hold_cycles))
    }

    /// Cycle and queue of the next grant, if no header enters before it.
    #[inline]
    fn next_grant(&self) -> Option<(u64, usize)> {
        let later = self.occupied >> self.turn << self.turn;
        let mut best: Option<(u64, usize)> = None;
        for mut queues in [later, self.occupied & !later] {
            while queues != 0 {
                let queue = queues.trailing_zeros() as usize;
                queues &= queues - 1;
                let head = self.queues[queue].front().expect("an occupied queue has a head");
                let cycle = self.release(head.hash).max(self.now);
                if cycle == self.now {
                    // No queue has an earlier cycle, and those before it in turn have later ones.
                    return Some((cycle, queue));
                }
                if best.is_none_or(|(first, _)| cycle < first) {
                    best = Some((cycle, queue));
                }
            }
        }
        best
    }

    /// Grants the head of a queue.
    fn grant(&mut self, cycle: u64, queue: usize) -> Grant {
        let head = self.queues[queue].pop_front().expect("a granted queue has a head");
        if self.queues[queue].is_empty() {
            self.occupied &= !(1 << queue);
        }
        self.turn = (queue as u32 + 1) % self.parameters.queues;
        self.now = cycle + 1;
        if self.parameters.hold_cycles > 1 {
            if self.in_flight.len() as u32 == self.parameters.hold_cycles - 1 {
                self.in_flight.pop_front();
            }
            self.in_flight.push_back((cycle, head.hash));
        }
        Grant { cycle, tag: head.tag }
    }

    /// Checks what holds between two calls.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check_invariants(&self) {
        let SchedulerParameters { queue_depth, hold_cycles, .. } = self.parameters;
        for (number, queue) in self.queues.iter().enumerate() {
            assert!(queue.len() <= queue_depth as usize, "queue {number} has {} headers", queue.len());
            assert_eq!(self.occupied >> number & 1 == 1, !queue.is_empty(), "mask of queue {number}");
        }
        assert!(self.in_flight.len() < hold_cycles as usize);
        let grants = self.in_flight.iter().zip(self.in_flight.iter().skip(1));
        assert!(grants.clone().all(|((cycle, _), (next, _))| cycle < next), "grants are in order");
        assert!(self.in_flight.iter().all(|(cycle, _)| *cycle < self.now), "grants are before the present cycle");
    }
}

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
