//! Maps on the tables of the standard library.
//!
//! A map's values lie side by side in slots, so that an address is a slot and an offset. An entry of a hash table that is
//! deleted or replaced keeps its slot until the run ends, because the program may still hold its address: that is how
//! tables without preallocation behave in the kernel.

use std::collections::HashMap;

use flowloom_engine::{MapState, SnapshotError};

use crate::context::Aged;
use crate::map_kind::MapKind;
use crate::program::{BPF_F_RDONLY_PROG, MapDef};

/// -ENOENT
const NO_ENTRY: i64 = -2;
/// -E2BIG
const TOO_BIG: i64 = -7;
/// -EEXIST
const EXISTS: i64 = -17;
/// -EINVAL
const INVALID: i64 = -22;

/// Flag of an update: only if the key is new.
const BPF_NOEXIST: u64 = 1;
/// The largest flag that is a mode.
const BPF_EXIST: u64 = 2;
/// Flag of an update: under the value's lock; no value of ours has one.
const BPF_F_LOCK: u64 = 4;

/// One map.
#[derive(Debug, Clone)]
pub(super) struct Map {
    def: MapDef,
    /// All slots, one after the other.
    values: Vec<u8>,
    table: Table,
}

/// How keys lead to slots.
#[derive(Debug, Clone)]
enum Table {
    Hash {
        slots: HashMap<Box<[u8]>, u32>,
        /// Slots that nothing refers to.
        free: Vec<u32>,
        /// Slots whose entry is gone, but whose address a program may hold.
        graveyard: Vec<u32>,
    },
    /// The key is the slot.
    Array,
    /// As an array; the value of an entry is its own number, the port.
    Devmap,
}

impl Map {
    /// A map as the program begins with it. The definition has been checked.
    pub(super) fn new(def: &MapDef) -> Map {
        let mut map = Map::empty(def);
        for (key, value) in def.layout.iter().flat_map(|layout| &layout.preloaded) {
            map.update(key, value, 0);
        }
        map
    }

    /// A map without any entry that is not always there.
    fn empty(def: &MapDef) -> Map {
        let size = def.value_bytes as usize;
        let (table, values) = match def.kind {
            MapKind::Hash => {
                (Table::Hash { slots: HashMap::new(), free: Vec::new(), graveyard: Vec::new() }, Vec::new())
            }
            // Other kinds do not pass the check.
            _ if def.kind != MapKind::Devmap => {
                let zeros = || vec![0; size * def.max_entries as usize];
                (Table::Array, def.initial.clone().unwrap_or_else(zeros))
            }
            _ => {
                let mut values = vec![0; size * def.max_entries as usize];
                for (port, value) in (0u32..).zip(values.chunks_exact_mut(size)) {
                    value[..4].copy_from_slice(&port.to_le_bytes());
                }
                (Table::Devmap, values)
            }
        };
        Map { def: def.clone(), values, table }
    }

    pub(super) fn def(&self) -> &MapDef {
        &self.def
    }

    /// Whether programs may write values.
    pub(super) fn is_writable(&self) -> bool {
        self.def.flags & BPF_F_RDONLY_PROG == 0 && !matches!(self.table, Table::Devmap)
    }

    /// Whether it is part of the state of a function: not the ports, and not constants that came with the program.
    pub(super) fn is_state(&self) -> bool {
        let is_constant = self.def.flags & BPF_F_RDONLY_PROG != 0 && self.def.initial.is_some();
        !matches!(self.table, Table::Devmap) && !is_constant
    }

    /// The bytes of a slot, if there is one.
    #[inline]
    pub(super) fn value(&self, slot: u64) -> Option<&[u8]> {
        let size = self.def.value_bytes as usize;
        let start = usize::try_from(slot).ok()?.checked_mul(size)?;
        self.values.get(start..start.checked_add(size)?)
    }

    /// The bytes of a slot, to write.
    #[inline]
    pub(super) fn value_mut(&mut self, slot: u64) -> Option<&mut [u8]> {
        let size = self.def.value_bytes as usize;
        let start = usize::try_from(slot).ok()?.checked_mul(size)?;
        self.values.get_mut(start..start.checked_add(size)?)
    }

    fn index(&self, key: &[u8]) -> Option<u32> {
        let index = u32::from_le_bytes(key.try_into().ok()?);
        (index < self.def.max_entries).then_some(index)
    }

    /// The slot of a key's value.
    pub(super) fn lookup(&self, key: &[u8]) -> Option<u32> {
        match &self.table {
            Table::Hash { slots, .. } => slots.get(key).copied(),
            Table::Array | Table::Devmap => self.index(key),
        }
    }

    /// Writes a value under a key: 0, or a negative error number as the kernel gives it.
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], flags: u64) -> i64 {
        if flags & !BPF_F_LOCK > BPF_EXIST {
            return INVALID;
        }
        let max_entries = self.def.max_entries as usize;
        match &mut self.table {
            Table::Devmap => INVALID,
            Table::Array => {
                // In the kernel's order of asking.
                let Some(index) = self.index(key) else { return TOO_BIG };
                if flags & BPF_NOEXIST != 0 {
                    return EXISTS;
                }
                if flags & BPF_F_LOCK != 0 {
                    return INVALID;
                }
                let Some(slot) = self.value_mut(index.into()) else { return TOO_BIG };
                slot.copy_from_slice(value);
                0
            }
            Table::Hash { slots, free, graveyard } => {
                if flags & BPF_F_LOCK != 0 {
                    return INVALID;
                }
                let old = slots.get(key).copied();
                match old {
                    Some(_) if flags == BPF_NOEXIST => return EXISTS,
                    None if flags == BPF_EXIST => return NO_ENTRY,
                    None if slots.len() >= max_entries => return TOO_BIG,
                    _ => {}
                }
                let slot = match free.pop() {
                    Some(slot) => {
                        let start = slot as usize * value.len();
                        self.values[start..start + value.len()].copy_from_slice(value);
                        slot
                    }
                    None => {
                        let slot = (self.values.len() / value.len()) as u32;
                        self.values.extend_from_slice(value);
                        slot
                    }
                };
                // A replaced entry lives on under its address, with its old value.
                graveyard.extend(old);
                match slots.get_mut(key) {
                    Some(place) => *place = slot,
                    None => drop(slots.insert(key.into(), slot)),
                }
                0
            }
        }
    }

    /// Removes a key: 0, or a negative error number as the kernel gives it.
    pub(super) fn delete(&mut self, key: &[u8]) -> i64 {
        match &mut self.table {
            Table::Array | Table::Devmap => INVALID,
            Table::Hash { slots, graveyard, .. } => match slots.remove(key) {
                Some(slot) => {
                    graveyard.push(slot);
                    0
                }
                None => NO_ENTRY,
            },
        }
    }

    /// Removes the entry with the smallest or largest value in a field, of several the one with the smallest key: 0, or a
    /// negative error number.
    pub(super) fn evict(&mut self, field: std::ops::Range<usize>, signed: bool, highest: bool) -> i64 {
        let size = self.def.value_bytes as usize;
        let Table::Hash { slots, graveyard, .. } = &mut self.table else { return INVALID };
        let worth = |slot: u32| {
            let mut bytes = [0; 8];
            bytes[..field.len()].copy_from_slice(&self.values[slot as usize * size..][field.clone()]);
            let shift = 64 - 8 * field.len() as u32;
            let number = u64::from_le_bytes(bytes) << shift;
            let number = if signed { i128::from(number as i64 >> shift) } else { i128::from(number >> shift) };
            if highest { -number } else { number }
        };
        let victim = slots.iter().map(|(key, &slot)| (worth(slot), key)).min().map(|(_, key)| key.clone());
        let Some(slot) = victim.and_then(|key| slots.remove(&key)) else { return NO_ENTRY };
        graveyard.push(slot);
        0
    }

    /// No address is held any more: slots of entries that are gone can be used again.
    #[inline]
    pub(super) fn end_run(&mut self) {
        if let Table::Hash { free, graveyard, .. } = &mut self.table {
            free.append(graveyard);
        }
    }

    /// Removes the entries that have run out at `now_ns`, or moves them to their successors.
    pub(super) fn sweep(&mut self, now_ns: u64) {
        let Some(layout) = &self.def.layout else { return };
        let Table::Hash { slots, free, .. } = &mut self.table else { return };
        let size = self.def.value_bytes as usize;
        slots.retain(|_, slot| {
            let value = &mut self.values[*slot as usize * size..][..size];
            let gone = layout.age(value, now_ns) == Aged::Gone;
            if gone {
                free.push(*slot);
            }
            !gone
        });
    }

    /// The contents, if they are part of the state of a function.
    pub(super) fn snapshot(&self) -> Option<MapState> {
        let size = self.def.value_bytes as usize;
        if !self.is_state() {
            return None;
        }
        Some(match &self.table {
            Table::Hash { slots, .. } => {
                let value = |slot: u32| self.values[slot as usize * size..][..size].to_vec();
                slots.iter().map(|(key, slot)| (key.to_vec(), value(*slot))).collect()
            }
            Table::Array | Table::Devmap => {
                let keys = (0u32..).map(|index| index.to_le_bytes().to_vec());
                keys.zip(self.values.chunks_exact(size).map(<[u8]>::to_vec)).collect()
            }
        })
    }

    /// A map with these contents instead; entries of arrays that are not named are as they were at first.
    ///
    /// # Errors
    /// A key or value has another length, an index is too large, or there are too many entries.
    pub(super) fn with_contents(&self, state: &MapState) -> Result<Map, SnapshotError> {
        let def = &self.def;
        let size = |part, found, expected: u32| SnapshotError::Size {
            map: def.name.clone(),
            part,
            found,
            expected: expected as usize,
        };
        if state.len() > def.max_entries as usize {
            return Err(SnapshotError::TooMany {
                map: def.name.clone(),
                found: state.len(),
                expected: def.max_entries as usize,
            });
        }
        let mut map = Map::empty(def);
        for (key, value) in state {
            if key.len() != def.key_bytes as usize {
                return Err(size("key", key.len(), def.key_bytes));
            }
            if value.len() != def.value_bytes as usize {
                return Err(size("value", value.len(), def.value_bytes));
            }
            if map.update(key, value, 0) != 0 {
                return Err(SnapshotError::Form {
                    map: def.name.clone(),
                    expected: "an index, little endian, below the number of entries",
                    found: key.iter().map(|b| format!("{b:02x}")).collect(),
                });
            }
        }
        Ok(map)
    }

    /// The map as it was when the function was loaded.
    pub(super) fn initial(&self) -> Map {
        Map::new(&self.def)
    }

    /// Panics unless every slot is used exactly once and the table is not over-full.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let size = self.def.value_bytes as usize;
        assert_eq!(self.values.len() % size, 0);
        if let Table::Hash { slots, free, graveyard } = &self.table {
            let mut used: Vec<u32> = slots.values().chain(free).chain(graveyard).copied().collect();
            used.sort_unstable();
            assert_eq!(used, (0..(self.values.len() / size) as u32).collect::<Vec<_>>());
            assert!(slots.len() <= self.def.max_entries as usize);
            assert!(slots.keys().all(|k| k.len() == self.def.key_bytes as usize));
        } else {
            assert_eq!(self.values.len(), size * self.def.max_entries as usize);
        }
    }
}
