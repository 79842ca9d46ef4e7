// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's accesses to the maps of a simulated pipeline while no packet is in it.

use flowloom_cosim::CosimError;
use flowloom_engine::MapState;
use flowloom_rtl::Access;

use super::{DELETE, HOST_BATCH, HostPorts, PORT_BYTES, READ_ROW, Simulated, UPDATE, mask};

/// Cycles after which every access of the host has its answer.
const HOST_CYCLES: usize = 16;
/// Cycles after a change of entries, in which the table takes it in.
const CHANGE_CYCLES: usize = 40;
/// Attempts at an access of the host, after which the map is stuck.
const MAX_REFUSED: u32 = 100;
/// Rows of a map with keys that are read at once.
const ROWS_READ: usize = 256;

impl Simulated {
    /// The entries of a map that exist, by key, while no packet is in the pipeline.
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
        let answers = self.accesses(map, entries, &|ports, row, inputs| {
            ports.index.iter().for_each(|port| port.set(inputs, row as u64));
        })?;
        let Some((_, ports)) = self.maps.iter().find(|(own, _)| own.map == map) else { return Ok(MapState::new()) };
        let entries = answers.iter().enumerate().filter_map(|(row, outputs)| {
            let (key, value) = ((row as u32).to_le_bytes().to_vec(), ports.answer.bytes(outputs).to_vec());
            match is_ports {
                true => (value[PORT_BYTES] == 1).then(|| (key, value[..PORT_BYTES].to_vec())),
                false => Some((key, value)),
            }
        });
        Ok(entries.collect())
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
        self.accesses(map, entries, &|ports, row, inputs| {
            ports.write.iter().for_each(|port| port.set(inputs, 1));
            ports.index.iter().for_each(|port| port.set(inputs, row as u64));
            ports.value.set_bytes(inputs, &value(row));
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
                return Err(CosimError::Stuck { top: self.top.clone(), what: format!("map {map} takes no access") });
            }
            // Where changes take longer than the gaps between them, they are made one by one.
            batch = if has_changes && first < made.len() { 1 } else { batch };
            answers.extend(answered.into_iter().take(first));
            next += first;
        }
        Ok(answers)
    }
}
