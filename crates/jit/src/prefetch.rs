// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prefetch instructions, and the prefetches of a key that is looked up soon.
//!
//! Cranelift has no prefetch. A load of a byte, marked by its trap code, stands for one; after compilation, its opcode
//! is replaced. Both instructions have the same operand and the same length:
//!
//! ```text
//!  [REX] 0F B6 /r   movzx r32, byte [m]   ──►   [REX] 0F 18 /1   prefetcht0 [m]     the line will be read
//!                                               [REX] 0F 0D /1   prefetchw [m]      the line will be written
//! ```
//!
//! The value of the load is not used: the register that it would write keeps what it had. A prefetch ignores addresses
//! that are not mapped.

use cranelift_codegen::MachTrap;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, TrapCode, Value, types};
use flowloom_flowtable::{FlowTable, RawTable, unusual_entry_fn};

use crate::compiled::Source;
use crate::function::{FIELD, Translation};
use crate::state::{
    BUCKETS, ENTRIES, HASH, KEY_TABLE, MAP_BUCKETS, MAP_ENTRIES, PLACE, PREFETCH_BYTES, PROBE, SLOT_MASK, STRIDE, WORD,
};

/// The access that a line is prefetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// The mark of the load.
    fn trap(self) -> TrapCode {
        match self {
            Access::Read => TrapCode::unwrap_user(2),
            Access::Write => TrapCode::unwrap_user(3),
        }
    }

    /// The second byte of the opcode.
    fn opcode(self) -> u8 {
        match self {
            Access::Read => 0x18,
            Access::Write => 0x0d,
        }
    }
}

const ESCAPE: u8 = 0x0f;
const LOAD_BYTE: u8 = 0xb6;
/// Of the bits of a REX prefix, the one that extends the register.
const REX_R: u8 = 1 << 2;
/// The register bits of the byte after the opcode, and those that make the prefetch.
const REGISTER: u8 = 0b0011_1000;
const PREFETCH: u8 = 1 << 3;

/// Replaces the loads of a function that are marked. An error is the offset of one with another encoding.
pub(crate) fn place(code: &mut [u8], traps: &[MachTrap]) -> Result<(), u32> {
    for access in [Access::Read, Access::Write] {
        for trap in traps.iter().filter(|trap| trap.code == access.trap()) {
            let found = code.get_mut(trap.offset as usize..).ok_or(trap.offset)?;
            let has_rex = found.first().is_some_and(|byte| byte & 0xf0 == 0x40);
            let (rex, rest) = found.split_at_mut(has_rex.into());
            let [ESCAPE, opcode @ LOAD_BYTE, operand, ..] = rest else { return Err(trap.offset) };
            rex.iter_mut().for_each(|rex| *rex &= !REX_R);
            *opcode = access.opcode();
            *operand = *operand & !REGISTER | PREFETCH;
        }
    }
    Ok(())
}

/// The table of an announced key.
#[derive(Debug, Clone, Copy)]
enum Table {
    /// The table of this map, and the address of the map's reference.
    Of(usize, Value),
    /// Any table of the program: the address of its `RawTable`.
    At(Value),
}

impl Source<'_> {
    /// The maps whose keys scouts may announce: also those of calls that are no points.
    fn announced_maps(&self) -> Vec<usize> {
        let calls = (0..self.code.len()).filter(|at| self.has_key(*at));
        let mut maps: Vec<usize> = calls.filter_map(|at| self.table(at)).collect();
        maps.sort_unstable();
        maps.dedup();
        maps
    }

    /// True if the loops of machine code prefetch without a call: not if the lookup of an entry changes the order of
    /// uses, whose links are prefetched too.
    pub(crate) fn prefetches_in_line(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.announced_maps().iter().all(|map| !self.maps[*map].kind.is_lru())
    }
}

impl Translation<'_, '_> {
    /// Prefetches the line of an address, which may be any.
    pub(crate) fn prefetch(&mut self, access: Access, address: Value, offset: i32) {
        let marked = MemFlagsData::new().with_trap_code(Some(access.trap()));
        self.builder.ins().load(types::I8, marked, address, offset);
    }

    /// Notes the home bucket of a key with this hash in the record of the key.
    pub(crate) fn note_home(&mut self, map: usize, hash: Value, record: Value, key_at: i32) {
        let upper = self.builder.ins().ushr_imm_u(hash, 32);
        let buckets = self.raw(map).bucket_count;
        let buckets = self.number(buckets);
        let home = self.builder.ins().imul(upper, buckets);
        let home = self.builder.ins().ushr_imm_u(home, 32);
        // A bucket has 16 words. The word, which follows the place, is 0: no candidate is known.
        let place = self.builder.ins().ishl_imm_u(home, 4);
        self.builder.ins().store(FIELD, place, record, key_at + PLACE);
    }

    /// Prefetches the line of the index of the key of a record, if it has one.
    pub(crate) fn prefetch_home(&mut self, record: Value, key_at: i32) {
        let [some, done] = [(); 2].map(|()| self.builder.create_block());
        let of_record = self.builder.ins().load(types::I64, FIELD, record, key_at + KEY_TABLE);
        self.builder.ins().brif(of_record, some, &[], done, &[]);

        self.builder.switch_to_block(some);
        let table = self.table_of(of_record);
        let index = self.address(table, MAP_BUCKETS, BUCKETS);
        let home = self.builder.ins().uload32(FIELD, record, key_at + PLACE);
        let offset = self.builder.ins().ishl_imm_u(home, 2);
        let line = self.builder.ins().iadd(index, offset);
        self.prefetch(Access::Read, line, 0);
        self.builder.ins().jump(done, &[]);
        self.builder.switch_to_block(done);
    }

    /// The table of a record.
    fn table_of(&mut self, of_record: Value) -> Table {
        match self.source.announced_maps().as_slice() {
            [map] => Table::Of(*map, self.map_reference(*map)),
            _ => Table::At(self.builder.ins().load(types::I64, FIELD, of_record, FlowTable::RAW_OFFSET as i32)),
        }
    }

    /// Prefetches the entry that the key of a record most likely has, whose line of the index has arrived.
    pub(crate) fn prefetch_entry(&mut self, record: Value, key_at: i32) {
        let [some, one, unusual, done] = [(); 4].map(|()| self.builder.create_block());
        self.builder.set_cold_block(unusual);
        let of_record = self.builder.ins().load(types::I64, FIELD, record, key_at + KEY_TABLE);
        self.builder.ins().brif(of_record, some, &[], done, &[]);

        self.builder.switch_to_block(some);
        let table = self.table_of(of_record);
        let [slot_mask, tag_mask, least] = self.masks(table);
        let hash = self.builder.ins().load(types::I32, FIELD, record, key_at + HASH);
        let tag = self.builder.ins().band(hash, tag_mask);
        let tag = self.builder.ins().select(tag, tag, least);
        let index = self.address(table, MAP_BUCKETS, BUCKETS);
        let home = self.builder.ins().uload32(FIELD, record, key_at + PLACE);
        let offset = self.builder.ins().ishl_imm_u(home, 2);
        let bucket = self.builder.ins().iadd(index, offset);
        let candidates = self.candidates(bucket, tag, tag_mask);
        // Only numbers with one bit differ from the one below in more than that has.
        let below = self.builder.ins().iadd_imm_s(candidates, -1);
        let bits = self.builder.ins().bxor(candidates, below);
        let is_one = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, bits, below);
        self.builder.ins().brif(is_one, one, &[], unusual, &[]);

        self.builder.switch_to_block(one);
        let number = self.builder.ins().ctz(candidates);
        let number = self.builder.ins().uextend(types::I64, number);
        let place = self.builder.ins().iadd(home, number);
        let offset = self.builder.ins().ishl_imm_u(number, 2);
        let at = self.builder.ins().iadd(bucket, offset);
        let word = self.builder.ins().load(types::I32, FIELD, at, 0);
        self.builder.ins().istore32(FIELD, place, record, key_at + PLACE);
        self.builder.ins().store(FIELD, word, record, key_at + WORD);
        let slot = self.builder.ins().band(word, slot_mask);
        let slot = self.builder.ins().uextend(types::I64, slot);
        let offset = match table {
            Table::Of(map, _) => {
                let stride = i64::from(self.raw(map).stride_bytes);
                self.builder.ins().imul_imm_s(slot, stride)
            }
            Table::At(raw) => {
                let stride = self.builder.ins().uload32(FIELD, raw, STRIDE);
                self.builder.ins().imul(slot, stride)
            }
        };
        let entries = self.address(table, MAP_ENTRIES, ENTRIES);
        let entry = self.builder.ins().iadd(entries, offset);
        self.prefetch_lines(table, entry);
        self.builder.ins().jump(done, &[]);

        self.builder.switch_to_block(unusual);
        let function = self.number(unusual_entry_fn() as usize as u64);
        let probe = self.builder.ins().iadd_imm_s(record, i64::from(key_at + PROBE));
        self.builder.ins().call_indirect(self.callees.unusual_entry, function, &[of_record, probe]);
        self.builder.ins().jump(done, &[]);

        self.builder.switch_to_block(done);
    }

    /// Prefetches the lines of an entry.
    fn prefetch_lines(&mut self, table: Table, entry: Value) {
        self.prefetch(Access::Read, entry, 0);
        match table {
            Table::Of(map, _) => {
                let bytes = self.raw(map).prefetch_bytes as i32;
                for at in (64..bytes).step_by(64) {
                    self.prefetch(Access::Read, entry, at);
                }
                // Entries of a power of 2 begin where lines do, or lie within one.
                if !bytes.cast_unsigned().is_power_of_two() {
                    self.prefetch(Access::Read, entry, bytes - 1);
                }
            }
            Table::At(raw) => {
                let bytes = self.builder.ins().uload32(FIELD, raw, PREFETCH_BYTES);
                let end = self.builder.ins().iadd(entry, bytes);
                self.prefetch(Access::Read, end, -1);
                let [long, short] = [(); 2].map(|()| self.builder.create_block());
                self.builder.set_cold_block(long);
                let is_long = self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, bytes, 128);
                self.builder.ins().brif(is_long, long, &[], short, &[]);
                self.builder.switch_to_block(long);
                // More of them than the entry has do no harm.
                (1..4).for_each(|line| self.prefetch(Access::Read, entry, 64 * line));
                self.builder.ins().jump(short, &[]);
                self.builder.switch_to_block(short);
            }
        }
    }

    /// The table of a map, of which only what depends on the layout may become a part of the code.
    fn raw(&self, map: usize) -> &RawTable {
        // SAFETY: the table lives during the translation. Another one may take its place later, of the same layout.
        unsafe { &*self.source.refs[map].raw }
    }

    /// An address of a table, by its offset in references and that in tables.
    fn address(&mut self, table: Table, of_map: i32, of_table: i32) -> Value {
        let (at, offset) = match table {
            Table::Of(_, reference) => (reference, of_map),
            Table::At(raw) => (raw, of_table),
        };
        self.builder.ins().load(types::I64, FIELD, at, offset)
    }

    /// The bits of a word that are the slot, those that are the tag, and the tag in place of 0.
    fn masks(&mut self, table: Table) -> [Value; 3] {
        match table {
            Table::Of(map, _) => {
                let slot = self.raw(map).slot_mask;
                [slot, !slot, slot + 1].map(|mask| self.builder.ins().iconst(types::I32, i64::from(mask)))
            }
            Table::At(raw) => {
                let slot = self.builder.ins().load(types::I32, FIELD, raw, SLOT_MASK);
                [slot, self.builder.ins().bnot(slot), self.builder.ins().iadd_imm_s(slot, 1)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_loads_become_prefetches() {
        // movzx edx, byte [rcx]; movzx r9, byte [r15 + rax + 0x17]; movzx eax, byte [rdi + 0x100]; movzx esi, byte [rdx]
        let loads = [
            &[0x0f, 0xb6, 0x11][..],
            &[0x4d, 0x0f, 0xb6, 0x4c, 0x07, 0x17],
            &[0x48, 0x0f, 0xb6, 0x87, 0, 1, 0, 0],
            &[0x0f, 0xb6, 0x32],
        ];
        let mut code = loads.concat();
        let trap = |offset, access: Access| MachTrap { offset, code: access.trap() };
        let traps = [trap(0, Access::Read), trap(3, Access::Write), trap(9, Access::Read)];
        assert_eq!(place(&mut code, &traps), Ok(()));
        // prefetcht0 [rcx]; prefetchw [r15 + rax + 0x17]; prefetcht0 [rdi + 0x100]; the load without a mark
        let expected = [
            &[0x0f, 0x18, 0x09][..],
            &[0x49, 0x0f, 0x0d, 0x4c, 0x07, 0x17],
            &[0x48, 0x0f, 0x18, 0x8f, 0, 1, 0, 0],
            &[0x0f, 0xb6, 0x32],
        ];
        assert_eq!(code, expected.concat());
    }

    /// A pipeline that cannot be made is left out only if it is too large.
    #[test]
    fn code_with_prefetches_is_made() {
        let text = ".program p\n.license \"GPL\"\n.map flows hash key 8 value 8 entries 8\nr1 = 1\n\
            *(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += -8\nr1 = map[flows] ll\ncall map_lookup_elem\nr0 = 2\nexit\n";
        let program = flowloom_isa::asm::program("p.bpf", text).expect("is a program");
        let proof = flowloom_verifier::verify(&program, &flowloom_verifier::Options::default()).expect("is safe");
        let jit = crate::Jit::new(std::sync::Arc::new(program), &proof).expect("compiles");
        assert!(jit.ahead.is_some_and(|ahead| ahead.has_pipeline()));
    }

    #[test]
    fn other_encodings_are_refused() {
        let trap = MachTrap { offset: 1, code: Access::Read.trap() };
        for mut code in [vec![0x90, 0x8a, 0x11], vec![0x90, 0x0f, 0xb7, 0x11], vec![0x90, 0x0f], vec![]] {
            assert_eq!(place(&mut code, &[MachTrap { ..trap }]), Err(1), "{code:x?}");
        }
    }
}
