// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of maps, and their restoration.

use flowloom_engine::{Digest, FULL_ARRAY_ENTRIES, MapState, SnapshotError};

use super::{Backing, Cells, Keys, Map, Standard, Table};
use flowloom_isa::MapKind;

/// The valid targets of a map's entries.
#[derive(Debug)]
pub(crate) struct Known<'a, B: Backing = Standard> {
    pub(crate) maps: &'a [Map<B>],
    /// For each program of the object, whether it can run.
    pub(crate) programs: &'a [bool],
}

impl<B: Backing> Clone for Known<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backing> Copy for Known<'_, B> {}

impl<B: Backing> Map<B> {
    pub(crate) fn initial(&self) -> Result<Map<B>, B::Error> {
        Map::new(&self.def, self.cpus)
    }

    /// The contents, if they are part of the state of a function: redirect maps with their default contents are not.
    pub(crate) fn snapshot(&self) -> Option<MapState> {
        if !self.is_state() {
            return None;
        }
        let entry_bytes = self.def.value_bytes as usize * self.cpus as usize;
        let value = |slot: u32| self.values.slot(slot, self.cpus).to_vec();
        let all = |entries: &mut dyn Iterator<Item = (&[u8], u32)>| -> MapState {
            entries.map(|(key, slot)| (key.to_vec(), value(slot))).collect()
        };
        match &self.table {
            Table::Keyed(entries) | Table::Ports { entries, given: true } => Some(all(&mut entries.iter())),
            Table::Prefixes(prefixes) => Some(all(&mut prefixes.iter())),
            Table::Array => {
                let is_whole = self.def.max_entries <= FULL_ARRAY_ENTRIES;
                let mut all = MapState::new();
                if is_whole && self.values.is_paged() {
                    let zeros = vec![0; entry_bytes];
                    all.extend((0..self.def.max_entries).map(|index| (index.to_le_bytes().to_vec(), zeros.clone())));
                }
                let entries = self.values.entries(self.cpus);
                let kept = entries.filter(|(_, entry)| is_whole || entry.iter().any(|byte| *byte != 0));
                all.extend(kept.map(|(index, entry)| (index.to_le_bytes().to_vec(), entry.to_vec())));
                Some(all)
            }
            Table::Members(members) => {
                Some(members.iter().map(|(key, number)| (key.clone(), number.to_le_bytes().to_vec())).collect())
            }
            Table::Ports { given: false, .. } | Table::Records => None,
        }
    }

    /// Includes the contents in a digest, if they are part of the state.
    pub(crate) fn digest(&self, digest: &mut Digest) {
        if !self.is_state() {
            return;
        }
        let name = &self.def.name;
        let mut add = |(key, slot): (&[u8], u32)| digest.add(name, key, self.values.slot(slot, self.cpus));
        match &self.table {
            Table::Keyed(entries) | Table::Ports { entries, given: true } => entries.iter().for_each(add),
            Table::Prefixes(prefixes) => prefixes.iter().for_each(&mut add),
            Table::Array => {
                let used = self.values.entries(self.cpus).filter(|(_, entry)| entry.iter().any(|byte| *byte != 0));
                used.for_each(|(index, entry)| digest.add(name, &index.to_le_bytes(), entry));
            }
            Table::Members(members) => {
                members.iter().for_each(|(key, number)| digest.add(name, key, &number.to_le_bytes()));
            }
            Table::Ports { given: false, .. } | Table::Records => {}
        }
    }

    /// The number of CPUs whose values an entry of a snapshot has, for per-CPU maps.
    pub(crate) fn snapshot_cpus(&self) -> Option<u32> {
        self.def.kind.is_per_cpu().then_some(self.cpus)
    }

    /// The map with these contents; array entries that are not listed have their initial values. If the state has the
    /// values of `cpus` CPUs, those of the others are zeros.
    ///
    /// # Errors
    /// A key or value of another size, an index out of range, an unknown map or program, or too many entries.
    pub(crate) fn with_contents(
        &self,
        state: &MapState,
        cpus: Option<u32>,
        known: Known<'_, B>,
    ) -> Result<Map<B>, SnapshotError> {
        let def = &self.def;
        if state.len() > def.max_entries as usize {
            return Err(SnapshotError::TooMany {
                map: def.name.clone(),
                found: state.len(),
                expected: def.max_entries as usize,
            });
        }
        let mut map = Map::empty(def, self.cpus).map_err(Into::into)?;
        for (key, value) in state {
            if key.len() != def.key_bytes as usize {
                return Err(self.size("key", key.len(), def.key_bytes as usize));
            }
            match &mut map.table {
                Table::Members(members) => {
                    let number = self.number(key, value, known)?;
                    members.insert(key.clone(), number);
                }
                _ => map.put_state(key, &self.values_by_cpu(value, cpus)?)?,
            }
        }
        if let Table::Ports { given, .. } = &mut map.table {
            *given = true;
        }
        Ok(map)
    }

    fn size(&self, part: &'static str, found: usize, expected: usize) -> SnapshotError {
        SnapshotError::Size { map: self.def.name.clone(), part, found, expected }
    }

    fn form(&self, expected: &'static str, found: &[u8]) -> SnapshotError {
        let found = found.iter().map(|b| format!("{b:02x}")).collect();
        SnapshotError::Form { map: self.def.name.clone(), expected, found }
    }

    /// The values of an entry for all CPUs of the map.
    fn values_by_cpu(&self, values: &[u8], cpus: Option<u32>) -> Result<Vec<u8>, SnapshotError> {
        let value_bytes = self.def.value_bytes as usize;
        let given = if self.def.kind.is_per_cpu() { cpus.unwrap_or(1) } else { 1 };
        if cpus.is_some() && !self.def.kind.is_per_cpu() {
            return Err(self.form("one value, not one for each CPU", values));
        }
        if given > self.cpus {
            return Err(self.size("the list of values by CPU", values.len(), self.cpus as usize * value_bytes));
        }
        if values.len() != given as usize * value_bytes {
            return Err(self.size("value", values.len(), given as usize * value_bytes));
        }
        let mut all = values.to_vec();
        all.resize(self.cpus as usize * value_bytes, 0);
        Ok(all)
    }

    /// Writes an entry from the values of all CPUs.
    fn put_state(&mut self, key: &[u8], values: &[u8]) -> Result<(), SnapshotError> {
        let is_index = self.def.kind.is_indexed();
        if is_index && self.index(key).is_none() {
            return Err(self.form("an index, little endian, below the number of entries", key));
        }
        if self.def.kind == MapKind::LpmTrie && !super::Prefixes::is_valid(key) {
            return Err(self.form("a prefix length in bits, little endian, that its address has", key));
        }
        let value_bytes = self.def.value_bytes as usize;
        for (cell, value) in self.make(key).zip(values.chunks_exact(value_bytes)) {
            if !self.has_room(cell.into()) {
                return Err(self.form("entries of a large array that take at most 2 GiB of pages", key));
            }
            self.fill(cell, value);
        }
        Ok(())
    }

    /// The map or program that a value refers to.
    fn number(&self, key: &[u8], value: &[u8], known: Known<'_, B>) -> Result<u32, SnapshotError> {
        let Ok(bytes) = <[u8; 4]>::try_from(value) else { return Err(self.size("value", value.len(), 4)) };
        if self.def.kind.is_indexed() && self.index(key).is_none() {
            return Err(self.form("an index, little endian, below the number of entries", key));
        }
        let number = u32::from_le_bytes(bytes);
        if self.def.kind == MapKind::ProgArray {
            return match known.programs.get(number as usize) {
                Some(true) => Ok(number),
                _ => Err(self.form("the number of a program of the object that can be run, little endian", value)),
            };
        }
        let inner = self.def.inner.as_deref();
        let found = known.maps.get(number as usize).map(Map::def);
        if found.zip(inner).is_some_and(|(found, inner)| found.fits_inside(inner)) {
            Ok(number)
        } else {
            Err(self.form("the number of a map of the kind, sizes and flags inside, little endian", value))
        }
    }
}
