//! Where packets wait, and what is counted.

use std::collections::VecDeque;

use super::latency::Histogram;
use super::packets::Number;
use super::scheduler::Scheduler;

/// Where packets wait in front of a pipe.
#[derive(Debug)]
pub(super) enum Room {
    Input(Input),
    Scheduler(Scheduler),
    Restart(Restart),
}

/// The buffer in front of everything.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) queue: VecDeque<Number>,
    /// Words of packets that have not begun to enter, and what there is room for.
    pub(super) words: u64,
    pub(super) most_words: u64,
    /// The cycle in which the next packet may enter: the one before has to be inside.
    pub(super) free_at: u64,
    /// In this cycle a packet has to wait for the pipe.
    pub(super) is_held: bool,
    pub(super) stalled_cycles: u64,
    pub(super) longest_words: u64,
}

/// An elastic buffer.
#[derive(Debug, Default)]
pub(super) struct Restart {
    pub(super) queue: VecDeque<Number>,
    /// How many of them, the first ones, start again.
    pub(super) again: usize,
    pub(super) depth: usize,
    /// The cycle in which the next packet may enter: the pipeline has to be loaded again.
    pub(super) free_at: u64,
    pub(super) longest: u64,
}

/// What was counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_dropped: u64,
    /// Bytes that came in and were not lost, and bytes that left; without what the wire adds.
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// The cycle in which the first packet came in, and the first one left; that behind the last word of the last one.
    pub(super) first_in: Option<u64>,
    pub(super) last_in: u64,
    pub(super) first_out: Option<u64>,
    pub(super) last_out: u64,
    /// Flushes and packets that started again, by map.
    pub(super) flushes: Vec<u64>,
    pub(super) replayed: Vec<u64>,
    /// Cycles that flushes took, by map: how much later than without the flush the first packet goes on.
    pub(super) flush_cycles: Vec<u64>,
    pub(super) latencies: Histogram,
    pub(super) longest_output_words: u64,
}
