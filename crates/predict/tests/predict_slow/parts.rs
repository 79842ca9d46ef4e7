// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the plain simulation is made of.

use flowloom_predict::Arrival;

pub(crate) const WORD_BYTES: u64 = 64;

#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) index: usize,
    pub(crate) arrivals: u64,
    pub(crate) arrival: Arrival,
    /// Maps whose key it has given back.
    pub(crate) released: Vec<bool>,
    /// Maps that it has written.
    pub(crate) written: Vec<bool>,
    /// Its place in the order in which packets came to the scheduler that it waits in.
    pub(crate) order: u64,
}

impl Packet {
    pub(crate) fn key(&self, map: usize) -> Option<u64> {
        (self.arrival.uses >> map & 1 == 1).then(|| self.arrival.keys[map])
    }
}

/// What packets wait in.
#[derive(Debug)]
pub(crate) enum Wait {
    Queues { map: usize, queues: Vec<Vec<Packet>>, turn: usize, arrivals: u64 },
    Elastic { waiting: Vec<Packet>, again: usize, reload_until: u64 },
}

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) stage: u64,
    pub(crate) wait: Wait,
    pub(crate) depth: usize,
    pub(crate) longest: Vec<u64>,
    /// The cells behind it, the last one behind the last stage.
    pub(crate) cells: Vec<Option<Packet>>,
    pub(crate) is_stalled: bool,
    pub(crate) stalled_cycles: u64,
}

/// What can be compared.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) lost: u64,
    pub(crate) dropped: u64,
    pub(crate) cycles: u64,
    pub(crate) stalled: u64,
    pub(crate) input_words: u64,
    pub(crate) output_words: u64,
    pub(crate) latencies: Vec<u64>,
    pub(crate) flushes: Vec<u64>,
    pub(crate) replayed: Vec<u64>,
    pub(crate) overtakings: Vec<u64>,
    pub(crate) stalled_cycles: Vec<u64>,
    pub(crate) longest: Vec<Vec<u64>>,
}

pub(crate) fn words(bytes: u32) -> u64 {
    u64::from(bytes).div_ceil(WORD_BYTES)
}

pub(crate) fn longer(longest: &mut Vec<u64>, lens: &[u64]) {
    longest.resize(lens.len(), 0);
    longest.iter_mut().zip(lens).for_each(|(longest, len)| *longest = (*longest).max(*len));
}

/// Which of so many queues a key leads to: the upper half of a product by the golden ratio, scaled.
pub(crate) fn queue_of(key: u64, queues: usize) -> usize {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * queues as u64) >> 32) as usize
}
