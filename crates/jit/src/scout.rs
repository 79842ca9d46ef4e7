// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scouts: a form of the code that finds the keys of lookups and changes nothing.
//!
//! Goal: the cache misses of a batch of packets overlap. For each packet of a batch, a scout runs first; it announces
//! the key of a lookup, whose line of the index is prefetched, and ends there.
//!
//! ```text
//!  code                                    scout, wave 0                 scout, wave 1
//!  r2 = *(u32 *)(packet + 26)              the same                      the same
//!  *(u32 *)(r10 - 8) = r2                  the same                      the same
//!  r0 = lookup(flows, r10 - 8)             announce, end                 look up, go on
//!  *(u8 *)(packet + 1) = 4                                               nothing
//!  r0 = lookup(hosts, r10 - 16)                                          announce, end
//! ```
//!
//! A scout follows the path of the packet as far as it depends on the packet alone, and for later waves on the values
//! of earlier lookups as they are at that time. It writes only its own stack. It ends before the first helper that has
//! effects, so it needs no environment of helpers.
//!
//! It is safe: the verifier has proved the program for all contents of packets and maps, so it does not matter that
//! stores were left out. Its key is only a hint: the code that runs afterwards does not depend on it. Where the path to
//! the key depends on the packet alone, the code goes on from there ([`crate::resume`]). Cranelift emits no computation
//! that leads to no key and no branch.
//!
//! Limits: one key a wave; loops of at most [`ITERATIONS`] iterations in all.

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types;
use flowloom_isa::insn::helper;
use flowloom_verifier::Memory;

use crate::function::{FIELD, Translation};
use crate::runtime::Runtime;
use crate::state::{ANNOUNCED, HAS_HASH, HASH, KEY_TABLE, STOPPED, TABLE, WAVE};

/// The iterations of loops that a scout runs for one packet.
pub(crate) const ITERATIONS: i64 = 256;

/// What a scout does with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// It writes its own stack.
    Runs,
    /// It writes something else, which is left as it is.
    Skipped,
    /// It may write either: the scout ends.
    Ends,
}

impl Translation<'_, '_> {
    /// What a scout does with the store at an instruction.
    pub(crate) fn store_of_scout(&self, at: usize) -> Store {
        let known = &self.source.proof.insns[at].memory;
        let on_stack = known.keys().filter(|memory| matches!(memory, Memory::Stack { .. })).count();
        match on_stack {
            0 => Store::Skipped,
            _ if on_stack == known.len() => Store::Runs,
            _ => Store::Ends,
        }
    }

    /// Ends the scout; what follows in the block is not reached.
    pub(crate) fn stop(&mut self) {
        let one = self.builder.ins().iconst(types::I32, 1);
        self.builder.ins().store(FIELD, one, self.state, STOPPED);
        let zero = self.number(0);
        self.builder.ins().return_(&[zero]);
    }

    /// After a call of a function of the program: ends the scout if it has ended there.
    pub(crate) fn stop_if_stopped(&mut self) {
        let stopped = self.builder.ins().load(types::I32, FIELD, self.state, STOPPED);
        let (ends, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(stopped, ends, &[], goes_on, &[]);
        self.builder.switch_to_block(ends);
        self.stop();
        self.builder.switch_to_block(goes_on);
    }

    /// Translates a call of a helper; returns whether control falls through to the next instruction.
    pub(crate) fn call_of_scout(&mut self, at: usize, number: i32) -> bool {
        let table = self.source.table(at);
        match number {
            helper::MAP_LOOKUP_ELEM | helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM if let Some(map) = table => {
                self.announce(at, map);
                if number != helper::MAP_LOOKUP_ELEM {
                    self.stop();
                    return false;
                }
                let found = self.look_up(map);
                self.builder.def_var(self.registers[0], found);
                true
            }
            _ if let Some(result) = self.inlined(at, number) => {
                self.builder.def_var(self.registers[0], result);
                true
            }
            _ => {
                self.stop();
                false
            }
        }
    }

    /// In the last wave, announces the key of a table and ends; otherwise counts the wave.
    fn announce(&mut self, at: usize, map: usize) {
        let wave = self.builder.ins().load(types::I32, FIELD, self.state, WAVE);
        let (ends, goes_on) = (self.builder.create_block(), self.builder.create_block());
        let is_earlier = self.builder.ins().icmp_imm_s(IntCC::NotEqual, wave, 0);
        self.builder.ins().brif(is_earlier, goes_on, &[], ends, &[]);
        self.builder.switch_to_block(ends);
        let record = self.builder.ins().load(types::I64, FIELD, self.state, ANNOUNCED);
        self.note_point(at, record);
        let table = self.map_field(map, TABLE);
        match self.key_hash(at, map) {
            // The batch makes the probe, without a call.
            Some(hash) => {
                self.builder.ins().store(FIELD, table, record, KEY_TABLE);
                self.builder.ins().store(FIELD, hash, record, HASH);
                let one = self.builder.ins().iconst(types::I32, 1);
                self.builder.ins().store(FIELD, one, record, HAS_HASH);
            }
            None => {
                let key = self.key_address(at, map);
                self.runtime(Runtime::Announce, &[self.state, table, key]);
            }
        }
        self.stop();
        self.builder.switch_to_block(goes_on);
        let wave = self.builder.ins().iadd_imm_s(wave, -1);
        self.builder.ins().store(FIELD, wave, self.state, WAVE);
    }
}
