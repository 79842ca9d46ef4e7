//! Compares what a program does with what the verifier has foretold of it.
//!
//! Tests set the variable `FLOWLOOM_FORETOLD`: then every program that is run is verified first, and a run that touches other
//! memory than the verifier said, takes a way that it said is never taken, or comes where it said nothing leads, is a fault. It
//! is also written to the file that the variable names, where it is seen whatever becomes of the fault.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

use flowloom_engine::EngineError;

use super::memory::Memory;
use super::run::At;
use crate::op::{Op, Reg};
use crate::program::Program;
use crate::verifier::{self, Bytes, Proof};

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
        let (base, off, len) = match op {
            Op::Load { size, base, off, .. }
            | Op::Store { size, base, off, .. }
            | Op::Atomic { size, base, off, .. } => (base, off, size.bytes()),
            _ => return None,
        };
        let address = register(base)?.wrapping_add(off as u64);
        let (places, first) = memory.located(address)?;
        let end = first + len as i64;
        let holds =
            |bytes: &Bytes| bytes.first <= first && end <= bytes.end && first.rem_euclid(bytes.align.into()) == 0;
        let mut foretold = known.memory.iter().filter(|(place, _)| places.is(**place));
        if foretold.any(|(_, bytes)| holds(bytes)) {
            return None;
        }
        Some(format!("it touches {places:?} {first} to {end}, foretold was {:?}", known.memory))
    }

    /// What about the way out of a branch was foretold otherwise.
    pub(super) fn after(&self, at: At, op: Op, next: usize) -> Option<String> {
        let Op::Branch { off, .. } = op else { return None };
        let ways = self.proofs.get(at.program)?.as_ref()?.insns.get(at.slot)?.ways;
        let jumps = next != at.slot + 1;
        let is_known = off == 0 || if jumps { ways.jumps } else { ways.falls };
        (!is_known).then(|| {
            format!("it {} where that was foretold never to be", if jumps { "jumps" } else { "falls through" })
        })
    }
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
        let foretold = Foretold::of([program(text)].iter());
        let branch = code[2].unwrap_or(Op::Exit);
        let at = At { program: 0, slot: 2 };
        assert_eq!(foretold.after(at, branch, 3), None);
        assert!(foretold.after(at, branch, 4).is_some_and(|what| what.contains("it jumps")));
    }
}
