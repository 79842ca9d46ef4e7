// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's accesses to the maps of a simulated pipeline while no packet is in it.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_cosim::CosimError;
use flowloom_engine::{FULL_ARRAY_ENTRIES, MapState};
use flowloom_rtl::Access;

use super::{DELETE, HOST_BATCH, HostPorts, LOOKUP, PORT_BYTES, READ_ROW, Simulated, UPDATE, mask};

/// Cycles after which every access of the host has its answer.
const HOST_CYCLES: usize = 16;
/// Cycles after a change of entries, in which the table takes it in.
const CHANGE_CYCLES: usize = 40;
/// Attempts at an access of the host, after which the map is stuck.
const MAX_REFUSED: u32 = 100;
/// Rows of a map with keys that are read at once.
const ROWS_READ: usize = 256;
/// Rows of an array up to which all are read and written each time.
const SMALL_ROWS: u32 = 256;
/// Rows of a larger array that are read each time though they have not changed, others each time.
const ROWS_CHECKED: u32 = 64;

/// A large array as the host has read it. The simulation tells which rows of its memory have changed; only these are read
/// again.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The answers that are not zero, by row.
    values: BTreeMap<u32, Vec<u8>>,
    /// The rows that have changed since they were read.
    stale: BTreeSet<u32>,
    /// The row to check next.
    next: u32,
}

/// The map whose array an instance is, and not a part of another block of its map: `u_map` and the number of the map, with
/// more after an underscore.
fn map_of(instance: &str) -> Option<u32> {
    let (_, name) = instance.rsplit_once(".u_core.u_map")?;
    let number = name.split_once('_').map_or(name, |(number, _)| number);
    (!name.contains('.')).then(|| number.parse().ok())?
}

impl Simulated {
    /// Finds the memories of large arrays.
    pub(super) fn find_memories(&mut self) -> Result<(), CosimError> {
        let is_large = |map: u32, words: u32| {
            let found = self.maps.iter().find(|(own, ports)| own.map == map && ports.index.is_some());
            found.is_some_and(|(own, _)| own.entries > SMALL_ROWS && own.entries == words)
        };
        for memory in self.simulation.changed_words()? {
            let map = map_of(&memory.instance).filter(|map| is_large(*map, memory.words));
            map.into_iter().for_each(|map| self.seen.entry(map).or_default().stale.extend(&memory.changed));
        }
        Ok(())
    }

    /// Whether the memory of an array is known, so that not all of its rows have to be read.
    pub fn is_followed(&self, map: u32) -> bool {
        self.seen.contains_key(&map)
    }

    /// Reads the rows of a large array that have changed, and some of the others.
    fn refresh(&mut self, map: u32, entries: u32) -> Result<(), CosimError> {
        for memory in self.simulation.changed_words()? {
            let seen = map_of(&memory.instance).and_then(|map| self.seen.get_mut(&map));
            seen.into_iter().for_each(|seen| seen.stale.extend(&memory.changed));
        }
        let Some(seen) = self.seen.get_mut(&map) else { return Ok(()) };
        let mut rows = std::mem::take(&mut seen.stale);
        rows.extend((seen.next..seen.next + ROWS_CHECKED).map(|row| row % entries));
        seen.next = (seen.next + ROWS_CHECKED) % entries;
        let rows: Vec<u32> = rows.into_iter().collect();
        let answers = self.accesses(map, rows.len(), &|ports, number, inputs| {
            ports.index.iter().for_each(|port| port.set(inputs, rows[number].into()));
        })?;
        let ports = self.maps.iter().find(|(own, _)| own.map == map).map(|(_, ports)| ports);
        let Some((ports, seen)) = ports.zip(self.seen.get_mut(&map)) else { return Ok(()) };
        for (row, outputs) in rows.into_iter().zip(&answers) {
            let value = ports.answer.bytes(outputs);
            match value.iter().all(|byte| *byte == 0) {
                true => seen.values.remove(&row),
                false => seen.values.insert(row, value.to_vec()),
            };
        }
        Ok(())
    }

    /// The entries of a map that exist, by key, while no packet is in the pipeline. As in snapshots, those of an array of
    /// more than [`FULL_ARRAY_ENTRIES`] are without entries that are all zeros.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn read(&mut self, map: u32) -> Result<MapState, CosimError> {
        let Some((port, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(MapState::new()) };
        if let Some(keyed) = &ports.keyed {
            let rows = keyed.rows as usize;
            return self.read_keyed(map, rows);
        }
        let (entries, is_ports) = (port.entries as usize, matches!(port.access, Access::Ports { .. }));
        let is_whole = port.entries <= FULL_ARRAY_ENTRIES;
        let entry = |row: u32, value: &[u8]| {
            let key = row.to_le_bytes().to_vec();
            match is_ports {
                true => (value[PORT_BYTES] == 1).then(|| (key, value[..PORT_BYTES].to_vec())),
                false => (is_whole || value.iter().any(|byte| *byte != 0)).then(|| (key, value.to_vec())),
            }
        };
        if self.is_followed(map) {
            let zeros = vec![0; port.value_bytes as usize];
            self.refresh(map, entries as u32)?;
            let values = self.seen.get(&map).map(|seen| &seen.values).into_iter().flatten();
            let all = (0..entries as u32)
                .filter(|_| is_whole && !is_ports)
                .map(|row| (row.to_le_bytes().to_vec(), zeros.clone()));
            return Ok(all.chain(values.filter_map(|(row, value)| entry(*row, value))).collect());
        }
        let answers = self.accesses(map, entries, &|ports, row, inputs| {
            ports.index.iter().for_each(|port| port.set(inputs, row as u64));
        })?;
        let Some((_, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(MapState::new()) };
        let answers = answers.iter().enumerate();
        Ok(answers.filter_map(|(row, outputs)| entry(row as u32, ports.answer.bytes(outputs))).collect())
    }

    /// The values of some entries of a map, by key, while no packet is in the pipeline; all entries of arrays exist.
    ///
    /// # Errors
    /// The simulation has ended.
    pub fn read_entries(
        &mut self,
        map: u32,
        keys: &[&Vec<u8>],
    ) -> Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>, CosimError> {
        let access = self.maps.iter().find(|(own, _)| own.map == map).map(|(own, _)| own.access);
        if let Some(Access::Key { is_prefix: true, .. }) = access {
            let all = if keys.is_empty() { MapState::new() } else { self.read(map)? };
            return Ok(keys.iter().map(|key| ((*key).clone(), all.get(*key).cloned())).collect());
        }
        let answers = self.accesses(map, keys.len(), &|ports, number, inputs| {
            let row = keys[number].first_chunk().map_or(0, |row| u32::from_le_bytes(*row));
            ports.index.iter().for_each(|port| port.set(inputs, row.into()));
            ports.keyed.iter().for_each(|keyed| {
                keyed.operation.set(inputs, LOOKUP);
                keyed.key.set_bytes(inputs, keys[number]);
            });
        })?;
        let Some((_, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(BTreeMap::new()) };
        let is_present = |outputs: &[u8]| ports.keyed.as_ref().is_none_or(|keyed| keyed.present.get(outputs) == 1);
        let value = |outputs: &Vec<u8>| is_present(outputs).then(|| ports.answer.bytes(outputs).to_vec());
        Ok(keys.iter().zip(&answers).map(|(key, outputs)| ((*key).clone(), value(outputs))).collect())
    }

    /// The entries of a map with keys. Rows are used from the first one on, but for the pending ones, which are the
    /// last ones: few have to be read.
    fn read_keyed(&mut self, map: u32, rows: usize) -> Result<MapState, CosimError> {
        let mut found = MapState::new();
        let mut count = usize::MAX;
        let chunks = (0..rows).step_by(ROWS_READ).map(|first| first..rows.min(first + ROWS_READ));
        let last = rows.saturating_sub(ROWS_READ)..rows;
        for chunk in [last].into_iter().chain(chunks) {
            if found.len() >= count {
                break;
            }
            let answers = self.accesses(map, chunk.len(), &|ports, number, inputs| {
                ports.keyed.iter().for_each(|keyed| {
                    keyed.operation.set(inputs, READ_ROW);
                    // The row number is in the key, and above it in the value.
                    let row = (chunk.start + number) as u64;
                    keyed.key.set(inputs, row & mask(keyed.key.width_bits()));
                    ports.value.set(inputs, row >> keyed.key.width_bits().min(63) & mask(ports.value.width_bits()));
                });
            })?;
            let keyed = self.maps.iter().find(|(own, _)| own.map == map);
            let Some((ports, keyed)) = keyed.and_then(|(_, ports)| Some((ports, ports.keyed.as_ref()?))) else { break };
            for outputs in &answers {
                count = keyed.count.get(outputs) as usize;
                if keyed.present.get(outputs) == 1 {
                    found.insert(keyed.answer_key.bytes(outputs).to_vec(), ports.answer.bytes(outputs).to_vec());
                }
            }
        }
        Ok(found)
    }

    /// Makes the entries of a map those given; entries of arrays that are not given become zeros. No packet is in the
    /// pipeline.
    ///
    /// # Errors
    /// The simulation has ended, or refuses an entry.
    pub fn write(&mut self, map: u32, state: &MapState) -> Result<(), CosimError> {
        let Some((port, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(()) };
        let value_bytes = port.value_bytes as usize;
        if ports.keyed.is_some() {
            return self.write_keyed(map, state);
        }
        let is_ports = matches!(port.access, Access::Ports { .. });
        let entries = port.entries as usize;
        let value = |row: usize| {
            let value = state.get(&(row as u32).to_le_bytes()[..]);
            match (value, is_ports) {
                (Some(value), false) => value[..value_bytes].to_vec(),
                (Some(value), true) => [&value[..PORT_BYTES], &[1]].concat(),
                (None, _) => vec![0; value_bytes],
            }
        };
        let mut rows: Vec<u32> = (0..entries as u32).collect();
        if self.is_followed(map) {
            self.refresh(map, entries as u32)?;
            let seen = self.seen.get(&map).map(|seen| &seen.values);
            let named = state.keys().filter_map(|key| key.first_chunk().map(|row| u32::from_le_bytes(*row)));
            // The others are zeros and stay so.
            let some: BTreeSet<u32> = named.chain(seen.into_iter().flat_map(|seen| seen.keys().copied())).collect();
            let is_other = |row: &u32| match seen.and_then(|seen| seen.get(row)) {
                Some(seen) => *seen != value(*row as usize),
                None => value(*row as usize).iter().any(|byte| *byte != 0),
            };
            rows = some.into_iter().filter(is_other).collect();
        }
        self.accesses(map, rows.len(), &|ports, number, inputs| {
            ports.write.iter().for_each(|port| port.set(inputs, 1));
            ports.index.iter().for_each(|port| port.set(inputs, rows[number].into()));
            ports.value.set_bytes(inputs, &value(rows[number] as usize));
        })?;
        Ok(())
    }

    /// Changes the entries of a map that differ between two states. No packet is in the pipeline.
    ///
    /// # Errors
    /// As for [`Simulated::write`].
    pub fn change(&mut self, map: u32, before: &MapState, after: &MapState) -> Result<(), CosimError> {
        let Some((port, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(()) };
        let value_bytes = port.value_bytes as usize;
        if ports.keyed.is_some() {
            return self.change_keyed(map, before, after);
        }
        let changed: Vec<(u32, &Vec<u8>)> = after
            .iter()
            .filter(|(key, value)| before.get(*key) != Some(value))
            .filter_map(|(key, value)| Some((u32::from_le_bytes(*key.first_chunk()?), value)))
            .collect();
        self.accesses(map, changed.len(), &|ports, number, inputs| {
            let (row, value) = changed[number];
            ports.write.iter().for_each(|port| port.set(inputs, 1));
            ports.index.iter().for_each(|port| port.set(inputs, row.into()));
            ports.value.set_bytes(inputs, &value[..value_bytes]);
        })?;
        Ok(())
    }

    /// Makes the entries of a map with keys those given, and uses these keys in their order. No packet is in the
    /// pipeline.
    ///
    /// # Errors
    /// As for [`Simulated::write`].
    pub fn use_in_order(&mut self, map: u32, state: &MapState, keys: Vec<Vec<u8>>) -> Result<(), CosimError> {
        let before = self.read(map)?;
        self.delete(map, before.into_keys().filter(|key| !state.contains_key(key)).collect())?;
        let used: Vec<(&Vec<u8>, &Vec<u8>)> = keys.iter().filter_map(|key| Some((key, state.get(key)?))).collect();
        self.update(map, &used)
    }

    /// Deletes the entries that are not given, and updates the others.
    fn write_keyed(&mut self, map: u32, state: &MapState) -> Result<(), CosimError> {
        let before = self.read(map)?;
        self.change_keyed(map, &before, state)
    }

    fn change_keyed(&mut self, map: u32, before: &MapState, state: &MapState) -> Result<(), CosimError> {
        self.delete(map, before.keys().filter(|key| !state.contains_key(*key)).cloned().collect())?;
        let updated: Vec<(&Vec<u8>, &Vec<u8>)> =
            state.iter().filter(|(key, value)| before.get(*key) != Some(value)).collect();
        self.update(map, &updated)
    }

    fn delete(&mut self, map: u32, deleted: Vec<Vec<u8>>) -> Result<(), CosimError> {
        self.accesses(map, deleted.len(), &|ports, number, inputs| {
            ports.keyed.iter().for_each(|keyed| {
                keyed.operation.set(inputs, DELETE);
                keyed.key.set_bytes(inputs, &deleted[number]);
            });
        })?;
        Ok(())
    }

    fn update(&mut self, map: u32, updated: &[(&Vec<u8>, &Vec<u8>)]) -> Result<(), CosimError> {
        self.accesses(map, updated.len(), &|ports, number, inputs| {
            let (key, value) = updated[number];
            ports.keyed.iter().for_each(|keyed| {
                keyed.operation.set(inputs, UPDATE);
                keyed.key.set_bytes(inputs, key);
            });
            let len = ports.value.len_bytes().min(value.len());
            ports.value.set_bytes(inputs, &value[..len]);
        })?;
        Ok(())
    }

    /// Makes accesses to a map, `count` of them; `set` sets the inputs of each. Returns the outputs with each answer.
    fn accesses(
        &mut self,
        map: u32,
        count: usize,
        set: &dyn Fn(&HostPorts, usize, &mut [u8]),
    ) -> Result<Vec<Vec<u8>>, CosimError> {
        let Some((_, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(Vec::new()) };
        let mut answers = Vec::with_capacity(count);
        let (mut next, mut refused, mut batch) = (0, 0, HOST_BATCH);
        while next < count {
            // Rows are read one a cycle; a change of entries waits until there is room for it.
            let (mut inputs, mut has_changes) = (Vec::new(), false);
            for number in next..count.min(next + batch) {
                let mut cycle = vec![0; self.input_bytes];
                ports.valid.set(&mut cycle, 1);
                set(ports, number, &mut cycle);
                let is_change = ports.keyed.as_ref().is_some_and(|keyed| keyed.operation.get(&cycle) != READ_ROW);
                inputs.extend(cycle);
                has_changes |= is_change;
                if is_change {
                    inputs.resize(inputs.len() + CHANGE_CYCLES * self.input_bytes, 0);
                }
            }
            inputs.resize(inputs.len() + HOST_CYCLES * self.input_bytes, 0);
            let outputs = self.simulation.run(&inputs)?;
            let cycles = || inputs.chunks(self.input_bytes).zip(outputs.chunks(self.output_bytes));
            let asked = cycles().filter(|(inputs, _)| ports.valid.get(inputs) == 1);
            let made: Vec<bool> = asked.map(|(_, outputs)| ports.ready.get(outputs) == 1).collect();
            // An access that was not ready is made again; those after it too, which changes nothing.
            let first = made.iter().position(|made| !made).unwrap_or(made.len());
            let is_answer = |outputs: &&[u8]| ports.answer_valid.get(outputs) == 1;
            let mut answered: Vec<Vec<u8>> =
                outputs.chunks(self.output_bytes).filter(is_answer).map(<[u8]>::to_vec).collect();
            // A change of prefixes takes as long as there are prefixes.
            let idle = vec![0; self.input_bytes * HOST_BATCH];
            let expected = made.iter().filter(|made| **made).count();
            while answered.len() < expected && refused <= MAX_REFUSED {
                let outputs = self.simulation.run(&idle)?;
                answered.extend(outputs.chunks(self.output_bytes).filter(is_answer).map(<[u8]>::to_vec));
                refused += 1;
            }
            refused = if first == 0 { refused + 1 } else { 0 };
            if refused > MAX_REFUSED || answered.len() < expected {
                return Err(CosimError::Stuck {
                    top: self.ports.top.clone(),
                    what: format!("map {map} takes no access"),
                });
            }
            // Where changes take longer than the gaps between them, they are made one by one.
            batch = if has_changes && first < made.len() { 1 } else { batch };
            answers.extend(answered.into_iter().take(first));
            next += first;
        }
        Ok(answers)
    }
}
