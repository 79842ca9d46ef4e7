// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Longest prefix match: a sorted list of address ranges.
//!
//! The ends of the prefixes divide the addresses into ranges in which one prefix is the longest. With `n` prefixes,
//! there are at most `2 * n + 1` of them, whatever the prefixes are. A lookup is a search in the list.
//!
//! ```text
//!   0/0 ──────────────────────────────────────────────
//!            10/8 ────────────────────────
//!                     10.1/16 ────
//!   ranges:  0 ─► 0/0 · 10.0 ─► 10/8 · 10.1 ─► 10.1/16 · 10.2 ─► 10/8 · 11.0 ─► 0/0
//! ```
//!
//! A prefix that is inserted takes over the ranges within it that belong to the longest prefix around it, and gives
//! them back when it is deleted. So a change is one pass over the list, and adjacent ranges of one prefix become one.
//!
//! Prefixes are in slots, which are the rows of the values; a new one takes the first free slot.
//!
//! # Source
//! [Ranges].

use crate::cuckoo::Slot;
use crate::error::{ParameterError, Refusal};

/// Bytes of an address at most.
const MAX_ADDRESS_BYTES: u32 = 16;

/// A prefix: the first bits of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The bits that count, the first ones.
    pub bits: u32,
    /// The address as a number, its first byte the most significant one; further bits are kept as given.
    pub address: u128,
}

/// A table of prefixes.
#[derive(Debug, Clone)]
pub struct Lpm {
    entries: u32,
    width_bits: u32,
    slots: Vec<Option<Prefix>>,
    /// The first address of each range, ascending, and the slot of its longest prefix.
    ranges: Vec<(u128, Option<Slot>)>,
    stored: u32,
}

impl Lpm {
    /// A table for a number of prefixes of addresses with a number of bytes.
    ///
    /// # Errors
    /// No prefix, or addresses of no or more than 16 bytes.
    pub fn new(entries: u32, address_bytes: u32) -> Result<Lpm, ParameterError> {
        for (parameter, found, most) in
            [("entries", entries, 1 << 28), ("address_bytes", address_bytes, MAX_ADDRESS_BYTES)]
        {
            if found == 0 || found > most {
                return Err(ParameterError { parameter, found: found.into(), expected: format!("1 to {most}") });
            }
        }
        Ok(Lpm { entries, width_bits: 8 * address_bytes, slots: Vec::new(), ranges: vec![(0, None)], stored: 0 })
    }

    /// The number of prefixes.
    pub fn len(&self) -> usize {
        self.stored as usize
    }

    /// Whether there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.stored == 0
    }

    /// The ranges: the first address of each, and the slot of its longest prefix.
    pub fn ranges(&self) -> &[(u128, Option<Slot>)] {
        &self.ranges
    }

    /// The prefix in a slot.
    pub fn prefix(&self, slot: Slot) -> Option<Prefix> {
        self.slots.get(slot.index()).copied().flatten()
    }

    /// The slot of the longest prefix of an address.
    pub fn lookup(&self, address: u128) -> Option<Slot> {
        let after = self.ranges.partition_point(|(start, _)| *start <= address);
        self.ranges[after - 1].1
    }

    /// The slot of the longest prefix of an address that is not longer than the prefix: as [`Lpm::lookup`] for a whole
    /// address. Lookups of the host are such.
    pub fn longest(&self, of: Prefix) -> Option<Slot> {
        if of.bits > self.width_bits {
            return None;
        }
        self.own(of).or_else(|| self.around(of))
    }

    /// Inserts a prefix, or replaces the one with the same bits, and returns its slot.
    ///
    /// # Errors
    /// The table is full. A prefix longer than an address is refused in the same way.
    pub fn insert(&mut self, prefix: Prefix) -> Result<Slot, Refusal> {
        if prefix.bits > self.width_bits {
            return Err(Refusal::Full);
        }
        if let Some(slot) = self.own(prefix) {
            self.slots[slot.index()] = Some(prefix);
            return Ok(slot);
        }
        if self.stored == self.entries {
            return Err(Refusal::Full);
        }
        let around = self.around(prefix);
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        let slot = Slot(free as u32);
        self.slots[free] = Some(prefix);
        self.stored += 1;
        self.rewrite(prefix, around, Some(slot));
        Ok(slot)
    }

    /// Removes exactly this prefix, and returns the slot that it had.
    pub fn remove(&mut self, prefix: Prefix) -> Option<Slot> {
        if prefix.bits > self.width_bits {
            return None;
        }
        let slot = self.own(prefix)?;
        let around = self.around(prefix);
        self.rewrite(prefix, Some(slot), around);
        self.slots[slot.index()] = None;
        self.stored -= 1;
        Some(slot)
    }

    /// The first and the last address of a prefix.
    fn span(&self, prefix: Prefix) -> (u128, u128) {
        let all = u128::MAX >> (128 - self.width_bits);
        let rest = if prefix.bits == self.width_bits { 0 } else { all >> prefix.bits };
        (prefix.address & !rest, prefix.address | rest)
    }

    fn filled(&self) -> impl Iterator<Item = (Slot, Prefix)> + '_ {
        self.slots.iter().enumerate().filter_map(|(at, prefix)| Some((Slot(at as u32), (*prefix)?)))
    }

    /// The slot of a prefix with the same bits.
    fn own(&self, prefix: Prefix) -> Option<Slot> {
        let first = self.span(prefix).0;
        self.filled().find(|(_, own)| own.bits == prefix.bits && self.span(*own).0 == first).map(|(slot, _)| slot)
    }

    /// The slot of the longest prefix that is shorter and contains it.
    fn around(&self, prefix: Prefix) -> Option<Slot> {
        let contains = |own: &Prefix| {
            let (first, last) = self.span(*own);
            own.bits < prefix.bits && first <= prefix.address && prefix.address <= last
        };
        self.filled().filter(|(_, own)| contains(own)).max_by_key(|(_, own)| own.bits).map(|(slot, _)| slot)
    }

    /// Gives the ranges within a prefix from one slot to another one.
    fn rewrite(&mut self, prefix: Prefix, from: Option<Slot>, to: Option<Slot>) {
        let (first, last) = self.span(prefix);
        let after = (last < u128::MAX >> (128 - self.width_bits)).then(|| last + 1);
        for cut in [Some(first), after].into_iter().flatten() {
            let at = self.ranges.partition_point(|(start, _)| *start < cut);
            if self.ranges.get(at).is_none_or(|(start, _)| *start != cut) {
                let before = self.ranges[at - 1].1;
                self.ranges.insert(at, (cut, before));
            }
        }
        let within = self.ranges.iter_mut().filter(|(start, slot)| (first..=last).contains(start) && *slot == from);
        within.for_each(|(_, slot)| *slot = to);
        self.ranges.dedup_by_key(|(_, slot)| *slot);
    }

    /// Panics unless the list has as few ranges as possible, and each leads to the longest prefix.
    pub fn check_invariants(&self) {
        assert_eq!(self.stored as usize, self.filled().count());
        assert!(self.stored <= self.entries && self.ranges.len() <= 2 * self.stored as usize + 1);
        assert_eq!(self.ranges[0].0, 0);
        assert!(self.ranges.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 != two[1].1));
        let longest = |address: u128| {
            let contains = |own: &Prefix| {
                let (first, last) = self.span(*own);
                first <= address && address <= last
            };
            self.filled().filter(|(_, own)| contains(own)).max_by_key(|(_, own)| own.bits).map(|(slot, _)| slot)
        };
        for (start, slot) in &self.ranges {
            assert_eq!(longest(*start), *slot, "{start:x}");
        }
        // A range ends where the next prefix begins or one ends: the ends of all prefixes are in the right range too.
        for (_, prefix) in self.filled() {
            let (first, last) = self.span(prefix);
            assert_eq!(longest(first), self.lookup(first), "{first:x}");
            assert_eq!(longest(last), self.lookup(last), "{last:x}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout)]
mod tests {
    use flowloom_random::{Draw, SplitMix64};

    use super::*;

    #[test]
    fn prefixes_within_one_another() {
        let mut table = Lpm::new(4, 4).unwrap();
        let prefix = |bits, address: [u8; 4]| Prefix { bits, address: u32::from_be_bytes(address).into() };
        let all = table.insert(prefix(0, [9; 4])).unwrap();
        let net = table.insert(prefix(8, [10, 1, 2, 3])).unwrap();
        let host = table.insert(prefix(32, [10, 0, 0, 0])).unwrap();
        let last = table.insert(prefix(32, [255; 4])).unwrap();
        table.check_invariants();
        assert_eq!(table.insert(prefix(9, [1; 4])), Err(Refusal::Full));
        let found = |table: &Lpm, address: [u8; 4]| table.lookup(u32::from_be_bytes(address).into());
        assert_eq!(found(&table, [10, 0, 0, 0]), Some(host));
        assert_eq!(found(&table, [10, 0, 0, 1]), Some(net));
        assert_eq!(found(&table, [11, 0, 0, 1]), Some(all));
        assert_eq!(found(&table, [255; 4]), Some(last));
        assert_eq!(table.longest(prefix(31, [10, 0, 0, 0])), Some(net));
        assert_eq!(table.longest(prefix(33, [10, 0, 0, 0])), None);
        assert_eq!(table.remove(prefix(8, [10, 9, 9, 9])), Some(net));
        assert_eq!((table.remove(prefix(8, [10, 9, 9, 9])), table.len()), (None, 3));
        table.check_invariants();
        assert_eq!(found(&table, [10, 0, 0, 1]), Some(all));
        // The first free slot is taken.
        assert_eq!(table.insert(prefix(16, [1, 2, 3, 4])), Ok(net));
        assert_eq!(table.prefix(net), Some(prefix(16, [1, 2, 3, 4])));
    }

    #[test]
    fn ranges_are_as_few_as_possible_and_lead_to_the_longest_prefix() {
        for seed in 1..=40 {
            println!("seed {seed}");
            let mut rng = SplitMix64::new(seed);
            let bytes = [1, 4, 16][seed as usize % 3];
            let mut table = Lpm::new(24, bytes).unwrap();
            let mut most = 0;
            for _ in 0..600 {
                let address = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
                // Few addresses, so that prefixes contain one another.
                let address = address & (u128::MAX >> (128 - 8 * bytes)) & !(u128::MAX >> 126 << 1);
                let prefix = Prefix { bits: rng.below(u64::from(8 * bytes) + 1) as u32, address };
                match rng.below(5) {
                    0 | 1 => _ = table.remove(prefix),
                    _ => _ = table.insert(prefix),
                }
                table.check_invariants();
                assert_eq!(table.longest(Prefix { bits: 8 * bytes, address }), table.lookup(address));
                most = most.max(table.ranges().len());
            }
            assert!(most > 15, "{most}");
        }
    }
}
