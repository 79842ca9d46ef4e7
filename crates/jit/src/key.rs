// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of lookups in registers.
//!
//! A program builds a key on its stack with stores of the widths of its fields. A wide load of bytes that several
//! stores in flight have written waits until all of them have reached the cache, which ends the overlap of packets. So
//! a key is loaded in pieces, each within every store that the program does there, and the pieces are combined. Bytes of
//! the stack that are variables ([`crate::frame`]) need no load.
//! Longer keys are copied in the same way to words that the table loads as they were stored.
//!
//! ```text
//!  stores   *(u32 *)(r10 - 16) = r5   *(u32 *)(r10 - 12) = r3   *(u16 *)(r10 - 8) = r0   ...
//!  words    first = u32 [r10 - 16] | u32 [r10 - 12] << 32       last = u16 [r10 - 8] | ...
//! ```

use std::collections::BTreeSet;

use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};
use flowloom_flowtable::hashed_pairs;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{Op, Size};
use flowloom_verifier::Bytes;

use crate::arithmetic;
use crate::compiled::Source;
use crate::function::{FIELD, Translation};
use crate::state::SEED;

/// The most pieces of a word; of more, the loads take as long as the wait.
const MAX_PIECES: usize = 6;

/// The most bytes of a key that is copied.
pub(crate) const MAX_COPIED_BYTES: i64 = 64;

/// The pieces of a word at `start` between bytes where stores begin or end, each with its size in bytes.
fn pieces(cuts: &BTreeSet<i64>, start: i64, bytes: i64) -> Vec<(i64, i64)> {
    let (mut found, mut at) = (Vec::new(), start);
    while at < start + bytes {
        let end = cuts.range(at + 1..start + bytes).next().copied().unwrap_or(start + bytes);
        let size = 1 << (end - at).ilog2();
        found.push((at, size));
        at += size;
    }
    if found.len() > MAX_PIECES { vec![(start, bytes)] } else { found }
}

/// The key of a call.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) bytes: i64,
    /// Where it begins on the own stack, if it always lies there.
    first: Option<i64>,
    /// Where stores to it begin or end.
    cuts: BTreeSet<i64>,
}

impl Key {
    /// The size of the words that tables hash and compare.
    pub(crate) fn word_size(&self) -> Size {
        if self.bytes >= 8 { Size::Dw } else { Size::W }
    }
}

impl Source<'_> {
    /// The bytes of its own stack that an instruction accesses, if it accesses nothing else.
    fn on_stack(&self, at: usize) -> Option<Bytes> {
        self.of_stack(at).filter(|_| self.proof.insns[at].memory.len() == 1)
    }

    /// True if the key of a lookup always lies at the same place on the own stack.
    pub(crate) fn has_fixed_key(&self, at: usize) -> bool {
        let key_bytes = self.map(at).map(|map| i64::from(self.maps[map].key_bytes));
        self.on_stack(at).is_some_and(|bytes| Some(bytes.end - bytes.first) == key_bytes)
    }

    /// Where the key of a lookup in a hash table begins, if it always lies there on the own stack.
    pub(crate) fn key_on_stack(&self, at: usize) -> Option<i64> {
        let Some(Op::Call { helper: helper::MAP_LOOKUP_ELEM }) = self.code[at] else { return None };
        let key_bytes = i64::from(self.maps[self.table(at)?].key_bytes);
        self.on_stack(at).filter(|bytes| bytes.end - bytes.first == key_bytes).map(|bytes| bytes.first)
    }
}

impl Translation<'_, '_> {
    /// The key of a call of a helper.
    pub(crate) fn key(&mut self, at: usize, map: usize) -> Key {
        let bytes = i64::from(self.source.maps[map].key_bytes);
        let on_stack = self.source.on_stack(at).filter(|found| found.end - found.first == bytes);
        let (first, cuts) = on_stack.map_or((None, BTreeSet::new()), |key| (Some(key.first), self.cuts(key)));
        if first.is_none() {
            self.flush_for(at);
        }
        Key { bytes, first, cuts }
    }

    /// The words of a key as a table's lookup of keys in registers takes them: the first and the last 8 bytes, or 4 if
    /// it is shorter than 8. `None` if the table has no such lookup.
    pub(crate) fn key_words(&mut self, at: usize, map: usize) -> Option<[Value; 2]> {
        self.source.refs[map].word_lookup?;
        let key = self.key(at, map);
        let size = key.word_size();
        Some([0, key.bytes - size.bytes() as i64].map(|start| self.word(&key, start, size)))
    }

    /// The hash of a key with these words, by their first bytes, as the table makes it.
    pub(crate) fn key_hash(&mut self, map: usize, word: &mut dyn FnMut(&mut Self, i64) -> Value) -> Value {
        let reference = self.map_reference(map);
        let [mut state, second, third] =
            [0, 8, 16].map(|at| self.builder.ins().load(types::I64, FIELD, reference, SEED + at));
        for pair in hashed_pairs(self.source.maps[map].key_bytes) {
            let [a, b] = pair.map(|start| word(self, start.into()));
            let (a, b) = (self.builder.ins().bxor(a, state), self.builder.ins().bxor(b, second));
            state = self.fold(a, b);
        }
        self.fold(state, third)
    }

    /// Both halves of a product, combined.
    fn fold(&mut self, a: Value, b: Value) -> Value {
        // One instruction of the processor multiplies both.
        let [a, b] = [a, b].map(|factor| self.builder.ins().uextend(types::I128, factor));
        let product = self.builder.ins().imul(a, b);
        let (low, high) = self.builder.ins().isplit(product);
        self.builder.ins().bxor(low, high)
    }

    /// The address of a key for a table's lookup of keys in memory: that of a copy if the key has several words, some
    /// of which the program stores in pieces.
    pub(crate) fn key_address(&mut self, at: usize, map: usize) -> Value {
        let address = self.builder.use_var(self.registers[2]);
        let key = self.key(at, map);
        let Some(first) = key.first.filter(|_| key.bytes > 8 && key.bytes % 8 == 0 && key.bytes <= MAX_COPIED_BYTES)
        else {
            self.flush_for(at);
            return address;
        };
        let starts = (0..key.bytes).step_by(8);
        if starts.clone().all(|start| pieces(&key.cuts, first + start, 8).len() == 1) {
            self.flush_for(at);
            return address;
        }
        // A lookup reads the copy before the next one is made.
        let slot = self.key_copy.unwrap_or_else(|| {
            let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, MAX_COPIED_BYTES as u32, 3);
            self.builder.create_sized_stack_slot(slot)
        });
        self.key_copy = Some(slot);
        for start in starts {
            let word = self.word(&key, start, Size::Dw);
            self.builder.ins().stack_store(types::I64, word, slot, start as i32);
        }
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }

    /// The word at `start` of a key.
    pub(crate) fn word(&mut self, key: &Key, start: i64, size: Size) -> Value {
        let address = self.builder.use_var(self.registers[2]);
        let Some(first) = key.first else {
            return arithmetic::load(&mut self.builder, size, false, address, start as i32);
        };
        let piece =
            |from: i64, to: i64| pieces(&key.cuts, from, to - from).first().map_or(to, |(at, bytes)| at + bytes);
        let start = first + start;
        self.stack_word(start..start + size.bytes() as i64, (address, first), piece)
    }

    /// Where stores within a range of the stack begin or end.
    fn cuts(&self, key: Bytes) -> BTreeSet<i64> {
        let stores = self.source.code.iter().enumerate().filter_map(|(at, op)| match op {
            Some(Op::Store { size, .. }) => {
                self.source.on_stack(at).filter(|bytes| bytes.end - bytes.first == size.bytes() as i64)
            }
            _ => None,
        });
        let within = |at: &i64| (key.first..key.end).contains(at);
        stores.flat_map(|bytes| [bytes.first, bytes.end]).filter(within).collect()
    }
}
