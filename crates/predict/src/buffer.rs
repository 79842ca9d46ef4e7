// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The buffers in which packets wait, and the counters.

use std::collections::VecDeque;

use super::latency::Histogram;
use super::packets::{Number, Packets};
use super::scheduler::Scheduler;

/// A place where packets wait between two pipes.
#[derive(Debug)]
pub(super) enum Buffer {
    Scheduler(Scheduler),
    Elastic(ElasticBuffer),
}

impl Buffer {
    /// Adds a packet, at this time of the pipe after it; returns whether there was room.
    pub(super) fn enter(&mut self, packet: Number, packets: &Packets, clock: u64) -> bool {
        match self {
            Buffer::Scheduler(scheduler) => scheduler.enter(packet, packets.key(packet, scheduler.map), clock),
            Buffer::Elastic(buffer) => buffer.enter(packet),
        }
    }

    /// The next packet to issue, if one is ready.
    pub(super) fn next(&mut self, now: u64, clock: u64) -> Option<Number> {
        match self {
            Buffer::Scheduler(scheduler) => scheduler.next(clock),
            Buffer::Elastic(buffer) if buffer.free_at > now => None,
            Buffer::Elastic(buffer) => buffer.queue.front().copied(),
        }
    }

    /// Issues that packet.
    pub(super) fn pop(&mut self, clock: u64) {
        match self {
            Buffer::Scheduler(scheduler) => scheduler.pop(clock),
            Buffer::Elastic(buffer) => {
                buffer.queue.pop_front();
                buffer.flushed = buffer.flushed.saturating_sub(1);
            }
        }
    }

    /// The cycle in which a waiting packet becomes ready.
    pub(super) fn wakes_at(&self, now: u64, clock: u64) -> u64 {
        match self {
            Buffer::Scheduler(scheduler) if scheduler.is_ready() => now + 1,
            Buffer::Scheduler(scheduler) => scheduler.first_wait().saturating_add(now - clock),
            Buffer::Elastic(buffer) if !buffer.queue.is_empty() => buffer.free_at.max(now + 1),
            Buffer::Elastic(_) => u64::MAX,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Input {
    queue: VecDeque<(Number, u32)>,
    /// The words of waiting packets, and the capacity in words.
    words: u64,
    most_words: u64,
    /// The cycle in which the next packet may enter, once the previous one is inside.
    pub(super) free_at: u64,
    pub(super) stalled_cycles: u64,
    pub(super) longest_words: u64,
}

impl Input {
    pub(super) fn new(most_words: u64) -> Input {
        Input { most_words, ..Input::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so many words fit. The words of the packet that is entering are freed one by one.
    pub(super) fn has_room(&self, words: u32, now: u64) -> bool {
        self.filled(words, now) <= self.most_words
    }

    fn filled(&self, words: u32, now: u64) -> u64 {
        self.words + self.free_at.saturating_sub(now) + u64::from(words)
    }

    pub(super) fn push(&mut self, packet: Number, words: u32, now: u64) {
        self.longest_words = self.longest_words.max(self.filled(words, now));
        self.words += u64::from(words);
        self.queue.push_back((packet, words));
    }

    /// The packet that may enter.
    pub(super) fn next(&self, now: u64) -> Option<Number> {
        if self.free_at > now { None } else { self.queue.front().map(|(packet, _)| *packet) }
    }

    /// Lets that packet in.
    pub(super) fn pop(&mut self, now: u64) {
        if let Some((_, words)) = self.queue.pop_front() {
            self.words -= u64::from(words);
            self.free_at = now + u64::from(words);
        }
    }
}

/// The elastic buffer before flushed maps, where flushed packets enter the pipeline again.
#[derive(Debug, Default)]
pub(super) struct ElasticBuffer {
    queue: VecDeque<Number>,
    /// The number of flushed packets; they come first.
    flushed: usize,
    depth: usize,
    /// The cycle in which the next packet may enter, after the reload of the pipeline.
    pub(super) free_at: u64,
    pub(super) longest: u64,
}

impl ElasticBuffer {
    pub(super) fn new(depth: u32) -> ElasticBuffer {
        ElasticBuffer { depth: depth as usize, ..ElasticBuffer::default() }
    }

    fn enter(&mut self, packet: Number) -> bool {
        let has_room = self.queue.len() - self.flushed < self.depth;
        if has_room {
            self.queue.push_back(packet);
            self.longest = self.longest.max(self.queue.len() as u64);
        }
        has_room
    }

    /// Puts a flushed packet before all others.
    pub(super) fn push_flushed(&mut self, packet: Number) {
        self.queue.push_front(packet);
        self.flushed += 1;
        self.longest = self.longest.max(self.queue.len() as u64);
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_dropped: u64,
    /// The bytes of packets that arrived and were not lost, and of packets that left; without overhead on the wire.
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// The cycles in which the first packet arrived and the first one left, and the one after the last word of the last
    /// one.
    pub(super) first_in: Option<u64>,
    pub(super) last_in: u64,
    pub(super) first_out: Option<u64>,
    pub(super) last_out: u64,
    /// By map, the flushes, and the packets that they flushed.
    pub(super) flushes: Vec<u64>,
    pub(super) replayed: Vec<u64>,
    /// By map, the cycles that flushes cost: the delay of the first packet compared with no flush.
    pub(super) flush_cycles: Vec<u64>,
    pub(super) latencies: Histogram,
    pub(super) longest_output_words: u64,
}
