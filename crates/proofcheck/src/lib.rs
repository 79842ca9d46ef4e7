// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares runs of the interpreter with the verifier's proof.
//!
//! A run stops with a fault if it
//!
//! - accesses other memory than the proof says, itself or through a helper, or accesses it differently,
//! - takes an edge of a branch or reaches an instruction that the proof says is unreachable,
//! - exceeds the trip count of a loop.
//!
//! ```
//! use std::sync::Arc;
//! use flowloom_isa::{Program, asm};
//! use flowloom_vm::Interpreter;
//!
//! let insns = asm::assemble("r0 = 2\nexit", &[])?;
//! let program = Arc::new(Program { section: "xdp".into(), insns, ..Program::default() });
//! let interpreter = flowloom_proofcheck::checked(Interpreter::new(program)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

use flowloom_isa::Program;
use flowloom_isa::op::{Op, Reg};
use flowloom_verifier::trips::{BackEdges, Loop, Trips};
use flowloom_verifier::{Bytes, Known, MapId, Memory, Proof};
use flowloom_vm::{Access, Allowed, At, Interpreter, Observer, Region, Watch};

/// Compares each run of the interpreter with the proofs of its program and of its siblings, the targets of tail calls.
/// Programs that are not verified are not compared.
pub fn checked(interpreter: Interpreter) -> Interpreter {
    let program = std::sync::Arc::clone(interpreter.program());
    let siblings: Vec<Program> = program.siblings.iter().map(|sibling| sibling.as_program(&program)).collect();
    let observer = ProofObserver::of(std::iter::once(&*program).chain(&siblings));
    interpreter.with_observer(Box::new(observer))
}

/// A program with its proof.
#[derive(Debug)]
struct Proved {
    proof: Proof,
    /// By slot, the parts of the proof that are compared.
    facts: Vec<Facts>,
    code: Vec<Option<Op>>,
    back_edges: BackEdges,
}

/// What the proof says about an instruction, as far as it is compared; small, since each instruction of a run reads it.
#[derive(Debug)]
struct Facts {
    is_reached: bool,
    jumps: bool,
    falls: bool,
    probes: bool,
    memory: Box<[(Memory, Bytes)]>,
}

impl Facts {
    fn of(known: &Known) -> Facts {
        Facts {
            is_reached: known.reached,
            jumps: known.edges.jumps,
            falls: known.edges.falls,
            probes: known.probes,
            memory: known.memory.iter().map(|(memory, bytes)| (*memory, *bytes)).collect(),
        }
    }
}

impl Facts {
    /// What has to be watched of an access of this many bytes at an offset from a register.
    fn watch(&self, (base, off, len): (Reg, i16, usize), (reads, writes): (bool, bool)) -> Watch {
        if base == Reg::FP {
            let access = Access { region: Region::Stack { up: 0 }, first: off.into(), len, reads, writes };
            return if compare(self, access).is_ok() { Watch::Nothing } else { Watch::Everything };
        }
        let allowed = |(memory, bytes): &(Memory, Bytes)| {
            let Bytes { first, end, align, touch, .. } = *bytes;
            let region = region(*memory).filter(|_| touch.reads >= reads && touch.writes >= writes)?;
            Some(Allowed { region, first, end, align })
        };
        let allowed: Vec<Allowed> = self.memory.iter().filter_map(allowed).collect();
        if allowed.is_empty() { Watch::Everything } else { Watch::Accesses(allowed.into()) }
    }
}

impl Proved {
    /// `None` for a program that is not verified.
    fn of(program: &Program) -> Option<Proved> {
        let proof = flowloom_verifier::verify(program, &flowloom_verifier::Options::default()).ok()?;
        let code = flowloom_isa::decoded(program).ok()?;
        let back_edges = BackEdges::of(&code, |_, _| true);
        let facts = proof.insns.iter().map(Facts::of).collect();
        Some(Proved { proof, facts, code, back_edges })
    }
}

/// The proofs of a program and its siblings, and the trip counts of the current run.
#[derive(Debug, Default)]
pub struct ProofObserver {
    /// `None` for a program that was not verified.
    proved: Vec<Option<Proved>>,
    trips: Trips,
}

impl ProofObserver {
    /// Verifies these programs.
    pub fn of<'p>(programs: impl Iterator<Item = &'p Program>) -> ProofObserver {
        ProofObserver { proved: programs.map(Proved::of).collect(), trips: Trips::default() }
    }

    /// Whether trip counts are compared in any program.
    fn has_loops(&self) -> bool {
        self.proved.iter().flatten().any(|proved| !proved.proof.loops.is_empty())
    }

    fn facts(&self, at: At) -> Option<&Facts> {
        self.proved.get(at.program)?.as_ref()?.facts.get(at.slot)
    }
}

impl Observer for ProofObserver {
    /// Instructions whose executions cannot differ from the proof need not be watched: arithmetic, branches both of
    /// whose edges are feasible, accesses at fixed bytes of the stack. Of accesses to one memory, the run compares the
    /// bounds.
    fn watch(&self, at: At, op: Op) -> Watch {
        let Some(Some(proved)) = self.proved.get(at.program) else {
            // The trip counts of another program end where this one is left.
            return if self.has_loops() { Watch::Everything } else { Watch::Nothing };
        };
        let Some(facts) = proved.facts.get(at.slot).filter(|facts| facts.is_reached) else { return Watch::Everything };
        let is_counted = |slot| proved.proof.loops.contains_key(&slot);
        if op.successors(at.slot).any(is_counted) {
            return Watch::Everything;
        }
        match op {
            Op::Branch { off, .. } if off == 0 || facts.jumps && facts.falls => Watch::Nothing,
            Op::Branch { .. } | Op::Call { .. } => Watch::Everything,
            Op::CallLocal { .. } | Op::Exit if self.has_loops() => Watch::Everything,
            Op::Load { size, base, off, .. } => facts.watch((base, off, size.bytes()), (true, false)),
            Op::Store { size, base, off, .. } => facts.watch((base, off, size.bytes()), (false, true)),
            Op::Atomic { size, base, off, .. } => facts.watch((base, off, size.bytes()), (true, true)),
            _ => Watch::Nothing,
        }
    }

    fn begin(&mut self) {
        self.trips = Trips::default();
    }

    fn before(&mut self, at: At, _: Op, access: Option<Access>) -> Result<(), String> {
        match self.facts(at) {
            Some(facts) if !facts.is_reached => Err("the proof says that no path reaches this instruction".to_owned()),
            Some(facts) => access.map_or(Ok(()), |access| compare(facts, access)),
            None => Ok(()),
        }
    }

    fn after(&mut self, at: At, op: Op, next: At, depth: usize, accesses: &[Access]) -> Result<(), String> {
        if at.program != next.program {
            // The loops of the other program are different ones.
            self.trips = Trips::default();
            return Ok(());
        }
        let Some(proved) = self.proved.get(at.program).and_then(Option::as_ref) else { return Ok(()) };
        let Some(facts) = proved.facts.get(at.slot) else { return Ok(()) };
        accesses.iter().try_for_each(|access| compare(facts, *access))?;
        if let Op::Branch { off, .. } = op {
            let jumps = next.slot != at.slot + 1;
            let is_feasible = off == 0 || if jumps { facts.jumps } else { facts.falls };
            if !is_feasible {
                let edge = if jumps { "jumps" } else { "falls through" };
                return Err(format!("the branch {edge}; the proof says that it never does"));
            }
        }
        // Trips are counted only at the headers of loops.
        if proved.proof.loops.is_empty() {
            return Ok(());
        }
        self.trips.leave(depth);
        let Some(most) = proved.proof.loops.get(&next.slot) else { return Ok(()) };
        let header = Loop { depth, head: next.slot };
        self.trips.follow(proved.back_edges.are_taken(&proved.code, at.slot, next.slot), header);
        let found = self.trips.of(header);
        match most {
            Some(most) if *most < found => {
                Err(format!("the trip count of the loop at {} is {found}; the proof says at most {most}", next.slot))
            }
            _ => Ok(()),
        }
    }
}

/// Compares an access with the proof of its instruction.
fn compare(facts: &Facts, access: Access) -> Result<(), String> {
    let Access { region, first, len, reads, writes } = access;
    let end = first + len as i64;
    let holds = |bytes: &Bytes| {
        let is_inside = bytes.first <= first && end <= bytes.end && first.rem_euclid(bytes.align.into()) == 0;
        is_inside && bytes.touch.reads >= reads && bytes.touch.writes >= writes
    };
    let mut proved = facts.memory.iter().filter(|(memory, _)| is_region(*memory, region));
    if proved.any(|(_, bytes)| holds(bytes)) || facts.probes && !writes {
        return Ok(());
    }
    let verb = if writes { "writes" } else { "reads" };
    Err(format!("it {verb} {region:?} {first} to {end}; the proof says {:?}", facts.memory))
}

/// The region of the run that a region of the verifier is, if it is one.
fn region(memory: Memory) -> Option<Region> {
    match memory {
        Memory::Context => Some(Region::Context),
        Memory::Packet => Some(Region::Packet),
        Memory::Metadata => Some(Region::Metadata),
        Memory::Record => Some(Region::Record),
        Memory::Key(_) => Some(Region::Key),
        Memory::Value(MapId::Of(map)) => Some(Region::Value(map)),
        Memory::Stack { up } => Some(Region::Stack { up }),
        _ => None,
    }
}

/// True if a region of the verifier includes a region of the run.
fn is_region(memory: Memory, region: Region) -> bool {
    match (memory, region) {
        (Memory::Context, Region::Context)
        | (Memory::Packet, Region::Packet)
        | (Memory::Metadata, Region::Metadata)
        | (Memory::Record, Region::Record)
        | (Memory::Key(_), Region::Key)
        | (Memory::Value(MapId::In(_)), Region::Value(_)) => true,
        (Memory::Stack { up: proved }, Region::Stack { up }) => proved == up,
        (Memory::Value(MapId::Of(proved)), Region::Value(map)) => proved == map,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use flowloom_isa::asm;

    /// A program, its decoded instructions and the observer of its runs.
    fn observed(text: &str) -> (Vec<Option<Op>>, ProofObserver) {
        let text = format!(".program f\n{text}");
        let program = asm::program("f.bpf", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let code = flowloom_isa::decoded(&program).unwrap_or_else(|error| panic!("{error}"));
        (code, ProofObserver::of([program].iter()))
    }

    fn at(slot: usize) -> At {
        At { program: 0, slot }
    }

    fn access(first: i64, len: usize, reads: bool, writes: bool) -> Access {
        Access { region: Region::Stack { up: 0 }, first, len, reads, writes }
    }

    fn assert_differs(result: Result<(), String>, expected: &str) {
        assert!(result.as_ref().is_err_and(|what| what.contains(expected)), "{result:?}, expected {expected}");
    }

    #[test]
    fn accesses_and_edges_that_the_proof_lacks_are_found() {
        let (code, mut proof) =
            observed("*(u64 *)(r10 - 8) = 0\nr0 = *(u32 *)(r10 - 8)\nif r0 == 1 goto +1\nexit\nr0 = 2\nexit");
        let op = |slot: usize| code[slot].unwrap_or(Op::Exit);
        assert_eq!(proof.before(at(1), op(1), Some(access(-8, 4, true, false))), Ok(()));
        assert_differs(proof.before(at(1), op(1), Some(access(-16, 4, true, false))), "the proof says");
        assert_differs(proof.before(at(1), op(1), Some(access(-8, 4, false, true))), "it writes");
        assert_differs(proof.before(at(4), op(4), None), "no path");
        assert_eq!(proof.after(at(2), op(2), at(3), 0, &[]), Ok(()));
        assert_differs(proof.after(at(2), op(2), at(4), 0, &[]), "jumps");
    }

    #[test]
    fn accesses_of_helpers_are_compared() {
        let (code, mut proof) = observed(
            "*(u64 *)(r10 - 8) = 7\nr1 = r10\nr1 += -8\nr2 = 8\nr3 = r10\nr3 += -8\nr4 = 0\nr5 = 0\ncall csum_diff\nr0 = 2\nexit",
        );
        let slot = code.iter().position(|op| matches!(op, Some(Op::Call { .. }))).unwrap_or_default();
        let call = code[slot].unwrap_or(Op::Exit);
        let mut after = |access: Access| proof.after(at(slot), call, at(slot + 1), 0, &[access]);
        assert_eq!(after(access(-8, 8, true, false)), Ok(()));
        assert_differs(after(access(-16, 8, true, false)), "it reads");
        assert_differs(after(access(-8, 8, false, true)), "it writes");
    }

    #[test]
    fn excessive_trip_counts_are_found() {
        let (code, mut proof) = observed("r1 = 0\nagain: r1 += 1\nif r1 < 4 goto again\nr0 = 2\nexit");
        let (entry, branch) = (code[0].unwrap_or(Op::Exit), code[2].unwrap_or(Op::Exit));
        for _ in 0..2 {
            assert_eq!(proof.after(at(0), entry, at(1), 0, &[]), Ok(()));
            for _ in 0..3 {
                assert_eq!(proof.after(at(2), branch, at(1), 0, &[]), Ok(()));
            }
        }
        assert_differs(proof.after(at(2), branch, at(1), 0, &[]), "is 4; the proof says at most 3");
    }
}
