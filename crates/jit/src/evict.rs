// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks of entries whose values may change, in programs that evict entries by a field.
//!
//! Goal: `fl_evict` finds the entry with the least value without a visit of all. Programs change values by plain stores
//! to addresses that lookups have given, so a lookup marks the block of its entry ([`flowloom_flowtable::RawTable`]).
//!
//! ```text
//!  r0 = lookup(flows, r10 - 8)         the same; if r0 != 0: marks[(r0 - first value) >> shift] = 1
//!  *(u64 *)(r0 + 8) = r7               the same
//! ```
//!
//! Lookups that are calls of helpers mark their entries as well.

use cranelift_codegen::ir::{InstBuilder, Value, types};
use flowloom_flowtable::RawTable;
use flowloom_isa::insn::{class, helper, jmp};
use flowloom_isa::{Insn, MapKind, Program};

use crate::function::{FIELD, Translation};
use crate::state::{MAP_ENTRIES, MARKS, RAW};

/// True if a program, or one that tail calls lead to, evicts entries by a field.
pub(crate) fn evicts(program: &Program) -> bool {
    let evicts = |insns: &[Insn]| {
        insns.iter().any(|insn| insn.code == class::JMP | jmp::CALL && insn.src == 0 && insn.imm == helper::FL_EVICT)
    };
    evicts(&program.insns) || program.siblings.iter().any(|sibling| evicts(&sibling.insns))
}

impl Translation<'_, '_> {
    /// Marks the entry of a value that a lookup has found, if it has found one.
    pub(crate) fn mark(&mut self, map: usize, value: Value) {
        if !self.source.evicts || self.source.maps[map].kind != MapKind::Hash {
            return;
        }
        // SAFETY: the table belongs to the map, which lives; these fields depend on its layout alone.
        let (shift, value_at) = unsafe {
            let RawTable { mark_shift, value_at_bytes, .. } = *self.source.refs[map].raw;
            (i64::from(mark_shift), i64::from(value_at_bytes))
        };
        let (found, done) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(value, found, &[], done, &[]);
        self.builder.switch_to_block(found);
        let raw = self.map_field(map, RAW);
        let entries = self.map_field(map, MAP_ENTRIES);
        let entry = self.builder.ins().iadd_imm_s(value, -value_at);
        let offset = self.builder.ins().isub(entry, entries);
        let block = self.builder.ins().ushr_imm_u(offset, shift);
        let marks = self.builder.ins().load(types::I64, FIELD, raw, MARKS);
        let at = self.builder.ins().iadd(marks, block);
        let one = self.builder.ins().iconst(types::I8, 1);
        self.builder.ins().store(FIELD, one, at, 0);
        self.builder.ins().jump(done, &[]);
        self.builder.switch_to_block(done);
    }
}
