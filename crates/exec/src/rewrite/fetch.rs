//! Atomic operations on the stack that give the old value: what verifiers get wrong about them is kept from them.
//!
//! Verifiers up to Linux 6.18 at least know the old value as well as what was spilled there, but do not remember that it came
//! from there. A path that spilled something else is then taken for one that was judged already, and a branch on the value is
//! cut off that this path would take: the program runs, and does something else than it says.
//!
//! ```text
//!   before                                          after
//!   r9 = atomic_fetch_add((u64 *)(r10 - 8), r9)     r9 = atomic_fetch_add((u64 *)(r10 - 8), r9)
//!                                                   r9 = be64 r9
//!                                                   r9 = be64 r9
//! ```
//!
//! A value whose bytes were swapped is one that these verifiers know nothing of, so they cut nothing off; swapped twice it is
//! what it was.

use flowloom_bpf::Insn;
use flowloom_bpf::insn::{SRC_REG, alu, atomic, class, mode};

use super::flow::{Flow, Value};

/// The bit of an atomic operation that asks for the old value.
const FETCH: i32 = 1;

/// The code that takes the place of the instruction at `at`, where it is such an operation.
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
