// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps on the tables of the standard library.
//!
//! The values of a map are contiguous cells, so that an address is a cell and an offset. An entry has a slot: one cell
//! or, in per-CPU maps, one for each CPU.
//!
//! ```text
//!  key ──Array · Keyed · Prefixes──► slot ──× CPUs + CPU──► cell ──► bytes
//!  key ──Members──► a map or a program, by number
//! ```
//!
//! The results of operations, and the order of their checks, are the kernel's: 0 or a negative error number.

mod backing;
mod entries;
mod keyed;
mod prefixes;
mod state;
mod values;

use std::collections::BTreeMap;

pub use backing::{Backing, Cells, Keys, Kind, Rank, Standard};
use flowloom_context::Aged;
use flowloom_isa::limits::LOCK_BYTES;
use flowloom_isa::{BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG, MapDef, MapKind, Member};
use prefixes::Prefixes;
pub(crate) use state::Known;
pub(super) use values::MAX_PAGED_BYTES;

/// -ENOENT
const NO_ENTRY: i64 = -2;
/// -E2BIG
const TOO_BIG: i64 = -7;
/// -EEXIST
const EXISTS: i64 = -17;
/// -EINVAL
const INVALID: i64 = -22;
/// -ENOSPC
const NO_SPACE: i64 = -28;

/// Flag of an update: only if the key is new.
const BPF_NOEXIST: u64 = 1;
/// Flag of an update: only if the key exists; the largest mode.
const BPF_EXIST: u64 = 2;
/// Flag of an update: under the value's lock.
const BPF_F_LOCK: u64 = 4;

/// A map of a program.
#[derive(Debug)]
pub struct Map<B: Backing = Standard> {
    def: MapDef,
    /// The cells of a slot.
    cpus: u32,
    values: B::Cells,
    table: Table<B::Keys>,
    /// The next evictions of a full table, from a run record: keys, and the number of free entries at which it may
    /// evict already.
    victims: Option<(Vec<Vec<u8>>, usize)>,
}

/// The lookup structure of a map.
#[derive(Debug)]
enum Table<K> {
    /// The key is the slot.
    Array,
    Keyed(K),
    Prefixes(Prefixes),
    /// Redirect targets; programs only look them up. `given`: by a state. Otherwise each key of a device map leads to
    /// the port of its number, and the entries are those looked up so far.
    Ports {
        entries: K,
        given: bool,
    },
    /// Maps or programs, by number.
    Members(BTreeMap<Vec<u8>, u32>),
    /// Records pass through, none are stored.
    Records,
}

impl Map {
    /// A map on tables of the standard library in its initial state. The definition has been checked.
    pub fn standard(def: &MapDef, cpus: u32) -> Map {
        let Ok(map) = Map::new(def, cpus);
        map
    }

    /// The keys used after a time, oldest use first, with the times of their last uses; none but of LRU tables.
    pub(super) fn used_since(&self, time: u64) -> Vec<(u64, Vec<u8>)> {
        let Table::Keyed(entries) = &self.table else { return Vec::new() };
        entries.used_since(time)
    }
}

impl<B: Backing> Map<B> {
    /// A map in its initial state, for a number of CPUs. The definition has been checked.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(def: &MapDef, cpus: u32) -> Result<Map<B>, B::Error> {
        let mut map = Map::empty(def, cpus)?;
        for (key, value) in def.layout.iter().flat_map(|layout| &layout.preloaded) {
            map.update(key, value, 0, 0);
        }
        for (key, member) in &def.members {
            let (Member::Map(number) | Member::Program(number)) = *member;
            if let Table::Members(members) = &mut map.table {
                members.insert(key.to_le_bytes().to_vec(), number as u32);
            }
        }
        Ok(map)
    }

    /// A map with only the entries that always exist.
    fn empty(def: &MapDef, cpus: u32) -> Result<Map<B>, B::Error> {
        let cpus = if def.kind.is_per_cpu() { cpus } else { 1 };
        let keyed = |kind| B::table(def, cpus, kind);
        let (table, values) = match def.kind {
            MapKind::Array | MapKind::PerCpuArray => (Table::Array, B::array(def, cpus)?),
            MapKind::Hash | MapKind::PerCpuHash => {
                let kind = if def.flags & BPF_F_NO_PREALLOC != 0 { Kind::OnDemand } else { Kind::Preallocated };
                let (keys, values) = keyed(kind)?;
                (Table::Keyed(keys), values)
            }
            MapKind::LruHash | MapKind::LruPerCpuHash => {
                let (keys, values) = keyed(Kind::Lru)?;
                (Table::Keyed(keys), values)
            }
            MapKind::LpmTrie => (Table::Prefixes(Prefixes::default()), B::cells(def, cpus)?),
            MapKind::Devmap | MapKind::DevmapHash | MapKind::Cpumap | MapKind::Xskmap => {
                let given = def.kind != MapKind::Devmap;
                let (entries, values) = keyed(Kind::OnDemand)?;
                (Table::Ports { entries, given }, values)
            }
            MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::HashOfMaps => {
                (Table::Members(BTreeMap::new()), B::cells(def, cpus)?)
            }
            // Unsupported kinds do not pass the check.
            MapKind::PerfEventArray | MapKind::RingBuf | MapKind::Other(_) => (Table::Records, B::cells(def, cpus)?),
        };
        Ok(Map { def: def.clone(), cpus, values, table, victims: None })
    }

    /// The definition.
    pub fn def(&self) -> &MapDef {
        &self.def
    }

    /// The keys, of hash tables.
    pub fn keys_mut(&mut self) -> Option<&mut B::Keys> {
        match &mut self.table {
            Table::Keyed(keys) => Some(keys),
            _ => None,
        }
    }

    /// The values.
    #[inline]
    pub fn cells(&self) -> &B::Cells {
        &self.values
    }

    /// The values, mutable.
    #[inline]
    pub(super) fn cells_mut(&mut self) -> &mut B::Cells {
        &mut self.values
    }

    /// Whether programs may write values.
    pub(super) fn is_writable(&self) -> bool {
        self.def.flags & BPF_F_RDONLY_PROG == 0 && !matches!(self.table, Table::Ports { .. })
    }

    /// Whether programs may read values.
    pub(super) fn is_readable(&self) -> bool {
        self.def.flags & BPF_F_WRONLY_PROG == 0
    }

    /// Whether it is constant data of the program.
    fn is_constant(&self) -> bool {
        self.def.flags & BPF_F_RDONLY_PROG != 0 && self.def.initial.is_some()
    }

    /// Whether its contents are part of the state: not constants, and not records.
    pub(super) fn is_state(&self) -> bool {
        !self.is_constant() && !matches!(self.table, Table::Records)
    }

    #[inline]
    pub(super) fn value(&self, cell: u64) -> Option<&[u8]> {
        self.values.get(cell)
    }

    #[inline]
    pub(super) fn value_mut(&mut self, cell: u64) -> Option<&mut [u8]> {
        self.values.get_mut(cell)
    }

    /// Whether an existing cell may be written: storage of large arrays is limited ([`MAX_PAGED_BYTES`]).
    #[inline]
    pub(super) fn has_room(&self, cell: u64) -> bool {
        self.values.has_room(cell)
    }

    /// Whether the update of an entry has storage. Of an array, pages are limited; in an LPM table, slots of entries
    /// that the packet deleted are not reused yet. Other tables are limited by their capacity.
    pub(super) fn has_room_for(&self, key: &[u8], cpu: u32) -> bool {
        if let Table::Prefixes(prefixes) = &self.table {
            return self.values.has_room(u64::from(prefixes.next_slot()) * u64::from(self.cpus));
        }
        let Table::Array = self.table else { return true };
        let cell = |index: u32| u64::from(index) * u64::from(self.cpus) + u64::from(cpu.min(self.cpus - 1));
        self.index(key).is_none_or(|index| self.values.has_room(cell(index)))
    }

    fn index(&self, key: &[u8]) -> Option<u32> {
        let index = u32::from_le_bytes(key.try_into().ok()?);
        (index < self.def.max_entries).then_some(index)
    }

    /// The cell of a key's value on a CPU, if there is such a CPU.
    pub fn lookup(&mut self, key: &[u8], cpu: u32) -> Option<u32> {
        let cpu = if self.def.kind.is_per_cpu() { cpu } else { 0 };
        if let Table::Ports { entries, given: false } = &self.table
            && entries.slot(key).is_none()
            && let Some(port) = self.index(key)
        {
            self.put(key, &padded(port, self.def.value_bytes));
        }
        let slot = match &mut self.table {
            Table::Array => self.index(key),
            Table::Keyed(entries) => entries.used(key),
            Table::Ports { entries, .. } => entries.slot(key),
            Table::Prefixes(prefixes) => prefixes.longest(key),
            Table::Members(_) | Table::Records => None,
        };
        slot.filter(|_| cpu < self.cpus).map(|slot| slot * self.cpus + cpu)
    }

    /// The map or program of a key.
    pub fn member(&self, key: &[u8]) -> Option<u32> {
        match &self.table {
            Table::Members(members) => members.get(key).copied(),
            _ => None,
        }
    }

    /// The number of entries of an array, whose keys are the numbers below it.
    pub fn indices(&self) -> Option<u32> {
        matches!(self.table, Table::Array).then_some(self.def.max_entries)
    }

    /// The number of entries of a hash table.
    pub fn entries(&self) -> Option<usize> {
        match &self.table {
            Table::Keyed(entries) => Some(entries.len()),
            _ => None,
        }
    }

    /// The keys of a hash table, ascending.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let Table::Keyed(entries) = &self.table else { return Vec::new() };
        let mut keys: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.to_vec()).collect();
        keys.sort_unstable();
        keys
    }

    /// The values of all entries, ascending by key: the ports of a redirect map.
    pub(super) fn ports(&self) -> Vec<u32> {
        let Table::Ports { entries, .. } = &self.table else { return Vec::new() };
        let mut found: Vec<(&[u8], u32)> = entries.iter().collect();
        found.sort_unstable();
        let word = |slot: u32| Some(u32::from_le_bytes(*self.value(slot.into())?.first_chunk()?));
        found.into_iter().filter_map(|(_, slot)| word(slot)).collect()
    }

    /// Whether a redirect map has its default contents, not those of a state.
    pub fn is_bound_one_to_one(&self) -> bool {
        matches!(self.table, Table::Ports { given: false, .. })
    }

    /// Sets the next evictions: these keys instead of the least recently used one, and possibly with `free` entries
    /// left.
    pub(super) fn set_victims(&mut self, keys: Vec<Vec<u8>>, free: usize) {
        self.victims = Some((keys, free));
    }

    /// The keys whose eviction was set but not needed.
    pub(super) fn unused_victims(&mut self) -> Vec<Vec<u8>> {
        self.victims.as_mut().map(|(keys, _)| std::mem::take(keys)).unwrap_or_default()
    }

    /// Updates an entry: 0, or the kernel's negative error number. In a per-CPU map it writes the value of `cpu`; the
    /// others of a new entry are zeros.
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> i64 {
        let (mode, locked) = (flags & !BPF_F_LOCK, flags & BPF_F_LOCK != 0);
        let is_per_cpu = self.def.kind.is_per_cpu();
        let takes_lock = !is_per_cpu && !self.def.kind.is_lru() && self.def.kind != MapKind::LpmTrie;
        // A lock flag for a map without a lock is an unknown flag, except for arrays, which check later.
        let known = if takes_lock || matches!(self.table, Table::Array) { mode } else { flags };
        if known > BPF_EXIST {
            return INVALID;
        }
        // The kernel takes a free entry before it looks for an old one, except for per-CPU values that have to exist.
        if !is_per_cpu || mode != BPF_EXIST {
            self.evict_victims();
        }
        match &self.table {
            Table::Array => self.update_array(key, value, mode, locked, cpu),
            Table::Keyed(entries) => {
                if locked && self.def.spin_lock.is_none() {
                    return INVALID;
                }
                match entries.slot(key) {
                    Some(_) if mode == BPF_NOEXIST => return EXISTS,
                    None if mode == BPF_EXIST => return NO_ENTRY,
                    Some(slot) if locked || is_per_cpu => self.fill(slot * self.cpus + cpu.min(self.cpus - 1), value),
                    old => {
                        if let Err(error) = self.make_room(old.is_none()) {
                            return error;
                        }
                        self.put_on(key, value, cpu);
                        return 0;
                    }
                }
                self.touch(key);
                0
            }
            Table::Prefixes(prefixes) => {
                if !Prefixes::is_valid(key) {
                    return INVALID;
                }
                match prefixes.contains(key) {
                    true if mode == BPF_NOEXIST => return EXISTS,
                    false if mode == BPF_EXIST => return NO_ENTRY,
                    false if prefixes.len() >= self.def.max_entries as usize => return NO_SPACE,
                    _ => {}
                }
                self.put(key, value);
                0
            }
            Table::Ports { .. } | Table::Members(_) | Table::Records => INVALID,
        }
    }

    fn update_array(&mut self, key: &[u8], value: &[u8], mode: u64, locked: bool, cpu: u32) -> i64 {
        // Checks in the kernel's order.
        let Some(index) = self.index(key) else { return TOO_BIG };
        if mode & BPF_NOEXIST != 0 {
            return EXISTS;
        }
        if locked && self.def.spin_lock.is_none() {
            return INVALID;
        }
        let cpu = if self.def.kind.is_per_cpu() { cpu.min(self.cpus - 1) } else { 0 };
        self.fill(index * self.cpus + cpu, value);
        0
    }

    fn touch(&mut self, key: &[u8]) {
        if let Table::Keyed(entries) = &mut self.table {
            entries.touch(key);
        }
    }

    /// Evicts the keys from the run record, if an LRU table may need room.
    fn evict_victims(&mut self) {
        let (Some((victims, free)), Table::Keyed(entries)) = (&mut self.victims, &mut self.table) else { return };
        if entries.len() + *free >= self.def.max_entries as usize {
            for key in victims.drain(..) {
                entries.remove(&key);
            }
        }
    }

    /// Makes room for an entry: an LRU table evicts one, unless a run record determines which; `grows` for a new key.
    fn make_room(&mut self, grows: bool) -> Result<(), i64> {
        let limit = self.def.max_entries as usize;
        let Table::Keyed(entries) = &mut self.table else { return Ok(()) };
        if entries.len() < limit {
            return Ok(());
        }
        if !self.def.kind.is_lru() {
            return if grows { Err(TOO_BIG) } else { Ok(()) };
        }
        if grows
            && self.victims.is_none()
            && let Some(oldest) = entries.oldest()
        {
            entries.remove(&oldest);
        }
        // A record without a key where an eviction is needed leaves no room.
        if grows && entries.len() >= limit { Err(TOO_BIG) } else { Ok(()) }
    }

    /// Writes an entry, with the same value on every CPU.
    fn put(&mut self, key: &[u8], value: &[u8]) {
        for cell in self.make(key) {
            self.fill(cell, value);
        }
    }

    /// Writes an entry with the value on one CPU and zeros on the others.
    fn put_on(&mut self, key: &[u8], value: &[u8], cpu: u32) {
        if self.cpus == 1 {
            return self.put(key, value);
        }
        let zeros = vec![0; value.len()];
        let cells = self.make(key);
        let own = cells.start + cpu.min(self.cpus - 1);
        for cell in cells {
            self.fill(cell, if cell == own { value } else { &zeros });
        }
    }

    /// The cells of a slot for the key.
    fn make(&mut self, key: &[u8]) -> std::ops::Range<u32> {
        let slot = match &mut self.table {
            Table::Keyed(entries) | Table::Ports { entries, .. } => Some(entries.put(key)),
            Table::Prefixes(prefixes) => prefixes.put(key),
            Table::Array => self.index(key),
            Table::Members(_) | Table::Records => None,
        };
        let Some(slot) = slot else { return 0..0 };
        let cells = slot * self.cpus..(slot + 1) * self.cpus;
        self.values.grow(cells.end);
        cells
    }

    /// Writes a cell, except its lock.
    fn fill(&mut self, cell: u32, value: &[u8]) {
        // Zeros need no storage.
        if self.values.is_untouched(cell.into()) && value.iter().all(|byte| *byte == 0) {
            return;
        }
        let lock = self.def.spin_lock;
        let Some(bytes) = self.value_mut(cell.into()) else { return };
        bytes.copy_from_slice(value);
        if let Some(lock) =
            lock.and_then(|at| bytes.get_mut(at as usize..)?.first_chunk_mut::<{ LOCK_BYTES as usize }>())
        {
            *lock = [0; LOCK_BYTES as usize];
        }
    }

    /// Deletes a key: 0, or the kernel's negative error number.
    pub(super) fn delete(&mut self, key: &[u8]) -> i64 {
        match &mut self.table {
            Table::Array | Table::Ports { .. } | Table::Members(_) | Table::Records => INVALID,
            Table::Keyed(entries) => entries.remove(key).map_or(NO_ENTRY, |_| 0),
            Table::Prefixes(_) if !Prefixes::is_valid(key) => INVALID,
            Table::Prefixes(prefixes) => {
                if prefixes.remove(key) {
                    0
                } else {
                    NO_ENTRY
                }
            }
        }
    }

    /// Evicts the entry with the smallest or largest value in a field, of several the one with the smallest key: 0, or
    /// a negative error number.
    pub(super) fn evict(&mut self, rank: &Rank) -> i64 {
        let Table::Keyed(entries) = &mut self.table else { return INVALID };
        let victim = entries.least(rank, &|slot| rank.of(self.values.slot(slot, 1)));
        victim.and_then(|key| entries.remove(&key)).map_or(NO_ENTRY, |_| 0)
    }

    /// The run has ended: deleted entries are no longer referenced.
    #[inline]
    pub fn end_run(&mut self) {
        match &mut self.table {
            Table::Prefixes(prefixes) => prefixes.end_run(),
            Table::Keyed(entries) => entries.end_run(),
            Table::Array | Table::Ports { .. } | Table::Members(_) | Table::Records => {}
        }
    }

    /// Removes the entries that have expired at `now_ns`, or moves them to their successor states: those whose slots are
    /// at least `from` and less than `from + most`. Returns the slot after them, or `None` if no slot follows.
    pub(super) fn sweep(&mut self, now_ns: u64, from: u32, most: u32) -> Option<u32> {
        let layout = self.def.layout.as_ref()?;
        let Table::Keyed(entries) = &mut self.table else { return None };
        let (values, cpus) = (&mut self.values, self.cpus);
        entries.retain_some(from, most, &mut |slot| layout.age(values.slot_mut(slot, cpus), now_ns) != Aged::Expired)
    }

    /// The most slots that a sweep visits: one more than there are entries, for updates of a full table.
    pub(super) fn swept_slots(&self) -> u32 {
        let is_swept = self.def.layout.is_some() && matches!(self.table, Table::Keyed(_));
        if is_swept { self.def.max_entries.saturating_add(1) } else { 0 }
    }

    /// Panics unless every slot is used exactly once and the table is within its capacity.
    pub fn check_invariants(&self) {
        let cell_bytes = self.def.value_bytes as usize * self.cpus as usize;
        match &self.table {
            Table::Array => assert_eq!(self.values.len(), cell_bytes as u64 * u64::from(self.def.max_entries)),
            Table::Keyed(entries) | Table::Ports { entries, .. } => {
                entries.check_invariants();
                assert!(entries.len() <= self.def.max_entries as usize);
                assert!(entries.iter().all(|(key, _)| key.len() == self.def.key_bytes as usize));
                assert!(entries.iter().all(|(_, slot)| (u64::from(slot) + 1) * cell_bytes as u64 <= self.values.len()));
            }
            Table::Prefixes(prefixes) => {
                prefixes.check_invariants();
                assert!(prefixes.len() <= self.def.max_entries as usize);
            }
            Table::Members(_) | Table::Records => assert_eq!(self.values.len(), 0),
        }
    }
}

/// A value that begins with a number.
fn padded(number: u32, value_bytes: u32) -> Vec<u8> {
    let mut value = vec![0; value_bytes as usize];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value
}
