// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Redirects a program's environment to a record: inputs that it takes from the kernel are read from the record,
//! redirects are logged there.
//!
//! Goal: BPF_PROG_TEST_RUN does not report the target of `redirect`, has its own clock, random numbers and CPU, and
//! gives every packet the same `ingress_ifindex`. After rewriting, all of these are in one map entry that the engine
//! writes before a packet and reads after it, so that the kernel repeats exactly the run of another engine.
//!
//! ```text
//!   before                          after
//!   call ktime_get_ns               r0 = .data.fl_record[0] ll
//!                                   r0 = *(u64 *)(r0 + 0)
//!   r6 = *(u32 *)(r1 + 12)          r6 = .data.fl_record[0] ll        where r1 is the context
//!                                   r6 = *(u32 *)(r6 + 8)
//!   call redirect                   r0 = 0
//!                                   if r2 != 0 goto +5
//!                                   r3 = .data.fl_record[0] ll
//!                                   *(u32 *)(r3 + 52) = r1
//!                                   *(u32 *)(r3 + 56) = 1
//!                                   r0 = 4
//! ```
//!
//! Steps: find the context and the maps by dataflow analysis (`flow`), choose a replacement for each call and load
//! concerned (`calls`), splice it in (`flowloom_isa::splice`).
//!
//! Holds before: nothing; an invalid program is either refused here or left to the verifier. Holds after: calls only
//! change r0-r5, loads only their destination; everything else is unchanged. A replaced call leaves r1-r5 readable,
//! unlike a real one, so verify the program before it is rewritten.
//!
//! All clocks read `now`; a jiffy is 4 ms of it. Redirects through a CPU map are logged as the port of a CPU. Redirect
//! maps are replaced by shadows (`plan`). Route lookups use the kernel's interface indices. Maps that need them have
//! two logs: the lengths of perf events, which the kernel rounds up, and the deletions from LRU tables. Atomic
//! operations on the stack are guarded against a bug of verifiers (`fetch`). The egress port of a devmap program is 0,
//! as in every engine.
//!
//! Limits: a load that may or may not be from the context is refused, and so is a redirect through a map that may be
//! one that no instruction refers to.
//!
//! # Source
//! [semantics 1].

mod bind;
mod calls;
pub(crate) mod error;
mod fetch;
mod flow;
pub(crate) mod plan;
mod record;

use flowloom_isa::insn::{alu, class, mode, size};
use flowloom_isa::splice::spliced;
use flowloom_isa::{Insn, Program, ProgramKind};
use flowloom_verifier::{Known, Memory, Options, Proof, verify};

pub(crate) use bind::VERDICTS_BYTES;
pub use bind::{Binding, Bound, VERDICTS_MAP, bind};
use calls::Code;
pub use error::RewriteError;
use flow::{Flow, Value, access_bytes};
pub(crate) use plan::Plan;
pub use record::{JIFFY_NS, RECORD_BYTES, RECORD_MAP, Record, Redirect};

/// The offset of `ingress_ifindex` in `struct xdp_md`.
const INGRESS_IFINDEX: i64 = 12;
/// The offset between a port's number and its interface index in the kernel, for route lookups.
pub(crate) const FIRST_INDEX: u32 = 1000;
/// The offset of `egress_ifindex` in `struct xdp_md`.
const EGRESS_IFINDEX: i64 = 20;

/// A rewritten program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The program.
    pub program: Program,
    /// The index of the record's map; `None` if the program needed no rewriting and is unchanged.
    pub record_map: Option<usize>,
    /// For each slot of the new program, the corresponding slot of the old one.
    pub origin: Vec<usize>,
    /// The locations of record, shadows and logs.
    pub(crate) plan: Plan,
}

/// Rewrites `program`.
///
/// # Errors
/// The program cannot be rewritten; the error names the instruction.
///
/// # Cost
/// Linear in the program for straight code; about 1.2 kB of memory for each instruction.
pub fn rewrite(program: &Program) -> Result<Rewritten, RewriteError> {
    let plan = Plan::of(program)?;
    let replacements = replacements(program, &plan)?;
    if replacements.iter().all(Option::is_none) && program.siblings.is_empty() {
        let origin = (0..program.insns.len()).collect();
        return Ok(Rewritten { program: program.clone(), record_map: None, origin, plan });
    }
    let (program, origin) = planned(program, replacements, &plan)?;
    Ok(Rewritten { program, record_map: Some(plan.record), origin, plan })
}

/// Rewrites a program that shares the maps of the one for which `plan` was made.
///
/// # Errors
/// As for [`rewrite`].
pub(crate) fn rewrite_with(program: &Program, plan: &Plan) -> Result<Program, RewriteError> {
    let (program, _) = planned(program, replacements(program, plan)?, plan)?;
    Ok(program)
}

fn planned(
    program: &Program,
    replacements: Vec<Option<Vec<Insn>>>,
    plan: &Plan,
) -> Result<(Program, Vec<usize>), RewriteError> {
    let (mut program, origin) = spliced(program, replacements)?;
    // The functions are no longer verified separately.
    program.globals.clear();
    program.maps.extend(plan.added.iter().cloned());
    Ok((program, origin))
}

/// By instruction, its replacement, if it needs one.
fn replacements(program: &Program, plan: &Plan) -> Result<Vec<Option<Vec<Insn>>>, RewriteError> {
    let insns = &program.insns;
    let flow = Flow::of(insns)?;
    // Test runs do not accept programs of device maps as such, and plain ones may not read the egress port: there is
    // none in a test run or in any other engine, so it is 0.
    let behind_devmap = program.kind == ProgramKind::XdpDevmap;
    if !program.kind.is_xdp() {
        return Err(RewriteError::ProgramKind { kind: program.kind });
    }
    if let Some(unresolved) = program.unresolved.first() {
        return Err(RewriteError::Unresolved { insn: unresolved.insn, reference: unresolved.reference.clone() });
    }
    let replacement = |at: usize| {
        let insn = insns[at];
        if insn.class() == class::LDX {
            if behind_devmap && context_offset(&flow, at, insn) == Some(EGRESS_IFINDEX) {
                return Ok(Some(vec![Insn { code: class::ALU64 | alu::MOV, dst: insn.dst, ..Insn::default() }]));
            }
            return ingress(&flow, at, insn, plan.record);
        }
        match fetch::replaced(&flow, at, insn) {
            Some(code) => Ok(Some(code)),
            None => calls::replaced(program, &flow, at, plan),
        }
    };
    let mut replacements: Vec<Option<Vec<Insn>>> = vec![None; insns.len()];
    let mut proof = LazyProof::Pending;
    let mut at = 0;
    while at < insns.len() {
        if flow.reached(at) {
            replacements[at] = match replacement(at) {
                Err(_) if proof.is_never_reached(program, at) => None,
                // An instruction accesses the context on all paths or on none: that is part of its proof.
                Err(RewriteError::PerhapsContext { .. }) if proof.is_of_other_memory(program, at) => None,
                other => other?,
            };
        }
        at += insns[at].slots();
    }
    Ok(replacements)
}

/// The proof of a program, made if the dataflow analysis alone would refuse it: dead code after a constant of read-only
/// data does not matter, and the verifier knows the memory of each access more precisely.
enum LazyProof {
    Pending,
    Done(Option<Box<Proof>>),
}

impl LazyProof {
    fn of(&mut self, program: &Program, at: usize) -> Option<&Known> {
        if matches!(self, LazyProof::Pending) {
            *self = LazyProof::Done(verify(program, &Options::default()).ok().map(Box::new));
        }
        match self {
            LazyProof::Done(Some(proof)) => proof.insns.get(at),
            _ => None,
        }
    }

    fn is_never_reached(&mut self, program: &Program, at: usize) -> bool {
        self.of(program, at).is_some_and(|known| !known.reached)
    }

    fn is_of_other_memory(&mut self, program: &Program, at: usize) -> bool {
        self.of(program, at).is_some_and(|known| {
            known.reached && !known.memory.is_empty() && !known.memory.contains_key(&Memory::Context)
        })
    }
}

/// The offset in the context that the load at `at` reads, if it reads the context on all paths.
fn context_offset(flow: &Flow, at: usize, insn: Insn) -> Option<i64> {
    match flow.before(at, insn.src) {
        Value::Context(base) => Some(base.saturating_add(i64::from(insn.off))),
        _ => None,
    }
}

fn ingress(flow: &Flow, at: usize, insn: Insn, record: usize) -> Result<Option<Vec<Insn>>, RewriteError> {
    let mut code = Code::new(record);
    Ok(reads_ingress(flow, at, insn)?.then(|| {
        code.record(insn.dst).load(size::W, insn.dst, insn.dst, record::INGRESS_PORT);
        code.insns
    }))
}

fn reads_ingress(flow: &Flow, at: usize, insn: Insn) -> Result<bool, RewriteError> {
    let bytes = access_bytes(insn);
    let touches = |offset: i64| offset < INGRESS_IFINDEX + 4 && offset + bytes > INGRESS_IFINDEX;
    match flow.before(at, insn.src) {
        Value::Context(base) => {
            let offset = base.saturating_add(i64::from(insn.off));
            if offset == INGRESS_IFINDEX && insn.code == class::LDX | mode::MEM | size::W {
                return Ok(true);
            }
            if touches(offset) {
                return Err(RewriteError::PartOfIngress { insn: at, found: bytes, offset });
            }
            Ok(false)
        }
        // Verifiers refuse reads through a modified context pointer, so its offset is that of the load.
        Value::Mixed if touches(i64::from(insn.off)) => {
            Err(RewriteError::PerhapsContext { insn: at, register: insn.src })
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
