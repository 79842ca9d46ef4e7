// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loops over numbers: `bpf_iter_num_new`, `_next` and `_destroy`, which libbpf's `bpf_for` and `bpf_repeat` call,
//! become the instructions that the kernel's functions are made of.
//!
//! ```text
//!   before                                after
//!   r1 = r10                              r1 = r10
//!   r1 += -8                              r1 += -8
//!   call bpf_iter_num_next                r0 = *(u64 *)(r1 + 0)   ; current number below, end above
//!   if r0 == 0 goto done                  ...                     ; r0 = r1, or 0 at the end
//!                                         if r0 == 0 goto done
//! ```
//!
//! The iterator is one 64-bit number, so that a verifier knows the current number even where the end is a range. Every
//! engine, the kernel included, then runs an ordinary loop.
//!
//! Limits: a loop is verified by walking its rounds, where the kernel's verifier of the original may join them; calls
//! of these functions in another order than `new`, `next`, `destroy` are not refused as such, which a note of the
//! object says.
//!
//! # Source
//! Linux, `kernel/bpf/bpf_iter.c`.

use crate::MAX_SLOTS;
use flowloom_isa::asm::assemble;
use flowloom_isa::splice::spliced;
use flowloom_isa::{Insn, Program, Reference};

/// r1 is the iterator, r2 the first number, r3 the end.
const NEW: &str = "
    r2 <<= 32
    r2 s>>= 32
    r3 <<= 32
    r3 s>>= 32
    r0 = -22
    if r2 s> r3 goto wrong
    r4 = r3
    r4 -= r2
    r0 = -7
    if r4 s> 8388608 goto wrong
    r2 += -1
    r2 <<= 32
    r2 >>= 32
    r3 <<= 32
    r3 |= r2
    *(u64 *)(r1 + 0) = r3
    r0 = 0
    goto made
wrong: *(u64 *)(r1 + 0) = 0
made: r1 = 0
";

/// r1 is the iterator; r0 becomes the address of the next number, or 0.
const NEXT: &str = "
    r0 = *(u64 *)(r1 + 0)
    r3 = r0
    r3 s>>= 32
    r2 = r0
    r2 += 1
    r2 <<= 32
    r2 s>>= 32
    if r2 s>= r3 goto end
    r0 >>= 32
    r0 <<= 32
    r2 <<= 32
    r2 >>= 32
    r0 |= r2
    *(u64 *)(r1 + 0) = r0
    r0 = r1
    goto next
end: *(u64 *)(r1 + 0) = 0
    r0 = 0
next: r1 = 0
";

const DESTROY: &str = "*(u64 *)(r1 + 0) = 0\n";

/// Replaces the calls that have such code, and leaves the program as it is where that fails. Returns whether any was
/// replaced.
pub(super) fn expand(program: &mut Program) -> bool {
    let code = |reference: &Reference| -> Option<Vec<Insn>> {
        let Reference::Kfunc { name } = reference else { return None };
        let text = match name.as_str() {
            "bpf_iter_num_new" => NEW,
            "bpf_iter_num_next" => NEXT,
            "bpf_iter_num_destroy" => DESTROY,
            _ => return None,
        };
        assemble(text, &[]).ok()
    };
    let mut replacements = vec![None; program.insns.len()];
    for unresolved in &program.unresolved {
        if let Some(replacement) = replacements.get_mut(unresolved.insn) {
            *replacement = code(&unresolved.reference);
        }
    }
    if replacements.iter().all(Option::is_none) {
        return false;
    }
    let kept =
        program.unresolved.iter().filter(|unresolved| replacements.get(unresolved.insn).is_none_or(Option::is_none));
    let without = Program { unresolved: kept.cloned().collect(), ..program.clone() };
    match spliced(&without, replacements) {
        Ok((expanded, _)) if expanded.insns.len() <= MAX_SLOTS => {
            *program = expanded;
            true
        }
        _ => false,
    }
}
