// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of lookups in registers.
//!
//! A program builds a key on its stack with stores of the widths of its fields. A wide load of bytes that several stores
//! in flight have written waits until all of them have reached the cache, which ends the overlap of packets. So a key is
//! loaded in pieces, each within every store that the program does there, and the pieces are combined:
//!
//! ```text
//!  stores   *(u32 *)(r10 - 16) = r5   *(u32 *)(r10 - 12) = r3   *(u16 *)(r10 - 8) = r0   ...
//!  words    first = u32 [r10 - 16] | u32 [r10 - 12] << 32       last = u16 [r10 - 8] | ...
//! ```

use std::collections::BTreeSet;

use cranelift_codegen::ir::{InstBuilder, Value};
use flowloom_isa::op::Op;
use flowloom_verifier::{Bytes, Memory};

use crate::arithmetic::{of_size, wide};
use crate::function::{MEMORY, Translation};
use flowloom_isa::op::Size;

/// The most pieces of a word; of more, the loads take as long as the wait.
const MAX_PIECES: usize = 6;

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
    /// The words of a key as a table's lookup of keys in registers takes them: the first and the last 8 bytes, or 4 if it
    /// is shorter than 8. `None` if the table has no such lookup.
    pub(crate) fn key_words(&mut self, at: usize, map: usize) -> Option<[Value; 2]> {
        self.source.refs[map].word_lookup?;
        let key_bytes = i64::from(self.source.maps[map].key_bytes);
        let (word_bytes, size) = if key_bytes >= 8 { (8, Size::Dw) } else { (4, Size::W) };
        let on_stack = self.on_stack(at).filter(|bytes| bytes.end - bytes.first == key_bytes);
        let (first, cuts) = on_stack.map_or((0, BTreeSet::new()), |key| (key.first, self.cuts(key)));
        let key = self.builder.use_var(self.registers[2]);
        let words = [0, key_bytes - word_bytes].map(|start| {
            let pieces = pieces(&cuts, first + start, word_bytes).into_iter().map(|(at, bytes)| {
                let of = [(1, Size::B), (2, Size::H), (4, Size::W)].into_iter().find(|(of, _)| *of == bytes);
                let of = of_size(of.map_or(size, |(_, size)| size));
                let piece = self.builder.ins().load(of, MEMORY, key, (at - first) as i32);
                (at - first - start, wide(&mut self.builder, piece))
            });
            let pieces: Vec<(i64, Value)> = pieces.collect();
            let shifted = pieces.into_iter().map(|(at, piece)| match at {
                0 => piece,
                _ => self.builder.ins().ishl_imm_s(piece, 8 * at),
            });
            let shifted: Vec<Value> = shifted.collect();
            shifted.into_iter().reduce(|word, piece| self.builder.ins().bor(word, piece))
        });
        Some([words[0]?, words[1]?])
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
