// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions of nodes: `pkt[12..13] == 0x0800`.
//!
//! Wires are followed to their sources, so that a comparison of two concatenated bytes reads as a field of the packet.
//! Bytes in network order are `pkt[12..13]`, those in little-endian order `le pkt[12..13]`.

use flowloom_ir::{Argument, Binary, Compare, Dataflow, Effect, Graph, Id, Input, Kind, Touch};
use flowloom_isa::helpers;
use flowloom_isa::op::AtomicOp;

/// The depth to which wires are followed before a node is named by its number.
const DEEP: usize = 6;
/// The most parts of a concatenation, and arms of a select, that are listed.
const PARTS: usize = 6;

/// An operand: the source of wires, or its number.
pub(super) fn operand(dataflow: &Dataflow, id: Id) -> String {
    wires(dataflow, id, DEEP)
}

fn wires(dataflow: &Dataflow, id: Id, deep: usize) -> String {
    let graph = &dataflow.graph;
    let node = graph.node(id);
    let inner = |id: Id| wires(dataflow, id, deep.saturating_sub(1));
    match node.kind {
        _ if deep == 0 => format!("v{}", id.index()),
        Kind::Const(value) => number(value, node.bits),
        Kind::Input(Input::Byte(at)) => format!("pkt[{at}]"),
        Kind::Input(Input::Length) => "length".to_owned(),
        Kind::Input(Input::Port) => "port".to_owned(),
        Kind::Input(Input::Only(map)) => format!("&{}", map_name(dataflow, map)),
        Kind::Slice { low } => {
            let high = low + node.bits - 1;
            let bits = if low == high { low.to_string() } else { format!("{high}:{low}") };
            format!("{}[{bits}]", inner(node.args[0]))
        }
        Kind::Concat => joined(dataflow, &node.args, deep),
        Kind::SignExtend => format!("sext({})", inner(node.args[0])),
        Kind::Not if node.bits == 1 => format!("!{}", inner(node.args[0])),
        Kind::Not => format!("~{}", inner(node.args[0])),
        _ => format!("v{}", id.index()),
    }
}

/// A number in the usual notation: small ones in decimal, addresses and masks in hexadecimal, those just below 0 with a
/// sign.
fn number(value: u64, bits: u16) -> String {
    let negative = (8..=64).contains(&bits).then(|| ((value << (64 - bits)) as i64) >> (64 - bits));
    match negative {
        _ if value < 1024 => value.to_string(),
        Some(small @ -1024..0) => small.to_string(),
        _ => hexadecimal(value, bits),
    }
}

fn hexadecimal(value: u64, bits: u16) -> String {
    format!("0x{value:0width$x}", width = usize::from(bits.div_ceil(4)))
}

/// Adjacent bytes of the packet: the first one, the last one, and whether the first is the most significant.
fn run(graph: &Graph, parts: &[Id]) -> Option<(u16, u16, bool)> {
    let bytes: Option<Vec<u16>> = parts
        .iter()
        .map(|part| match graph.node(*part).kind {
            Kind::Input(Input::Byte(at)) => Some(at),
            _ => None,
        })
        .collect();
    let bytes = bytes?;
    let (first, last) = (*bytes.first()?, *bytes.last()?);
    let is_run =
        |up: bool| bytes.windows(2).all(|pair| if up { pair[0] + 1 == pair[1] } else { pair[1] + 1 == pair[0] });
    match bytes.len() {
        0 | 1 => None,
        _ if is_run(false) => Some((last, first, true)),
        _ if is_run(true) => Some((first, last, false)),
        _ => None,
    }
}

/// The parts of a concatenation without leading zeros.
fn without_zeros<'a>(graph: &Graph, parts: &'a [Id]) -> &'a [Id] {
    match parts.split_last() {
        Some((last, rest)) if !rest.is_empty() && graph.as_const(*last) == Some(0) => rest,
        _ => parts,
    }
}

fn joined(dataflow: &Dataflow, parts: &[Id], deep: usize) -> String {
    let parts = without_zeros(&dataflow.graph, parts);
    match (parts, run(&dataflow.graph, parts)) {
        ([one], _) => wires(dataflow, *one, deep - 1),
        (_, Some((first, last, true))) => format!("pkt[{first}..{last}]"),
        (_, Some((first, last, false))) => format!("le pkt[{first}..{last}]"),
        _ => format!("{{{}}}", list(parts.iter().rev().map(|part| wires(dataflow, *part, deep - 1)).collect())),
    }
}

/// The first few of these, and the number of the others.
fn list(all: Vec<String>) -> String {
    match all.len().checked_sub(PARTS) {
        None | Some(0 | 1) => all.join(", "),
        Some(rest) => format!("{}, … {rest} more", all[..PARTS].join(", ")),
    }
}

fn is_wire(graph: &Graph, id: Id) -> bool {
    matches!(
        graph.node(id).kind,
        Kind::Const(_) | Kind::Input(_) | Kind::Slice { .. } | Kind::Concat | Kind::SignExtend | Kind::Not
    )
}

/// Bytes in memory order: a key or a value.
fn memory(dataflow: &Dataflow, bytes: &[Id]) -> String {
    let graph = &dataflow.graph;
    let mut texts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let node = graph.node(bytes[at]);
        let rest = &bytes[at..];
        let consumed = match node.kind {
            Kind::Const(value) => {
                let same = rest.iter().take_while(|byte| graph.as_const(**byte) == Some(value)).count();
                texts.push(if same == 1 || value != 0 { number(value, 8) } else { format!("{same} zeros") });
                if value == 0 { same } else { 1 }
            }
            Kind::Input(Input::Byte(first)) => {
                let follows = |(place, byte): (usize, &Id)| {
                    graph.node(*byte).kind == Kind::Input(Input::Byte(first + place as u16))
                };
                let same = rest.iter().enumerate().take_while(|(place, byte)| follows((*place, *byte))).count();
                let last = first + same as u16 - 1;
                texts.push(if same == 1 { format!("pkt[{first}]") } else { format!("pkt[{first}..{last}]") });
                same
            }
            Kind::Slice { low } => {
                let source = node.args[0];
                let follows = |(place, byte): (usize, &Id)| {
                    let other = graph.node(*byte);
                    other.kind == Kind::Slice { low: low + 8 * place as u16 } && other.args == [source]
                };
                let same = rest.iter().enumerate().take_while(|(place, byte)| follows((*place, *byte))).count();
                let whole = low == 0 && usize::from(graph.bits(source)) == 8 * same;
                texts.push(match whole {
                    true => operand(dataflow, source),
                    false => format!("{}[{}:{low}]", operand(dataflow, source), low + 8 * same as u16 - 1),
                });
                same
            }
            _ => {
                let first = bytes[at].index();
                let follows = |(place, byte): (usize, &Id)| byte.index() == first + place && !is_wire(graph, *byte);
                let same = rest.iter().enumerate().take_while(|(place, byte)| follows((*place, *byte))).count().max(1);
                texts.push(match same {
                    1 => operand(dataflow, bytes[at]),
                    _ => format!("v{first}..v{}", first + same - 1),
                });
                same
            }
        };
        at += consumed;
    }
    list(texts)
}

fn map_name(dataflow: &Dataflow, map: u32) -> &str {
    dataflow.maps.get(map as usize).map_or("?", |map| map.name.as_str())
}

/// The kind of a node in hardware terms, for colours and counts.
pub(super) fn kind(dataflow: &Dataflow, id: Id) -> &'static str {
    let graph = &dataflow.graph;
    let node = graph.node(id);
    if let Some(access) = dataflow.access(id) {
        return match access.touch {
            Touch::Lookup | Touch::HostTable => "lookup",
            Touch::Load => "load",
            Touch::Store => "store",
            Touch::Atomic => "atomic",
            Touch::Update => "update",
            Touch::Delete => "delete",
            Touch::Evict => "evict",
            Touch::RedirectMap | Touch::Redirect => "redirect",
            Touch::Environment => "clock",
            Touch::Compute => "function",
            Touch::Random => "random",
            Touch::Reserve => "reserve",
            Touch::Emit => "emit",
        };
    }
    match node.kind {
        Kind::Compare(_) => "comparison",
        Kind::Select => "choice",
        Kind::Binary(Binary::And | Binary::Or | Binary::Xor) => "gate",
        Kind::Binary(Binary::Add | Binary::Sub) => "sum",
        Kind::Binary(Binary::ShiftLeft | Binary::ShiftRight | Binary::SignedShiftRight) => "shift",
        Kind::Binary(Binary::Mul) => "product",
        Kind::Binary(_) => "quotient",
        Kind::Bytes { .. } => "pick",
        Kind::Effect(_) => "effect",
        Kind::Input(_) => "input",
        _ => "wire",
    }
}

/// The operation of a node.
pub(super) fn does(dataflow: &Dataflow, id: Id) -> String {
    let graph = &dataflow.graph;
    let node = graph.node(id);
    let name = |id: Id| operand(dataflow, id);
    match node.kind {
        Kind::Compare(Compare::Equal) => equality(dataflow, node.args[0], node.args[1]),
        Kind::Compare(Compare::Below) => format!("{} < {}", name(node.args[0]), name(node.args[1])),
        Kind::Compare(Compare::SignedBelow) => format!("{} < {} signed", name(node.args[0]), name(node.args[1])),
        Kind::Binary(op) => format!("{} {} {}", name(node.args[0]), sign(op), name(node.args[1])),
        Kind::Select => select_text(dataflow, &node.args),
        Kind::Bytes { ahead } => packet_bytes(dataflow, node.args[0], ahead.into(), node.bits),
        Kind::Effect(effect) => effect_text(dataflow, id, effect),
        _ => name(id),
    }
}

fn sign(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::SignedDiv => "s/",
        Binary::Mod => "%",
        Binary::SignedMod => "s%",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::ShiftLeft => "<<",
        Binary::ShiftRight => ">>",
        Binary::SignedShiftRight => "s>>",
    }
}

pub(super) fn symbol(dataflow: &Dataflow, id: Id) -> &'static str {
    match dataflow.graph.node(id).kind {
        Kind::Compare(Compare::Equal) => "==",
        Kind::Compare(_) => "<",
        Kind::Binary(op) => sign(op),
        Kind::Select => "?",
        Kind::Bytes { .. } => "[]",
        _ => match kind(dataflow, id) {
            "lookup" => "key",
            "load" => "rd",
            "store" => "wr",
            "atomic" => "rmw",
            "update" => "put",
            "delete" => "del",
            "redirect" => "out",
            "clock" => "clk",
            "random" => "rnd",
            "emit" => "snd",
            other => other,
        },
    }
}

/// A comparison: fields of the packet with numbers in network order, lookups as hit or miss.
fn equality(dataflow: &Dataflow, a: Id, b: Id) -> String {
    let graph = &dataflow.graph;
    let (value, constant) = if graph.as_const(a).is_some() { (b, a) } else { (a, b) };
    let Some(expected) = graph.as_const(constant) else {
        return format!("{} == {}", operand(dataflow, a), operand(dataflow, b));
    };
    if let (0, Some(access)) = (expected, dataflow.access(value)) {
        let map = access.map.map_or("helper", |map| map_name(dataflow, map));
        match access.touch {
            Touch::Lookup => return format!("v{} misses in {map}", value.index()),
            Touch::Update | Touch::Delete | Touch::Evict => return format!("v{} succeeds in {map}", value.index()),
            Touch::Reserve => return format!("{map} is full for v{}", value.index()),
            _ => {}
        }
    }
    let node = graph.node(value);
    let parts = match node.kind {
        Kind::Concat => without_zeros(graph, &node.args),
        _ => &[],
    };
    if let Some((first, last, false)) = run(graph, parts) {
        let bytes = parts.len() as u32;
        let swapped = expected.swap_bytes() >> (64 - 8 * bytes.min(8));
        return format!("pkt[{first}..{last}] == {}", hexadecimal(swapped, 8 * bytes as u16));
    }
    format!("{} == {}", operand(dataflow, value), operand(dataflow, constant))
}

fn select_text(dataflow: &Dataflow, args: &[Id]) -> String {
    let name = |id: &Id| operand(dataflow, *id);
    let Some((last, pairs)) = args.split_last() else { return String::new() };
    let all: Vec<String> =
        pairs.chunks_exact(2).map(|pair| format!("{} ? {} : ", name(&pair[0]), name(&pair[1]))).collect();
    match all.len().checked_sub(PARTS / 2) {
        None | Some(0 | 1) => format!("{}{}", all.concat(), name(last)),
        Some(rest) => format!("{}… {rest} more : {}", all[..PARTS / 2].concat(), name(last)),
    }
}

/// Bytes of the packet at an offset known only at run time.
fn packet_bytes(dataflow: &Dataflow, offset: Id, ahead: i64, bits: u16) -> String {
    let sign = if ahead < 0 { '-' } else { '+' };
    let (offset, ahead, more) = (operand(dataflow, offset), ahead.unsigned_abs(), bits / 8);
    match more {
        0 | 1 => format!("pkt[{offset} {sign} {ahead}]"),
        _ => format!("le pkt[{offset} {sign} {ahead}, {more} bytes]"),
    }
}

/// The arguments of a call: numbers one by one, memory as a whole.
fn arguments(dataflow: &Dataflow, id: Id) -> Vec<String> {
    let node = dataflow.graph.node(id);
    let Kind::Effect(Effect::Call { pattern, .. }) = node.kind else { return Vec::new() };
    let Some(pattern) = dataflow.patterns.get(usize::from(pattern)) else { return Vec::new() };
    let (mut at, mut texts) = (1, Vec::new());
    for argument in &pattern.arguments {
        let len = match argument {
            Argument::Context | Argument::Map(_) => continue,
            Argument::Number => 1,
            Argument::Read(len) | Argument::Changed(len) => usize::from(*len),
            // The state of the packet comes after the helper's own arguments.
            Argument::Head
            | Argument::Tail
            | Argument::Kept
            | Argument::Base
            | Argument::Laid(_)
            | Argument::Byte(_)
            | Argument::Stored(_) => break,
        };
        let nodes = node.args.get(at..at + len).unwrap_or_default();
        texts.push(match argument {
            Argument::Number => nodes.iter().map(|id| operand(dataflow, *id)).collect(),
            _ => memory(dataflow, nodes),
        });
        at += len;
    }
    texts
}

fn effect_text(dataflow: &Dataflow, id: Id, effect: Effect) -> String {
    let node = dataflow.graph.node(id);
    let access = dataflow.access(id);
    let map = access.and_then(|access| access.map).map_or("?", |map| map_name(dataflow, map));
    let place = |bytes: usize| match dataflow.graph.as_const(node.args[2]) {
        Some(first) if bytes > 1 => format!("{map}[{first}..{}]", first + bytes as u64 - 1),
        Some(first) => format!("{map}[{first}]"),
        None => format!("{map}[{} + {bytes} bytes]", operand(dataflow, node.args[2])),
    };
    let number = |at: usize| node.args.get(at).map_or_else(String::new, |id| operand(dataflow, *id));
    match effect {
        Effect::Load(size) => format!("read {}", place(size.bytes())),
        Effect::Store(size) => format!("{} = {}", place(size.bytes()), number(3)),
        Effect::Atomic(op, size) => {
            let place = place(size.bytes());
            match op {
                AtomicOp::Add { .. } => format!("{place} += {}", number(3)),
                AtomicOp::Or { .. } => format!("{place} |= {}", number(3)),
                AtomicOp::And { .. } => format!("{place} &= {}", number(3)),
                AtomicOp::Xor { .. } => format!("{place} ^= {}", number(3)),
                AtomicOp::Xchg => format!("exchange {place} with {}", number(3)),
                AtomicOp::CmpXchg => format!("{place} = {} if equal to {}", number(3), number(4)),
            }
        }
        Effect::Call { helper, .. } => {
            let args = arguments(dataflow, id);
            let first = || args.first().cloned().unwrap_or_default();
            match access.map(|access| access.touch) {
                Some(Touch::Lookup) => format!("look up {map}[{}]", first()),
                Some(Touch::Update) => {
                    format!("insert {map}[{}] = {}", first(), args.get(1).cloned().unwrap_or_default())
                }
                Some(Touch::Delete) => format!("delete {map}[{}]", first()),
                Some(Touch::Evict) => format!("evict from {map}"),
                Some(Touch::RedirectMap) => format!("redirect through {map}[{}]", first()),
                Some(Touch::Redirect) => format!("redirect to port {}", first()),
                Some(Touch::HostTable) => match access.and_then(|access| access.map) {
                    Some(_) => format!("look up program {map}[{}]", first()),
                    None => format!("call {}", helpers::name_of(helper).unwrap_or("helper")),
                },
                Some(Touch::Environment) => helpers::name_of(helper).unwrap_or("clock").to_owned(),
                Some(Touch::Reserve) => format!("reserve {} bytes in {map}", first()),
                Some(Touch::Random) => "random number".to_owned(),
                _ => helpers::display_name(helper),
            }
        }
    }
}
