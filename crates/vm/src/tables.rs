// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps of an engine, entry by entry, as user space accesses those of the kernel: between two packets, without a
//! snapshot of a large map.

use flowloom_isa::{MapDef, MapKind};

use super::environment::Environment;
use super::maps::Map;
use super::space::Space;

/// -ENOENT
const NO_ENTRY: i64 = -2;
/// -E2BIG
const TOO_BIG: i64 = -7;
/// -EEXIST
const EXISTS: i64 = -17;
/// -ENOSPC
const NO_SPACE: i64 = -28;

/// Why an entry is not changed.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The key of an update that requires it, or of a deletion, has no entry.
    #[error("map `{map}` has no entry with this key")]
    Missing { map: String },
    /// The key of an update that forbids it has an entry.
    #[error("map `{map}` already has an entry with this key")]
    Exists { map: String },
    /// The map is full, or the index is beyond its end.
    #[error("map `{map}` has no room: it holds {entries} entries, the most it may have is {max_entries}")]
    Full { map: String, entries: u64, max_entries: u32 },
    /// A core's share of the map is full.
    #[error(
        "core {core}, to which the packets of this key go, has no room: it holds {entries} entries of map `{map}`, the \
         most it may have is {max_entries}"
    )]
    Share { map: String, core: usize, entries: u64, max_entries: u32 },
    /// The index of an array is beyond its end.
    #[error("index {index} is beyond the end of map `{map}`, which has {max_entries} entries")]
    Index { map: String, index: u32, max_entries: u32 },
    /// A key or value of another size.
    #[error("{part} is {found} bytes, map `{map}` expects {expected}")]
    Size { map: String, part: &'static str, found: usize, expected: u32 },
    /// The kind of the map, or its use by the program, forbids the change.
    #[error("entries of map `{map}` ({kind}) cannot be {what} while the function runs")]
    Kind { map: String, kind: String, what: &'static str },
    /// The prefix of an LPM key is longer than its address.
    #[error("the key of map `{map}` begins with a prefix length that its address does not have")]
    Prefix { map: String },
}

/// The maps of an engine, entry by entry.
///
/// Maps are named by their index in the program. An access counts as no use of an entry for eviction, except a write.
pub trait Tables {
    /// The definitions.
    fn defs(&self) -> &[MapDef];

    /// The number of entries of a map; of arrays, all that they have.
    fn entries(&self, map: usize) -> u64;

    /// True if the map has entries that can be read: it is not a ring buffer, and not a redirect map with its default
    /// contents.
    fn is_readable(&self, map: usize) -> bool;

    /// The values of a key on all CPUs; of LPM maps, that of the longest prefix.
    fn lookup(&self, map: usize, key: &[u8]) -> Option<Vec<u8>>;

    /// Writes an entry, with the flags of the kernel's `bpf_map_update_elem`.
    ///
    /// # Errors
    /// The entry cannot be written; nothing is changed then.
    fn update(&mut self, map: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), UpdateError>;

    /// Deletes an entry.
    ///
    /// # Errors
    /// There is none, or none can be deleted.
    fn delete(&mut self, map: usize, key: &[u8]) -> Result<(), UpdateError>;

    /// Visits the entries of `most` slots from `from` on; returns where the next call continues, `None` at the end.
    /// Entries that are written or deleted between calls may be visited or not.
    ///
    /// # Cost
    /// Machine code: the slots visited. The interpreter: all keys of a hash map in each call.
    fn visit(&self, map: usize, from: u32, most: u32, visitor: &mut dyn FnMut(&[u8], &[u8])) -> Option<u32>;
}

fn invalid(def: &MapDef, key: &[u8], what: &'static str) -> UpdateError {
    let map = def.name.clone();
    match def.kind {
        MapKind::LpmTrie => UpdateError::Prefix { map },
        _ => UpdateError::Kind { map, kind: format!("{:?}", def.kind), what },
    }
    .index_or(def, key)
}

impl UpdateError {
    /// For an array, the error of an index beyond its end.
    fn index_or(self, def: &MapDef, key: &[u8]) -> UpdateError {
        let index = key.try_into().map(u32::from_le_bytes).unwrap_or_default();
        let is_array = matches!(def.kind, MapKind::Array | MapKind::PerCpuArray);
        if is_array && index >= def.max_entries {
            return UpdateError::Index { map: def.name.clone(), index, max_entries: def.max_entries };
        }
        self
    }
}

impl<S: Space> Environment<S> {
    /// Exchanges the contents of maps with those of another environment: pairs of own and other map. The maps of a pair
    /// have equal kinds, sizes, capacities and flags.
    ///
    /// # Panics
    /// They have not, or there is no such map.
    ///
    /// # Cost
    /// Independent of the number of entries.
    pub fn exchange_maps(&mut self, other: &mut Environment<S>, maps: &[(usize, usize)]) {
        for (own, from) in maps {
            let (own, from) = (&mut self.space.maps_mut()[*own], &mut other.space.maps_mut()[*from]);
            own.exchange(from);
        }
        self.space.maps_moved();
        other.space.maps_moved();
    }

    fn map(&self, map: usize) -> Option<&Map<S::Tables>> {
        self.space.maps().get(map)
    }
}

impl<S: Space> Tables for Environment<S> {
    fn defs(&self) -> &[MapDef] {
        &self.program.maps
    }

    fn entries(&self, map: usize) -> u64 {
        self.map(map).map_or(0, Map::len)
    }

    fn is_readable(&self, map: usize) -> bool {
        self.map(map).is_some_and(|map| map.is_state() && !map.is_bound_one_to_one())
    }

    fn lookup(&self, map: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.map(map)?.peek(key)
    }

    fn update(&mut self, map: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), UpdateError> {
        let map = &mut self.space.maps_mut()[map];
        let def = map.def().clone();
        let size = |part, found: usize, expected| UpdateError::Size { map: def.name.clone(), part, found, expected };
        if key.len() != def.key_bytes as usize {
            return Err(size("key", key.len(), def.key_bytes));
        }
        if value.len() != def.value_bytes as usize {
            return Err(size("value", value.len(), def.value_bytes));
        }
        let what = "written";
        if !map.is_state() {
            return Err(UpdateError::Kind { map: def.name.clone(), kind: format!("{:?}", def.kind), what });
        }
        let full = |map: &Map<S::Tables>| UpdateError::Full {
            map: def.name.clone(),
            entries: map.len(),
            max_entries: def.max_entries,
        };
        if !map.has_room_for(key, 0) {
            return Err(full(map).index_or(&def, key));
        }
        match map.update(key, value, flags, 0) {
            0 => Ok(()),
            NO_ENTRY => Err(UpdateError::Missing { map: def.name }),
            EXISTS => Err(UpdateError::Exists { map: def.name }),
            TOO_BIG | NO_SPACE => Err(full(map).index_or(&def, key)),
            _ => Err(invalid(&def, key, what)),
        }
    }

    fn delete(&mut self, map: usize, key: &[u8]) -> Result<(), UpdateError> {
        let map = &mut self.space.maps_mut()[map];
        let def = map.def().clone();
        if key.len() != def.key_bytes as usize {
            let (found, expected) = (key.len(), def.key_bytes);
            return Err(UpdateError::Size { map: def.name, part: "key", found, expected });
        }
        let result = map.delete(key);
        map.end_run();
        match result {
            0 => Ok(()),
            NO_ENTRY => Err(UpdateError::Missing { map: def.name }),
            _ => Err(invalid(&def, key, "deleted")),
        }
    }

    fn visit(&self, map: usize, from: u32, most: u32, visitor: &mut dyn FnMut(&[u8], &[u8])) -> Option<u32> {
        self.map(map)?.visit(from, most, visitor)
    }
}
