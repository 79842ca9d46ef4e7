// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons why a program that the kernel refuses may be accepted, and why one that it accepts is refused.
//!
//! The list of accepted programs defines what is safe: a program that matches no entry must not be accepted. An entry
//! names the case where the kernel's message alone does not show that only the program's own memory is accessed.

use flowloom_isa::insn::{alu, class, jmp};
use flowloom_isa::{Insn, Program};
use flowloom_verifier::Proof;

use super::{Judged, Kernel, Ours};

/// Additional condition on an accepted program.
type Holds = fn(&Program, &Proof) -> bool;

struct Reason {
    /// Substring of the case's name.
    case: &'static str,
    /// Substring of the message of the verifier that refuses it.
    words: &'static str,
    holds: Holds,
    why: &'static str,
}

const fn reason(case: &'static str, words: &'static str, why: &'static str) -> Reason {
    Reason { case, words, holds: |_, _| true, why }
}

/// A comparison with 0 that always takes one edge: the kernel explores both where it does not assume that an address is
/// not null.
fn knows_an_address_is_not_null(program: &Program, proof: &Proof) -> bool {
    let is_branch = |insn: &Insn| {
        insn.class() == class::JMP && matches!(insn.op(), jmp::JEQ | jmp::JNE) && insn.code & 8 == 0 && insn.imm == 0
    };
    let mut insns = program.insns.iter().zip(&proof.insns);
    insns.any(|(insn, known)| known.reached && is_branch(insn) && known.edges.jumps != known.edges.falls)
}

/// True if some division by the constant 0 is reachable: the property that such tests check.
fn divides_by_zero(program: &Program, proof: &Proof) -> bool {
    let is_division = |insn: &Insn| {
        let is_alu = matches!(insn.class(), class::ALU | class::ALU64);
        is_alu && matches!(insn.op(), alu::DIV | alu::MOD) && insn.code & 8 == 0 && insn.imm == 0
    };
    let mut insns = program.insns.iter().zip(&proof.insns);
    insns.any(|(insn, known)| known.reached && is_division(insn))
}

fn says_where_addresses_leak(_: &Program, proof: &Proof) -> bool {
    proof.insns.iter().any(|known| known.leaks)
}

fn says_what_is_dead(_: &Program, proof: &Proof) -> bool {
    proof.dead().next().is_some()
}

fn says_what_is_misaligned(_: &Program, proof: &Proof) -> bool {
    proof.insns.iter().flat_map(|known| known.memory.values()).any(|bytes| bytes.align < 8)
}

const fn not_null(case: &'static str, words: &'static str) -> Reason {
    let why = "the kernel walks a way that is taken only where the address of the context or of the packet is null, which it \
               never is";
    Reason { case, words, holds: knows_an_address_is_not_null, why }
}

const fn leak(words: &'static str) -> Reason {
    let why = "an address is looked at as a number: nothing is touched by that; the proof names the instruction";
    Reason { case: "", words, holds: says_where_addresses_leak, why }
}

const fn misaligned(words: &'static str) -> Reason {
    let why = "all bytes are the program's own; the proof gives the alignment";
    Reason { case: "", words, holds: says_what_is_misaligned, why }
}

/// Reasons to accept a program that the kernel refuses.
static ACCEPTED: &[Reason] = &[
    Reason {
        case: "",
        words: "div by zero",
        holds: divides_by_zero,
        why: "division by zero gives 0 [RFC 9669 4.1]; that the program comes to it is seen",
    },
    Reason {
        case: "",
        words: "unreachable insn",
        holds: says_what_is_dead,
        why: "no path leads to it; the proof names it as dead",
    },
    leak("invalid size of register fill"),
    misaligned("misaligned stack access"),
    reason("", "subtraction from stack pointer prohibited", "the offset is known and checked like any other"),
    reason("", "combined stack size of", "a limit of the kernel, not of memory: each frame has a stack of its own"),
    reason("", "the call stack of 8 frames is too deep", "no path is nested deeper than 8: each was walked"),
    reason("oversized count operand", "max value is outside of the allowed memory range", SHIFT),
    reason("shift_with_oversized_count_operand", "max value is outside of the allowed memory range", SHIFT),
    reason("ptr_to_mem_or_null_8", "R1 type=scalar expected", EMPTY),
    reason("size = 0 not allowed on NULL", "R1 type=scalar expected", EMPTY),
    reason(
        "calls.c calls: spill into caller stack frame",
        "cannot spill pointers to stack",
        "the address is of the very stack that it is stored in, which is there as long",
    ),
    reason("iters.o iter_nested_deeply_iters", "BPF program is too large", NUMBERS),
    reason("iters.o iter_subprog_iters", "cannot return stack pointer to the caller", OUTLIVES),
    reason("iters.o iter_pass_iter_ptr_to_subprog", "cannot return stack pointer to the caller", OUTLIVES),
    not_null("conditional_loop", "infinite loop detected"),
    not_null("cfg.c conditional loop", "infinite loop detected"),
    not_null("calls: conditional call 6", "old state"),
    not_null("fill_of_different_pointers", "invalid bpf_context access"),
    not_null("spill/fill of different pointers", "invalid bpf_context access"),
    not_null("calls: ambiguous return value", "R0 !read_ok"),
    not_null("calls: multiple ret types in subprog 1", "R0 invalid mem access 'scalar'"),
    not_null("calls: multiple ret types in subprog 2", "R0 min value is outside"),
    not_null("reg_id_for_map_value", "bpf_spin_unlock of different lock"),
];

const SHIFT: &str = "shifts go by the low bits of the distance [RFC 9669 4.1], so the result is known";
const NUMBERS: &str = "the kernel is shown iterators over numbers as ordinary loops, whose rounds it walks";
const OUTLIVES: &str = "the address is of the caller's stack, which outlives the function that returns it";
const EMPTY: &str = "no bytes are touched where the length is 0";

/// Reasons to refuse a program that the kernel accepts.
static REFUSED: &[Reason] = &[
    reason("", "found a write to `r10`", "every program is checked for that before, on paths that are never taken too"),
    reason("map_ptr", "at map `map_", "what the kernel keeps about a map is its own: other targets have no such thing"),
    reason("map_ptr", "`+=` on map `map_", "a map has no bytes, so nothing is added to its address, not even 0"),
    reason(
        "atomic_cmpxchg.c Dest pointer in r0 - succeed",
        "expected an address",
        "an address that an atomic operation takes from memory is a number afterwards",
    ),
    reason("pkt_end < pkt taken check", "is a number, 0, expected an address", SECOND_COMPARISON),
    reason("pkt > pkt_end taken check", "is a number, 0, expected an address", SECOND_COMPARISON),
    reason(
        "bpf_loop_iter_limit_ok",
        "with a number of any",
        "callbacks are walked for any number of rounds, not for each number of them",
    ),
];

const SECOND_COMPARISON: &str = "that the same comparison with the end of the packet has failed before is not kept";

fn found(reasons: &'static [Reason], one: &Judged) -> Option<&'static Reason> {
    let (words, proof) = match (&one.ours, &one.kernel) {
        (Ours::Accepts(proof), Kernel::Refuses(words)) => (words, Some(proof)),
        (Ours::Refuses(words), Kernel::Accepts) => (words, None),
        _ => return None,
    };
    let fits = |reason: &&Reason| {
        one.case.name.contains(reason.case)
            && words.contains(reason.words)
            && proof.is_none_or(|proof| (reason.holds)(&one.case.program, proof))
    };
    reasons.iter().find(fits)
}

/// Reason why we may accept it although the kernel refuses it.
pub fn of_acceptance(one: &Judged) -> Option<&'static str> {
    found(ACCEPTED, one).map(|reason| reason.why)
}

/// Reason why we refuse it although the kernel accepts it.
pub fn of_refusal(one: &Judged) -> Option<&'static str> {
    found(REFUSED, one).map(|reason| reason.why)
}

/// Reasons that no case needs, by case and message.
pub fn unneeded(judged: &[Judged]) -> impl Iterator<Item = (&'static str, &'static str)> {
    let needs = |reason: &Reason, reasons| {
        judged.iter().any(|one| found(reasons, one).is_some_and(|found| std::ptr::eq(found, reason)))
    };
    let lists = [ACCEPTED, REFUSED].into_iter();
    lists.flat_map(move |reasons| {
        let unneeded = reasons.iter().filter(move |reason| !needs(reason, reasons));
        unneeded.map(|reason| (reason.case, reason.words))
    })
}
