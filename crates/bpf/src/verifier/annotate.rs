//! What was found out of each instruction, as people read it.

use super::proof::{Bytes, Memory, Proof, Touch};
use super::text;
use crate::op::Op;
use crate::program::Program;

/// Memory as text.
fn memory(program: &Program, memory: Memory) -> String {
    match memory {
        Memory::Context => "the context".to_owned(),
        Memory::Stack { up: 0 } => "the stack".to_owned(),
        Memory::Stack { up: 1 } => "the caller's stack".to_owned(),
        Memory::Stack { up } => format!("the stack of the function {up} calls up"),
        Memory::Packet => "the packet".to_owned(),
        Memory::Metadata => "the metadata".to_owned(),
        Memory::Value(map) => format!("a value of {}", text::map_name(program, map)),
        Memory::Key(map) => format!("a key of {}", text::map_name(program, map)),
        Memory::Record => "a record".to_owned(),
    }
}

fn verb(touch: Touch) -> &'static str {
    match touch {
        Touch { writes: false, .. } => "reads",
        Touch { reads: false, .. } => "writes",
        Touch { .. } => "changes",
    }
}

/// One byte or from the first to the last.
fn span(bytes: &Bytes) -> String {
    match bytes.end - bytes.first {
        ..=1 => format!("byte {}", bytes.first),
        _ => format!("bytes {} to {}", bytes.first, bytes.end - 1),
    }
}

impl Proof {
    /// What is known of the instruction at `at`: the memory it touches, the ways it goes, what stands out.
    pub fn notes(&self, program: &Program, at: usize) -> Vec<String> {
        let Some(known) = self.insns.get(at) else { return Vec::new() };
        if !known.reached {
            return vec!["never reached".to_owned()];
        }
        let mut notes: Vec<String> = known
            .memory
            .iter()
            .filter(|(place, _)| **place != Memory::Context)
            .map(|(place, bytes)| format!("{} {} of {}", verb(bytes.touch), span(bytes), memory(program, *place)))
            .collect();
        if let Ok(Op::Branch { .. }) = Op::decode(&program.insns, at) {
            match (known.ways.jumps, known.ways.falls) {
                (true, false) => notes.push("always jumps".to_owned()),
                (false, true) => notes.push("never jumps".to_owned()),
                _ => {}
            }
        }
        if let Some(times) = self.loops.get(&at) {
            notes.push(format!("begins a loop: comes here again {times} times at most"));
        }
        if known.leaks {
            notes.push("an address becomes a number".to_owned());
        }
        if known.reads_unwritten {
            notes.push("may read bytes that were never written".to_owned());
        }
        notes
    }
}
