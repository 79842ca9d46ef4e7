// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes of the stack as variables.
//!
//! Goal: what a program keeps on its stack, above all the key that it builds, stays in registers.
//!
//! ```text
//!  *(u64 *)(r10 - 16) = 0          chunk -16: 0, chunk -12: 0
//!  *(u32 *)(r10 - 16) = r5         chunk -16: r5
//!  r0 = lookup(flows, r10 - 16)    first word of the key: chunk -16 | chunk -12 << 32
//!  r0 = helper(r10 - 16)           stores both, calls; loads both again if the helper writes there
//! ```
//!
//! Steps. The loads and stores of the function at constant offsets cut the bytes that they access into chunks: each
//! access covers whole ones. A chunk is a variable, whose value is zero-extended, unless
//! - an access may be at several offsets, may be to other memory as well, or is atomic;
//! - a load would have to combine more than [`MAX_PARTS`] chunks;
//! - the function reads bytes that it has not written, or calls functions, which may read its stack;
//! - code that resumes after a scout reads it before it writes it: the scout has stored it.
//!
//! The proof has the bytes that each instruction accesses over all paths, through whatever address, so that no access
//! to a variable is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Value, ValueDef, types};
use cranelift_frontend::Variable;
use flowloom_isa::op::{Op, Size};
use flowloom_verifier::{Bytes, Memory};

use crate::arithmetic;
use crate::compiled::Source;
use crate::function::{MEMORY, Translation};
use crate::iterations::calls_back;

/// The most chunks that a load combines; of more, it takes as long as the wait for the stores.
const MAX_PARTS: usize = 6;

/// The chunks of a function's stack that are variables, by their first byte: an offset from the end of the stack.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    chunks: BTreeMap<i64, Chunk>,
}

/// A chunk: its bytes, 1, 2, 4 or 8, and its value, zero-extended.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    bytes: i64,
    value: Variable,
}

impl Frame {
    /// The chunks that overlap a range.
    fn within(&self, range: Range<i64>) -> impl Iterator<Item = (i64, Chunk)> + '_ {
        // A chunk has 8 bytes at most.
        let chunks = self.chunks.range(range.start - 7..range.end).map(|(first, chunk)| (*first, *chunk));
        chunks.filter(move |(first, chunk)| first + chunk.bytes > range.start)
    }

    /// The chunk with this byte.
    fn at(&self, byte: i64) -> Option<(i64, Chunk)> {
        self.within(byte..byte + 1).next()
    }
}

/// The size of this number of bytes.
fn size_of(bytes: i64) -> Size {
    [Size::B, Size::H, Size::W].into_iter().find(|size| size.bytes() as i64 == bytes).unwrap_or(Size::Dw)
}

impl Source<'_> {
    /// The bytes of the own stack that an instruction accesses.
    pub(crate) fn of_stack(&self, at: usize) -> Option<Bytes> {
        self.proof.insns[at].memory.get(&Memory::Stack { up: 0 }).copied()
    }

    /// The bytes of the own stack that a load or store accesses, at a constant offset, and nothing else.
    pub(crate) fn exact(&self, at: usize) -> Option<Range<i64>> {
        let Some(Op::Load { size, .. } | Op::Store { size, .. }) = self.code[at] else { return None };
        let bytes = self.of_stack(at).filter(|_| self.proof.insns[at].memory.len() == 1)?;
        (bytes.end - bytes.first == size.bytes() as i64).then_some(bytes.first..bytes.end)
    }

    /// The chunks of a function with these instructions that can be variables: first byte and bytes.
    pub(crate) fn chunks(&self, slots: &BTreeSet<usize>) -> Vec<(i64, i64)> {
        // A callback, whose address may be an argument of this function, accesses the stack by instructions of its own.
        let calls =
            |op: &Op| matches!(op, Op::CallLocal { .. } | Op::LoadFunc { .. } | Op::CallKfunc { .. }) || calls_back(op);
        let is_opaque =
            |at: &usize| self.proof.insns[*at].reads_unwritten || self.code[*at].as_ref().is_some_and(calls);
        if slots.iter().any(is_opaque) || self.reads_unwritten_of_callers() {
            return Vec::new();
        }
        let (mut cuts, mut exact, mut opaque) = (BTreeSet::new(), Vec::new(), Vec::new());
        for &at in slots {
            let Some(bytes) = self.of_stack(at) else { continue };
            match self.exact(at) {
                Some(range) => {
                    cuts.extend([range.start, range.end]);
                    exact.push((at, range));
                }
                // What a helper accesses is stored before the call, and loaded after it.
                None if matches!(self.code[at], Some(Op::Call { .. })) => {}
                None => opaque.push(bytes.first..bytes.end),
            }
        }
        let mut chunks = Vec::new();
        for (first, end) in cuts.iter().zip(cuts.iter().skip(1)) {
            let is_used = exact.iter().any(|(_, range)| range.contains(first));
            let mut at = *first;
            while is_used && at < *end {
                let bytes = 1 << (end - at).ilog2().min(3);
                chunks.push((at, bytes));
                at += bytes;
            }
        }
        let overlaps =
            |range: &Range<i64>, (first, bytes): (i64, i64)| range.start < first + bytes && first < range.end;
        for (at, range) in &exact {
            let parts = chunks.iter().filter(|chunk| overlaps(range, **chunk)).count();
            if parts > MAX_PARTS && matches!(self.code[*at], Some(Op::Load { .. })) {
                opaque.push(range.clone());
            }
        }
        chunks.retain(|chunk| !opaque.iter().any(|range| overlaps(range, *chunk)));
        chunks
    }

    /// True if the contents that bytes of the stack have before an instruction are read there or later.
    pub(crate) fn is_read_later(&self, range: &Range<i64>, from: usize) -> bool {
        let (mut seen, mut work) = (BTreeSet::new(), vec![from]);
        while let Some(at) = work.pop() {
            let Some(op) = self.code[at].filter(|_| seen.insert(at)) else { continue };
            let overlaps = |bytes: &Bytes| bytes.first < range.end && range.start < bytes.end;
            if self.of_stack(at).is_some_and(|bytes| bytes.touch.reads && overlaps(&bytes)) {
                return true;
            }
            let is_store = matches!(op, Op::Store { .. });
            let covers = |stored: Range<i64>| stored.start <= range.start && range.end <= stored.end;
            if !(is_store && self.exact(at).is_some_and(covers)) {
                work.extend(self.nexts(at, op));
            }
        }
        false
    }
}

impl Translation<'_, '_> {
    /// Chooses the variables of a function with these instructions, which begins at these: each of the function's
    /// beginning, or after what a scout has done.
    pub(crate) fn choose_variables(&mut self, slots: &BTreeSet<usize>, resumed_at: &[usize]) {
        for (first, bytes) in self.source.chunks(slots) {
            let range = first..first + bytes;
            if resumed_at.iter().any(|at| self.source.is_read_later(&range, *at)) {
                continue;
            }
            let value = self.builder.declare_var(types::I64);
            let zero = self.number(0);
            self.builder.def_var(value, zero);
            self.frame.chunks.insert(first, Chunk { bytes, value });
        }
    }

    /// A load from variables; `None` if the bytes are in memory.
    pub(crate) fn load_variables(&mut self, at: usize, is_signed: bool) -> Option<Value> {
        let range = self.source.exact(at)?;
        self.frame.within(range.clone()).next()?;
        let base = self.builder.use_var(self.registers[10]);
        let value = self.stack_word(range.clone(), (base, 0), |_, end| end);
        let size = size_of(range.end - range.start);
        if !is_signed || size == Size::Dw {
            return Some(value);
        }
        let value = arithmetic::low(&mut self.builder, arithmetic::of_size(size), value);
        Some(arithmetic::signed(&mut self.builder, value))
    }

    /// A store to variables, and to memory where the bytes are there; `false` if all of them are.
    pub(crate) fn store_variables(&mut self, at: usize, value: Value) -> bool {
        let Some(range) = self.source.exact(at) else { return false };
        if self.frame.within(range.clone()).next().is_none() {
            return false;
        }
        let mut byte = range.start;
        while byte < range.end {
            let part = self.shifted(value, 8 * (byte - range.start));
            byte = match self.frame.at(byte) {
                Some((first, chunk)) => {
                    let part = self.truncated(part, chunk.bytes);
                    self.builder.def_var(chunk.value, part);
                    first + chunk.bytes
                }
                None => {
                    let next = self.frame.within(byte..range.end).next().map_or(range.end, |(first, _)| first);
                    let bytes = 1 << (next - byte).ilog2();
                    self.store_part(byte, bytes, part);
                    byte + bytes
                }
            };
        }
        true
    }

    /// Stores the variables within a range, so that they can be read at addresses.
    pub(crate) fn flush(&mut self, range: Range<i64>) {
        let chunks: Vec<(i64, Chunk)> = self.frame.within(range).collect();
        for (first, chunk) in chunks {
            let value = self.builder.use_var(chunk.value);
            self.store_part(first, chunk.bytes, value);
        }
    }

    /// Stores the variables that a call reads, or writes in part.
    pub(crate) fn flush_for(&mut self, at: usize) {
        if let Some(bytes) = self.source.of_stack(at) {
            self.flush(bytes.first..bytes.end);
        }
    }

    /// Stores the variables that are read from an instruction on.
    pub(crate) fn flush_live(&mut self, at: usize) {
        let chunks: Vec<(i64, Chunk)> = self.frame.within(i64::MIN / 2..0).collect();
        for (first, chunk) in chunks {
            if self.source.is_read_later(&(first..first + chunk.bytes), at) {
                let value = self.builder.use_var(chunk.value);
                self.store_part(first, chunk.bytes, value);
            }
        }
    }

    /// Loads the variables that a call has written.
    pub(crate) fn reload_after(&mut self, at: usize) {
        let Some(bytes) = self.source.of_stack(at).filter(|bytes| bytes.touch.writes) else { return };
        let chunks: Vec<(i64, Chunk)> = self.frame.within(bytes.first..bytes.end).collect();
        let base = self.builder.use_var(self.registers[10]);
        for (first, chunk) in chunks {
            let value = arithmetic::load(&mut self.builder, size_of(chunk.bytes), false, base, first as i32);
            self.builder.def_var(chunk.value, value);
        }
    }

    /// The number in a range of the stack of at most 8 bytes, zero-extended. What is in memory is loaded relative to an
    /// address and its offset; `piece` tells where the first piece of a range ends.
    pub(crate) fn stack_word(
        &mut self,
        range: Range<i64>,
        (base, base_at): (Value, i64),
        piece: impl Fn(i64, i64) -> i64,
    ) -> Value {
        let (mut byte, mut word) = (range.start, None);
        while byte < range.end {
            let (part, end) = match self.frame.at(byte) {
                Some((first, chunk)) => {
                    let value = self.builder.use_var(chunk.value);
                    let (value, end) = (self.shifted(value, 8 * (byte - first)), first + chunk.bytes);
                    // Bytes after the range leave a word of 8 bytes by themselves.
                    let is_cut = end > range.end && range.end - range.start < 8;
                    let mask = (1_i64 << (8 * (range.end - byte).min(7))) - 1;
                    let value = if is_cut { self.builder.ins().band_imm_s(value, mask) } else { value };
                    (value, end.min(range.end))
                }
                None => {
                    let next = self.frame.within(byte..range.end).next().map_or(range.end, |(first, _)| first);
                    let bytes = 1 << (piece(byte, next) - byte).ilog2();
                    let at = (byte - base_at) as i32;
                    (arithmetic::load(&mut self.builder, size_of(bytes), false, base, at), byte + bytes)
                }
            };
            let part = match byte - range.start {
                0 => part,
                before => self.builder.ins().ishl_imm_s(part, 8 * before),
            };
            word = Some(match word {
                None => part,
                Some(word) => self.builder.ins().bor(word, part),
            });
            byte = end;
        }
        word.unwrap_or_else(|| self.number(0))
    }

    fn store_part(&mut self, first: i64, bytes: i64, value: Value) {
        let base = self.builder.use_var(self.registers[10]);
        let value = arithmetic::low(&mut self.builder, arithmetic::of_size(size_of(bytes)), value);
        self.builder.ins().store(MEMORY, value, base, first as i32);
    }

    /// A number shifted to the right; constants stay constants.
    fn shifted(&mut self, value: Value, bits: i64) -> Value {
        match self.constant(value) {
            _ if bits == 0 => value,
            Some(constant) => self.number(constant >> bits),
            None => self.builder.ins().ushr_imm_u(value, bits),
        }
    }

    /// The lowest bytes of a number, zero-extended.
    fn truncated(&mut self, value: Value, bytes: i64) -> Value {
        if bytes >= 8 {
            return value;
        }
        if let Some(constant) = self.constant(value) {
            return self.number(constant & ((1 << (8 * bytes)) - 1));
        }
        let dfg = &self.builder.func.dfg;
        if let ValueDef::Result(inst, 0) = dfg.value_def(value) {
            let known_bytes = match dfg.insts[inst] {
                InstructionData::Load { opcode: Opcode::Uload8, .. } => 1,
                InstructionData::Load { opcode: Opcode::Uload16, .. } => 2,
                InstructionData::Load { opcode: Opcode::Uload32, .. } => 4,
                InstructionData::Unary { opcode: Opcode::Uextend, arg } => i64::from(dfg.value_type(arg).bytes()),
                _ => 8,
            };
            if known_bytes <= bytes {
                return value;
            }
        }
        let value = arithmetic::low(&mut self.builder, arithmetic::of_size(size_of(bytes)), value);
        arithmetic::wide(&mut self.builder, value)
    }

    /// The value of a constant.
    pub(crate) fn constant(&self, value: Value) -> Option<u64> {
        let dfg = &self.builder.func.dfg;
        let ValueDef::Result(inst, 0) = dfg.value_def(value) else { return None };
        match dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits() as u64),
            _ => None,
        }
    }
}
