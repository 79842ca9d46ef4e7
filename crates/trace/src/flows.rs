//! Counting flows by one key: all of them, those active in a window of time, those that are new in a millisecond.

use std::collections::{HashMap, HashSet, VecDeque};

use flowloom_wire::{FieldId, KeySpec, Layers};
use serde::Serialize;

use crate::reader::CapturedPacket;

/// How long the window is in which flows count as active [FlowBlaze table 6].
pub const ACTIVE_WINDOW_NS: u64 = 10_000_000_000;
/// How long the window is in which new flows are counted [FlowBlaze table 6].
pub const NEW_WINDOW_NS: u64 = 1_000_000;

/// Distinct flows by one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowCount {
    /// Its fields.
    pub key: &'static str,
    /// Packets that have all of them.
    pub packets: u64,
    /// Flows with each direction by itself.
    pub one_way: u64,
    /// Flows with both directions together (`biflow`); `None` for a key that has no directions.
    pub both_ways: Option<u64>,
    /// The largest number of flows, each direction by itself, with a packet within any [`ACTIVE_WINDOW_NS`].
    pub max_active_in_10s: u64,
    /// The largest number of flows, each direction by itself, seen for the first time within any [`NEW_WINDOW_NS`].
    pub max_new_per_ms: u64,
}

/// The flows of one key, packet by packet.
#[derive(Debug)]
pub(crate) struct Flows {
    name: &'static str,
    packets: u64,
    spec: KeySpec,
    /// Numbers of the flows, in the order of their first packets.
    numbers: HashMap<Vec<u8>, u32>,
    both_ways: Option<(KeySpec, HashSet<Vec<u8>>)>,
    active: Active,
    max_active: usize,
    /// First arrivals within the last millisecond.
    new_ns: VecDeque<u64>,
    max_new: usize,
}

impl Flows {
    /// Nothing counted yet.
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

    /// Counts a packet that arrives at `now_ns`, the largest time so far.
    pub(crate) fn add(&mut self, layers: &Layers, packet: &CapturedPacket, now_ns: u64) {
        let Some(key) = self.spec.extract(layers, &packet.bytes, packet.port, &[]) else { return };
        self.packets += 1;
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        self.active.touch(number, now_ns);
        self.active.forget(now_ns);
        self.max_active = self.max_active.max(self.active.count);
        if number != next {
            return;
        }
        // A flow known one way is known both ways.
        if let Some((spec, seen)) = &mut self.both_ways {
            seen.extend(spec.extract(layers, &packet.bytes, packet.port, &[]));
        }
        while self.new_ns.front().is_some_and(|&then_ns| now_ns - then_ns >= NEW_WINDOW_NS) {
            self.new_ns.pop_front();
        }
        self.new_ns.push_back(now_ns);
        self.max_new = self.max_new.max(self.new_ns.len());
    }

    /// What was counted.
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

/// No neighbour.
const NONE: u32 = u32::MAX;

/// Flows in the order of their last packets: the oldest can be forgotten as the window moves on. The numbers are exact
/// for a window that begins anywhere, and memory grows with the flows alone.
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
    /// The flow has a packet now. A new flow's number follows the last one.
    fn touch(&mut self, number: u32, now_ns: u64) {
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

    /// Flows without a packet in the window that ends now are active no more.
    fn forget(&mut self, now_ns: u64) {
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
