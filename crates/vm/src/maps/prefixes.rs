// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Longest prefix match: a hash table for each prefix length.
//!
//! A key is a length in bits, four little-endian bytes, and an address; bits of the address past the length are
//! ignored, but kept as given [Linux kernel/bpf/lpm_trie.c].

use std::collections::{BTreeMap, HashMap};

use foldhash::quality::RandomState;

/// Prefixes and their slots.
#[derive(Debug, Clone, Default)]
pub(super) struct Prefixes {
    /// By length, the slots by the masked address.
    lengths: BTreeMap<u32, HashMap<Box<[u8]>, u32, RandomState>>,
    len: usize,
    free: Vec<u32>,
    /// Slots of deleted entries that a program may still reference.
    graveyard: Vec<u32>,
    /// By slot, the key as given; `None` if the slot has no entry.
    keys: Vec<Option<Box<[u8]>>>,
}

/// The length and address of a key; `None` if the length exceeds the address.
fn parts(key: &[u8]) -> Option<(u32, &[u8])> {
    let (length, address) = key.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    (u64::from(length) <= address.len() as u64 * 8).then_some((length, address))
}

/// The address masked to its first `length` bits.
fn cut(address: &[u8], length: u32) -> Box<[u8]> {
    let mut bytes: Box<[u8]> = address.into();
    let whole = length as usize / 8;
    for (at, byte) in bytes.iter_mut().enumerate().skip(whole) {
        let bits = if at == whole { length % 8 } else { 0 };
        *byte &= !(0xff_u16 >> bits) as u8;
    }
    bytes
}

impl Prefixes {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Keys as given, and slots, by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        (0..).zip(&self.keys).filter_map(|(slot, key)| Some((key.as_deref()?, slot)))
    }

    /// Visits the keys of `most` slots from `from` on; returns the slot after them, or `None` if no slot follows.
    pub(super) fn visit(&self, from: u32, most: u32, mut visitor: impl FnMut(&[u8], u32)) -> Option<u32> {
        let end = from.saturating_add(most).min(self.keys.len() as u32);
        for slot in from..end {
            if let Some(key) = &self.keys[slot as usize] {
                visitor(key, slot);
            }
        }
        ((end as usize) < self.keys.len()).then_some(end)
    }

    /// The slot of the longest matching prefix no longer than the key's length.
    pub(super) fn longest(&self, key: &[u8]) -> Option<u32> {
        let (length, address) = parts(key)?;
        let tables = self.lengths.range(..=length).rev();
        tables.into_iter().find_map(|(length, table)| table.get(&cut(address, *length)).copied())
    }

    /// Whether the key's length is within its address.
    pub(super) fn is_valid(key: &[u8]) -> bool {
        parts(key).is_some()
    }

    /// Whether exactly this prefix exists.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        parts(key).is_some_and(|(length, address)| {
            self.lengths.get(&length).is_some_and(|table| table.contains_key(&cut(address, length)))
        })
    }

    /// The slot that [`Prefixes::put`] gives next.
    pub(super) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.keys.len() as u32)
    }

    /// A slot for the prefix, whether it is new or replaces its old one; `None` for an invalid key.
    pub(super) fn put(&mut self, key: &[u8]) -> Option<u32> {
        let (length, address) = parts(key)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.keys.push(None);
            self.keys.len() as u32 - 1
        });
        self.keys[slot as usize] = Some(key.into());
        let table = self.lengths.entry(length).or_default();
        match table.insert(cut(address, length), slot) {
            Some(old) => self.bury(old),
            None => self.len += 1,
        }
        Some(slot)
    }

    /// Removes exactly this prefix; returns whether it existed.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let Some((length, address)) = parts(key) else { return false };
        let Some(table) = self.lengths.get_mut(&length) else { return false };
        let Some(old) = table.remove(&cut(address, length)) else { return false };
        if table.is_empty() {
            self.lengths.remove(&length);
        }
        self.bury(old);
        self.len -= 1;
        true
    }

    fn bury(&mut self, slot: u32) {
        self.keys[slot as usize] = None;
        self.graveyard.push(slot);
    }

    /// The run has ended: slots of deleted entries can be reused.
    pub(super) fn end_run(&mut self) {
        self.free.append(&mut self.graveyard);
    }

    /// Panics unless every slot is used exactly once.
    pub(super) fn check_invariants(&self) {
        let mut used: Vec<u32> = self.iter().map(|(_, slot)| slot).chain(self.free.clone()).collect();
        used.extend(&self.graveyard);
        used.sort_unstable();
        assert_eq!(used, (0..self.keys.len() as u32).collect::<Vec<_>>());
        assert_eq!(self.len, self.iter().count());
        assert!(self.lengths.values().all(|table| !table.is_empty()));
        let found = |key: &[u8]| {
            let (length, address) = parts(key)?;
            self.lengths.get(&length)?.get(&cut(address, length)).copied()
        };
        assert!(self.iter().all(|(key, slot)| found(key) == Some(slot)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn key(length: u32, address: [u8; 4]) -> Vec<u8> {
        [length.to_le_bytes(), address].concat()
    }

    #[test]
    fn cutting_keeps_the_first_bits() {
        let cases = [(0, [0; 4]), (1, [0x80, 0, 0, 0]), (8, [255, 0, 0, 0]), (13, [255, 0xf8, 0, 0]), (32, [255; 4])];
        for (length, expected) in cases {
            assert_eq!(&*cut(&[255; 4], length), &expected, "{length}");
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut table = Prefixes::default();
        let default = table.put(&key(0, [9; 4])).unwrap();
        let net = table.put(&key(8, [10, 1, 2, 3])).unwrap();
        let host = table.put(&key(32, [10, 0, 0, 1])).unwrap();
        let found = |table: &Prefixes, length, address| table.longest(&key(length, address));
        assert_eq!(found(&table, 32, [10, 0, 0, 1]), Some(host));
        assert_eq!(found(&table, 32, [10, 0, 0, 2]), Some(net));
        assert_eq!(found(&table, 31, [10, 0, 0, 1]), Some(net));
        assert_eq!(found(&table, 32, [11, 0, 0, 2]), Some(default));
        assert_eq!(found(&table, 33, [10, 0, 0, 1]), None);
        assert!(table.contains(&key(8, [10, 7, 7, 7])) && !table.contains(&key(9, [10, 1, 2, 3])));
        assert_eq!(table.put(&key(33, [0; 4])), None);
        // The same prefix with other bits after it replaces it.
        let again = table.put(&key(8, [10, 9, 9, 9])).unwrap();
        assert_eq!((table.len(), found(&table, 32, [10, 0, 0, 2])), (3, Some(again)));
        assert!(table.iter().any(|(k, slot)| slot == again && k == key(8, [10, 9, 9, 9])));
        assert!(table.remove(&key(8, [10, 0, 0, 0])) && !table.remove(&key(8, [10, 0, 0, 0])));
        assert_eq!(found(&table, 32, [10, 0, 0, 2]), Some(default));
        table.check_invariants();
        table.end_run();
        table.check_invariants();
        // Slots without an entry are passed over, and those that follow are named.
        let mut seen = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = table.visit(from, 1, |key, slot| seen.push((key.to_vec(), slot)));
            assert!(next.is_none_or(|next| next == from + 1));
        }
        assert_eq!(seen, [(key(0, [9; 4]), default), (key(32, [10, 0, 0, 1]), host)]);
        assert_eq!(Prefixes::default().visit(0, 8, |_, _| panic!("no key")), None);
    }
}
