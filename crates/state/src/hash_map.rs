// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash map of a pipeline, cycle by cycle: when it has room, and how many entries it holds.
//!
//! ```text
//!   cycle  0        1          3                            4 to 6           6 + delay
//!          request  snapshot   effect; pending keys         array of rows    result of the slice
//! ```
//!
//! It is the twin of `hdl/table/fl_hash_map.sv`, which explains pending keys, movers and candidates. Values are left
//! out: what packets store decides nothing about cycles, only whether entries exist. Accesses of the host are left out
//! too.

mod pending;

use std::collections::VecDeque;
use std::rc::Rc;

use crate::cuckoo::{Cuckoo, EngineClock, Operations, Parameters, Slot};
use crate::error::ParameterError;
use pending::{Input, Pending};

/// The cycle of the result of the cuckoo table, and the one in which the value is there.
const HIT: usize = 3;
const VALUE: usize = HIT + 3;
/// Keys whose entry was deleted, and that wait to leave the cuckoo table.
const CANDIDATES: u32 = 64;
/// Cycles for which a freed slot rests, besides the delay of the slice.
const REST_CYCLES: u32 = 16;
/// Cycles after which an insertion that was refused is tried again.
const RETRY_CYCLES: u8 = 7;

/// Sizes of a hash map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapParameters {
    /// Entries at most.
    pub entries: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Cycles from the value to the result of the slice.
    pub delay_cycles: u32,
    /// Packets that may enter after the map has no room.
    pub ahead: u32,
    /// Seed of the hash functions.
    pub hash_seed: u64,
}

impl MapParameters {
    /// The keys that the cuckoo table holds: entries, and keys on their way into it or out of it.
    fn keys(&self) -> u32 {
        self.entries + CANDIDATES + pending::ENTRIES
    }

    /// The cycle of the slice's result.
    fn slice(&self) -> usize {
        VALUE + self.delay_cycles as usize
    }

    /// So many keys may wait to leave the table that each packet on its way and two copies can add one.
    fn most_waiting(&self) -> usize {
        (CANDIDATES as usize).saturating_sub(self.ahead as usize + self.slice() + 6)
    }
}

/// A change that a packet makes to its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Inserts it, or changes its value.
    Update,
    /// Inserts it if it is absent.
    UpdateAbsent,
    /// Changes its value if it is present.
    UpdatePresent,
    /// Deletes it.
    Delete,
}

/// A packet's access to a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapAccess {
    /// The key.
    pub key: Rc<[u8]>,
    /// The changes, in order.
    pub changes: Rc<[Change]>,
}

/// The origin of a request.
#[derive(Debug, Clone)]
enum Source {
    Packet(Rc<[Change]>),
    /// The pending entry.
    Insert(u8),
    Delete,
    Adopt,
}

/// A request to the cuckoo table, and what its snapshot has found.
#[derive(Debug, Clone)]
struct Request {
    source: Source,
    key: Rc<[u8]>,
    found: Option<Slot>,
}

/// A row: the slot of an entry of the cuckoo table, or the own one of a pending entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Slot(u32),
    Own(u8),
}

/// A packet between the cuckoo table and its slice.
#[derive(Debug, Clone)]
struct Lookup {
    /// None for a key without an entry, in a map that packets do not change.
    row: Option<Row>,
    key: Rc<[u8]>,
    changes: Rc<[Change]>,
    /// Whether there is an entry, and whether the map is full, when the value is there.
    is_present: bool,
    is_full: bool,
}

/// An access to the array of rows besides those of packets.
#[derive(Debug, Clone)]
enum Read {
    /// The row of an adopted entry.
    Inspect(u32),
    /// The own row of a pending entry, which is copied to a slot; and the key.
    Copy(u8, u32, Rc<[u8]>),
}

/// The work on an adopted entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mover {
    Idle,
    Inspect,
    Inspected,
    Remove,
    Removed,
}

/// A hash map that packets change.
#[derive(Debug, Clone)]
pub struct MapClock {
    parameters: MapParameters,
    cuckoo: Cuckoo,
    engine: EngineClock,
    pending: Pending,
    /// By age in cycles, from 1 on.
    requests: VecDeque<Option<Request>>,
    /// By age, from the cycle after the cuckoo table's answer on.
    lookups: VecDeque<Option<Lookup>>,
    /// By age from 1 on: whether a packet entered the array.
    entered: VecDeque<bool>,
    reads: [Option<Read>; 2],
    /// Whether slots hold an entry, and the own rows of pending entries.
    slots: Vec<bool>,
    own: [bool; pending::ENTRIES as usize],
    stored: u32,
    candidates: VecDeque<Rc<[u8]>>,
    is_adopting: bool,
    mover: Mover,
    work: u8,
    /// The cycles until an insertion that was refused is tried again.
    refused: u8,
    has_room: bool,
    is_tight: bool,
}

impl MapClock {
    /// An empty map.
    ///
    /// # Errors
    /// If a size is out of range.
    pub fn new(parameters: MapParameters) -> Result<MapClock, ParameterError> {
        let rest_cycles = REST_CYCLES + parameters.delay_cycles;
        let usual = Parameters::for_entries(parameters.keys(), parameters.key_bytes, 0);
        let cuckoo = Parameters { rest_cycles, seed: parameters.hash_seed, ..usual };
        let slots = vec![false; (cuckoo.entries + rest_cycles) as usize];
        let quiet = 5 + parameters.delay_cycles;
        let mut map = MapClock {
            cuckoo: Cuckoo::new(cuckoo)?,
            engine: EngineClock::default(),
            pending: Pending::new(quiet),
            requests: vec![None; HIT].into(),
            lookups: vec![None; parameters.slice() - HIT].into(),
            entered: vec![false; parameters.delay_cycles.max(1) as usize].into(),
            reads: [None, None],
            slots,
            own: [false; pending::ENTRIES as usize],
            stored: 0,
            candidates: VecDeque::new(),
            is_adopting: false,
            mover: Mover::Idle,
            work: 0,
            refused: 0,
            has_room: true,
            is_tight: true,
            parameters,
        };
        map.decide_room(map.pending.free_count());
        Ok(map)
    }

    /// Whether packets with new keys may come.
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// Whether packets that are on their way could fill the map.
    pub fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// The entries.
    pub fn len(&self) -> u32 {
        self.stored
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.stored == 0
    }

    /// Keys that packets have looked up and not found, and those on their way into or out of the cuckoo table.
    pub fn pending_keys(&self) -> u32 {
        pending::ENTRIES - self.pending.free_count()
    }

    /// True if nothing happens before the next packet.
    pub fn is_idle(&self) -> bool {
        self.pending.is_idle()
            && self.mover == Mover::Idle
            && self.refused == 0
            && self.candidates.is_empty()
            && self.requests.iter().all(Option::is_none)
            && self.lookups.iter().all(Option::is_none)
            && self.reads.iter().all(Option::is_none)
            && self.engine.is_idle(&self.cuckoo)
            && self.has_room
    }

    /// Cycles pass in an idle map without a packet.
    pub fn skip(&mut self, cycles: u64) {
        self.pending.skip(cycles);
        self.cuckoo.pass_cycles(cycles);
    }

    /// A cycle, in which a packet may enter.
    pub fn cycle(&mut self, packet: Option<MapAccess>) {
        let op_free = packet.is_none();
        // Cycle 1 of a request: its snapshot.
        if let Some(request) = &mut self.requests[0] {
            request.found = self.cuckoo.lookup(&request.key);
        }
        // Cycle 3: the effect.
        let now = self.requests[HIT - 1].take();
        let deleted = match &now {
            Some(Request { source: Source::Delete, found, .. }) => *found,
            _ => None,
        };
        let acts = matches!(&now, Some(Request { source: Source::Insert(_) | Source::Delete, .. }));
        let delete_pending =
            self.requests.iter().flatten().chain(&now).any(|request| matches!(request.source, Source::Delete));
        let operations = Operations { acts, deletes: deleted.is_some(), delete_pending };
        let steps = self.engine.decide(&self.cuckoo, operations);
        let mut inserted = None;
        match &now {
            Some(Request { source: Source::Insert(entry), key, found, .. }) => {
                let slot = if found.is_none() { self.cuckoo.insert(key).ok() } else { None };
                inserted = Some((*entry, slot.map(|slot| slot.index() as u32)));
            }
            Some(Request { key, .. }) if deleted.is_some() => _ = self.cuckoo.delete(key),
            _ => {}
        }
        if steps {
            self.engine.step(&mut self.cuckoo);
        }
        self.cuckoo.pass_cycles(1);

        // The pending keys.
        let found = now.as_ref().and_then(|request| request.found).map(|slot| slot.index() as u32);
        let looks = now.as_ref().filter(|request| matches!(request.source, Source::Packet(_) | Source::Adopt));
        let hit = looks.and_then(|request| self.pending.find(&request.key));
        let free = self.pending.free_count();
        let allocates = looks.is_some_and(|request| match (hit, &request.source) {
            (Some(_), _) => false,
            (None, Source::Packet(_)) => found.is_none(),
            (None, _) => found.is_some() && free > 0,
        });
        let is_adopted = matches!(&now, Some(Request { source: Source::Adopt, .. }));
        let entering = now.as_ref().and_then(|request| {
            let Source::Packet(changes) = &request.source else { return None };
            let row = match (hit, found) {
                (Some(entry), _) => self.pending.adopted_slot(entry).map_or(Row::Own(entry), Row::Slot),
                (None, Some(slot)) => Row::Slot(slot),
                (None, None) => Row::Own(self.pending.free_entry()),
            };
            let (key, changes) = (Rc::clone(&request.key), Rc::clone(changes));
            Some(Lookup { row: Some(row), key, changes, is_present: false, is_full: false })
        });
        let view = self.pending.view(hit);

        // Requests of the mover, in cycles without a packet.
        let deletes = self.mover == Mover::Remove;
        let inserts = !deletes && view.insert.is_some() && self.refused == 0;
        let adopts = !deletes && !inserts && !self.candidates.is_empty() && !self.is_adopting && free > 2;
        let request = match packet {
            Some(MapAccess { key, changes }) => Some(Request { source: Source::Packet(changes), key, found: None }),
            None if deletes => Some(Request { source: Source::Delete, key: self.pending.key(self.work), found: None }),
            None => match view.insert.filter(|_| inserts) {
                Some(entry) => {
                    Some(Request { source: Source::Insert(entry), key: self.pending.key(entry), found: None })
                }
                None if adopts => self.candidates.front().map(|key| {
                    let key = Rc::clone(key);
                    Request { source: Source::Adopt, key, found: None }
                }),
                None => None,
            },
        };

        // The value, and the result of the slice.
        let full = self.stored == self.parameters.entries;
        if let Some(lookup) = &mut self.lookups[VALUE - HIT - 1] {
            lookup.is_full = full;
            lookup.is_present = match lookup.row {
                Some(Row::Slot(slot)) => self.slots[slot as usize],
                Some(Row::Own(entry)) => self.pending.is_present(entry),
                None => false,
            };
        }
        let slice = self.lookups.pop_back().flatten();
        let result = slice.as_ref().map(|lookup| (lookup, after(lookup)));
        let changed = result.filter(|(lookup, is_present)| lookup.is_present != *is_present);

        // Reads of rows: those that move, and those of adopted entries.
        let work_quiet = self.pending.is_quiet(self.work, hit);
        let array_valid = self.lookups[0].is_some();
        let delay = self.parameters.delay_cycles as usize;
        let array_free = !array_valid && (delay == 0 || !self.entered[delay - 1]);
        let inspects = self.mover == Mover::Inspect && work_quiet;
        let copy = view.copy.filter(|_| self.candidates.len() < self.parameters.most_waiting());
        let copies = copy.filter(|_| !inspects && array_free);
        let read = match copies {
            _ if inspects && array_free => Some(Read::Inspect(self.pending.slot(self.work))),
            Some(entry) => Some(Read::Copy(entry, self.pending.slot(entry), self.pending.key(entry))),
            None => None,
        };
        let answer = self.reads[1].take();
        let (is_inspected, word) = match &answer {
            Some(Read::Inspect(slot)) => (true, self.slots[*slot as usize]),
            Some(Read::Copy(entry, ..)) => (false, self.own[usize::from(*entry)]),
            None => (false, false),
        };
        let ends = self.mover == Mover::Inspected && is_inspected;
        let (releases, disowns) = (ends && work_quiet && word, ends && work_quiet && !word);
        let lets_go = self.mover == Mover::Removed && matches!(&now, Some(Request { source: Source::Delete, .. }));
        let next = self.mover == Mover::Idle && view.quiet.is_some();

        // Keys whose entry was deleted leave the cuckoo table later.
        let pushed = match (&answer, changed) {
            (Some(Read::Copy(_, _, key)), _) => (!word).then(|| Rc::clone(key)),
            (Some(Read::Inspect(_)), _) => None,
            (None, Some((lookup, false))) if matches!(lookup.row, Some(Row::Slot(_))) => Some(Rc::clone(&lookup.key)),
            (None, _) => None,
        };

        // The end of the cycle.
        let waiting = self.candidates.len();
        let mark = changed.and_then(|(lookup, is_present)| match lookup.row {
            Some(Row::Own(entry)) => Some((entry, is_present)),
            _ => None,
        });
        match changed {
            Some((Lookup { row: Some(Row::Slot(slot)), .. }, is_present)) => self.slots[*slot as usize] = is_present,
            Some((Lookup { row: Some(Row::Own(entry)), .. }, is_present)) => {
                self.own[usize::from(*entry)] = is_present;
            }
            _ => {}
        }
        if let Some(Read::Copy(_, slot, _)) = &answer {
            self.slots[*slot as usize] = word;
        }
        let before = self.stored;
        if let Some((_, is_present)) = changed {
            self.stored = if is_present { self.stored + 1 } else { self.stored - 1 };
        }
        let took = |takes: bool| op_free && takes;
        if took(adopts) {
            self.candidates.pop_front();
            self.is_adopting = true;
        } else if is_adopted {
            self.is_adopting = false;
        }
        self.candidates.extend(pushed);
        self.refused = match inserted {
            Some((_, None)) => RETRY_CYCLES,
            _ => self.refused.saturating_sub(1),
        };
        self.mover = match self.mover {
            Mover::Idle if view.quiet.is_some() => Mover::Inspect,
            Mover::Inspect if !work_quiet => Mover::Idle,
            Mover::Inspect if array_free => Mover::Inspected,
            Mover::Inspected if ends && disowns => Mover::Remove,
            Mover::Inspected if ends => Mover::Idle,
            Mover::Remove if op_free => Mover::Removed,
            Mover::Removed if lets_go => Mover::Idle,
            same => same,
        };
        let work = self.work;
        if let (true, Some(entry)) = (next, view.quiet) {
            self.work = entry;
        }
        let allocated = if allocates { looks.map(|request| Rc::clone(&request.key)) } else { None };
        self.pending.end(Input {
            hit,
            allocated,
            adopted: if is_adopted { found } else { None },
            mark,
            insert_take: took(inserts),
            inserted,
            copy_take: copies.is_some(),
            next,
            work,
            release: releases,
            disown: disowns,
            let_go: lets_go,
        });
        self.entered.pop_back();
        self.entered.push_front(array_valid);
        self.lookups.push_front(entering);
        self.requests.pop_back();
        self.requests.push_front(request);
        self.reads = [read, self.reads[0].take()];
        self.decide(free, waiting, before);
    }

    fn decide_room(&mut self, free: u32) {
        self.decide(free, self.candidates.len(), self.stored);
    }

    /// Room and tightness of the next cycle, by the state at the beginning of this one.
    fn decide(&mut self, free: u32, waiting: usize, stored: u32) {
        let MapParameters { entries, ahead, delay_cycles, .. } = self.parameters;
        self.has_room = free > ahead + HIT as u32 + 3 && waiting < self.parameters.most_waiting();
        self.is_tight = delay_cycles != 0 && stored + ahead + self.parameters.slice() as u32 + 4 > entries;
    }
}

/// Whether the entry of a packet exists after its changes.
fn after(lookup: &Lookup) -> bool {
    let (mut is_present, mut is_full) = (lookup.is_present, lookup.is_full);
    for change in lookup.changes.iter() {
        match change {
            Change::Update | Change::UpdateAbsent => is_present |= !is_full,
            Change::UpdatePresent => {}
            // It makes room for an insertion of the same packet.
            Change::Delete => {
                is_full &= !is_present;
                is_present = false;
            }
        }
    }
    is_present
}
