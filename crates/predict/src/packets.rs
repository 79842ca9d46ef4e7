// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets in flight; their numbers are reused.

/// The number of a packet in flight.
pub(super) type Number = u32;

#[derive(Debug, Default)]
pub(super) struct Packets {
    maps: usize,
    facts: Vec<Facts>,
    /// The keys of each packet, one for each map.
    keys: Vec<u64>,
    free: Vec<Number>,
}

/// The properties of a packet that determine its timing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// The first cycle in which it can enter.
    pub(super) arrival: u64,
    /// The departing length in words; 0 if it is dropped.
    pub(super) leaving_words: u32,
    pub(super) leaving_bytes: u32,
    pub(super) uses: u64,
    pub(super) writes: u64,
}

impl Packets {
    pub(super) fn new(maps: usize) -> Packets {
        Packets { maps, ..Packets::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.facts.len() - self.free.len()
    }

    pub(super) fn add(&mut self, facts: Facts, keys: &[u64]) -> Number {
        let number = self.free.pop().unwrap_or_else(|| {
            self.facts.push(Facts::default());
            self.keys.resize(self.facts.len() * self.maps, 0);
            self.facts.len() as Number - 1
        });
        let at = number as usize;
        self.facts[at] = facts;
        let own = &mut self.keys[at * self.maps..][..self.maps];
        let numbers = keys.len().min(own.len());
        own[..numbers].copy_from_slice(&keys[..numbers]);
        own[numbers..].fill(0);
        number
    }

    pub(super) fn remove(&mut self, number: Number) {
        self.free.push(number);
    }

    pub(super) fn facts(&self, number: Number) -> &Facts {
        &self.facts[number as usize]
    }

    /// The key with which it accesses a map, if it does.
    pub(super) fn key(&self, number: Number, map: usize) -> Option<u64> {
        let at = number as usize;
        (self.facts[at].uses >> map & 1 == 1).then(|| self.keys[at * self.maps + map])
    }

    /// As [`Packets::key`], if it writes the entry.
    pub(super) fn written(&self, number: Number, map: usize) -> Option<u64> {
        let is_written = self.facts[number as usize].writes >> map & 1 == 1;
        self.key(number, map).filter(|_| is_written)
    }
}
