// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of our verifier and of the kernel's on one program, and the reasons for differences.

use flowloom_exec::{ExecError, KernelEngine, Refused};
use flowloom_isa::Program;
use flowloom_isa::op::Op;
use flowloom_verifier::{Known, Memory, Proof, VerifyError};

pub(super) struct VerifierResults {
    /// True if ours accepts it.
    pub(super) is_verified: bool,
    /// Which of the two accept it, with the reason for a difference; `None` where the kernel was not asked.
    pub(super) message: Option<String>,
    /// A difference without a known reason.
    pub(super) unexplained: Option<String>,
}

/// Reason why ours may accept a program that the kernel refuses.
struct Reason {
    /// Substrings of the kernel's message.
    words: &'static [&'static str],
    /// Condition on the proof, and on the instruction at which the kernel refuses.
    holds: fn(&Proof, &Known) -> bool,
    why: &'static str,
}

const ELSEWHERE: &str = "the kernel walks a way that is never taken, because it knows less of the numbers compared";

static REASONS: &[Reason] = &[
    Reason {
        words: &["prohibited for !root"],
        holds: |_, _| true,
        why: "kept from programs without CAP_PERFMON, as a CPU could run ahead with another offset; the bytes are the program's",
    },
    Reason {
        words: &[
            "leaks addr",
            "leaking pointer",
            "pointer arithmetic",
            "= pointer prohibited",
            "bitwise operator",
            "partial copy of pointer",
            "sign-extension part of pointer",
            "invalid size of register fill",
            "math between pkt pointer",
            "!read_ok",
        ],
        holds: |_, known| known.leaks,
        why: "an address becomes a number, which the proof says; nothing is touched by that",
    },
    Reason {
        words: &["pointer comparison prohibited", "attempt to corrupt spilled pointer"],
        holds: |_, _| true,
        why: "an address is compared as a number, or becomes one by a store to a part of it; nothing is touched by that",
    },
    Reason {
        words: &["misaligned"],
        holds: |_, known| known.memory.values().any(|bytes| bytes.align < 8),
        why: "all bytes are the program's own; the proof gives the alignment",
    },
    Reason {
        words: &["invalid read from stack"],
        holds: |_, _| true,
        why: "what was never written on the stack is some number, as in the kernel with CAP_PERFMON",
    },
    Reason {
        words: &["cannot use helper bpf_trace_printk", "cannot use helper bpf_probe_read_kernel"],
        holds: |_, known| known.probes,
        why: "a helper that is kept from programs without CAP_PERFMON; the proof says what it is",
    },
    Reason {
        words: &["invalid mem access 'map_value_or_null'", "type=map_value_or_null"],
        holds: |_, known| known.memory.keys().any(|memory| matches!(memory, Memory::Value(_))),
        why: "an array has all its values, and the key is a constant that ours knows",
    },
    Reason {
        words: &["cannot return stack pointer to the caller"],
        holds: |_, _| true,
        why: "the address is of the caller's own stack, which is there still; one of the function's own is refused",
    },
    Reason {
        words: &["subtraction from stack pointer prohibited"],
        holds: |_, known| known.reached,
        why: "an address of the stack is moved down by a register; what is touched there is looked at all the same",
    },
    Reason {
        words: &["infinite loop detected"],
        holds: |proof, _| proof.loops.values().any(|trips| *trips > Some(0)),
        why: "the kernel forgets what the counter was and takes it for one that stands still; the proof says how often it goes",
    },
    Reason {
        words: &["unreachable insn"],
        holds: |proof, _| proof.dead().next().is_some(),
        why: "no path leads there; the proof names it as dead",
    },
    Reason {
        words: &["BPF program is too large", "jumps is too complex"],
        holds: |_, _| true,
        why: "a limit of the kernel, which joins fewer paths",
    },
    Reason {
        words: &["unbounded min value", "min value is negative"],
        holds: |_, known| known.reached,
        why: "the range of a number is known better, that of what a helper answers for instance",
    },
    Reason {
        words: &["invalid shift", "div by zero"],
        holds: |_, known| known.reached,
        why: "shifts go by the low bits of the distance, division by zero gives 0 [RFC 9669 4.1]",
    },
];

fn why(program: &Program, proof: &Proof, refused: &Refused) -> Option<&'static str> {
    // Programs with functions have other indices in the kernel: there, any instruction may satisfy the condition.
    let at = refused.insn.and_then(|at| proof.insns.get(at));
    if at.is_some_and(|known| !known.reached) {
        return Some(ELSEWHERE);
    }
    let words = |reason: &&Reason| reason.words.iter().any(|words| refused.log.contains(words));
    let holds = |reason: &&Reason| match at {
        Some(known) => (reason.holds)(proof, known),
        None => proof.insns.iter().any(|known| (reason.holds)(proof, known)),
    };
    let found = REASONS.iter().find(|reason| words(reason) && holds(reason)).map(|reason| reason.why);
    let is_one_way = |known: &Known| known.reached && known.edges.jumps != known.edges.falls;
    let is_elsewhere = || match at {
        Some(_) => follows_dead_edge(program, proof, &refused.log),
        None => proof.insns.iter().any(is_one_way),
    };
    found.or_else(|| is_elsewhere().then_some(ELSEWHERE))
}

/// True if the kernel's log follows an edge of a branch that is never taken.
fn follows_dead_edge(program: &Program, proof: &Proof, log: &str) -> bool {
    let walked: Vec<usize> = log.lines().filter_map(|line| line.split_once(": (")?.0.trim().parse().ok()).collect();
    walked.windows(2).any(|pair| {
        let (at, next) = (pair[0], pair[1]);
        let Ok(Op::Branch { off, .. }) = Op::decode(&program.insns, at) else { return false };
        let Some(known) = proof.insns.get(at).filter(|known| known.reached) else { return false };
        let target = (at as i64 + 1 + i64::from(off)) as usize;
        next == target && !known.edges.jumps || next == at + 1 && !known.edges.falls
    })
}

pub(super) fn verifier_results(program: &Program, kernel: &Result<KernelEngine, ExecError>) -> VerifierResults {
    let ours = flowloom_verifier::verify(program, &flowloom_verifier::Options::default());
    let is_verified = ours.is_ok();
    let (message, unexplained) = match (ours, kernel) {
        (Ok(_), Ok(_)) => (Some("both take it".to_owned()), None),
        (Err(_), Err(ExecError::Refused(_))) => (Some("both refuse it".to_owned()), None),
        (Ok(proof), Err(ExecError::Refused(refused))) => match why(program, &proof, refused) {
            Some(why) => (Some(format!("only ours takes it: {why}")), None),
            None => {
                let message =
                    format!("only our verifier takes it, the kernel's says: {}\n{}", refused.reason, refused.log);
                (None, Some(message))
            }
        },
        (Err(VerifyError::Refused(refusal)), Ok(_)) => {
            (None, Some(format!("only the kernel's verifier takes it, ours says: {refusal}\n{}", refusal.details())))
        }
        _ => (None, None),
    };
    VerifierResults { is_verified, message, unexplained }
}
