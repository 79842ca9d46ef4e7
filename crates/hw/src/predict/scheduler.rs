//! The flow scheduler: packets of a flow wait while one of them is between its read and its write, others overtake them.
//!
//! ```text
//!              ┌─ queue 0 ─┐
//!  packet ─key─┼─ queue 1 ─┼─► one a cycle, the oldest whose key is not on the scoreboard
//!              └─ no key ──┘
//! ```
//!
//! A key always leads to the same queue, so that packets of a flow keep their order. Packets that do not use the map have a
//! queue of their own and never wait for a key. A packet that finds its queue empty and its key free passes at once.
//!
//! # Source
//! [FlowBlaze 4.3]

use super::packets::Number;
use crate::{Arbiter, MapTiming};

/// A packet that waits.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    packet: Number,
    key: u64,
    /// Its place in the order in which packets came.
    order: u64,
}

/// A ring of packets that wait.
#[derive(Debug, Clone, Copy, Default)]
struct Queue {
    head: u32,
    len: u32,
    longest: u32,
}

/// The scheduler of a map.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) map: usize,
    arbiter: Arbiter,
    depth: u32,
    /// The slots of each queue lie one after the other.
    slots: Vec<Waiting>,
    stride: usize,
    queues: Vec<Queue>,
    /// Queues that hold packets, and those whose first one may leave, a bit each.
    occupied: u64,
    ready: u64,
    /// The queue that is asked first.
    turn: u32,
    /// The scoreboard: keys of packets that are between their read and their write.
    busy: Vec<u64>,
    came: u64,
    /// For each queue that holds packets, the order of the first one.
    orders: Vec<u64>,
    /// The queue whose packet leaves next.
    chosen: usize,
    pub(super) overtakings: u64,
}

impl Scheduler {
    pub(super) fn new(map: usize, timing: &MapTiming, arbiter: Arbiter) -> Scheduler {
        let MapTiming { queues, queue_depth: depth, hold_cycles, .. } = *timing;
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
            busy: Vec::with_capacity(hold_cycles as usize + 1),
            came: 0,
            orders: vec![0; queues as usize + 1],
            chosen: 0,
            overtakings: 0,
        }
    }

    /// The queue that a key leads to; the last one for packets without.
    fn queue_of(&self, key: Option<u64>) -> usize {
        let keyed = self.queues.len() - 1;
        match key {
            Some(key) => (((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * keyed as u64) >> 32) as usize,
            None => keyed,
        }
    }

    /// Whether a packet finds room.
    pub(super) fn has_room(&self, key: Option<u64>) -> bool {
        self.queues[self.queue_of(key)].len < self.depth
    }

    /// Takes a packet into its queue.
    pub(super) fn push(&mut self, packet: Number, key: Option<u64>) {
        let number = self.queue_of(key);
        let bit = 1 << number;
        if self.occupied & bit == 0 {
            self.occupied |= bit;
            self.orders[number] = self.came;
            if key.is_none_or(|key| !self.busy.contains(&key)) {
                self.ready |= bit;
            }
        }
        let queue = &mut self.queues[number];
        let at = (queue.head + queue.len) as usize & (self.stride - 1);
        self.slots[number * self.stride + at] = Waiting { packet, key: key.unwrap_or(0), order: self.came };
        queue.len += 1;
        queue.longest = queue.longest.max(queue.len);
        self.came += 1;
    }

    fn first(&self, queue: usize) -> Waiting {
        self.slots[queue * self.stride + (self.queues[queue].head as usize & (self.stride - 1))]
    }

    /// The packet that leaves next, where one may.
    pub(super) fn next(&mut self) -> Option<Number> {
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

    /// Of these queues the one whose first packet came first.
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

    /// Whether the first packet of one of these queues came before this.
    fn is_older(&self, mut queues: u64, order: u64) -> bool {
        while queues != 0 {
            if self.orders[queues.trailing_zeros() as usize] < order {
                return true;
            }
            queues &= queues - 1;
        }
        false
    }

    /// Lets the packet go that [`Scheduler::next`] named.
    pub(super) fn pop(&mut self) {
        let number = self.chosen;
        let (key, order) = (self.first(number).key, self.orders[number]);
        let others = match self.arbiter {
            Arbiter::Oldest => self.occupied & !self.ready,
            Arbiter::Turns => self.occupied,
        };
        self.overtakings += u64::from(self.is_older(others, order));
        let keyed = self.queues.len() - 1;
        if number < keyed {
            self.busy.push(key);
        }
        let queue = &mut self.queues[number];
        queue.head = queue.head.wrapping_add(1);
        queue.len -= 1;
        let (bit, is_empty) = (1 << number, queue.len == 0);
        self.ready &= !bit;
        if is_empty {
            self.occupied &= !bit;
        } else {
            self.orders[number] = self.first(number).order;
            if number == keyed || !self.busy.contains(&self.first(number).key) {
                self.ready |= bit;
            }
        }
        self.turn = if number == keyed { 0 } else { number as u32 + 1 };
    }

    /// The packet with this key has written.
    pub(super) fn release(&mut self, key: u64) {
        let Some(at) = self.busy.iter().position(|busy| *busy == key) else { return };
        self.busy.swap_remove(at);
        let number = self.queue_of(Some(key));
        if self.occupied >> number & 1 == 1 && self.first(number).key == key {
            self.ready |= 1 << number;
        }
    }

    /// The most packets that each queue held; the last one is that of packets without a key.
    pub(super) fn longest(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.iter().map(|queue| queue.longest)
    }
}
