// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow counts by one key: distinct flows, active flows per window, new flows per millisecond.

use std::collections::{HashMap, HashSet, VecDeque};

use flowloom_wire::{FieldId, KeySpec, Layers};
use serde::Serialize;

use crate::reader::CapturedPacket;

/// Length of the window in which flows count as active [FlowBlaze table 6].
pub const ACTIVE_WINDOW_NS: u64 = 10_000_000_000;
/// Length of the window in which new flows are counted [FlowBlaze table 6].
pub const NEW_WINDOW_NS: u64 = 1_000_000;

/// Flow counts by one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowCount {
    /// The fields of the key.
    pub key: &'static str,
    /// Number of packets that have all fields of the key.
    pub packets: u64,
    /// Number of unidirectional flows.
    pub one_way: u64,
    /// Number of bidirectional flows (`biflow`); `None` for a key without directions.
    pub both_ways: Option<u64>,
    /// Maximum number of unidirectional flows with a packet within any [`ACTIVE_WINDOW_NS`].
    pub max_active_in_10s: u64,
    /// Maximum number of unidirectional flows first seen within any [`NEW_WINDOW_NS`].
    pub max_new_per_ms: u64,
}

/// Incremental flow counter for one key.
#[derive(Debug)]
pub(crate) struct Flows {
    name: &'static str,
    packets: u64,
    spec: KeySpec,
    /// Flow numbers, in the order of first packets.
    numbers: HashMap<Vec<u8>, u32>,
    both_ways: Option<(KeySpec, HashSet<Vec<u8>>)>,
    active: Active,
    max_active: usize,
    /// Arrival times of new flows within the last millisecond.
    new_ns: VecDeque<u64>,
    max_new: usize,
}

impl Flows {
    pub(crate) fn new(name: &'static str, fields: &[FieldId], has_directions: bool) -> Flows {
        let spec = |biflow| KeySpec::of_fields(fields, biflow).expect("fixed fields make a key");
        Flows {
            name,
            packets: 0,
            spec: spec(false),
            numbers: HashMap::new(),
            both_ways: has_directions.then(|| (spec(true), HashSet::new())),
            active: Active::default(),
            max_active: 0,
            new_ns: VecDeque::new(),
            max_new: 0,
        }
    }

    /// Counts a packet that arrives at `now_ns`, the latest time so far.
    pub(crate) fn add(&mut self, layers: &Layers, packet: &CapturedPacket, now_ns: u64) {
        let Some(key) = self.spec.extract(layers, &packet.bytes, packet.port, &[]) else { return };
        self.packets += 1;
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        self.active.mark(number, now_ns);
        self.active.expire(now_ns);
        self.max_active = self.max_active.max(self.active.count);
        if number != next {
            return;
        }
        // The bidirectional flow of a known unidirectional flow is known.
        if let Some((spec, seen)) = &mut self.both_ways {
            seen.extend(spec.extract(layers, &packet.bytes, packet.port, &[]));
        }
        while self.new_ns.front().is_some_and(|&then_ns| now_ns - then_ns >= NEW_WINDOW_NS) {
            self.new_ns.pop_front();
        }
        self.new_ns.push_back(now_ns);
        self.max_new = self.max_new.max(self.new_ns.len());
    }

    pub(crate) fn count(&self) -> FlowCount {
        FlowCount {
            key: self.name,
            packets: self.packets,
            one_way: self.numbers.len() as u64,
            both_ways: self.both_ways.as_ref().map(|(_, seen)| seen.len() as u64),
            max_active_in_10s: self.max_active as u64,
            max_new_per_ms: self.max_new as u64,
        }
    }
}

/// Null link.
const NONE: u32 = u32::MAX;

/// LRU list of active flows: the oldest is unlinked as the window advances. The count is exact for a window at any
/// offset, and memory grows only with the number of flows.
#[derive(Debug)]
struct Active {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
    count: usize,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    last_ns: u64,
    older: u32,
    newer: u32,
    is_active: bool,
}

impl Default for Active {
    fn default() -> Active {
        Active { links: Vec::new(), oldest: NONE, newest: NONE, count: 0 }
    }
}

impl Active {
    /// Marks a flow as active now. A new flow has the next unused number.
    fn mark(&mut self, number: u32, now_ns: u64) {
        let index = number as usize;
        if index == self.links.len() {
            self.links.push(Link { last_ns: now_ns, older: NONE, newer: NONE, is_active: false });
        } else if self.links[index].is_active {
            self.unlink(index);
        }
        let older = self.newest;
        self.links[index] = Link { last_ns: now_ns, older, newer: NONE, is_active: true };
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        self.count += 1;
    }

    /// Unlinks flows without a packet in the window that ends now.
    fn expire(&mut self, now_ns: u64) {
        while let Some(link) = self.links.get(self.oldest as usize) {
            if now_ns - link.last_ns < ACTIVE_WINDOW_NS {
                return;
            }
            self.unlink(self.oldest as usize);
        }
    }

    fn unlink(&mut self, index: usize) {
        let Link { older, newer, .. } = self.links[index];
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
        self.links[index].is_active = false;
        self.count -= 1;
    }
}
