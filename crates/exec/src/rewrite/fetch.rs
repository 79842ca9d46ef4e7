// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A workaround for a bug of verifiers with fetching atomic operations on the stack.
//!
//! Verifiers up to at least Linux 6.18 take the old value to be as precisely known as what was spilled there, but do
//! not record that it depends on it. A path with another spilled value is then pruned, and a branch on the value that
//! this path would take is removed: the program runs, and behaves differently than written.
//!
//! ```text
//!   before                                          after
//!   r9 = atomic_fetch_add((u64 *)(r10 - 8), r9)     r9 = atomic_fetch_add((u64 *)(r10 - 8), r9)
//!                                                   r9 = be64 r9
//!                                                   r9 = be64 r9
//! ```
//!
//! A byte-swapped value is unknown to these verifiers, so they remove nothing; swapped twice it has its old value.

use flowloom_isa::Insn;
use flowloom_isa::insn::{SRC_REG, alu, atomic, class, mode};

use super::flow::{Flow, Value};

/// The bit of an atomic operation that returns the old value.
const FETCH: i32 = 1;

/// The replacement of the instruction at `at`, if it is such an operation.
pub(super) fn replaced(flow: &Flow, at: usize, insn: Insn) -> Option<Vec<Insn>> {
    let is_atomic = insn.class() == class::STX && insn.code & 0xe0 == mode::ATOMIC;
    let may_be_stack = matches!(flow.before(at, insn.dst), Value::Stack(_) | Value::Mixed);
    if !is_atomic || !may_be_stack || insn.imm & FETCH == 0 {
        return None;
    }
    let dst = if insn.imm == atomic::CMPXCHG { 0 } else { insn.src };
    let swapped = Insn { code: class::ALU | alu::END | SRC_REG, dst, imm: 64, ..Insn::default() };
    Some(vec![insn, swapped, swapped])
}
