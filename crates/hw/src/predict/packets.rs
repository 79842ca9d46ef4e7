//! The packets that are under way, each with a number that the next one gets when it has left.

/// A packet that is under way, by its number.
pub(super) type Number = u32;

/// Packets that are under way.
#[derive(Debug, Default)]
pub(super) struct Packets {
    maps: usize,
    facts: Vec<Facts>,
    /// Keys of each packet, one after the other.
    keys: Vec<u64>,
    free: Vec<Number>,
}

/// What of a packet decides when it passes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// The cycle from which it can enter.
    pub(super) arrival: u64,
    /// 0 where it is dropped.
    pub(super) leaving_words: u32,
    pub(super) leaving_bytes: u32,
    pub(super) uses: u64,
    pub(super) writes: u64,
}

impl Packets {
    pub(super) fn new(maps: usize) -> Packets {
        Packets { maps, ..Packets::default() }
    }

    /// How many there are.
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
        let given = keys.len().min(own.len());
        own[..given].copy_from_slice(&keys[..given]);
        own[given..].fill(0);
        number
    }

    pub(super) fn remove(&mut self, number: Number) {
        self.free.push(number);
    }

    pub(super) fn facts(&self, number: Number) -> &Facts {
        &self.facts[number as usize]
    }

    /// The key that it uses in a map, where it does.
    pub(super) fn key(&self, number: Number, map: usize) -> Option<u64> {
        let at = number as usize;
        (self.facts[at].uses >> map & 1 == 1).then(|| self.keys[at * self.maps + map])
    }

    /// As [`Packets::key`], where it changes the entry.
    pub(super) fn written(&self, number: Number, map: usize) -> Option<u64> {
        let is_written = self.facts[number as usize].writes >> map & 1 == 1;
        self.key(number, map).filter(|_| is_written)
    }
}
