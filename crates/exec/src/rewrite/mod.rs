//! Makes a program's environment visible: what it takes from the kernel, it takes from a record that we write; where it
//! redirects to, it logs there.
//!
//! Goal: BPF_PROG_TEST_RUN does not say where `redirect` goes, has its own clock, random numbers and processor, and gives
//! every packet the same `ingress_ifindex`. After rewriting, all of these are in one map entry that the engine writes
//! before a packet and reads after it, so that the kernel can be asked for exactly the run that another engine made.
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
//! Steps: find the context and the maps by dataflow (`flow`), choose a replacement for each call and load concerned
//! (`calls`), put it in its place (`splice`).
//!
//! What holds before: nothing; what is no verified program is either refused here or left to the verifier as it is.
//! What holds after: calls change r0-r5 alone, loads their destination alone; all else is as it was. A replaced call
//! leaves r1-r5 readable, which a real one does not, so judge the program before it is rewritten.
//!
//! Time of every kind is `now`, jiffies are 4 ms of it. What a CPU map redirects to is logged as the port of a CPU. Maps that
//! redirect are replaced by shadows ([`plan`]). Questions about routes are asked with the kernel's numbers of interfaces.
//! Two logs come with maps that need them: the lengths of perf events, which the kernel rounds up, and what is deleted from
//! tables that forget entries by themselves. Atomic operations on the stack
//! are kept from a flaw of verifiers (`fetch`). The port that a packet leaves by behind a devmap is 0, as in every engine.
//!
//! Limits: a load that may or may not be from the context is refused, and so is a redirect through a map that may be one
//! that no instruction names.
//!
//! # Source
//! [semantics 1].

mod bind;
mod calls;
mod fetch;
mod flow;
pub(crate) mod plan;
mod record;
mod splice;

use flowloom_bpf::insn::{alu, class, mode, size};
use flowloom_bpf::verifier::{Known, Memory, Options, Proof, verify};
use flowloom_bpf::{Insn, MapKind, Program, ProgramKind, Want};

pub(crate) use bind::VERDICTS_BYTES;
pub use bind::{Bound, Fit, VERDICTS_MAP, bind};
use calls::Code;
use flow::{Flow, Value, access_bytes};
pub(crate) use plan::Plan;
pub use record::{JIFFY_NS, RECORD_BYTES, RECORD_MAP, Record, Redirect};
use splice::spliced;

/// Offset of `ingress_ifindex` in `struct xdp_md`.
const INGRESS_IFINDEX: i64 = 12;
/// What the interface of a port has in the kernel where routes are asked for: its number plus this.
pub(crate) const FIRST_INDEX: u32 = 1000;
/// Offset of `egress_ifindex` in `struct xdp_md`.
const EGRESS_IFINDEX: i64 = 20;

/// A program that cannot be rewritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// A jump or call leaves the program.
    #[error("instruction {insn} jumps to {target}, the program has {slots} slots")]
    JumpOutside {
        /// The jump.
        insn: usize,
        /// Where it goes.
        target: i64,
        /// Length of the program.
        slots: usize,
    },
    /// A jump would no longer fit.
    #[error("instruction {insn} would have to jump {distance} slots, its offset holds {limit}")]
    JumpTooFar {
        /// The jump, by its index before rewriting.
        insn: usize,
        /// The distance it would need.
        distance: i64,
        /// The largest distance it can hold.
        limit: i64,
    },
    /// A load that may be one of `ingress_ifindex`.
    #[error("instruction {insn} may read `ingress_ifindex`, but `r{register}` is not the context on all paths")]
    PerhapsContext {
        /// The load.
        insn: usize,
        /// The register with the address.
        register: u8,
    },
    /// A load of a part of `ingress_ifindex`.
    #[error(
        "instruction {insn} reads `ingress_ifindex` with {found} bytes at offset {offset} or extends its sign, expected 4 \
         at 12 as they are"
    )]
    PartOfIngress {
        /// The load.
        insn: usize,
        /// Its length.
        found: i64,
        /// Its offset in the context.
        offset: i64,
    },
    /// A call through a map that is not known.
    #[error("instruction {insn} calls `{helper}` with a map that may be one out of another map, or is not known")]
    UnknownDevmap {
        /// The call.
        insn: usize,
        /// What it calls.
        helper: &'static str,
    },
    /// A redirect through a map that holds no ports.
    #[error("instruction {insn} calls `redirect_map` with map `{map}`, which leads nowhere")]
    NotDevmap {
        /// The call.
        insn: usize,
        /// The map.
        map: String,
    },
    /// A redirect to an interface by its index.
    #[error(
        "instruction {insn} calls `redirect`, which wants the index of an interface; ports are bound in devmaps only"
    )]
    RedirectByIndex {
        /// The call.
        insn: usize,
    },
    /// The program asks its loader for something that is not given.
    #[error("instruction {insn}: {want}, which is not to be had")]
    Lack {
        /// The instruction.
        insn: usize,
        /// What it wants.
        want: Want,
    },
    /// A program that is for something else.
    #[error("it is of kind `{kind}`, and only XDP is run")]
    ProgramKind {
        /// Its kind.
        kind: ProgramKind,
    },
    /// A map of a kind that Flowloom does not run.
    #[error("map `{map}` is of kind `{kind}`, which Flowloom does not run")]
    MapKind {
        /// The map.
        map: String,
        /// Its kind.
        kind: MapKind,
    },
    /// A map that redirects and is too large for a table in the record.
    #[error("map `{map}` has {found} entries, more than the run record has room for")]
    MapSize {
        /// The map.
        map: String,
        /// Its entries.
        found: u32,
    },
    /// No room on the stack to remember where a question about routes is.
    #[error("instruction {insn} calls `fib_lookup` in a program that leaves no 8 bytes of its stack free")]
    FullStack {
        /// The call.
        insn: usize,
    },
    /// A question about routes, which know interfaces by their index.
    #[error(
        "instruction {insn} calls `{helper}`, whose routes know interfaces by their index; on interfaces a function knows ports only"
    )]
    RoutesByIndex {
        /// The call.
        insn: usize,
        /// What it calls.
        helper: &'static str,
    },
    /// The program has a map of the name that one of ours needs.
    #[error("the program has a map `{map}` of its own")]
    NameTaken {
        /// The name.
        map: &'static str,
    },
}

impl RewriteError {
    /// The instruction it is about, where it is about one.
    pub fn insn(&self) -> Option<usize> {
        match *self {
            RewriteError::JumpOutside { insn, .. }
            | RewriteError::JumpTooFar { insn, .. }
            | RewriteError::PerhapsContext { insn, .. }
            | RewriteError::PartOfIngress { insn, .. }
            | RewriteError::UnknownDevmap { insn, .. }
            | RewriteError::NotDevmap { insn, .. }
            | RewriteError::Lack { insn, .. }
            | RewriteError::FullStack { insn }
            | RewriteError::RoutesByIndex { insn, .. }
            | RewriteError::RedirectByIndex { insn } => Some(insn),
            RewriteError::NameTaken { .. }
            | RewriteError::MapKind { .. }
            | RewriteError::MapSize { .. }
            | RewriteError::ProgramKind { .. } => None,
        }
    }
}

/// A rewritten program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The program.
    pub program: Program,
    /// Index of the record's map; `None` where the program needed no rewriting and is as it was.
    pub record_map: Option<usize>,
    /// For each slot of the new program, the slot of the old one that it stands for.
    pub origin: Vec<usize>,
    /// Where it finds things.
    pub(crate) plan: Plan,
}

/// Rewrites `program`.
///
/// # Errors
/// The program cannot be rewritten; the error names the instruction.
///
/// # Cost
/// Linear in the program for straight code; about 1.2 kB of memory an instruction.
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

/// Rewrites a program that shares the maps of the one that `plan` was made for.
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
    program.maps.extend(plan.added.iter().cloned());
    Ok((program, origin))
}

/// The code that takes the place of each instruction that needs any.
fn replacements(program: &Program, plan: &Plan) -> Result<Vec<Option<Vec<Insn>>>, RewriteError> {
    let insns = &program.insns;
    let flow = Flow::of(insns)?;
    // Test runs take no programs behind a devmap as such, and plain ones may not ask for the port that they leave by: there is
    // none in a test run, nor in any other engine's, so they find 0.
    let behind_devmap = program.kind == ProgramKind::XdpDevmap;
    if !program.kind.is_xdp() {
        return Err(RewriteError::ProgramKind { kind: program.kind });
    }
    if let Some(lack) = program.lacks.first() {
        return Err(RewriteError::Lack { insn: lack.insn, want: lack.want.clone() });
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
    let mut proof = Proven::NotAsked;
    let mut at = 0;
    while at < insns.len() {
        if flow.reached(at) {
            replacements[at] = match replacement(at) {
                Err(_) if proof.is_never_reached(program, at) => None,
                // The same instruction is the context's on all paths or on none: that is proved of it.
                Err(RewriteError::PerhapsContext { .. }) if proof.is_of_other_memory(program, at) => None,
                other => other?,
            };
        }
        at += insns[at].slots();
    }
    Ok(replacements)
}

/// The proof of a program, made where the dataflow alone would refuse it: code behind a constant of read-only data that is never
/// reached is judged for no target, and the verifier knows the memory of each access better than the dataflow does.
enum Proven {
    NotAsked,
    Asked(Option<Box<Proof>>),
}

impl Proven {
    fn of(&mut self, program: &Program, at: usize) -> Option<&Known> {
        if matches!(self, Proven::NotAsked) {
            *self = Proven::Asked(verify(program, &Options::default()).ok().map(Box::new));
        }
        match self {
            Proven::Asked(Some(proof)) => proof.insns.get(at),
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

/// The offset in the context that the load at `at` is from, where it is from there on all paths.
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

/// Whether the load at `at` is one of `ingress_ifindex`.
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
        // Verifiers let a changed context be read nowhere, so its offset is that of the load.
        Value::Mixed if touches(i64::from(insn.off)) => {
            Err(RewriteError::PerhapsContext { insn: at, register: insn.src })
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
