//! Compares the run of a program with its proof.
//!
//! Tests set the variable `FLOWLOOM_FORETOLD`: then every program is verified before it runs, and it is a fault if a
//! run
//!
//! - accesses other memory than the proof says, itself or through a helper, or accesses it differently,
//! - takes an edge of a branch or reaches an instruction that the proof says is unreachable,
//! - exceeds the trip count of a loop.
//!
//! It is also appended to the file that the variable names, where it is seen whatever becomes of the fault.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

use flowloom_engine::EngineError;

use super::memory::{Memory, Touched};
use super::run::At;
use crate::op::{Op, Reg};
use crate::program::Program;
use crate::verifier::trips::{Loop, Trips};
use crate::verifier::{self, Bytes, Known, Proof, Touch};

/// The proofs of a program and its siblings; empty for those that were not verified.
#[derive(Debug, Default)]
pub(super) struct Foretold {
    proofs: Vec<Option<Proof>>,
}

/// The file to which differences are appended, if runs are compared.
fn journal() -> Option<&'static PathBuf> {
    static JOURNAL: OnceLock<Option<PathBuf>> = OnceLock::new();
    JOURNAL.get_or_init(|| std::env::var_os("FLOWLOOM_FORETOLD").map(PathBuf::from)).as_ref()
}

/// Whether runs are compared.
pub(super) fn is_wanted() -> bool {
    journal().is_some()
}

/// Appends a difference to the file. If that fails, the fault still reports it.
pub(super) fn write_down(program: &str, what: &EngineError) {
    if let Some(path) = journal() {
        let line = format!("{program}: {what}\n");
        let file = OpenOptions::new().create(true).append(true).open(path);
        drop(file.and_then(|mut file| file.write_all(line.as_bytes())));
    }
}

impl Foretold {
    /// The proofs of these programs.
    pub(super) fn of<'p>(programs: impl Iterator<Item = &'p Program>) -> Foretold {
        let verified = programs.map(|program| verifier::verify(program, &verifier::Options::default()).ok());
        Foretold { proofs: verified.collect() }
    }

    /// A difference at the instruction that is about to run.
    pub(super) fn before(
        &self,
        at: At,
        op: Op,
        memory: &Memory,
        register: impl Fn(Reg) -> Option<u64>,
    ) -> Option<String> {
        let known = self.proofs.get(at.program)?.as_ref()?.insns.get(at.slot)?;
        if !known.reached {
            return Some("no path was foretold to lead here".to_owned());
        }
        let (base, off, size, touch) = match op {
            Op::Load { size, base, off, .. } => (base, off, size, Touch::READ),
            Op::Store { size, base, off, .. } => (base, off, size, Touch::WRITE),
            Op::Atomic { size, base, off, .. } => (base, off, size, Touch::BOTH),
            _ => return None,
        };
        let address = register(base)?.wrapping_add(off as u64);
        touched(known, memory, Touched { address, len: size.bytes(), touch })
    }

    /// A difference at the instruction that has run, or at the edge it takes, in a function at a call depth.
    pub(super) fn after(
        &self,
        at: At,
        op: Op,
        next: At,
        depth: usize,
        memory: &mut Memory,
        trips: &mut Trips,
    ) -> Option<String> {
        let by_helper = memory.take_touched();
        if at.program != next.program {
            // The loops of the other program are different ones.
            *trips = Trips::default();
            return None;
        }
        let proof = self.proofs.get(at.program)?.as_ref()?;
        let known = proof.insns.get(at.slot)?;
        if let Some(what) = by_helper.into_iter().find_map(|one| touched(known, memory, one)) {
            return Some(what);
        }
        if let Op::Branch { off, .. } = op {
            let jumps = next.slot != at.slot + 1;
            let is_known = off == 0 || if jumps { known.ways.jumps } else { known.ways.falls };
            if !is_known {
                let way = if jumps { "jumps" } else { "falls through" };
                return Some(format!("it {way} where that was foretold never to be"));
            }
        }
        trips.leave(depth);
        let most = proof.loops.get(&next.slot)?;
        let head = Loop { depth, head: next.slot };
        trips.follow(at.slot, Some(op), head);
        let found = trips.of(head);
        most.filter(|most| *most < found)
            .map(|most| format!("the loop at {} is begun again {found} times, foretold was {most}", next.slot))
    }
}

/// A difference of one access from the proof of its instruction.
fn touched(known: &Known, memory: &Memory, Touched { address, len, touch }: Touched) -> Option<String> {
    let (places, first) = memory.located(address)?;
    let end = first + len as i64;
    let holds = |bytes: &Bytes| {
        let is_inside = bytes.first <= first && end <= bytes.end && first.rem_euclid(bytes.align.into()) == 0;
        is_inside && bytes.touch.reads >= touch.reads && bytes.touch.writes >= touch.writes
    };
    let mut foretold = known.memory.iter().filter(|(place, _)| places.is(**place));
    if foretold.any(|(_, bytes)| holds(bytes)) || known.probes && !touch.writes {
        return None;
    }
    let verb = if touch.writes { "writes" } else { "reads" };
    Some(format!("it {verb} {places:?} {first} to {end}, foretold was {:?}", known.memory))
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::asm;
    use crate::interp::maps::Map;

    fn program(text: &str) -> Program {
        asm::program("f.bpf", &format!(".program f\n{text}")).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The difference at one program's instruction, by the proof of another.
    fn said(foretold: &str, at: usize, op: Op, address: u64) -> Option<String> {
        let foretold = Foretold::of([program(foretold)].iter());
        let mut memory = Memory::new(Vec::<Map>::new(), 1);
        memory.start(&[0; 60], 0);
        foretold.before(At { program: 0, slot: at }, op, &memory, |_| Some(address))
    }

    #[test]
    fn what_was_not_foretold_is_noticed() {
        let text = "*(u64 *)(r10 - 8) = 0\nr0 = *(u32 *)(r10 - 8)\nif r0 == 1 goto +1\nexit\nr0 = 2\nexit";
        let code = crate::interp::decoded(&program(text)).unwrap_or_else(|error| panic!("{error}"));
        let load = code[1].unwrap_or(Op::Exit);
        let top = super::super::memory::frame_pointer(0);
        assert_eq!(said(text, 1, load, top), None);
        assert!(said(text, 1, load, top - 8).is_some_and(|what| what.contains("foretold was")));
        assert!(said(text, 4, Op::Exit, 0).is_some_and(|what| what.contains("no path")));
        // The same bytes, written.
        let store = code[0].unwrap_or(Op::Exit);
        assert!(said(text, 1, store, top).is_some_and(|what| what.contains("it writes")));
        let foretold = Foretold::of([program(text)].iter());
        let branch = code[2].unwrap_or(Op::Exit);
        let at = At { program: 0, slot: 2 };
        let mut memory = Memory::new(Vec::<Map>::new(), 1);
        let mut after =
            |slot| foretold.after(at, branch, At { program: 0, slot }, 0, &mut memory, &mut Trips::default());
        assert_eq!(after(3), None);
        assert!(after(4).is_some_and(|what| what.contains("it jumps")));
    }

    #[test]
    fn what_helpers_touch_is_noticed() {
        let text = "*(u64 *)(r10 - 8) = 7\nr1 = r10\nr1 += -8\nr2 = 8\nr3 = r10\nr3 += -8\nr4 = 0\nr5 = 0\ncall csum_diff\nr0 = 2\nexit";
        let foretold = Foretold::of([program(text)].iter());
        let code = crate::interp::decoded(&program(text)).unwrap_or_else(|error| panic!("{error}"));
        let slot = code.iter().position(|op| matches!(op, Some(Op::Call { .. }))).unwrap_or_default();
        let (at, next) = (At { program: 0, slot }, At { program: 0, slot: slot + 1 });
        let call = code[slot].unwrap_or(Op::Exit);
        let mut memory = Memory::new(Vec::<Map>::new(), 1);
        memory.start(&[0; 60], 0);
        memory.watch(true);
        let top = super::super::memory::frame_pointer(0);
        let after = |memory: &mut Memory| foretold.after(at, call, next, 0, memory, &mut Trips::default());
        assert!(memory.read(top - 8, 8).is_ok());
        assert_eq!(after(&mut memory), None);
        // Consecutive bytes are one access.
        assert!((0..8).all(|at| memory.read(top - 8 + at, 1).is_ok()));
        assert_eq!(after(&mut memory), None);
        assert!(memory.read(top - 16, 8).is_ok());
        assert!(after(&mut memory).is_some_and(|what| what.contains("it reads")));
        assert!(memory.write_any(top - 8, 8).is_ok());
        assert!(after(&mut memory).is_some_and(|what| what.contains("it writes")));
        assert_eq!(after(&mut memory), None);
    }

    #[test]
    fn rounds_too_many_are_noticed() {
        let text = "r1 = 0\nagain: r1 += 1\nif r1 < 4 goto again\nr0 = 2\nexit";
        let foretold = Foretold::of([program(text)].iter());
        let code = crate::interp::decoded(&program(text)).unwrap_or_else(|error| panic!("{error}"));
        let mut memory = Memory::new(Vec::<Map>::new(), 1);
        let mut trips = Trips::default();
        let (branch, entry) = (code[2].unwrap_or(Op::Exit), code[0].unwrap_or(Op::Exit));
        let mut follow = |slot, op, next| {
            foretold.after(At { program: 0, slot }, op, At { program: 0, slot: next }, 0, &mut memory, &mut trips)
        };
        for _ in 0..2 {
            assert_eq!(follow(0, entry, 1), None);
            for _ in 0..3 {
                assert_eq!(follow(2, branch, 1), None);
            }
        }
        assert!(follow(2, branch, 1).is_some_and(|what| what.contains("4 times, foretold was 3")));
    }
}
