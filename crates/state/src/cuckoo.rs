// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four-choice cuckoo table with a stash, and the engine that places entries.
//!
//! Each of four banks has one place for a key, in the row that its hash gives. An insertion that finds one of them free
//! writes key and slot there, another one writes them to the stash. The engine then moves entries of the stash to the
//! banks:
//!
//! 1. It reads the key's four places. Where one is free, the entry is placed.
//! 2. Otherwise it searches breadth first over the entries that could move, one entry a step: the first free place
//!    found ends the shortest chain of moves.
//! 3. It moves the entries of the chain, last one first, one write a step. A move writes the copy before its source is
//!    overwritten or cleared, so each key is found in every step.
//! 4. Where the search finds no free place within its nodes, the entry and one of its four candidates exchange their
//!    places, and the search starts again for the candidate, which is in the stash now.
//!
//! Insertions and deletions happen between steps. The engine validates each move when it performs it: a chain that a
//! deletion has broken is given up, the copy that it may have left behind is cleared, and the search starts again.
//!
//! No insertion takes the free place in which a chain ends. A search knows entries by their slots, so it must not meet
//! another key with the slot of a deleted one in the same place: after as many insertions as a freed slot rests cycles,
//! the others of this search go to the stash. Slots are used again in the order of their release, and at least so many
//! are free when it begins.
//!
//! Values do not move: entries name a slot of the array of values. A freed slot rests for [`Parameters::rest_cycles`],
//! so that a packet that has looked it up can still access it.
//!
//! # Source
//! [FlowBlaze 4.2]. Deviation: FlowBlaze's search is not described; [`RandomWalk`](crate::RandomWalk) is the usual one.

mod clock;
mod engine;
mod slots;
mod sweep;

use crate::error::{ParameterError, Refusal};
use crate::hash::{RowHash, WAYS};
pub use clock::{EngineClock, Operations};
use engine::Engine;
use slots::Slots;

/// Bytes of the keys and values of a table at most: more than any device has.
const MAX_BYTES: u64 = 1 << 34;

/// Sizes of a cuckoo table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Entries that the table stores at most, those in the stash included: its declared size.
    pub entries: u32,
    /// Rows of each of the four banks.
    pub rows: u32,
    /// Entries that wait in the stash at most.
    pub stash: u32,
    /// Nodes that a search visits at most before it exchanges an entry.
    pub search_nodes: u32,
    /// Cycles for which a freed slot is not used again ([`Cuckoo::pass_cycles`]).
    pub rest_cycles: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Seed of the four hash functions.
    pub seed: u64,
}

impl Parameters {
    /// The seed of the hash functions of a pipeline that is built without one.
    pub const DEFAULT_SEED: u64 = 1;

    /// The usual table for a declared size: 95% of the places are used when it is full, and the stash has eight
    /// entries.
    pub fn for_entries(entries: u32, key_bytes: u32, value_bytes: u32) -> Parameters {
        let places = (u64::from(entries) * 100).div_ceil(95);
        let rows = u32::try_from(places.div_ceil(WAYS as u64)).unwrap_or(u32::MAX).max(1);
        Parameters {
            entries,
            rows,
            stash: 8,
            search_nodes: 256,
            rest_cycles: 0,
            key_bytes,
            value_bytes,
            seed: Self::DEFAULT_SEED,
        }
    }

    /// Checks that a table can have these sizes.
    fn validate(&self) -> Result<(), ParameterError> {
        let places = u64::from(self.rows) * WAYS as u64 + u64::from(self.stash);
        let slot_bytes = u64::from(self.key_bytes) + u64::from(self.value_bytes);
        let most_entries = places.min(MAX_BYTES / slot_bytes.max(1));
        for (parameter, found, least, most) in [
            ("rows", self.rows, 1, 1 << 28),
            ("stash", self.stash, 1, 64),
            ("search_nodes", self.search_nodes, WAYS as u32, 1 << 16),
            ("rest_cycles", self.rest_cycles, 0, 1 << 16),
            ("key_bytes", self.key_bytes, 1, 512),
            ("value_bytes", self.value_bytes, 0, 1 << 16),
            ("entries", self.entries, 1, u32::try_from(most_entries).unwrap_or(u32::MAX)),
        ] {
            if found < least || found > most {
                return Err(ParameterError { parameter, found: found.into(), expected: format!("{least} to {most}") });
            }
        }
        Ok(())
    }
}

/// A slot of the array of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(crate) u32);

impl Slot {
    /// The slot's index in the array.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A place that holds a key and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// A row of a bank.
    Bank {
        /// The bank, 0 to 3.
        way: u8,
        /// Its row.
        row: u32,
    },
    /// An entry of the stash.
    Stash(u8),
}

/// The work of the engine in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// None: the stash is empty.
    Idle,
    /// An entry of the stash was selected.
    Selected,
    /// The places of a stashed key, or of one that could move for it, were read.
    Searched,
    /// An entry moved to another bank.
    Moved(Slot),
    /// A stashed entry and one in the table exchanged their places: no free place was found.
    Exchanged {
        /// The entry that is in the table now.
        placed: Slot,
        /// The entry that is in the stash now.
        stashed: Slot,
    },
    /// An entry left the stash for its place in the table.
    Placed(Slot),
    /// A chain of moves was given up, since an entry of it was deleted.
    GivenUp,
}

/// A cuckoo table with a stash.
#[derive(Debug, Clone)]
pub struct Cuckoo {
    parameters: Parameters,
    hash: RowHash,
    /// The slot in each row of each bank.
    ///
    /// The hardware stores the key beside it; here keys are stored by slot, which is the same contents.
    banks: [Vec<Option<Slot>>; WAYS],
    stash: Vec<Option<Slot>>,
    slots: Slots,
    engine: Engine,
    sweep_at: u32,
    /// The rows of the banks that were written in this cycle and in the last two: a lookup that is under way has read what
    /// was there before.
    written: [[Option<u32>; WAYS]; 3],
}

impl Cuckoo {
    /// Creates an empty table.
    ///
    /// # Errors
    /// If a size is out of range.
    pub fn new(parameters: Parameters) -> Result<Cuckoo, ParameterError> {
        parameters.validate()?;
        let hash = RowHash::new(parameters.key_bytes as usize, parameters.rows, parameters.seed);
        Ok(Cuckoo {
            banks: std::array::from_fn(|_| vec![None; parameters.rows as usize]),
            stash: vec![None; parameters.stash as usize],
            slots: Slots::new(&parameters),
            engine: Engine::default(),
            sweep_at: 0,
            written: [[None; WAYS]; 3],
            hash,
            parameters,
        })
    }

    /// Sizes of the table.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The hash functions of the four banks.
    pub fn hash(&self) -> &RowHash {
        &self.hash
    }

    /// Stored entries, those in the stash included.
    pub fn len(&self) -> usize {
        self.slots.stored()
    }

    /// True if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if as many entries are stored as the table has by declaration.
    pub fn is_full(&self) -> bool {
        self.len() >= self.parameters.entries as usize
    }

    /// Entries that wait in the stash.
    pub fn stash_len(&self) -> usize {
        self.stash.iter().flatten().count()
    }

    /// The slot of a key's value.
    ///
    /// # Panics
    /// If the key has another length than the table's.
    pub fn lookup(&self, key: &[u8]) -> Option<Slot> {
        self.check_length(key);
        self.locations(key).find_map(|location| self.at(location).filter(|&slot| self.slots.key(slot) == key))
    }

    /// Stores a key that is not stored yet: in the first of its places that is free, in the stash if none is. Its value
    /// is zero.
    ///
    /// A place counts as taken for two cycles after it was written, while the engine's chain of moves ends in it, and
    /// after [`Parameters::rest_cycles`] insertions during one search.
    ///
    /// # Errors
    /// [`Refusal::Full`] if the table is full, [`Refusal::Busy`] if the insertion has to wait.
    ///
    /// # Panics
    /// If the key is stored already, or has another length than the table's.
    pub fn insert(&mut self, key: &[u8]) -> Result<Slot, Refusal> {
        let rows = self.hash.rows_of(key);
        let places = (0..WAYS).map(|way| Location::Bank { way: way as u8, row: rows[way] });
        let is_written = |way: usize| self.written[1..].iter().any(|rows_of| rows_of[way] == Some(rows[way]));
        let is_open = self.engine.nodes.is_empty() || self.engine.insertions < self.parameters.rest_cycles;
        let is_free = |place: &Location| self.at(*place).is_none() && self.engine.target != Some(*place);
        let free = places.enumerate().find(|(way, place)| is_open && is_free(place) && !is_written(*way));
        let free = free.map(|(_, place)| place);
        self.store(key, free.or_else(|| self.free_in_stash()))
    }

    /// Stores a key that is not stored yet in the stash, whatever places it has. Its value is zero.
    ///
    /// # Errors
    /// Those of [`Cuckoo::insert`].
    ///
    /// # Panics
    /// As [`Cuckoo::insert`] does.
    pub fn insert_in_stash(&mut self, key: &[u8]) -> Result<Slot, Refusal> {
        self.store(key, self.free_in_stash())
    }

    fn free_in_stash(&self) -> Option<Location> {
        self.stash.iter().position(Option::is_none).map(|free| Location::Stash(free as u8))
    }

    fn store(&mut self, key: &[u8], place: Option<Location>) -> Result<Slot, Refusal> {
        assert!(self.lookup(key).is_none(), "the key is stored already");
        if self.is_full() {
            return Err(Refusal::Full);
        }
        let place = place.ok_or(Refusal::Busy)?;
        let slot = self.slots.allocate(key, place).ok_or(Refusal::Busy)?;
        self.write(place, Some(slot));
        self.engine.insertions += u32::from(!self.engine.nodes.is_empty());
        Ok(slot)
    }

    /// Removes a key. Its slot rests.
    ///
    /// # Panics
    /// If the key has another length than the table's.
    pub fn delete(&mut self, key: &[u8]) -> Option<Slot> {
        let slot = self.lookup(key)?;
        // While a chain moves, an entry may be in two places.
        let places: Vec<Location> = self.locations(key).filter(|&place| self.at(place) == Some(slot)).collect();
        for place in places {
            self.write(place, None);
            if let Location::Stash(entry) = place {
                self.engine.deleted(entry);
            }
        }
        self.slots.free(slot);
        Some(slot)
    }

    /// The entry to evict for a key: the one that comes first by `rank` among those in the key's places and the stash.
    /// None of these may be occupied, in which case nothing can be evicted.
    pub fn victim<R: Ord>(&self, key: &[u8], rank: impl Fn(&[u8], &[u8]) -> R) -> Option<Slot> {
        let occupied = self.locations(key).filter_map(|location| self.at(location));
        occupied.min_by_key(|&slot| (rank(self.key(slot), self.value(slot)), self.key(slot)))
    }

    /// Cycles pass, in which freed slots rest.
    pub fn pass_cycles(&mut self, cycles: u64) {
        self.slots.pass_cycles(cycles);
        for _ in 0..cycles.min(self.written.len() as u64) {
            self.written.rotate_right(1);
            self.written[0] = [None; WAYS];
        }
    }

    /// The key of a stored entry.
    pub fn key(&self, slot: Slot) -> &[u8] {
        self.slots.key(slot)
    }

    /// The value of a slot. That of a slot at rest is the last one of its entry.
    pub fn value(&self, slot: Slot) -> &[u8] {
        self.slots.value(slot)
    }

    /// The value of a slot, to change it.
    pub fn value_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.slots.value_mut(slot)
    }

    /// The place of a stored entry; while a chain moves, the newer one of two.
    pub fn location(&self, slot: Slot) -> Option<Location> {
        self.slots.location(slot)
    }

    /// Stored entries by slot.
    pub fn entries(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.slots.count()).map(Slot).filter(|&slot| self.location(slot).is_some())
    }

    /// Checks that each entry is in its places, in no more than two, and that counts agree.
    ///
    /// # Panics
    /// If the contents contradict each other.
    pub fn check_invariants(&self) {
        let mut seen = 0;
        for slot in self.entries() {
            let key = self.key(slot);
            assert_eq!(self.lookup(key), Some(slot), "{slot:?} is not found by its key");
            let places: Vec<Location> = self.locations(key).filter(|&place| self.at(place) == Some(slot)).collect();
            assert!(places.contains(&self.location(slot).unwrap_or(places[0])), "{slot:?} is in {places:?}");
            let stale = self.engine.stale();
            assert!(
                places.len() == 1 || stale.is_some_and(|at| places.len() == 2 && places.contains(&at)),
                "{places:?}"
            );
            seen += places.len();
        }
        let occupied = self.banks.iter().flatten().chain(&self.stash).flatten().count();
        assert_eq!(seen, occupied, "places hold entries that are not stored");
        self.slots.check_invariants();
    }

    /// Places of a key: one in each bank, then the stash.
    fn locations(&self, key: &[u8]) -> impl Iterator<Item = Location> + use<> {
        let rows = self.hash.rows_of(key);
        let banks = (0..WAYS).map(move |way| Location::Bank { way: way as u8, row: rows[way] });
        banks.chain((0..self.stash.len()).map(|entry| Location::Stash(entry as u8)))
    }

    /// The slot in a place.
    fn at(&self, location: Location) -> Option<Slot> {
        match location {
            Location::Bank { way, row } => self.banks[usize::from(way)][row as usize],
            Location::Stash(entry) => self.stash[usize::from(entry)],
        }
    }

    /// Writes a place.
    fn write(&mut self, location: Location, slot: Option<Slot>) {
        match location {
            Location::Bank { way, row } => {
                self.banks[usize::from(way)][row as usize] = slot;
                self.written[0][usize::from(way)] = Some(row);
            }
            Location::Stash(entry) => self.stash[usize::from(entry)] = slot,
        }
    }

    fn check_length(&self, key: &[u8]) {
        let expected = self.parameters.key_bytes as usize;
        assert_eq!(key.len(), expected, "a key of {} bytes, the table's have {expected}", key.len());
    }
}
