// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entry with the least value in a field, without a visit of all entries.
//!
//! Programs change values by plain stores, which tell the table nothing. But a store needs an address, which a lookup
//! has given. So a lookup marks the block of its entry, and only marked blocks are visited again.
//!
//! ```text
//!  marks   a byte for each block of entries: set by lookups, put, remove, sweep
//!  nodes   a tournament of the blocks: each leaf has the least entry of its block, each node that of its two children
//! ```
//!
//! A program may store by an address after the entry was found, in the same run: blocks that were marked in a run are
//! visited again until one has been done after its end ([`FlowTable::end_run`]).
//!
//! # Cost
//! A byte of marks for each block, the entries of marked blocks, and a path of nodes for each.
#![allow(unsafe_code, reason = "parts of a mapping are addressed by pointers")]

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::raw::RawTable;
use crate::table::{FlowTable, Slot};

/// No slot.
const NONE: Slot = Slot::MAX;
/// The entries of a block, about.
const BLOCK_ENTRIES: u32 = 32;

/// A field of values, and the order of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its first byte in the value.
    pub offset: u32,
    /// The bytes of the number, which is little-endian: 1 to 8.
    pub bytes: u32,
    /// True if it is signed.
    pub is_signed: bool,
    /// True if greater numbers come first.
    pub is_highest: bool,
}

impl Field {
    /// The number of a value in the order of the field, as an unsigned one; bytes outside of the value are zeros.
    fn rank(self, value: &[u8]) -> u64 {
        let start = (self.offset as usize).min(value.len());
        let end = (start + self.bytes.min(8) as usize).min(value.len());
        let mut bytes = [0; 8];
        bytes[..end - start].copy_from_slice(&value[start..end]);
        let shift = 64 - 8 * self.bytes.clamp(1, 8);
        let number = u64::from_le_bytes(bytes) << shift;
        let number = if self.is_signed { (number as i64 >> shift) as u64 ^ 1 << 63 } else { number >> shift };
        if self.is_highest { !number } else { number }
    }
}

/// The least entry of some blocks: its rank when it was computed, and its slot.
type Node = (u64, Slot);

/// The tournament of a field.
#[derive(Debug)]
pub(crate) struct Least {
    field: Field,
    /// Node 1 is the root, the children of node n are 2n and 2n + 1; the leaves are the second half.
    nodes: Vec<Node>,
    /// Blocks that were marked in the current run, or in the last one.
    pinned: Vec<usize>,
    /// True if the run in which the pinned blocks were marked has ended.
    is_over: bool,
}

/// The logarithm of the bytes of a block.
pub(crate) fn block_shift(stride_bytes: u32) -> u32 {
    (u64::from(stride_bytes) * u64::from(BLOCK_ENTRIES)).next_power_of_two().ilog2()
}

/// The blocks of a number of slots.
pub(crate) fn blocks(slots: u32, stride_bytes: u32) -> u64 {
    ((u64::from(slots) * u64::from(stride_bytes)) >> block_shift(stride_bytes)) + 1
}

impl RawTable {
    /// Marks the block of a slot.
    #[inline(always)]
    pub(crate) fn mark(&self, slot: Slot) {
        let block = (slot as usize * self.stride_bytes as usize) >> self.mark_shift;
        // SAFETY: callers pass slots of the table, whose blocks have a mark each.
        unsafe { AtomicU8::from_ptr(self.marks.add(block)) }.store(1, Ordering::Relaxed);
    }
}

impl FlowTable {
    /// Marks the entry of a slot, whose value may change before the end of the run: for all lookups that compiled code
    /// does not mark itself.
    pub fn mark(&self, slot: Slot) {
        self.check_slot(slot);
        self.raw.mark(slot);
    }

    /// As [`FlowTable::mark`], if that matters yet.
    #[inline(always)]
    pub(crate) fn note_change(&self, slot: Slot) {
        if self.least.is_some() {
            self.raw.mark(slot);
        }
    }

    /// The entry with the least rank in a field, of several the one with the least key. All lookups since the first call
    /// have marked their entries, if their values have changed.
    pub fn least(&mut self, field: Field) -> Option<Slot> {
        let blocks = blocks(self.slots.made(), self.raw.stride_bytes) as usize;
        let leaves = blocks.next_power_of_two();
        let mut least = match self.least.take().filter(|least| least.field == field && least.nodes.len() >= 2 * leaves)
        {
            Some(least) => least,
            None => {
                (0..blocks).for_each(|block| self.set_mark(block, 1));
                let nodes = vec![(u64::MAX, NONE); 2 * leaves];
                Box::new(Least { field, nodes, pinned: Vec::new(), is_over: false })
            }
        };
        if std::mem::take(&mut least.is_over) {
            for block in std::mem::take(&mut least.pinned) {
                self.visit_block(&mut least, block);
            }
        }
        let before = least.pinned.len();
        for first in (0..blocks).step_by(8) {
            for block in self.marked(first..blocks.min(first + 8)) {
                self.set_mark(block, 0);
                least.pinned.push(block);
            }
        }
        for number in 0..least.pinned.len() {
            let block = least.pinned[number];
            // Those of an earlier call may be there twice.
            if number < before || !least.pinned[..before].contains(&block) {
                self.visit_block(&mut least, block);
            }
        }
        let (_, slot) = least.nodes[1];
        self.least = Some(least);
        (slot != NONE).then_some(slot)
    }

    /// A run has ended: the addresses that it had of values are used no more.
    pub fn end_run(&mut self) {
        if let Some(least) = &mut self.least {
            least.is_over = true;
        }
    }

    /// Makes the next [`FlowTable::least`] visit all entries: after lookups that marked nothing.
    pub fn forget_least(&mut self) {
        self.least = None;
    }

    fn set_mark(&mut self, block: usize, mark: u8) {
        // SAFETY: the callers pass blocks of the table.
        unsafe { *self.raw.marks.add(block) = mark };
    }

    /// The marked blocks of a range of at most 8.
    fn marked(&self, range: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        let mut marks = 0_u64;
        if range.len() == 8 {
            // SAFETY: these blocks have a mark each.
            marks = u64::from_le(unsafe { self.raw.marks.add(range.start).cast::<u64>().read_unaligned() });
        } else {
            for (number, block) in range.clone().enumerate() {
                // SAFETY: as above.
                marks |= u64::from(unsafe { *self.raw.marks.add(block) }) << (8 * number);
            }
        }
        std::iter::from_fn(move || {
            let number = (marks != 0).then(|| marks.trailing_zeros() / 8)?;
            marks &= !(0xff << (8 * number));
            Some(range.start + number as usize)
        })
    }

    /// Computes the least entry of a block, and the nodes above it.
    fn visit_block(&self, least: &mut Least, block: usize) {
        let stride = u64::from(self.raw.stride_bytes);
        let first = |block: u64| (block << self.raw.mark_shift).div_ceil(stride).min(u64::from(NONE)) as Slot;
        let (mut next, end) = (first(block as u64), first(block as u64 + 1).min(self.slots.made()));
        let mut found: Node = (u64::MAX, NONE);
        while let Some(slot) = self.slots.live.next(next, end) {
            next = slot + 1;
            found = self.lesser(found, (least.field.rank(self.value(slot)), slot));
        }
        let mut at = least.nodes.len() / 2 + block;
        least.nodes[at] = found;
        while at > 1 {
            at /= 2;
            least.nodes[at] = self.lesser(least.nodes[2 * at], least.nodes[2 * at + 1]);
        }
    }

    /// The lesser of two entries; one that is none is greater than all.
    fn lesser(&self, a: Node, b: Node) -> Node {
        match (a.1, b.1) {
            (_, NONE) => a,
            (NONE, _) => b,
            _ if a.0 != b.0 => {
                if a.0 < b.0 {
                    a
                } else {
                    b
                }
            }
            (left, right) if self.key(right) < self.key(left) => b,
            _ => a,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::{Allocation, Layout};

    /// A step of a program, by the number of a key.
    #[derive(Debug, Clone)]
    enum Step {
        Put(u16, u32),
        Remove(u16),
        /// A lookup, and a store by its address.
        Store(u16, u32),
        /// A store by the address of the last lookup of the same run.
        StoreLater(u32),
        Evict,
        EndRun,
        Sweep(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (key, value) = (|| 0_u16..300, || prop_oneof![4 => 0_u32..4, 1 => any::<u32>()]);
        prop_oneof![
            12 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
            2 => key().prop_map(Step::Remove),
            6 => (key(), value()).prop_map(|(key, value)| Step::Store(key, value)),
            6 => value().prop_map(Step::StoreLater),
            5 => Just(Step::Evict),
            2 => Just(Step::EndRun),
            1 => (0_u32..8).prop_map(Step::Sweep),
        ]
    }

    fn store(table: &mut FlowTable, slot: Slot, value: u32) {
        table.value_mut(slot)[4..8].copy_from_slice(&value.to_le_bytes());
    }

    proptest! {
        /// Beside a visit of all entries.
        #[test]
        fn the_least_entry_is_that_of_a_visit_of_all(
            steps in prop::collection::vec(step(), 0..400),
            bytes in 1_u32..5,
            is_signed in any::<bool>(),
            is_highest in any::<bool>(),
            value_bytes in prop_oneof![Just(8_u32), Just(20), Just(100)],
        ) {
            let layout = Layout { key_bytes: 4, value_bytes, entries: 200, allocation: Allocation::OnDemand };
            let mut table = FlowTable::with_seed(layout, 1).unwrap();
            let field = Field { offset: 4, bytes, is_signed, is_highest };
            let mut found = None;
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        let key = u32::from(key).to_be_bytes();
                        if let Some(slot) = table.put(table.probe(&key), &key) {
                            store(&mut table, slot, value);
                        }
                    }
                    Step::Remove(key) => {
                        let key = u32::from(key).to_be_bytes();
                        table.remove(table.probe(&key), &key);
                    }
                    Step::Store(key, value) => {
                        let key = u32::from(key).to_be_bytes();
                        found = table.lookup(table.probe(&key), &key);
                        if let Some(slot) = found {
                            table.mark(slot);
                            store(&mut table, slot, value);
                        }
                    }
                    Step::StoreLater(value) => {
                        if let Some(slot) = found {
                            store(&mut table, slot, value);
                        }
                    }
                    Step::Evict => {
                        let ranked = |slot: Slot| (field.rank(table.value(slot)), table.key(slot).to_vec(), slot);
                        let expected = table.slots().map(ranked).min().map(|(.., slot)| slot);
                        prop_assert_eq!(table.least(field), expected);
                        if let Some(slot) = expected {
                            table.remove_slot(slot);
                        }
                    }
                    Step::EndRun => {
                        table.end_run();
                        found = None;
                    }
                    Step::Sweep(rest) => {
                        table.retain(|slot, _, value| {
                            value[4] = value[4].wrapping_mul(5);
                            slot % 8 != rest
                        });
                    }
                }
            }
            table.check_invariants();
        }
    }

    /// A store after an eviction, by the address of a lookup before it: seen by the next eviction of the same run, by the
    /// first one after it, and by no later one.
    #[test]
    fn stores_after_an_eviction_count() {
        let layout = Layout { key_bytes: 4, value_bytes: 8, entries: 1000, allocation: Allocation::OnDemand };
        let mut table = FlowTable::with_seed(layout, 1).unwrap();
        let field = Field { offset: 4, bytes: 4, is_signed: false, is_highest: false };
        for number in 0_u32..1000 {
            let key = number.to_be_bytes();
            let slot = table.put(table.probe(&key), &key).unwrap();
            store(&mut table, slot, 100 + number);
        }
        // The first visit of all counts as a mark of all.
        assert_eq!(table.least(field), Some(0));
        table.end_run();
        assert_eq!(table.least(field), Some(0));
        table.end_run();
        table.mark(500);
        assert_eq!(table.least(field), Some(0));
        store(&mut table, 500, 9);
        assert_eq!(table.least(field), Some(500), "in the same run");
        store(&mut table, 500, 8);
        store(&mut table, 501, 7);
        table.end_run();
        assert_eq!(table.least(field), Some(501), "a neighbour's block is visited as well");
        store(&mut table, 900, 1);
        assert_eq!(table.least(field), Some(501), "a block without a mark is not visited");
        table.end_run();
        store(&mut table, 501, 1000);
        assert_eq!(table.least(field), Some(501), "the run that marked the block has ended");
    }

    #[test]
    fn ranks_are_in_the_order_of_numbers() {
        let rank = |number: i64, bytes, is_signed, is_highest| {
            Field { offset: 0, bytes, is_signed, is_highest }.rank(&number.to_le_bytes())
        };
        for bytes in 1..=8 {
            assert!(rank(-1, bytes, true, false) < rank(0, bytes, true, false));
            assert!(rank(-1, bytes, false, false) > rank(0, bytes, false, false));
            assert!(rank(-1, bytes, true, true) > rank(0, bytes, true, true));
            assert!(rank(3, bytes, false, true) < rank(2, bytes, false, true));
        }
    }
}
