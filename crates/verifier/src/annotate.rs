// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts about each instruction, as text.

use super::proof::{Bytes, Contents, Lookup, Memory, Proof, Sink, Touch};
use super::text;
use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;

/// The fields of `struct xdp_md`, four bytes each.
const FIELDS: [&str; 6] = ["data", "data_end", "data_meta", "ingress_ifindex", "rx_queue_index", "egress_ifindex"];

fn memory(program: &Program, memory: Memory) -> String {
    match memory {
        Memory::Context => "the context".to_owned(),
        Memory::Stack { up } => text::stack(up.into()),
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

/// The byte, or the first and the last one; for a shorter access also its length and the range of its start.
fn span(bytes: &Bytes, len: Option<i64>) -> String {
    let all = match bytes.end - bytes.first {
        ..=1 => format!("byte {}", bytes.first),
        _ => format!("bytes {} to {}", bytes.first, bytes.end - 1),
    };
    match len.filter(|len| *len < bytes.end - bytes.first) {
        Some(len) if bytes.align > 1 => format!("{len} of {all}, at multiples of {},", bytes.align),
        Some(len) => format!("{len} of {all}"),
        None => all,
    }
}

/// The bytes that leave the program and their contents, as text.
pub(super) fn sent(program: &Program, to: Sink, what: Contents, (first, end): (i64, i64)) -> String {
    let bytes = if end - first == 1 { format!("byte {first}") } else { format!("bytes {first} to {}", end - 1) };
    let to = match to {
        Sink::Key(map) => format!("a key of {}", text::map_name(program, map)),
        Sink::Value(map) => format!("a value of {}", text::map_name(program, map)),
        Sink::Event(map) => format!("a record in {}", text::map_name(program, map)),
        Sink::Packet => "what is put into a packet".to_owned(),
    };
    let is_one = end - first == 1;
    match (what, is_one) {
        (Contents::Unwritten, true) => format!("{bytes} of {to} was never written"),
        (Contents::Unwritten, false) => format!("{bytes} of {to} were never written"),
        (Contents::Address, true) => format!("{bytes} of {to} is part of an address"),
        (Contents::Address, false) => format!("{bytes} of {to} are an address"),
    }
}

impl Proof {
    /// The places where bytes that depend on the kernel leave the program, with their instructions.
    pub fn kernel_dependent_text(&self, program: &Program) -> Vec<(usize, String)> {
        self.kernel_dependent().map(|(at, to, what, bytes)| (at, sent(program, to, what, bytes))).collect()
    }

    /// The facts about the instruction at `at`: the memory that it accesses, the edges it takes, and remarks.
    pub fn notes(&self, program: &Program, at: usize) -> Vec<String> {
        let Some(known) = self.insns.get(at) else { return Vec::new() };
        if !known.reached {
            return vec!["never reached".to_owned()];
        }
        let op = Op::decode(&program.insns, at).ok();
        let mut notes = Vec::new();
        if let Some(times) = self.loops.get(&at) {
            notes.push(match times {
                Some(1) => "begins a loop: comes here again once at most".to_owned(),
                Some(times) => format!("begins a loop: comes here again {times} times at most"),
                None => "begins a loop without a known bound".to_owned(),
            });
        }
        let len = match op {
            Some(Op::Load { size, .. } | Op::Store { size, .. } | Op::Atomic { size, .. }) => Some(size.bytes() as i64),
            _ => None,
        };
        for (place, bytes) in &known.memory {
            let field = usize::try_from(bytes.first / 4).ok().and_then(|field| FIELDS.get(field));
            notes.push(match (place, field) {
                (Memory::Context, Some(field)) if bytes.end == bytes.first + 4 => format!("reads `{field}`"),
                _ => format!("{} {} of {}", verb(bytes.touch), span(bytes, len), memory(program, *place)),
            });
        }
        if let (Some(Op::Call { .. }), false) = (op, known.maps.is_empty()) {
            let maps: Vec<String> = known.maps.iter().map(|map| text::map_name(program, *map)).collect();
            notes.push(format!("on {}", maps.join(" or ")));
        }
        if let Lookup::Outside(key) = known.lookup {
            let entries = known.maps.first().and_then(|map| text::def(program, *map)).map_or(0, |def| def.max_entries);
            notes.push(format!("always fails: key {key} is outside of {entries} entries"));
        }
        if let Some(Op::Branch { .. }) = op {
            match (known.edges.jumps, known.edges.falls) {
                (true, false) => notes.push("always jumps".to_owned()),
                (false, true) => notes.push("never jumps".to_owned()),
                _ => {}
            }
        }
        if self.copies_at(program, at) {
            notes.push("may also copy bytes of the packet".to_owned());
        }
        if known.leaks {
            notes.push("an address becomes a number".to_owned());
        }
        if known.probes {
            notes.push("may also read any address".to_owned());
        }
        for ((to, what), bytes) in &known.sends {
            notes.push(format!("kernel-dependent contents: {}", sent(program, *to, *what, *bytes)));
        }
        if known.reads_unwritten {
            notes.push("may read bytes that were never written".to_owned());
        }
        notes
    }

    /// Whether helpers may copy from or to the packet at offsets that are not part of [`window`](Proof::window).
    pub fn copies(&self, program: &Program) -> bool {
        (0..self.insns.len()).any(|at| self.copies_at(program, at))
    }

    fn copies_at(&self, program: &Program, at: usize) -> bool {
        let is_reached = self.insns.get(at).is_some_and(|known| known.begins && known.reached);
        is_reached
            && matches!(
                Op::decode(&program.insns, at),
                Ok(Op::Call {
                    helper: helper::XDP_LOAD_BYTES
                        | helper::XDP_STORE_BYTES
                        | helper::PERF_EVENT_OUTPUT
                        | helper::FL_CLONE
                        | helper::FL_PARSE
                })
            )
    }
}
