// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of the rewritten programs of one set of maps: the record, the shadows of redirect maps, the logs.
//!
//! Goal: programs that share maps (a program and the targets of its tail calls) are rewritten one by one, at different
//! times, and still agree.
//!
//! ```text
//!   maps of the program │ .data.fl_record │ a shadow for each device hash map
//!                         │
//!                         └─ record │ a table for each device and CPU map │ log of events │ log of deletions
//! ```
//!
//! The kernel fills redirect maps with existing devices, and a test run has none. So redirects and lookups use shadows
//! with the contents of the state: a table in the record for an array, a hash table of the same size for a hash.

use std::collections::BTreeMap;

use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, MapDef, MapKind, Program};

use super::error::RewriteError;
use super::record::{RECORD_BYTES, RECORD_MAP};

/// The size of a table entry: the value, at most 8 bytes, the flag that it exists, and padding.
pub(crate) const TABLE_ENTRY_BYTES: u32 = 16;
/// The offset of the flag that an entry exists.
pub(crate) const TABLE_PRESENT: i16 = 8;
/// The capacity of the log of events of one packet.
pub(crate) const EVENTS_LOGGED: u32 = 256;
/// The size of a logged event: its length and its map, u32 each, and the flags.
pub(crate) const EVENT_BYTES: u32 = 16;
/// The operations in the log of deletions: the key was deleted, or inserted where no entry may exist.
pub(crate) const LOGGED_DELETION: u32 = 0;
pub(crate) const LOGGED_INSERTION: u32 = 1;
/// The capacity of the log of deletions of one packet.
pub(crate) const DELETIONS_LOGGED: u32 = 64;
/// The largest record: at least what an instruction can address.
const MAX_RECORD_BYTES: u64 = 1 << 28;

/// The shadow of a redirect map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shadow {
    /// A table at this offset of the record.
    Table(u32),
    /// The map with this index.
    Hash(usize),
}

/// The layout for rewritten programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The index of the record's map.
    pub(crate) record: usize,
    pub(crate) shadows: BTreeMap<usize, Shadow>,
    /// The offset of the log of events, if a map has events.
    pub(crate) events: Option<u32>,
    /// The offset of the log of deletions, if there are LRU tables, and the size of its entries: the map's index and
    /// the operation, u32 each, and the key.
    pub(crate) deletions: Option<(u32, u32)>,
    /// The maps of the record and the shadows.
    pub(crate) added: Vec<MapDef>,
}

impl Plan {
    /// The layout for the maps of `program`.
    ///
    /// # Errors
    /// A map has the record's name, is of an unsupported kind, or is too large.
    pub(crate) fn of(program: &Program) -> Result<Plan, RewriteError> {
        if program.map_index(RECORD_MAP).is_some() {
            return Err(RewriteError::NameTaken { map: RECORD_MAP });
        }
        if let Some(map) = program.maps.iter().find(|map| !map.kind.is_known()) {
            return Err(RewriteError::MapKind { map: map.name.clone(), kind: map.kind });
        }
        let record = program.maps.len();
        let mut initial = vec![0; RECORD_BYTES];
        let mut shadows = BTreeMap::new();
        let mut hashes = Vec::new();
        for (index, map) in program.maps.iter().enumerate() {
            match map.kind {
                MapKind::Devmap | MapKind::Cpumap | MapKind::Xskmap => {
                    let bytes = u64::from(map.max_entries) * u64::from(TABLE_ENTRY_BYTES);
                    if initial.len() as u64 + bytes > MAX_RECORD_BYTES {
                        return Err(RewriteError::MapSize { map: map.name.clone(), found: map.max_entries });
                    }
                    shadows.insert(index, Shadow::Table(initial.len() as u32));
                    initial.extend(table(map));
                }
                MapKind::DevmapHash => {
                    shadows.insert(index, Shadow::Hash(record + 1 + hashes.len()));
                    hashes.push(shadow_hash(map, hashes.len()));
                }
                _ => {}
            }
        }
        let mut room = |wanted: bool, bytes: u32| {
            let at = initial.len() as u32;
            initial.resize(initial.len() + if wanted { bytes as usize } else { 0 }, 0);
            wanted.then_some(at)
        };
        let has_events = program.maps.iter().any(|map| map.kind == MapKind::PerfEventArray);
        let events = room(has_events, EVENTS_LOGGED * EVENT_BYTES);
        let keys = program.maps.iter().filter(|map| map.kind.is_lru()).map(|map| map.key_bytes);
        let deletion = keys.max().map(|key_bytes| 8 + key_bytes.next_multiple_of(8));
        let deletions = deletion.and_then(|bytes| Some((room(true, DELETIONS_LOGGED * bytes)?, bytes)));
        let mut added = vec![record_map(initial)];
        added.extend(hashes);
        Ok(Plan { record, shadows, events, deletions, added })
    }

    /// The size of the record with its tables and logs in bytes.
    pub(crate) fn record_bytes(&self) -> usize {
        self.added[0].value_bytes as usize
    }
}

pub(crate) fn table_entry(value: Option<&[u8]>) -> [u8; TABLE_ENTRY_BYTES as usize] {
    let mut entry = [0; TABLE_ENTRY_BYTES as usize];
    if let Some(value) = value {
        let len = value.len().min(TABLE_PRESENT as usize);
        entry[..len].copy_from_slice(&value[..len]);
        entry[TABLE_PRESENT as usize..][..4].copy_from_slice(&1_u32.to_ne_bytes());
    }
    entry
}

/// The initial table of a map: device maps hold each port at its number, maps of CPUs and of sockets nothing.
fn table(map: &MapDef) -> Vec<u8> {
    let ports = (0..map.max_entries).map(|port| match map.kind {
        MapKind::Devmap => table_entry(Some(&port.to_ne_bytes())),
        _ => table_entry(None),
    });
    ports.flatten().collect()
}

fn record_map(initial: Vec<u8>) -> MapDef {
    MapDef {
        name: RECORD_MAP.to_owned(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: initial.len() as u32,
        max_entries: 1,
        flags: BPF_F_MMAPABLE,
        initial: Some(initial),
        ..MapDef::default()
    }
}

fn shadow_hash(map: &MapDef, number: usize) -> MapDef {
    MapDef {
        name: format!("fl_shadow_{number}"),
        kind: MapKind::Hash,
        key_bytes: map.key_bytes,
        value_bytes: map.value_bytes,
        max_entries: map.max_entries,
        flags: BPF_F_NO_PREALLOC,
        ..MapDef::default()
    }
}
