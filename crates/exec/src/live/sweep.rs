// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sweeping of a table whose records packets lock: user space removes an expired record only if it has not changed
//! since it was read. Packets expire contexts too, when they look them up (`lower`'s `element.rs`).
//!
//! ```text
//!  dump ──age──► key, record as read, record as it shall be
//!                  │ as the bytes of a packet
//!                  ▼
//!  BPF_PROG_TEST_RUN: lock the key ─ look it up ─ unchanged? ─ remove or replace it ─ unlock
//! ```
//!
//! A packet may have come between the dump and the run, and renewed the record, or removed it and made another: then
//! nothing happens, and the next sweep looks again. User space cannot hold the lock itself: it could be preempted with
//! it.

use flowloom_context::locks::{LOCKS_MAP, Locks, MIX};
use flowloom_engine::{EngineError, Verdict};
use flowloom_isa::insn::{SRC_REG, alu, atomic, call, class, helper, imm64, jmp, mode, size};
use flowloom_isa::{Insn, Program};

use crate::error::ExecError;
use crate::kernel::MIN_FRAME_BYTES;
use crate::kernel::errors::system;
use crate::kernel::load::Maps;
use crate::kernel::state::Sweeper;
use crate::sys::program::RawProgram;

/// The last byte of a sweep packet that removes the record.
const REMOVE: u8 = 1;

/// The name of the program that sweeps for a function, which lists of functions omit.
pub const SWEEPER: &str = "fl_sweep";

/// The program that sweeps a table.
#[derive(Debug)]
pub(super) struct LockedSweeper {
    program: RawProgram,
}

impl LockedSweeper {
    /// Loads the sweeper of map number `map` of `program`, on its maps; `None` if packets lock nothing there.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn load(program: &Program, map: usize, created: &Maps) -> Result<Option<LockedSweeper>, ExecError> {
        let def = &program.maps[map];
        let locks = def.layout.as_ref().and_then(|layout| layout.locks);
        let (Some(locks), Some(locks_map)) = (locks, program.map_index(LOCKS_MAP)) else { return Ok(None) };
        let insns = code(map, locks_map, locks, def.key_bytes as i32, def.value_bytes as i32);
        let sweeper =
            Program { name: SWEEPER.to_owned(), insns, lines: Vec::new(), globals: Vec::new(), ..program.clone() };
        Ok(Some(LockedSweeper { program: created.load_other(&sweeper)? }))
    }
}

impl Sweeper for LockedSweeper {
    fn replace(&self, key: &[u8], found: &[u8], successor: Option<&[u8]>) -> Result<bool, EngineError> {
        let mut packet =
            [key, found, successor.unwrap_or(found), &[if successor.is_none() { REMOVE } else { 0 }]].concat();
        packet.resize(packet.len().max(MIN_FRAME_BYTES), 0);
        let ran = self.program.test_run(&packet, &mut [], 1).map_err(|e| system("sweep a context", e))?;
        Ok(Verdict::from_number(ran.verdict) == Verdict::Drop)
    }
}

/// Code under construction.
#[derive(Default)]
struct Code {
    insns: Vec<Insn>,
    /// Jumps to the exit that unlocks, and to the one that does not.
    unlock: Vec<usize>,
    leave: Vec<usize>,
}

impl Code {
    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.insns.push(Insn { code, dst, src, off, imm });
    }

    fn imm(&mut self, op: u8, dst: u8, imm: i32) {
        self.push(class::ALU64 | op, dst, 0, 0, imm);
    }

    fn reg(&mut self, op: u8, dst: u8, src: u8) {
        self.push(class::ALU64 | op | SRC_REG, dst, src, 0, 0);
    }

    fn load(&mut self, bytes: u8, dst: u8, base: u8, off: i32) {
        self.push(class::LDX | mode::MEM | bytes, dst, base, off as i16, 0);
    }

    fn wide(&mut self, dst: u8, kind: u8, low: u32, high: u32) {
        self.push(class::LD | mode::IMM | size::DW, dst, kind, 0, low as i32);
        self.push(0, 0, 0, 0, high as i32);
    }

    fn call(&mut self, number: i32) {
        self.push(class::JMP | jmp::CALL, 0, call::HELPER, 0, number);
    }

    fn cas(&mut self, imm: i32, base: u8, src: u8) {
        self.push(class::STX | mode::ATOMIC | size::DW, base, src, 0, imm);
    }

    fn end(&mut self, jumps: Vec<usize>) {
        for at in jumps {
            self.insns[at].off = (self.insns.len() - at - 1) as i16;
        }
    }
}

/// The sweeper of a table: r6 is the packet, r7 the address of the lock, r9 the verdict.
fn code(map: usize, locks_map: usize, locks: Locks, key_bytes: i32, value_bytes: i32) -> Vec<Insn> {
    let mut c = Code::default();
    let (found, next) = (key_bytes, key_bytes + value_bytes);
    let flag = next + value_bytes;
    let if_not = |op: u8| class::JMP | op;
    c.load(size::W, 6, 1, 0);
    c.load(size::W, 2, 1, 4);
    c.imm(alu::MOV, 9, Verdict::Aborted.number() as i32);
    c.reg(alu::MOV, 3, 6);
    c.imm(alu::ADD, 3, (flag + 1).max(MIN_FRAME_BYTES as i32));
    c.leave.push(c.insns.len());
    c.push(if_not(jmp::JGT) | SRC_REG, 3, 2, 0, 0);
    // The cell, as computed by `Locks::cell_of`.
    c.wide(7, imm64::MAP_VALUE, locks_map as u32, locks.offset_bytes);
    if locks.cells > 1 {
        c.imm(alu::MOV, 1, 0);
        c.wide(2, imm64::NUMBER, MIX as u32, (MIX >> 32) as u32);
        for at in (0..key_bytes).step_by(8) {
            c.load(if key_bytes - at >= 8 { size::DW } else { size::W }, 3, 6, at);
            c.reg(alu::XOR, 1, 3);
            c.reg(alu::MUL, 1, 2);
        }
        let (shift, mask) = locks.shift_and_mask();
        c.imm(alu::RSH, 1, shift as i32);
        c.imm(alu::AND, 1, mask as i32);
        c.reg(alu::ADD, 7, 1);
    }
    let retry = c.insns.len();
    c.imm(alu::MOV, 0, 0);
    c.imm(alu::MOV, 1, 1);
    c.cas(atomic::CMPXCHG, 7, 1);
    c.push(if_not(jmp::JEQ), 0, 0, 2, 0);
    c.leave.push(c.insns.len());
    c.push(class::JMP | jmp::JCOND, 0, 0, 0, 0);
    c.push(class::JMP | jmp::JA, 0, 0, (retry as i64 - c.insns.len() as i64 - 1) as i16, 0);
    // Check that the record is unchanged.
    c.imm(alu::MOV, 9, Verdict::Pass.number() as i32);
    c.wide(1, imm64::MAP, map as u32, 0);
    c.reg(alu::MOV, 2, 6);
    c.call(helper::MAP_LOOKUP_ELEM);
    c.unlock.push(c.insns.len());
    c.push(if_not(jmp::JEQ), 0, 0, 0, 0);
    for at in (0..value_bytes).step_by(8) {
        c.load(size::DW, 1, 0, at);
        c.load(size::DW, 2, 6, found + at);
        c.unlock.push(c.insns.len());
        c.push(if_not(jmp::JNE) | SRC_REG, 1, 2, 0, 0);
    }
    c.load(size::B, 1, 6, flag);
    let words = (0..value_bytes).step_by(8);
    c.push(if_not(jmp::JNE), 1, 0, (2 * words.clone().count() + 1) as i16, 0);
    for at in words {
        c.load(size::DW, 1, 6, next + at);
        c.push(class::STX | mode::MEM | size::DW, 0, 1, at as i16, 0);
    }
    c.unlock.push(c.insns.len());
    c.push(class::JMP | jmp::JA, 0, 0, 0, 0);
    c.imm(alu::MOV, 9, Verdict::Drop.number() as i32);
    c.wide(1, imm64::MAP, map as u32, 0);
    c.reg(alu::MOV, 2, 6);
    c.call(helper::MAP_DELETE_ELEM);
    let unlock = std::mem::take(&mut c.unlock);
    c.end(unlock);
    c.imm(alu::MOV, 1, 0);
    c.cas(atomic::XCHG, 7, 1);
    let leave = std::mem::take(&mut c.leave);
    c.end(leave);
    c.reg(alu::MOV, 0, 9);
    c.push(class::JMP | jmp::EXIT, 0, 0, 0, 0);
    c.insns
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stdout)]
mod tests;
