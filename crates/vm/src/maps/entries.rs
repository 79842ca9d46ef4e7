// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of a map as user space sees them between two packets.

use flowloom_isa::MapDef;

use super::{Backing, Cells, Keys, Map, Table};

impl<B: Backing> Map<B> {
    /// The number of entries; of arrays, all that they have.
    pub(crate) fn len(&self) -> u64 {
        match &self.table {
            Table::Array => self.def.max_entries.into(),
            Table::Keyed(entries) | Table::Ports { entries, .. } => entries.len() as u64,
            Table::Prefixes(prefixes) => prefixes.len() as u64,
            Table::Members(members) => members.len() as u64,
            Table::Records => 0,
        }
    }

    /// The values of a key on all CPUs, without a use of the entry.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<Vec<u8>> {
        let slot = match &self.table {
            Table::Array => self.index(key),
            Table::Keyed(entries) | Table::Ports { entries, .. } => entries.slot(key),
            Table::Prefixes(prefixes) => prefixes.longest(key),
            Table::Members(members) => return members.get(key).map(|number| number.to_le_bytes().to_vec()),
            Table::Records => None,
        }?;
        Some(self.bytes_of(slot))
    }

    fn bytes_of(&self, slot: u32) -> Vec<u8> {
        let bytes = self.values.slot(slot, self.cpus);
        match bytes.is_empty() {
            // A page of an array without storage.
            true => vec![0; self.def.value_bytes as usize * self.cpus as usize],
            false => bytes.to_vec(),
        }
    }

    /// Visits the entries of `most` slots from `from` on; returns where the next call continues.
    pub(crate) fn visit(&self, from: u32, most: u32, visitor: &mut dyn FnMut(&[u8], &[u8])) -> Option<u32> {
        match &self.table {
            Table::Array => {
                let end = from.saturating_add(most).min(self.def.max_entries);
                (from..end).for_each(|index| visitor(&index.to_le_bytes(), &self.bytes_of(index)));
                (end < self.def.max_entries).then_some(end)
            }
            Table::Keyed(entries) | Table::Ports { entries, .. } => {
                entries.visit(from, most, &mut |key, slot| visitor(key, self.values.slot(slot, self.cpus)))
            }
            Table::Prefixes(prefixes) => {
                prefixes.visit(from, most, |key, slot| visitor(key, self.values.slot(slot, self.cpus)))
            }
            Table::Members(members) => {
                let all = members.iter().skip(from as usize).take(most as usize);
                all.for_each(|(key, number)| visitor(key, &number.to_le_bytes()));
                from.checked_add(most).filter(|next| (*next as usize) < members.len())
            }
            Table::Records => None,
        }
    }

    /// Exchanges the contents with those of a map of equal kind, sizes, capacity and flags.
    ///
    /// # Panics
    /// The maps differ in these.
    pub(crate) fn exchange(&mut self, other: &mut Map<B>) {
        let layout = |map: &Map<B>| {
            let MapDef { kind, key_bytes, value_bytes, max_entries, flags, spin_lock, .. } = &map.def;
            (*kind, *key_bytes, *value_bytes, *max_entries, *flags, *spin_lock, map.cpus)
        };
        assert_eq!(layout(self), layout(other), "`{}` and `{}`", self.def.name, other.def.name);
        std::mem::swap(&mut self.values, &mut other.values);
        std::mem::swap(&mut self.table, &mut other.table);
        std::mem::swap(&mut self.victims, &mut other.victims);
    }
}
