// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flow scheduler: packets wait while another packet of their flow is between its read and its write; packets of
//! other flows overtake them.
//!
//! ```text
//!              ┌─ queue 0 ─┐
//!  packet ─key─┼─ queue 1 ─┼─► one a cycle, the oldest whose key is not on the scoreboard
//!              └─ no key ──┘
//! ```
//!
//! A key always maps to the same queue, so that packets of a flow keep their order. Packets that do not access the map
//! have a queue of their own and never wait for a key. A packet whose queue is empty and whose key is free passes at
//! once.
//!
//! # Source
//! [FlowBlaze 4.3]

use super::packets::Number;
use flowloom_plan::{Arbiter, MapTiming};

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    packet: Number,
    key: u64,
    /// Its position in the order of arrival.
    order: u64,
}

/// A ring buffer of waiting packets.
#[derive(Debug, Clone, Copy, Default)]
struct Queue {
    head: u32,
    len: u32,
    longest: u32,
}

#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) map: usize,
    arbiter: Arbiter,
    depth: u32,
    /// The slots of all queues, one queue after the other.
    slots: Vec<Waiting>,
    stride: usize,
    queues: Vec<Queue>,
    /// Bit masks of the queues that hold packets, and of those whose head may leave.
    occupied: u64,
    ready: u64,
    /// By queue, when its head may leave on the clock of the pipe after it, if known; and the first of these times.
    waits: Vec<u64>,
    first_wait: u64,
    /// The queue that round robin asks first.
    turn: u32,
    /// The scoreboard: the keys of packets between their read and their write, and when they are released. If the hold
    /// is constant it has as many entries as cycles in a hold, and the oldest one is overwritten.
    busy: Vec<(u64, u64)>,
    hold_cycles: Option<u64>,
    oldest_busy: usize,
    arrivals: u64,
    /// By queue, the arrival order of its head.
    orders: Vec<u64>,
    /// The queue that issues next.
    chosen: usize,
    pub(super) overtakings: u64,
}

impl Scheduler {
    pub(super) fn new(map: usize, timing: &MapTiming, arbiter: Arbiter, hold_cycles: Option<u64>) -> Scheduler {
        let MapTiming { queues, queue_depth: depth, .. } = *timing;
        let stride = depth.next_power_of_two() as usize;
        Scheduler {
            map,
            arbiter,
            depth,
            slots: vec![Waiting::default(); stride * (queues as usize + 1)],
            stride,
            queues: vec![Queue::default(); queues as usize + 1],
            occupied: 0,
            ready: 0,
            turn: 0,
            busy: vec![(0, 0); hold_cycles.unwrap_or(0) as usize],
            hold_cycles,
            oldest_busy: 0,
            waits: vec![0; queues as usize + 1],
            first_wait: u64::MAX,
            arrivals: 0,
            orders: vec![0; queues as usize + 1],
            chosen: 0,
            overtakings: 0,
        }
    }

    /// The queue of a key; the last one for packets without a key.
    fn queue_of(&self, key: Option<u64>) -> usize {
        let keyed = self.queues.len() - 1;
        match key {
            Some(key) => (((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * keyed as u64) >> 32) as usize,
            None => keyed,
        }
    }

    /// When a key is released, on the clock of the pipe after it.
    fn free_at(&self, key: u64) -> u64 {
        self.busy.iter().filter(|(busy, _)| *busy == key).map(|(_, free_at)| *free_at).max().unwrap_or(0)
    }

    /// A packet becomes the head of its queue.
    fn begin(&mut self, number: usize, key: Option<u64>, clock: u64) {
        let free_at = key.map_or(0, |key| self.free_at(key));
        if free_at <= clock {
            self.ready |= 1 << number;
        } else {
            self.waits[number] = free_at;
            self.first_wait = self.first_wait.min(free_at);
        }
    }

    /// Adds a packet to its queue; returns whether there was room.
    pub(super) fn enter(&mut self, packet: Number, key: Option<u64>, clock: u64) -> bool {
        let number = self.queue_of(key);
        if self.queues[number].len == self.depth {
            return false;
        }
        if self.occupied >> number & 1 == 0 {
            self.occupied |= 1 << number;
            self.orders[number] = self.arrivals;
            self.begin(number, key, clock);
        }
        let queue = &mut self.queues[number];
        let at = (queue.head + queue.len) as usize & (self.stride - 1);
        self.slots[number * self.stride + at] = Waiting { packet, key: key.unwrap_or(0), order: self.arrivals };
        queue.len += 1;
        queue.longest = queue.longest.max(queue.len);
        self.arrivals += 1;
        true
    }

    fn first(&self, queue: usize) -> Waiting {
        self.slots[queue * self.stride + (self.queues[queue].head as usize & (self.stride - 1))]
    }

    /// Whether a packet may leave.
    pub(super) fn is_ready(&self) -> bool {
        self.ready != 0
    }

    /// When a waiting head may leave, on the clock of the pipe after it.
    pub(super) fn first_wait(&self) -> u64 {
        self.first_wait
    }

    /// Updates the queues whose hold has ended.
    fn wake(&mut self, clock: u64) {
        self.first_wait = u64::MAX;
        let mut remaining = self.occupied & !self.ready;
        while remaining != 0 {
            let number = remaining.trailing_zeros() as usize;
            if self.waits[number] <= clock {
                self.ready |= 1 << number;
            } else {
                self.first_wait = self.first_wait.min(self.waits[number]);
            }
            remaining &= remaining - 1;
        }
    }

    /// The packet that leaves next, if one may.
    #[inline]
    pub(super) fn next(&mut self, clock: u64) -> Option<Number> {
        // Most cycles have nothing to update.
        if self.ready == 0 && self.first_wait > clock { None } else { self.choose(clock) }
    }

    fn choose(&mut self, clock: u64) -> Option<Number> {
        if self.first_wait <= clock {
            self.wake(clock);
        }
        let all = self.ready;
        if all == 0 {
            return None;
        }
        self.chosen = match self.arbiter {
            Arbiter::Oldest => self.oldest(all),
            Arbiter::Turns => {
                let later = all >> self.turn << self.turn;
                if later != 0 { later } else { all }.trailing_zeros() as usize
            }
        };
        Some(self.first(self.chosen).packet)
    }

    /// The queue among these whose head arrived first.
    fn oldest(&self, mut queues: u64) -> usize {
        let mut oldest = queues.trailing_zeros() as usize;
        queues &= queues - 1;
        while queues != 0 {
            let queue = queues.trailing_zeros() as usize;
            if self.orders[queue] < self.orders[oldest] {
                oldest = queue;
            }
            queues &= queues - 1;
        }
        oldest
    }

    /// Whether the head of one of these queues arrived before `order`.
    fn is_older(&self, mut queues: u64, order: u64) -> bool {
        while queues != 0 {
            if self.orders[queues.trailing_zeros() as usize] < order {
                return true;
            }
            queues &= queues - 1;
        }
        false
    }

    /// Removes the packet that [`Scheduler::next`] returned.
    pub(super) fn pop(&mut self, clock: u64) {
        let number = self.chosen;
        let (key, order) = (self.first(number).key, self.orders[number]);
        let others = match self.arbiter {
            Arbiter::Oldest => self.occupied & !self.ready,
            Arbiter::Turns => self.occupied,
        };
        self.overtakings += u64::from(self.is_older(others, order));
        let keyed = self.queues.len() - 1;
        if number < keyed {
            match self.hold_cycles {
                None => self.busy.push((key, u64::MAX)),
                Some(hold_cycles) => {
                    self.busy[self.oldest_busy] = (key, clock + hold_cycles);
                    self.oldest_busy = if self.oldest_busy + 1 == self.busy.len() { 0 } else { self.oldest_busy + 1 };
                }
            }
        }
        let queue = &mut self.queues[number];
        queue.head = queue.head.wrapping_add(1);
        queue.len -= 1;
        let is_empty = queue.len == 0;
        self.ready &= !(1 << number);
        if is_empty {
            self.occupied &= !(1 << number);
        } else {
            let first = self.first(number);
            self.orders[number] = first.order;
            self.begin(number, (number < keyed).then_some(first.key), clock);
        }
        self.turn = if number == keyed { 0 } else { number as u32 + 1 };
    }

    /// Releases the key of a packet that has written, where releases are explicit.
    pub(super) fn release(&mut self, key: u64) {
        let Some(at) = self.busy.iter().position(|(busy, _)| *busy == key) else { return };
        self.busy.swap_remove(at);
        let number = self.queue_of(Some(key));
        if self.occupied >> number & 1 == 1 && self.first(number).key == key {
            self.ready |= 1 << number;
        }
    }

    /// The maximum fill of each queue; the last one is that of packets without a key.
    pub(super) fn longest(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.iter().map(|queue| queue.longest)
    }
}
