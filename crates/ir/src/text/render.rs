// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders dataflow as text, one node a line, so that two forms of a program can be compared with `diff`.
//!
//! ```text
//!   program simple_firewall
//!   map 0 flows hash key 16 value 4 entries 65536
//!   call 0 map_lookup_elem map 0, read 16
//!   v0 16 @5 length                        node, bits, the instruction it was made for, operation
//!   v1 8 @6 byte 12
//!   v3 1 @9 eq v1 v2
//!   v4 64 @12 call 0 if v3: v1 v2
//!   v5 32 @14 load w if v3: v4 v6
//!   verdict v7
//!   packet 14 v8                           a byte of the packet that leaves
//! ```

use std::fmt;

use flowloom_isa::helpers;
use flowloom_isa::op::{AtomicOp, Size};

use crate::dataflow::{Argument, Dataflow, Pattern, Reach, Reaching};
use crate::graph::{Binary, Compare, Effect, Id, Input, Kind};

pub(crate) const BINARY: [(Binary, &str); 13] = [
    (Binary::Add, "add"),
    (Binary::Sub, "sub"),
    (Binary::Mul, "mul"),
    (Binary::Div, "div"),
    (Binary::SignedDiv, "sdiv"),
    (Binary::Mod, "mod"),
    (Binary::SignedMod, "smod"),
    (Binary::And, "and"),
    (Binary::Or, "or"),
    (Binary::Xor, "xor"),
    (Binary::ShiftLeft, "shl"),
    (Binary::ShiftRight, "shr"),
    (Binary::SignedShiftRight, "sar"),
];

pub(crate) const COMPARE: [(Compare, &str); 3] =
    [(Compare::Equal, "eq"), (Compare::Below, "below"), (Compare::SignedBelow, "sbelow")];

pub(super) const SIZES: [(Size, &str); 4] = [(Size::B, "b"), (Size::H, "h"), (Size::W, "w"), (Size::Dw, "dw")];

pub(super) const ATOMIC: [(AtomicOp, &str); 10] = [
    (AtomicOp::Add { fetch: false }, "add"),
    (AtomicOp::Add { fetch: true }, "fetch_add"),
    (AtomicOp::Or { fetch: false }, "or"),
    (AtomicOp::Or { fetch: true }, "fetch_or"),
    (AtomicOp::And { fetch: false }, "and"),
    (AtomicOp::And { fetch: true }, "fetch_and"),
    (AtomicOp::Xor { fetch: false }, "xor"),
    (AtomicOp::Xor { fetch: true }, "fetch_xor"),
    (AtomicOp::Xchg, "exchange"),
    (AtomicOp::CmpXchg, "compare_exchange"),
];

fn name<T: PartialEq>(names: &[(T, &'static str)], of: &T) -> &'static str {
    names.iter().find(|(known, _)| known == of).map_or("?", |(_, name)| name)
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.index())
    }
}

fn listed(ids: &[Id]) -> String {
    ids.iter().map(Id::to_string).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Dataflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name)?;
        for (number, map) in self.maps.iter().enumerate() {
            let kind = map.kind.name().map_or_else(|| map.kind.number().to_string(), str::to_owned);
            writeln!(
                f,
                "map {number} {} {kind} key {} value {} entries {}",
                map.name, map.key_bytes, map.value_bytes, map.max_entries
            )?;
        }
        for (number, pattern) in self.patterns.iter().enumerate() {
            writeln!(f, "call {number} {}", rendered(pattern))?;
        }
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            writeln!(f, "{id} {} @{} {}", node.bits, self.graph.insn(id), what(node.kind, &node.args))?;
        }
        let ending = &self.ending;
        writeln!(f, "verdict {}\nhead {}\ntail {}\nslow {}", ending.verdict, ending.head, ending.tail, ending.slow)?;
        if let Some(kept) = ending.kept {
            writeln!(f, "kept {kept}")?;
        }
        for overlay in &ending.overlays {
            writeln!(f, "overlay {}", overlay.base)?;
            for (at, laid) in &overlay.bytes {
                writeln!(f, "laid {at} {} {}", laid.when, laid.byte)?;
            }
        }
        for (at, byte) in &ending.packet {
            writeln!(f, "packet {at} {byte}")?;
        }
        for (read, writes) in &self.waits {
            writeln!(f, "wait {read}: {}", listed(writes))?;
        }
        for (lookup, when) in &self.wanted {
            writeln!(f, "wanted {lookup}: {when}")?;
        }
        for Reach { when, by } in &self.reaches {
            match by {
                Reaching::Access { base, end } => writeln!(f, "access {base} {end} if {when}")?,
                Reaching::Test(test) => writeln!(f, "test {test} if {when}")?,
            }
        }
        Ok(())
    }
}

fn rendered(pattern: &Pattern) -> String {
    let helper = helpers::name_of(pattern.helper).map_or_else(|| pattern.helper.to_string(), str::to_owned);
    let arguments: Vec<String> = pattern
        .arguments
        .iter()
        .map(|argument| match argument {
            Argument::Number => "number".to_owned(),
            Argument::Context => "context".to_owned(),
            Argument::Map(map) => format!("map {map}"),
            Argument::Read(bytes) => format!("read {bytes}"),
            Argument::Head => "head".to_owned(),
            Argument::Tail => "tail".to_owned(),
            Argument::Kept => "kept".to_owned(),
            Argument::Base => "base".to_owned(),
            Argument::Changed(bytes) => format!("changed {bytes}"),
            Argument::Laid(at) => format!("laid {at}"),
            Argument::Byte(at) => format!("byte {at}"),
            Argument::Stored(at) => format!("stored {at}"),
        })
        .collect();
    format!("{helper} {}", arguments.join(", ")).trim_end().to_owned()
}

/// The operation of a node and its arguments.
pub(super) fn what(kind: Kind, args: &[Id]) -> String {
    let of = |word: String| if args.is_empty() { word } else { format!("{word} {}", listed(args)) };
    let when = |word: String| {
        let rest = if args.len() > 1 { format!(" {}", listed(&args[1..])) } else { String::new() };
        format!("{word} if {}:{rest}", args.first().map_or_else(String::new, Id::to_string))
    };
    match kind {
        Kind::Const(value) => format!("const {value:#x}"),
        Kind::Input(Input::Byte(at)) => format!("byte {at}"),
        Kind::Input(Input::Length) => "length".to_owned(),
        Kind::Input(Input::Port) => "port".to_owned(),
        Kind::Input(Input::Only(map)) => format!("only {map}"),
        Kind::Slice { low } => of(format!("slice {low}")),
        Kind::Concat => of("concat".to_owned()),
        Kind::SignExtend => of("sign_extend".to_owned()),
        Kind::Binary(op) => of(name(&BINARY, &op).to_owned()),
        Kind::Compare(how) => of(name(&COMPARE, &how).to_owned()),
        Kind::Not => of("not".to_owned()),
        Kind::Select => of("select".to_owned()),
        Kind::Bytes { ahead } => of(format!("bytes {ahead}")),
        Kind::Changed { at } => of(format!("changed {at}")),
        Kind::Effect(Effect::Call { pattern, .. }) => when(format!("call {pattern}")),
        Kind::Effect(Effect::Load(size)) => when(format!("load {}", name(&SIZES, &size))),
        Kind::Effect(Effect::Store(size)) => when(format!("store {}", name(&SIZES, &size))),
        Kind::Effect(Effect::Atomic(op, size)) => {
            when(format!("atomic {} {}", name(&ATOMIC, &op), name(&SIZES, &size)))
        }
    }
}
