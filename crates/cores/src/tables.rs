// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps of all cores as those of one engine, entry by entry, for tasks between two batches.
//!
//! | the map is | a lookup | a change |
//! | --- | --- | --- |
//! | split | of the core that the key belongs to | there |
//! | summed | of all cores: the sum | on all cores, which begin again with this value |
//! | the same | of any core | on all cores |

use flowloom_isa::MapDef;
use flowloom_plan::Update;
use flowloom_vm::{Tables, UpdateError};

use crate::engine::Cores;
use crate::merge::add_value;
use crate::split::{Owner, Share};

/// Where the entries of a map are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place<'s> {
    /// The first core has the whole state.
    First,
    /// Each core has the same.
    Same,
    /// Each core has the entries of its packets.
    Divided(&'s Owner),
    /// Each core has values of its own.
    Summed(&'s [Update]),
}

impl Cores {
    fn place(&self, map: usize) -> Place<'_> {
        let share = self.defs.get(map).and_then(|def| self.split.shares.get(&def.name));
        match share {
            _ if self.joined.is_some() => Place::First,
            Some(Share::Split(owner) | Share::SplitWithoutLimit(owner)) => Place::Divided(owner),
            Some(Share::Sums(updates)) => Place::Summed(updates),
            Some(Share::Constant | Share::Records) | None => Place::Same,
        }
    }

    /// The core that has the entry of a key.
    fn owner(&self, owner: &Owner, key: &[u8]) -> usize {
        self.split.core_of_key(owner, key, self.cores.len())
    }

    fn table(&self, core: usize) -> &dyn Tables {
        self.cores[core].engine.tables()
    }

    fn table_mut(&mut self, core: usize) -> &mut dyn Tables {
        self.cores[core].engine.tables_mut()
    }

    /// The sum of the cores' values of a key; `None` if they have none.
    fn sum(&self, map: usize, key: &[u8], updates: &[Update]) -> Option<Vec<u8>> {
        let values: Vec<Vec<u8>> = (0..self.cores.len()).filter_map(|core| self.table(core).lookup(map, key)).collect();
        let base = self.base.maps.get(&self.defs[map].name).and_then(|entries| entries.get(key));
        let base = base.cloned().unwrap_or_else(|| vec![0; values.first().map_or(0, Vec::len)]);
        let mut whole = base.clone();
        values.iter().for_each(|own| add_value(&mut whole, own, &base, updates));
        (!values.is_empty()).then_some(whole)
    }

    /// Takes the contents of maps from other cores ([`flowloom_vm::Environment::exchange_maps`]): pairs of own and
    /// other map. Returns false, and changes nothing, if the others divide them differently.
    pub fn exchange_maps(&mut self, other: &mut Cores, maps: &[(usize, usize)]) -> bool {
        let is_equal = |(own, from): &(usize, usize)| match (self.place(*own), other.place(*from)) {
            (Place::Divided(own), Place::Divided(from)) => own == from && self.split.spread == other.split.spread,
            (own, from) => own == from,
        };
        // A function's capacity does not say whether the engines have all of it or a share.
        let (shares, from_shares) = (&self.program().maps, &other.program().maps);
        let has_equal_share = |(own, from): &(usize, usize)| shares[*own].max_entries == from_shares[*from].max_entries;
        if self.cores.len() != other.cores.len() || !maps.iter().all(|pair| is_equal(pair) && has_equal_share(pair)) {
            return false;
        }
        // Cores have engines of one kind, so that the first one answers for all.
        let mut pairs = self.cores.iter_mut().zip(&mut other.cores);
        if !pairs.all(|(own, from)| own.engine.exchange_maps(from.engine.as_mut(), maps)) {
            return false;
        }
        for (own, from) in maps {
            let (own, from) = (&self.defs[*own].name, &other.defs[*from].name);
            if let (Some(own), Some(from)) = (self.base.maps.get_mut(own), other.base.maps.get_mut(from)) {
                std::mem::swap(own, from);
            }
        }
        true
    }
}

impl Tables for Cores {
    fn defs(&self) -> &[MapDef] {
        &self.defs
    }

    fn entries(&self, map: usize) -> u64 {
        match self.place(map) {
            Place::Divided(_) if !self.defs[map].kind.is_indexed() => {
                (0..self.cores.len()).map(|core| self.table(core).entries(map)).sum()
            }
            _ => self.table(0).entries(map),
        }
    }

    fn is_readable(&self, map: usize) -> bool {
        self.table(0).is_readable(map)
    }

    fn lookup(&self, map: usize, key: &[u8]) -> Option<Vec<u8>> {
        match self.place(map) {
            Place::First | Place::Same => self.table(0).lookup(map, key),
            Place::Divided(owner) => self.table(self.owner(owner, key)).lookup(map, key),
            Place::Summed(updates) => self.sum(map, key, updates),
        }
    }

    fn update(&mut self, map: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), UpdateError> {
        let is_first = self.joined.is_some();
        match self.place(map) {
            Place::Divided(owner) => {
                let core = self.owner(owner, key);
                let result = self.table_mut(core).update(map, key, value, flags);
                return result.map_err(|error| match error {
                    UpdateError::Full { map, entries, max_entries } => {
                        UpdateError::Share { map, core, entries, max_entries }
                    }
                    error => error,
                });
            }
            Place::First | Place::Same | Place::Summed(_) => {}
        }
        // The first core refuses what the others would.
        self.table_mut(0).update(map, key, value, flags)?;
        if !is_first {
            for core in 1..self.cores.len() {
                self.table_mut(core).update(map, key, value, 0)?;
            }
        }
        if let Some(entries) = self.base.maps.get_mut(&self.defs[map].name) {
            entries.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn delete(&mut self, map: usize, key: &[u8]) -> Result<(), UpdateError> {
        let is_first = self.joined.is_some();
        if let Place::Divided(owner) = self.place(map) {
            let core = self.owner(owner, key);
            return self.table_mut(core).delete(map, key);
        }
        self.table_mut(0).delete(map, key)?;
        if !is_first {
            for core in 1..self.cores.len() {
                self.table_mut(core).delete(map, key)?;
            }
        }
        if let Some(entries) = self.base.maps.get_mut(&self.defs[map].name) {
            entries.remove(key);
        }
        Ok(())
    }

    fn visit(&self, map: usize, from: u32, most: u32, visitor: &mut dyn FnMut(&[u8], &[u8])) -> Option<u32> {
        match self.place(map) {
            Place::First | Place::Same => self.table(0).visit(map, from, most, visitor),
            Place::Divided(_) if !self.defs[map].kind.is_indexed() => {
                // A table has at most its share of the slots that a number tells apart.
                let cores = self.cores.len() as u32;
                let stride = u32::MAX / cores;
                let (core, slot) = ((from / stride).min(cores - 1), from % stride);
                let next = self.table(core as usize).visit(map, slot, most, visitor);
                next.map(|slot| core * stride + slot).or((core + 1 < cores).then_some((core + 1) * stride))
            }
            Place::Divided(_) | Place::Summed(_) => {
                self.table(0).visit(map, from, most, &mut |key, value| match self.lookup(map, key) {
                    Some(whole) => visitor(key, &whole),
                    None => visitor(key, value),
                })
            }
        }
    }
}
