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
//! A call runs the scout on a group of packets, in a loop of machine code, so that what a call costs is paid once. In
//! the pipeline ([`crate::pipeline`]) it is part of the loop, and calls no functions of the program, which have effects
//! there. Fields of the context are read from the [`View`] of each packet.
//!
//! Limits: one key a wave, in the pipeline two that depend on the packet alone; loops of at most [`ITERATIONS`]
//! iterations in all.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value, types};
use cranelift_frontend::Variable;
use flowloom_isa::insn::helper;
use flowloom_verifier::Memory;

use crate::function::{FIELD, Translation};
use crate::key::MAX_COPIED_BYTES;
use crate::runtime::Runtime;
use crate::state::{
    ANNOUNCED, BUDGET, HASH, INGRESS, KEY_TABLE, MAP_ENTRIES, POINT, RECORD_BYTES, ROUNDS, SECOND, SHOWN, STOPPED,
    TABLE, VIEW_INGRESS, VIEWED, View, WAVE, WORD,
};

/// The iterations of loops that a scout runs for one packet.
pub(crate) const ITERATIONS: i64 = 256;

/// The bytes of keys that are hashed in line.
pub(crate) const HASHED_BYTES: std::ops::RangeInclusive<u32> = 4..=MAX_COPIED_BYTES as u32;

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

/// The packet of an iteration of a loop over packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InLoop {
    /// The address that its view has a fixed distance from, and the distance in bytes.
    pub(crate) view: Variable,
    pub(crate) view_at: i32,
    /// Its record.
    pub(crate) record: Variable,
    /// Where the iteration ends. The parameter of the block is `r0`; in a scout, 1 if a key was found, but for the
    /// pipeline, where there is none.
    pub(crate) next: Block,
    /// Where an iteration of code ends whose packet the engine has to look at, with the same parameter.
    pub(crate) odd: Block,
}

/// The loop of a scout over the packets of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    packet: InLoop,
    /// The packets that are left, this one included, and the keys found so far.
    left: Variable,
    found: Variable,
    /// The beginning of an iteration.
    start: Block,
}

impl Translation<'_, '_> {
    /// Begins the loop over the packets of a group, and an iteration of it. The function's parameters are the state,
    /// the first view, the number of packets, the first record, and the lookups to pass.
    pub(crate) fn begin_rounds(&mut self, params: &[Value]) -> Rounds {
        let [view, left, record, found] = [(); 4].map(|()| self.builder.declare_var(types::I64));
        let [start, next] = [(); 2].map(|()| self.builder.create_block());
        let zero = self.number(0);
        for (variable, value) in [(view, params[1]), (left, params[2]), (record, params[3]), (found, zero)] {
            self.builder.def_var(variable, value);
        }
        self.builder.append_block_param(next, types::I64);
        let packet = InLoop { view, view_at: 0, record, next, odd: next };
        self.builder.ins().jump(start, &[]);

        self.builder.switch_to_block(start);
        if self.source.passes {
            self.builder.ins().istore32(FIELD, params[4], self.state, WAVE);
        }
        self.begin_packet_of_scout(packet);
        Rounds { packet, left, found, start }
    }

    /// The packet of the scout from here on; its record has no key yet.
    pub(crate) fn begin_packet_of_scout(&mut self, packet: InLoop) {
        self.packet = Some(packet);
        let record = self.builder.use_var(packet.record);
        let zero = self.number(0);
        if !self.forgets_late() {
            self.builder.ins().store(FIELD, zero, record, KEY_TABLE);
            self.builder.ins().istore32(FIELD, zero, record, POINT);
        }
        if !self.in_pipeline {
            self.builder.ins().istore32(FIELD, zero, record, WORD);
        }
        if self.seconds.is_some() {
            self.builder.ins().store(FIELD, zero, record, SECOND);
        }
        if !self.source.proof.loops.is_empty() || self.source.calls_functions() {
            let iterations = self.number(ITERATIONS as u64);
            self.builder.ins().store(FIELD, iterations, self.state, BUDGET);
            self.builder.ins().istore32(FIELD, zero, self.state, ROUNDS);
        }
        if self.source.calls_functions() && !self.in_pipeline {
            // Functions read the context, and announce by the state.
            self.builder.ins().istore32(FIELD, zero, self.state, STOPPED);
            self.builder.ins().store(FIELD, record, self.state, ANNOUNCED);
            self.show(packet);
        }
    }

    /// Makes a packet that of the state, where functions of the program and of the runtime find it.
    pub(crate) fn show(&mut self, packet: InLoop) {
        let view = self.builder.use_var(packet.view);
        let view = self.builder.ins().iadd_imm_s(view, i64::from(packet.view_at));
        for (of_view, of_state) in VIEWED {
            let value = self.builder.ins().load(types::I64, FIELD, view, of_view);
            self.builder.ins().store(FIELD, value, self.state, of_state);
        }
        let port = self.builder.ins().load(types::I32, FIELD, view, VIEW_INGRESS);
        self.builder.ins().store(FIELD, port, self.state, INGRESS);
        self.builder.ins().store(FIELD, view, self.state, SHOWN);
    }

    /// The end of an iteration, and of the function.
    pub(crate) fn end_rounds(&mut self, rounds: Rounds) {
        let Rounds { packet: InLoop { view, record, next, .. }, left, found, start } = rounds;
        self.builder.switch_to_block(next);
        let is_found = self.builder.block_params(next)[0];
        let sum = self.builder.use_var(found);
        let sum = self.builder.ins().iadd(sum, is_found);
        self.builder.def_var(found, sum);
        for (variable, step) in [(view, size_of::<View>() as i64), (record, RECORD_BYTES as i64), (left, -1)] {
            let value = self.builder.use_var(variable);
            let value = self.builder.ins().iadd_imm_s(value, step);
            self.builder.def_var(variable, value);
        }
        let end = self.builder.create_block();
        let left = self.builder.use_var(left);
        self.builder.ins().brif(left, start, &[], end, &[]);
        self.builder.switch_to_block(end);
        self.builder.ins().return_(&[sum]);
    }

    /// The record of the packet.
    pub(crate) fn record(&mut self) -> Value {
        match self.packet {
            Some(packet) => self.builder.use_var(packet.record),
            None => self.builder.ins().load(types::I64, FIELD, self.state, ANNOUNCED),
        }
    }

    /// A field of the view, in place of one of the state; `None` where the code has no views.
    pub(crate) fn viewed(&mut self, of_state: i32) -> Option<Value> {
        let InLoop { view, view_at, .. } = self.packet.filter(|_| self.is_scout || !self.source.moves())?;
        let view = self.builder.use_var(view);
        if of_state == INGRESS {
            return Some(self.builder.ins().uload32(FIELD, view, view_at + VIEW_INGRESS));
        }
        let (of_view, _) = VIEWED.into_iter().find(|(_, known)| *known == of_state)?;
        Some(self.builder.ins().load(types::I64, FIELD, view, view_at + of_view))
    }

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

    /// True if the record of a packet is made one without a key only where the scout ends without one.
    fn forgets_late(&self) -> bool {
        self.in_pipeline && self.seconds.is_none()
    }

    /// The record of a key that is no point to go on from.
    pub(crate) fn forget_point(&mut self, record: Value) {
        if self.forgets_late() {
            let zero = self.number(0);
            self.builder.ins().istore32(FIELD, zero, record, POINT);
        }
    }

    /// Ends the scout; what follows in the block is not reached.
    pub(crate) fn stop(&mut self) {
        self.end(false);
    }

    /// Ends the scout, which has found a key or not.
    fn end(&mut self, is_found: bool) {
        if let Some(packet) = self.packet {
            if self.in_pipeline {
                if !is_found && self.forgets_late() {
                    let (record, zero) = (self.record(), self.number(0));
                    self.builder.ins().store(FIELD, zero, record, KEY_TABLE);
                    self.builder.ins().istore32(FIELD, zero, record, POINT);
                }
                self.builder.ins().jump(packet.next, &[]);
                return;
            }
            let is_found = self.number(is_found.into());
            self.builder.ins().jump(packet.next, &[BlockArg::Value(is_found)]);
            return;
        }
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
        match self.packet {
            // The function may have found the key.
            Some(packet) => {
                let is_found = self.has_found();
                self.builder.ins().jump(packet.next, &[BlockArg::Value(is_found)]);
            }
            None => self.stop(),
        }
        self.builder.switch_to_block(goes_on);
    }

    /// 1 if the record has a key, otherwise 0.
    fn has_found(&mut self) -> Value {
        let record = self.record();
        let table = self.builder.ins().load(types::I64, FIELD, record, KEY_TABLE);
        let is_found = self.builder.ins().icmp_imm_s(IntCC::NotEqual, table, 0);
        self.builder.ins().uextend(types::I64, is_found)
    }

    /// Translates a call of a helper; returns whether control falls through to the next instruction.
    pub(crate) fn call_of_scout(&mut self, at: usize, number: i32) -> bool {
        let table = self.source.table(at);
        match number {
            helper::MAP_LOOKUP_ELEM | helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM if let Some(map) = table => {
                if self.seconds.is_some() && self.packet.is_some() {
                    return self.announce_and_go_on(at, map, number);
                }
                self.announce(at, map);
                // Without lookups to pass, what follows is not reached.
                if !self.source.passes {
                    return false;
                }
                if number != helper::MAP_LOOKUP_ELEM {
                    self.stop();
                    return false;
                }
                let found = match self.search(at, map) {
                    Some(found) => found,
                    None => self.look_up(at, map),
                };
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

    /// Announces the key of a table and ends, unless the lookup is one to pass.
    fn announce(&mut self, at: usize, map: usize) {
        let goes_on = self.source.passes.then(|| self.builder.create_block());
        let wave = goes_on.map(|goes_on| {
            let wave = self.builder.ins().load(types::I32, FIELD, self.state, WAVE);
            let ends = self.builder.create_block();
            self.builder.ins().brif(wave, goes_on, &[], ends, &[]);
            self.builder.switch_to_block(ends);
            wave
        });
        let record = self.record();
        self.note_point(at, record);
        self.note_key(at, map, record, 0);
        self.end(true);
        if let (Some(goes_on), Some(wave)) = (goes_on, wave) {
            self.builder.switch_to_block(goes_on);
            let wave = self.builder.ins().iadd_imm_s(wave, -1);
            self.builder.ins().store(FIELD, wave, self.state, WAVE);
        }
    }

    /// Announces the key of a table. After the first key, a lookup has the address of some entry, and the scout goes on;
    /// whether control falls through to the next instruction.
    fn announce_and_go_on(&mut self, at: usize, map: usize, number: i32) -> bool {
        let record = self.record();
        let [first, later] = [(); 2].map(|()| self.builder.create_block());
        let table = self.builder.ins().load(types::I64, FIELD, record, KEY_TABLE);
        self.builder.ins().brif(table, later, &[], first, &[]);
        self.builder.switch_to_block(later);
        // The key of a helper with effects is announced in the first place only.
        if self.seconds.is_some_and(|seconds| seconds.contains(&at)) {
            self.note_key(at, map, record, SECOND - KEY_TABLE);
        }
        self.end(true);
        self.builder.switch_to_block(first);
        self.note_point(at, record);
        self.note_key(at, map, record, 0);
        if number != helper::MAP_LOOKUP_ELEM {
            self.end(true);
            return false;
        }
        // SAFETY: the table belongs to the map, which lives; the field depends on its layout alone.
        let value_at = unsafe { (*self.source.refs[map].raw).value_at_bytes };
        let entries = self.map_field(map, MAP_ENTRIES);
        let value = self.builder.ins().iadd_imm_s(entries, i64::from(value_at));
        self.builder.def_var(self.registers[0], value);
        true
    }

    /// Writes the key of a table to a record, the first key at 0, with its hash.
    fn note_key(&mut self, at: usize, map: usize, record: Value, key_at: i32) {
        let table = self.map_field(map, TABLE);
        self.builder.ins().store(FIELD, table, record, key_at + KEY_TABLE);
        let hash = if HASHED_BYTES.contains(&self.source.maps[map].key_bytes) {
            let key = self.key(at, map);
            self.key_hash(map, &mut |code, start| code.word(&key, start, key.word_size()))
        } else {
            let key = self.key_address(at, map);
            self.runtime(Runtime::Hash, &[table, key])
        };
        self.builder.ins().store(FIELD, hash, record, key_at + HASH);
    }
}
