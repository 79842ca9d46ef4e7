// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flow context table: four banks and a stash, whose engine moves entries from the stash to the banks.
//!
//! An entry holds key and context together. A new entry is stored in the stash. The engine moves stash entries to the
//! banks in round-robin order: an entry takes a free place of its key; without one it replaces another entry, chosen at
//! random, which is moved to the stash.
//!
//! # Source
//! [FlowBlaze 4.2]

use flowloom_state::RowHash;

use crate::parameters::{Parameters, STASH};
use crate::rtl::hash_of;

/// Most words of a key.
pub(super) const MAX_KEY: usize = 16;
/// Most registers of a context.
pub(crate) const MAX_REGISTERS: usize = 16;
/// A deadline that is not set.
pub(super) const NO_DEADLINE: u64 = u64::MAX;
/// Banks.
const WAYS: usize = 4;
/// The first value of the shift register.
const FIRST_RANDOM: u16 = 1;
/// Steps in which the stash gets room.
const MAX_STEPS: u32 = 1 << 20;

/// The words of a key; those beyond it are 0.
pub(super) type Key = [u32; MAX_KEY];

/// The state of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) state: u16,
    pub(crate) registers: [u32; MAX_REGISTERS],
    pub(crate) idle_ns: u64,
    pub(crate) idle_deadline_ns: u64,
    pub(crate) hard_deadline_ns: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    key: Key,
    context: Context,
}

/// The place of an entry: a place of the banks, then the stash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

/// A flow context table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    hash: RowHash,
    key_words: usize,
    rows: usize,
    /// The banks one after the other, then the stash.
    places: Vec<Option<Entry>>,
    stored: usize,
    /// The entry of the stash that is served next.
    turn: usize,
    /// A linear feedback shift register, which chooses the entries that are replaced.
    random: u16,
}

impl Table {
    /// An empty table of a machine.
    pub(super) fn new(parameters: &Parameters) -> Table {
        let hash = hash_of(parameters);
        let rows = hash.rows() as usize;
        Table {
            hash,
            key_words: parameters.key_bits as usize / 32,
            rows,
            places: vec![None; WAYS * rows + STASH as usize],
            stored: 0,
            turn: 0,
            random: FIRST_RANDOM,
        }
    }

    /// Stored entries.
    pub(super) fn len(&self) -> usize {
        self.stored
    }

    fn candidates(&self, key: &Key) -> [usize; WAYS] {
        // The last byte is the bank of the configuration.
        let mut bytes = [0; 4 * MAX_KEY + 1];
        for (word, bytes) in key[..self.key_words].iter().zip(bytes.as_chunks_mut::<4>().0) {
            *bytes = word.to_le_bytes();
        }
        let rows = self.hash.rows_of(&bytes[..=4 * self.key_words]);
        std::array::from_fn(|way| way * self.rows + rows[way] as usize)
    }

    /// The row of a key in each bank, and FK1, the hash by which the scheduler tells flows apart.
    pub(super) fn rows_of(&self, key: &Key) -> ([u32; WAYS], u16) {
        let candidates = self.candidates(key);
        let rows: [u32; WAYS] = std::array::from_fn(|way| (candidates[way] - way * self.rows) as u32);
        let half_bits = self.rows.next_power_of_two().trailing_zeros().min(8);
        let half = |row: u32| row & ((1 << half_bits) - 1);
        (rows, (half(rows[1]) << half_bits | half(rows[0])) as u16)
    }

    fn stash(&self) -> std::ops::Range<usize> {
        WAYS * self.rows..self.places.len()
    }

    /// The place of a key.
    pub(super) fn find(&self, key: &Key) -> Option<Place> {
        let has = |at: &usize| self.places[*at].as_ref().is_some_and(|entry| entry.key == *key);
        let in_banks = self.candidates(key).into_iter().find(has);
        in_banks.or_else(|| self.stash().find(has)).map(Place)
    }

    /// The context at a place.
    pub(super) fn get(&self, place: Place) -> Option<&Context> {
        self.places[place.0].as_ref().map(|entry| &entry.context)
    }

    /// Replaces the context at a place.
    pub(super) fn set(&mut self, place: Place, context: &Context) {
        if let Some(entry) = &mut self.places[place.0] {
            entry.context.clone_from(context);
        }
    }

    /// Removes the entry at a place.
    pub(super) fn remove(&mut self, place: Place) {
        self.stored -= usize::from(self.places[place.0].take().is_some());
    }

    /// Stores a context under a key that has none. While the stash is full, the engine works. False if it makes no room in
    /// [`MAX_STEPS`] steps: then more keys than the stash holds have no places, which the size of a table makes unlikely.
    pub(super) fn insert(&mut self, key: &Key, context: &Context) -> bool {
        for _ in 0..MAX_STEPS {
            if let Some(free) = self.stash().find(|&at| self.places[at].is_none()) {
                self.places[free] = Some(Entry { key: *key, context: context.clone() });
                self.stored += 1;
                return true;
            }
            self.step();
        }
        false
    }

    /// A step of the engine: an entry of the stash takes a place. Returns false if the stash is empty.
    pub(super) fn step(&mut self) -> bool {
        let stash = self.stash();
        let waiting = (0..stash.len()).map(|step| stash.start + (self.turn + step) % stash.len());
        let Some(served) = waiting.into_iter().find(|&at| self.places[at].is_some()) else { return false };
        let Some(entry) = self.places[served].take() else { return false };
        let candidates = self.candidates(&entry.key);
        match candidates.into_iter().find(|&at| self.places[at].is_none()) {
            Some(free) => self.places[free] = Some(entry),
            None => {
                // With a fixed order, exchanges could go in a circle.
                let way = self.random >> 7 & 2 | self.random & 1;
                self.places[served] = self.places[candidates[usize::from(way)]].replace(entry);
                self.random = self.random >> 1 ^ if self.random & 1 == 1 { 0xb400 } else { 0 };
            }
        }
        self.turn = (served - stash.start + 1) % stash.len();
        true
    }

    /// The entry in the places of a key, outside of the stash, with the smallest rank.
    pub(super) fn victim(&self, key: &Key, rank: impl Fn(&Context) -> i64) -> Option<(Place, Key)> {
        let entries = self.candidates(key).into_iter().filter_map(|at| Some((at, self.places[at].as_ref()?)));
        let victim = entries.min_by_key(|(_, entry)| rank(&entry.context));
        victim.map(|(at, entry)| (Place(at), entry.key))
    }

    /// All entries, unordered.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, &Context)> {
        self.places.iter().flatten().map(|entry| (&entry.key, &entry.context))
    }

    /// Visits all contexts, and removes those for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&Context) -> bool) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|entry| !keep(&entry.context)) {
                *place = None;
                self.stored -= 1;
            }
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.places.fill(None);
        (self.stored, self.turn, self.random) = (0, 0, FIRST_RANDOM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(rank: u32) -> Context {
        let mut registers = [0; MAX_REGISTERS];
        registers[0] = rank;
        let (idle_deadline_ns, hard_deadline_ns) = (NO_DEADLINE, NO_DEADLINE);
        Context { state: 1, registers, idle_ns: 0, idle_deadline_ns, hard_deadline_ns }
    }

    fn key(number: u32) -> Key {
        let mut key = [0; MAX_KEY];
        key[0] = number;
        key
    }

    /// The victim has the smallest rank among the entries in the places of the key, and all entries are found.
    #[test]
    fn a_victim_is_the_least_of_its_candidates() {
        let parameters = Parameters { contexts: 64, ..Parameters::PAPER };
        let mut table = Table::new(&parameters);
        for number in 0..40 {
            _ = table.insert(&key(number), &context(number.wrapping_mul(0x9e37_79b9)));
        }
        (0..1000).for_each(|_| _ = table.step());
        assert!((0..40).all(|number| table.find(&key(number)).is_some()) && table.len() == 40);
        for wanted in 1000..1100 {
            let candidates = table.candidates(&key(wanted));
            let found = table.victim(&key(wanted), |context| context.registers[0].into());
            let Some((place, victim)) = found else {
                assert!(candidates.iter().all(|at| table.places[*at].is_none()));
                continue;
            };
            let ranks = candidates.iter().filter_map(|at| Some(table.places[*at].as_ref()?.context.registers[0]));
            assert_eq!(table.get(place).map(|context| context.registers[0]), ranks.min());
            assert!(candidates.contains(&place.0) && table.find(&victim) == Some(place));
        }
    }
}
