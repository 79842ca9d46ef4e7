// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of the scheduler as a model for tests: one step a cycle.

use std::collections::{HashMap, VecDeque};

use super::SchedulerParameters;

/// The contract of the scheduler, cycle by cycle.
pub(crate) struct Model {
    parameters: SchedulerParameters,
    queues: Vec<VecDeque<(u16, u64)>>,
    /// The cycle of the last grant, by hash.
    granted: HashMap<u16, u64>,
    last_queue: usize,
}

impl Model {
    pub(crate) fn new(parameters: SchedulerParameters) -> Model {
        let queues = vec![VecDeque::new(); parameters.queues as usize];
        Model { parameters, queues, granted: HashMap::new(), last_queue: parameters.queues as usize - 1 }
    }

    /// Runs a cycle. Returns true if the offered header enters, and the tag of the granted header.
    pub(crate) fn cycle(&mut self, cycle: u64, offered: Option<(u16, u64)>) -> (bool, Option<u64>) {
        let count = self.queues.len();
        let mut enters = false;
        if let Some((hash, tag)) = offered {
            let queue = usize::from(hash) * count / (1usize << self.parameters.hash_bits);
            enters = self.queues[queue].len() < self.parameters.queue_depth as usize;
            if enters {
                self.queues[queue].push_back((hash, tag));
            }
        }
        for number in 1..=count {
            let queue = (self.last_queue + number) % count;
            let Some(&(hash, tag)) = self.queues[queue].front() else { continue };
            let is_in_flight = |granted: &u64| cycle - granted < u64::from(self.parameters.hold_cycles);
            if !self.granted.get(&hash).is_some_and(is_in_flight) {
                self.queues[queue].pop_front();
                self.granted.insert(hash, cycle);
                self.last_queue = queue;
                return (enters, Some(tag));
            }
        }
        (enters, None)
    }
}
