// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sweeping of a table whose records packets lock: user space removes an expired record only if it has not changed
//! since it was read. The loop over the records is in `kernel/state.rs`. Packets expire contexts too (`element.rs` of
//! `lower`).
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

use flowloom_context::locks::MIX;
use flowloom_engine::{EngineError, Verdict};
use flowloom_isa::{Program, asm};

use super::error::LiveError;
use super::lock_places::LockPlace;
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
    /// Loads the sweeper of map number `map` of `program`, on its maps; packets lock its keys at `place`.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn load(
        program: &Program,
        map: usize,
        place: LockPlace,
        created: &Maps,
    ) -> Result<LockedSweeper, ExecError> {
        let def = &program.maps[map];
        let code = code(map, place, def.key_bytes, def.value_bytes);
        let insns = asm::assemble(&code, &program.maps).map_err(|errors| LiveError::System {
            action: "assemble a sweeper".to_owned(),
            source: std::io::Error::other(errors),
        })?;
        let sweeper =
            Program { name: SWEEPER.to_owned(), insns, lines: Vec::new(), globals: Vec::new(), ..program.clone() };
        Ok(LockedSweeper { program: created.load_other(&sweeper)? })
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

/// The sweeper of a table in assembler: r6 is the packet, r7 the address of the lock, r9 the verdict.
fn code(map: usize, LockPlace { map: locks_map, locks }: LockPlace, key_bytes: u32, value_bytes: u32) -> String {
    let (found, next) = (key_bytes, key_bytes + value_bytes);
    let flag = next + value_bytes;
    let frame_bytes = (flag + 1).max(MIN_FRAME_BYTES as u32);
    let [aborted, pass, drop] = [Verdict::Aborted, Verdict::Pass, Verdict::Drop].map(Verdict::number);
    let cells = locks.offset_bytes;
    // The cell, as computed by `Locks::cell_of`.
    let mut cell = String::new();
    if locks.cells > 1 {
        cell = format!("r1 = 0\nr2 = {MIX} ll\n");
        for at in (0..key_bytes).step_by(8) {
            let bits = if key_bytes - at >= 8 { 64 } else { 32 };
            cell += &format!("r3 = *(u{bits} *)(r6 + {at})\nr1 ^= r3\nr1 *= r2\n");
        }
        let (shift, mask) = locks.shift_and_mask();
        cell += &format!("r1 >>= {shift}\nr1 &= {mask}\nr7 += r1");
    }
    let words = (0..value_bytes).step_by(8);
    let compare =
        |at| format!("r1 = *(u64 *)(r0 + {at})\nr2 = *(u64 *)(r6 + {})\nif r1 != r2 goto unlock\n", found + at);
    let replace = |at| format!("r1 = *(u64 *)(r6 + {})\n*(u64 *)(r0 + {at}) = r1\n", next + at);
    let (compare, replace): (String, String) = (words.clone().map(compare).collect(), words.map(replace).collect());
    format!(
        "
        r6 = *(u32 *)(r1 + 0)
        r2 = *(u32 *)(r1 + 4)
        r9 = {aborted}
        r3 = r6
        r3 += {frame_bytes}
        if r3 > r2 goto leave
        r7 = map[{locks_map}][0] + {cells} ll
        {cell}
retry:  r0 = 0
        r1 = 1
        r0 = cmpxchg_64(r7 + 0, r0, r1)
        if r0 == 0 goto locked
        may_goto leave
        goto retry
locked: r9 = {pass}
        r1 = map[{map}] ll
        r2 = r6
        call map_lookup_elem
        if r0 == 0 goto unlock
        {compare}
        r1 = *(u8 *)(r6 + {flag})
        if r1 != 0 goto remove
        {replace}
        goto unlock
remove: r9 = {drop}
        r1 = map[{map}] ll
        r2 = r6
        call map_delete_elem
unlock: r1 = 0
        r1 = xchg_64(r7 + 0, r1)
leave:  r0 = r9
        exit"
    )
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stdout)]
mod tests;
