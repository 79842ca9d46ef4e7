// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of lookups in registers.
//!
//! A program builds a key on its stack with stores of the widths of its fields. A wide load of bytes that several
//! stores in flight have written waits until all of them have reached the cache, which ends the overlap of packets. So
//! a key is loaded in pieces, each within every store that the program does there, and the pieces are combined:
//! Longer keys are copied in the same way to words that the table loads as they were stored.
//!
//! ```text
//!  stores   *(u32 *)(r10 - 16) = r5   *(u32 *)(r10 - 12) = r3   *(u16 *)(r10 - 8) = r0   ...
//!  words    first = u32 [r10 - 16] | u32 [r10 - 12] << 32       last = u16 [r10 - 8] | ...
//! ```

use std::collections::BTreeSet;

use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};
use flowloom_flowtable::hashed_pairs;
use flowloom_isa::op::{Op, Size};
use flowloom_verifier::{Bytes, Memory};

use crate::arithmetic::{of_size, wide};
use crate::function::{FIELD, MEMORY, Translation};
use crate::state::{RAW, SEED};

/// The most pieces of a word; of more, the loads take as long as the wait.
const MAX_PIECES: usize = 6;

/// The most bytes of a key that is copied.
const MAX_COPIED_BYTES: i64 = 64;

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

impl Translation<'_, '_> {
    /// The words of a key as a table's lookup of keys in registers takes them: the first and the last 8 bytes, or 4 if
    /// it is shorter than 8. `None` if the table has no such lookup.
    pub(crate) fn key_words(&mut self, at: usize, map: usize) -> Option<[Value; 2]> {
        self.source.refs[map].word_lookup?;
        let key_bytes = i64::from(self.source.maps[map].key_bytes);
        let (word_bytes, size) = if key_bytes >= 8 { (8, Size::Dw) } else { (4, Size::W) };
        let on_stack = self.on_stack(at).filter(|bytes| bytes.end - bytes.first == key_bytes);
        let (first, cuts) = on_stack.map_or((0, BTreeSet::new()), |key| (key.first, self.cuts(key)));
        let [start, end] = [0, key_bytes - word_bytes].map(|start| self.word(&cuts, first, start, size));
        Some([start, end])
    }

    /// The hash of a key, as the table makes it; `None` for keys that are too short or too long.
    pub(crate) fn key_hash(&mut self, at: usize, map: usize) -> Option<Value> {
        let key_bytes = self.source.maps[map].key_bytes;
        if !(4..=MAX_COPIED_BYTES as u32).contains(&key_bytes) {
            return None;
        }
        let size = if key_bytes >= 8 { Size::Dw } else { Size::W };
        let on_stack = self.on_stack(at).filter(|bytes| bytes.end - bytes.first == i64::from(key_bytes));
        let (first, cuts) = on_stack.map_or((0, BTreeSet::new()), |key| (key.first, self.cuts(key)));
        let raw = self.map_field(map, RAW);
        let [mut state, second, third] =
            [0, 8, 16].map(|at| self.builder.ins().load(types::I64, FIELD, raw, SEED + at));
        for pair in hashed_pairs(key_bytes) {
            let [a, b] = pair.map(|start| self.word(&cuts, first, start.into(), size));
            let (a, b) = (self.builder.ins().bxor(a, state), self.builder.ins().bxor(b, second));
            state = self.fold(a, b);
        }
        Some(self.fold(state, third))
    }

    /// Both halves of a product, combined.
    fn fold(&mut self, a: Value, b: Value) -> Value {
        let (low, high) = (self.builder.ins().imul(a, b), self.builder.ins().umulhi(a, b));
        self.builder.ins().bxor(low, high)
    }

    /// The address of a key for a table's lookup of keys in memory: that of a copy if the key has several words, some
    /// of which the program stores in pieces.
    pub(crate) fn key_address(&mut self, at: usize, map: usize) -> Value {
        let key = self.builder.use_var(self.registers[2]);
        let key_bytes = i64::from(self.source.maps[map].key_bytes);
        let on_stack = self.on_stack(at).filter(|bytes| bytes.end - bytes.first == key_bytes);
        let Some(bytes) = on_stack.filter(|_| key_bytes > 8 && key_bytes % 8 == 0 && key_bytes <= MAX_COPIED_BYTES)
        else {
            return key;
        };
        let cuts = self.cuts(bytes);
        let starts = (0..key_bytes).step_by(8);
        if starts.clone().all(|start| pieces(&cuts, bytes.first + start, 8).len() == 1) {
            return key;
        }
        // A lookup reads the copy before the next one is made.
        let slot = self.key_copy.unwrap_or_else(|| {
            let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, MAX_COPIED_BYTES as u32, 3);
            self.builder.create_sized_stack_slot(slot)
        });
        self.key_copy = Some(slot);
        for start in starts {
            let word = self.word(&cuts, bytes.first, start, Size::Dw);
            self.builder.ins().stack_store(types::I64, word, slot, start as i32);
        }
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }

    /// The word at `start` of the key, which begins at `first` of the stack.
    fn word(&mut self, cuts: &BTreeSet<i64>, first: i64, start: i64, size: Size) -> Value {
        let key = self.builder.use_var(self.registers[2]);
        let mut word = None;
        for (at, bytes) in pieces(cuts, first + start, size.bytes() as i64) {
            let of = [Size::B, Size::H, Size::W].into_iter().find(|of| of.bytes() as i64 == bytes).unwrap_or(size);
            let piece = self.builder.ins().load(of_size(of), MEMORY, key, (at - first) as i32);
            let piece = wide(&mut self.builder, piece);
            word = Some(match word {
                None => piece,
                Some(word) => {
                    let piece = self.builder.ins().ishl_imm_s(piece, 8 * (at - first - start));
                    self.builder.ins().bor(word, piece)
                }
            });
        }
        // A word has a piece at least.
        word.unwrap_or(key)
    }

    /// The bytes of its own stack that an instruction accesses, if it accesses nothing else.
    fn on_stack(&self, at: usize) -> Option<Bytes> {
        let known = &self.source.proof.insns[at].memory;
        known.get(&Memory::Stack { up: 0 }).filter(|_| known.len() == 1).copied()
    }

    /// Where stores within a range of the stack begin or end.
    fn cuts(&self, key: Bytes) -> BTreeSet<i64> {
        let stores = self.source.code.iter().enumerate().filter_map(|(at, op)| match op {
            Some(Op::Store { size, .. }) => {
                self.on_stack(at).filter(|bytes| bytes.end - bytes.first == size.bytes() as i64)
            }
            _ => None,
        });
        let within = |at: &i64| (key.first..key.end).contains(at);
        stores.flat_map(|bytes| [bytes.first, bytes.end]).filter(within).collect()
    }
}
