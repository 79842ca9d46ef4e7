//! Compares what a program does with what the verifier has foretold of it.
//!
//! Tests set the variable `FLOWLOOM_FORETOLD`: then every program that is run is verified first, and a run is a fault that
//!
//! - touches other memory than the verifier said, by itself or through a helper, or touches it otherwise,
//! - takes a way out of a branch that it said is never taken, or comes where it said nothing leads,
//! - goes round a loop more often than it said.
//!
//! It is also written to the file that the variable names, where it is seen whatever becomes of the fault.

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

/// What is foretold of a program and its siblings; nothing of those that were not verified.
#[derive(Debug, Default)]
pub(super) struct Foretold {
    proofs: Vec<Option<Proof>>,
}

/// Where all runs are to be compared, the file that is told what they did otherwise.
fn journal() -> Option<&'static PathBuf> {
    static JOURNAL: OnceLock<Option<PathBuf>> = OnceLock::new();
    JOURNAL.get_or_init(|| std::env::var_os("FLOWLOOM_FORETOLD").map(PathBuf::from)).as_ref()
}

/// Whether all runs are to be compared.
pub(super) fn is_wanted() -> bool {
    journal().is_some()
}

/// Writes down what a program did otherwise. Where that cannot be, the fault still says it.
pub(super) fn write_down(program: &str, what: &EngineError) {
    if let Some(path) = journal() {
        let line = format!("{program}: {what}\n");
        let file = OpenOptions::new().create(true).append(true).open(path);
        drop(file.and_then(|mut file| file.write_all(line.as_bytes())));
    }
}

impl Foretold {
    /// What the verifier says of these.
    pub(super) fn of<'p>(programs: impl Iterator<Item = &'p Program>) -> Foretold {
        let verified = programs.map(|program| verifier::verify(program, &verifier::Options::default()).ok());
        Foretold { proofs: verified.collect() }
    }

    /// What about the instruction that is about to run was foretold otherwise.
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

    /// What about the instruction that has run was foretold otherwise, and about where it leads, in a function so many calls deep.
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
            // The loops of the other program are others.
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

/// What about one access was foretold otherwise of its instruction.
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

    /// What is said of one program's instruction, from what is foretold of another.
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
        // One byte after the other is one access.
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
