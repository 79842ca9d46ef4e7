// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes: stages without buffers, through which all packets move in lockstep or stall.

use super::layout::{Event, EventKind};
use super::packets::Number;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    packet: Number,
    /// The cycle of its entry, on the pipe's own clock.
    entry: u64,
}

/// An event, and the first packet for which it is still to come.
#[derive(Debug, Clone, Copy)]
struct Probe {
    event: Event,
    next: u64,
}

/// The stages between two places.
///
/// Packets are not moved from stage to stage: each has the cycle of its entry on a clock that stops while the pipe
/// stalls, which is the pipeline's clock minus the stalled cycles.
#[derive(Debug)]
pub(super) struct Pipe {
    len: u64,
    slots: Vec<Slot>,
    /// The first packet inside, and the next free number; both only grow, except on a flush.
    head: u64,
    tail: u64,
    probes: Vec<Probe>,
    releases: usize,
    /// A lower bound of the time of the next event on the own clock; and by event, its distance from the entry.
    due: u64,
    first_cycles: u64,
    pub(super) is_stalled: bool,
    pub(super) stalled_cycles: u64,
}

impl Pipe {
    pub(super) fn new(len: u64, events: &[Event]) -> Pipe {
        let longest = events.iter().map(|event| event.offset).max().unwrap_or(0).max(len);
        Pipe {
            len,
            releases: events.iter().filter(|event| matches!(event.what, EventKind::Release(_))).count(),
            due: u64::MAX,
            first_cycles: events.iter().map(|event| event.offset).min().unwrap_or(len).min(len),
            // A packet enters each cycle, and is kept until its last event.
            slots: vec![Slot::default(); (longest as usize + 2).next_power_of_two()],
            head: 0,
            tail: 0,
            probes: events.iter().map(|event| Probe { event: *event, next: 0 }).collect(),
            is_stalled: false,
            stalled_cycles: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn slot(&self, number: u64) -> Slot {
        self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// The time on the own clock.
    pub(super) fn clock(&self, now: u64) -> u64 {
        now - self.stalled_cycles
    }

    /// Whether an event may be due in this cycle.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due <= self.clock(now)
    }

    pub(super) fn push(&mut self, packet: Number, now: u64) {
        let (at, entry) = (self.tail as usize & (self.slots.len() - 1), self.clock(now));
        self.slots[at] = Slot { packet, entry };
        self.tail += 1;
        self.due = self.due.min(entry + self.first_cycles);
    }

    /// The packet after the last stage.
    pub(super) fn end(&self, now: u64) -> Option<Number> {
        let slot = self.slot(self.head);
        (self.head < self.tail && slot.entry + self.len <= self.clock(now)).then_some(slot.packet)
    }

    pub(super) fn leave(&mut self) {
        self.head += 1;
    }

    /// The number of releases; they come before the commits.
    pub(super) fn releases(&self) -> usize {
        self.releases
    }

    pub(super) fn has_commits(&self) -> bool {
        self.releases < self.probes.len()
    }

    pub(super) fn events(&self) -> usize {
        self.probes.len()
    }

    pub(super) fn event(&self, probe: usize) -> Event {
        self.probes[probe].event
    }

    /// The number of the packet for which an event is due now; each packet is returned once.
    pub(super) fn due(&mut self, probe: usize, now: u64) -> Option<u64> {
        let Probe { event, next } = self.probes[probe];
        if next < self.tail && self.slot(next).entry + event.offset <= self.clock(now) {
            self.probes[probe].next += 1;
            return Some(next);
        }
        None
    }

    /// The packet with this number in the pipe.
    pub(super) fn packet(&self, number: u64) -> Number {
        self.slot(number).packet
    }

    /// The cycles since the packet with this number entered.
    pub(super) fn age(&self, number: u64, now: u64) -> u64 {
        self.clock(now) - self.slot(number).entry
    }

    /// The later packets that entered at least so many cycles ago, by their numbers.
    pub(super) fn later(&self, number: u64, cycles: u64, now: u64) -> impl Iterator<Item = (u64, Number)> + '_ {
        let slots = (number + 1..self.tail).map(|number| (number, self.slot(number)));
        let clock = self.clock(now);
        slots.take_while(move |(_, slot)| slot.entry + cycles <= clock).map(|(number, slot)| (number, slot.packet))
    }

    /// Flushes the last packet if its number is `from` or later.
    pub(super) fn flush_last(&mut self, from: u64) -> Option<Number> {
        if self.tail <= from {
            return None;
        }
        self.tail -= 1;
        let tail = self.tail;
        self.probes.iter_mut().for_each(|probe| probe.next = probe.next.min(tail));
        Some(self.slot(tail).packet)
    }

    /// Ends the cycle: computes when the next event is due.
    pub(super) fn update_due(&mut self) {
        let until = |number: u64, offset: u64| {
            if number < self.tail { self.slot(number).entry + offset } else { u64::MAX }
        };
        let probes = self.probes.iter().map(|probe| until(probe.next, probe.event.offset));
        self.due = probes.fold(until(self.head, self.len), u64::min);
    }

    /// The cycle of the next event, if the pipe does not stall until then.
    pub(super) fn wakes_at(&self) -> u64 {
        self.due.saturating_add(self.stalled_cycles)
    }
}
