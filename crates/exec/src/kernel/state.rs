// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a program in the kernel: tables that it writes and their sweep, and the contents of maps of ports,
//! programs and maps.
//!
//! Values that programs write are read from the kernel. Maps of ports, CPUs, programs and maps are written by user
//! space only: their contents are kept here, and [`ContentResolver`] puts them where the engine needs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowloom_context::{Aged, ContextLayout};
use flowloom_engine::{EngineError, FULL_ARRAY_ENTRIES, MapState, Snapshot, SnapshotError};
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, MapKind, Member};

use super::errors::system;
use crate::sys::RawMap;

/// Updates entries of a map that packets write concurrently.
pub(crate) trait Sweeper {
    /// Replaces the value of `key` by its successor, or removes it if there is none, unless it has changed since it was
    /// found; returns whether it was removed.
    fn replace(&self, key: &[u8], found: &[u8], successor: Option<&[u8]>) -> Result<bool, EngineError>;
}

/// Puts ports, programs and maps where the program finds them.
pub(crate) trait ContentResolver {
    /// The number of programs that maps can hold.
    fn programs(&self) -> usize;

    /// The number of maps that maps can hold.
    fn maps(&self) -> usize;

    /// Sets the contents of `map` to `requested`; `None` for a device map that no state has set.
    fn set_contents(&mut self, map: &KernelMap, requested: Option<&MapState>) -> Result<(), EngineError>;
}

/// A map that is part of the state.
#[derive(Debug, Clone)]
pub(crate) struct KernelMap {
    index: usize,
    def: MapDef,
    raw: Arc<RawMap>,
    /// The number of CPUs whose values belong to the state.
    cpus: u32,
    /// The contents set by user space, for maps that only user space writes.
    held: Option<MapState>,
    /// True if no program refers to it, so that only user space writes it.
    is_unreferenced: bool,
}

/// True if only user space writes maps of this kind, whose values are not plain.
fn is_held(kind: MapKind) -> bool {
    kind.is_redirect() || kind.is_of_maps() || kind == MapKind::ProgArray
}

impl KernelMap {
    pub(crate) fn new(index: usize, def: MapDef, raw: Arc<RawMap>) -> KernelMap {
        KernelMap { index, def, raw, cpus: 1, held: None, is_unreferenced: false }
    }

    /// The same map, with its contents, as number `index` of another program.
    pub(crate) fn taken_over(&self, index: usize, def: MapDef) -> KernelMap {
        KernelMap { index, def, ..self.clone() }
    }

    /// The number of its entries; those of a map that only user space writes as it has set them.
    pub(crate) fn entries(&self) -> Result<u64, EngineError> {
        if let Some(held) = &self.held {
            return Ok(held.len() as u64);
        }
        let mut entries = 0;
        self.raw.entries(|_, _| entries += 1).map_err(self.fails("read"))?;
        Ok(entries)
    }

    /// True if a map belongs to the state: not a buffer of records, and not constant data of the program.
    pub(crate) fn is_state(def: &MapDef) -> bool {
        let is_constant = def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some();
        !matches!(def.kind, MapKind::PerfEventArray | MapKind::RingBuf) && !is_constant
    }

    /// Keeps its contents here from now on, because no program refers to it.
    pub(crate) fn mark_unreferenced(&mut self) {
        self.is_unreferenced = true;
    }

    /// True if only user space writes it.
    fn is_held(&self) -> bool {
        self.is_unreferenced || is_held(self.def.kind)
    }

    /// True if a snapshot omits its entries that are all zeros.
    fn is_sparse(&self) -> bool {
        matches!(self.def.kind, MapKind::Array | MapKind::PerCpuArray) && self.def.max_entries > FULL_ARRAY_ENTRIES
    }

    /// Sets the number of CPUs whose values belong to the state.
    pub(crate) fn count_cpus(&mut self, cpus: u32) {
        self.cpus = cpus;
    }

    fn fails(&self, action: &str) -> impl Fn(std::io::Error) -> EngineError {
        let action = format!("{action} map `{}`", self.def.name);
        move |source| system(action.clone(), source)
    }

    pub(crate) fn def(&self) -> &MapDef {
        &self.def
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn raw(&self) -> &RawMap {
        &self.raw
    }

    /// The contents set by user space; `None` for other maps, and for device maps that no state has set.
    pub(crate) fn held(&self) -> Option<&MapState> {
        self.held.as_ref()
    }

    /// The layout of its records, if they have deadlines.
    fn timed(&self) -> Option<&ContextLayout> {
        self.def.layout.as_ref().filter(|layout| self.def.kind == MapKind::Hash && !layout.deadline_offsets.is_empty())
    }

    /// Removes the entries that have expired at `now_ns`, or moves them to their successor states; returns the number
    /// removed. Without a `sweeper` only if nothing else writes the map meanwhile.
    pub(crate) fn sweep(&self, now_ns: u64, sweeper: Option<&dyn Sweeper>) -> Result<u64, EngineError> {
        let Some(layout) = self.timed() else { return Ok(0) };
        let mut expired = Vec::new();
        let mut succeeded = Vec::new();
        self.raw
            .entries(|key, value| {
                let mut aged = value.to_vec();
                match layout.age(&mut aged, now_ns) {
                    Aged::Live => {}
                    Aged::Succeeded => succeeded.push((key.to_vec(), value.to_vec(), aged)),
                    Aged::Expired => expired.push((key.to_vec(), value.to_vec())),
                }
            })
            .map_err(self.fails("read"))?;
        for (key, found, aged) in succeeded {
            match sweeper {
                Some(sweeper) => drop(sweeper.replace(&key, &found, Some(&aged))?),
                None => self.raw.update(&key, &aged).map_err(self.fails("write"))?,
            }
        }
        let mut removed = 0;
        for (key, found) in expired {
            removed += u64::from(match sweeper {
                Some(sweeper) => sweeper.replace(&key, &found, None)?,
                None => self.raw.delete(&key).map_err(self.fails("remove an entry of"))?,
            });
        }
        Ok(removed)
    }

    /// The number of entries that have not expired at `now_ns`.
    pub(crate) fn alive(&self, now_ns: u64) -> Result<u64, EngineError> {
        let mut alive = 0;
        let layout = self.timed();
        let is_expired =
            |value: &[u8]| layout.is_some_and(|layout| layout.age(&mut value.to_vec(), now_ns) == Aged::Expired);
        self.raw.entries(|_, value| alive += u64::from(!is_expired(value))).map_err(self.fails("read"))?;
        Ok(alive)
    }

    /// Converts a key between a snapshot and the kernel: array indices are in host byte order there, little endian
    /// here.
    pub(crate) fn swap_key(&self, key: &[u8]) -> Vec<u8> {
        let mut key = key.to_vec();
        if self.def.kind.is_indexed() && cfg!(target_endian = "big") {
            key.reverse();
        }
        key
    }

    fn contents(&self) -> Result<MapState, EngineError> {
        let mut entries = MapState::new();
        let mut put = |key: &[u8], value: &[u8]| drop(entries.insert(self.swap_key(key), self.reported(value)));
        if self.is_sparse() {
            // The values of other CPUs are not reported.
            let is_zero = |value: &[u8]| self.reported(value).iter().all(|byte| *byte == 0);
            let put = |key: &[u8], value: &[u8]| {
                if !is_zero(value) {
                    put(key, value)
                }
            };
            self.raw.nonzero(put).map_err(self.fails("read"))?;
        } else {
            self.raw.entries(put).map_err(self.fails("read"))?;
        }
        Ok(entries)
    }

    pub(crate) fn keys(&self) -> Result<BTreeSet<Vec<u8>>, EngineError> {
        let mut keys = BTreeSet::new();
        let put = |key: &[u8], _: &[u8]| _ = keys.insert(key.to_vec());
        self.raw.entries(put).map_err(self.fails("read"))?;
        Ok(keys)
    }

    /// The size of one CPU's value in the kernel.
    fn value_room(&self) -> usize {
        (self.def.value_bytes as usize).next_multiple_of(8)
    }

    /// The part of a value that belongs to the state.
    fn reported(&self, value: &[u8]) -> Vec<u8> {
        if !self.def.kind.is_per_cpu() {
            return value.to_vec();
        }
        let values = value.chunks_exact(self.value_room()).take(self.cpus as usize);
        values.flat_map(|value| &value[..self.def.value_bytes as usize]).copied().collect()
    }

    /// The value as the kernel expects it: CPUs outside of the state have zeros.
    fn whole(&self, value: &[u8]) -> Vec<u8> {
        if !self.def.kind.is_per_cpu() {
            return value.to_vec();
        }
        let mut whole = vec![0; self.raw.value_bytes()];
        let values = value.chunks_exact(self.def.value_bytes as usize);
        for (room, value) in whole.chunks_exact_mut(self.value_room()).zip(values) {
            room[..value.len()].copy_from_slice(value);
        }
        whole
    }

    /// Checks the new contents, with values for `cpus` CPUs if given.
    fn check(
        &self,
        requested: &MapState,
        cpus: Option<u32>,
        holder: &dyn ContentResolver,
    ) -> Result<(), SnapshotError> {
        let map = &self.def.name;
        let form = |expected: &'static str, found: String| SnapshotError::Form { map: map.clone(), expected, found };
        let mut value_bytes = self.def.value_bytes as usize;
        if self.def.kind.is_per_cpu() {
            let possible = (self.raw.value_bytes() / self.value_room()) as u32;
            // As for plain values, the default is one.
            let cpus = cpus.unwrap_or(1);
            if cpus > possible {
                let expected = "values for at most the possible CPUs of this system";
                return Err(form(expected, format!("{cpus} CPUs of {possible}")));
            }
            value_bytes *= cpus as usize;
        } else if cpus.is_some() {
            return Err(form("\"value\", one for all CPUs", "\"values\"".to_owned()));
        }
        for (key, value) in requested {
            let parts = [("key", key.len(), self.def.key_bytes as usize), ("value", value.len(), value_bytes)];
            for (part, found, expected) in parts {
                if found != expected {
                    return Err(SnapshotError::Size { map: map.clone(), part, found, expected });
                }
            }
        }
        let expected = self.def.max_entries as usize;
        if requested.len() > expected {
            return Err(SnapshotError::TooMany { map: map.clone(), found: requested.len(), expected });
        }
        if self.def.kind.is_indexed() {
            let outside = requested.keys().find(|key| index(key).is_none_or(|i| i >= self.def.max_entries));
            if let Some(key) = outside {
                let found = index(key).map_or_else(|| format!("{key:02x?}"), |i| format!("index {i}"));
                return Err(form("indices below the size of the array", found));
            }
        }
        for value in requested.values() {
            self.check_held(value, holder).map_err(|expected| form(expected, format!("{value:02x?}")))?;
        }
        Ok(())
    }

    /// Checks `value` for a map that only user space writes; the error is the expected form.
    fn check_held(&self, value: &[u8], holder: &dyn ContentResolver) -> Result<(), &'static str> {
        let number = index(value.get(..4).unwrap_or_default()).unwrap_or(0) as usize;
        let has_program = value.get(4..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0));
        match self.def.kind {
            MapKind::ProgArray if number >= holder.programs() => Err("indices of programs of the object"),
            MapKind::ArrayOfMaps | MapKind::HashOfMaps if number >= holder.maps() => {
                Err("indices of maps of the program")
            }
            MapKind::Devmap | MapKind::DevmapHash | MapKind::Cpumap if has_program => {
                Err("ports or CPUs without a program")
            }
            _ => Ok(()),
        }
    }

    /// Its initial contents; empty for an array, which is reset to zeros or its data anyway.
    fn preloaded(&self) -> MapState {
        let members = self.def.members.iter().map(|(key, member)| {
            let (Member::Map(number) | Member::Program(number)) = *member;
            (key.to_le_bytes().to_vec(), (number as u32).to_le_bytes().to_vec())
        });
        self.def.layout.iter().flat_map(|layout| layout.preloaded.iter().cloned()).chain(members).collect()
    }

    fn set(&self, requested: &MapState) -> Result<(), EngineError> {
        if self.def.kind.is_indexed() {
            let zeros = vec![0; self.raw.value_bytes()];
            let initial = self.def.initial.as_ref().unwrap_or(&zeros);
            // Reading all entries takes a few calls, writing them one for each.
            let mut others = Vec::new();
            let compare = |key: &[u8], found: &[u8]| {
                let value = requested.get(&self.swap_key(key)).map(|value| self.whole(value));
                let value = value.as_ref().unwrap_or(initial);
                if value != found {
                    others.push((key.to_vec(), value.clone()));
                }
            };
            if self.is_sparse() && self.def.initial.is_none() {
                let mut compare = compare;
                let mut seen = BTreeSet::new();
                let found = |key: &[u8], found: &[u8]| {
                    seen.insert(key.to_vec());
                    compare(key, found);
                };
                self.raw.nonzero(found).map_err(self.fails("read"))?;
                let zero = |value: &Vec<u8>| value.iter().all(|byte| *byte == 0);
                let rest = requested.iter().map(|(key, value)| (self.swap_key(key), value));
                let rest = rest.filter(|(key, value)| !zero(value) && !seen.contains(key));
                others.extend(rest.map(|(key, value)| (key, self.whole(value))));
            } else {
                self.raw.entries(compare).map_err(self.fails("read"))?;
            }
            return others.iter().try_for_each(|(key, value)| self.raw.update(key, value).map_err(self.fails("write")));
        }
        for key in self.keys()? {
            self.raw.delete(&key).map_err(self.fails("clear"))?;
        }
        for (key, value) in requested {
            self.raw.update(key, &self.whole(value)).map_err(self.fails("write"))?;
        }
        if self.def.kind.is_lru() {
            let kept = self.keys()?.len();
            if kept < requested.len() {
                let message = format!("it evicts before it is full, and kept {kept} of {} entries", requested.len());
                return Err(self.fails("fill")(std::io::Error::new(std::io::ErrorKind::StorageFull, message)));
            }
        }
        Ok(())
    }

    /// Sets its contents to `requested`; `None` means the initial ones.
    fn restore(&mut self, requested: Option<&MapState>, holder: &mut dyn ContentResolver) -> Result<(), EngineError> {
        let preloaded = if requested.is_none() { self.preloaded() } else { MapState::new() };
        if self.is_unreferenced {
            let mut held = requested.unwrap_or(&preloaded).clone();
            if self.is_sparse() {
                held.retain(|_, value| value.iter().any(|byte| *byte != 0));
            }
            self.held = Some(held);
            return Ok(());
        }
        if !self.is_held() {
            return self.set(requested.unwrap_or(&preloaded));
        }
        // A device map that no state has set holds each port at its number.
        let unreferenced = requested.is_none() && self.def.kind == MapKind::Devmap;
        let requested = (!unreferenced).then(|| requested.cloned().unwrap_or(preloaded));
        if self.held != requested {
            holder.set_contents(self, requested.as_ref())?;
            self.held = requested;
        }
        Ok(())
    }
}

pub(crate) fn index(key: &[u8]) -> Option<u32> {
    key.try_into().ok().map(u32::from_le_bytes)
}

pub(crate) fn snapshot<'a>(maps: impl IntoIterator<Item = &'a KernelMap>) -> Result<Snapshot, EngineError> {
    let mut snapshot = Snapshot::default();
    for map in maps {
        let contents = match &map.held {
            Some(held) => held.clone(),
            None if map.is_held() => continue,
            None => map.contents()?,
        };
        snapshot.maps.insert(map.def.name.clone(), contents);
        if map.def.kind.is_per_cpu() {
            snapshot.per_cpu.insert(map.def.name.clone(), map.cpus);
        }
    }
    Ok(snapshot)
}

/// Puts the initial ports, programs and maps in place.
pub(crate) fn begin(maps: &mut [KernelMap], holder: &mut dyn ContentResolver) -> Result<(), EngineError> {
    maps.iter_mut().filter(|map| map.is_held()).try_for_each(|map| map.restore(None, holder))
}

/// Sets the contents of all maps to `state`; nothing is changed unless all of it fits.
pub(crate) fn restore(
    maps: &mut [KernelMap],
    state: &Snapshot,
    holder: &mut dyn ContentResolver,
) -> Result<(), EngineError> {
    for (name, requested) in &state.maps {
        let Some(map) = maps.iter().find(|map| map.def.name == *name) else {
            let names: Vec<String> = maps.iter().map(|map| format!("`{}`", map.def.name)).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(SnapshotError::UnknownMap { map: name.clone(), known }.into());
        };
        map.check(requested, state.per_cpu.get(name).copied(), holder)?;
    }
    // First what may still fail: a program that the kernel refuses.
    maps.sort_by_key(|map| !map.is_held());
    let restored = maps.iter_mut().try_for_each(|map| map.restore(state.maps.get(&map.def.name), holder));
    maps.sort_by_key(|map| map.index);
    restored
}
