// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Known-bits analysis and width reduction.
//!
//! **Goal.** Arithmetic no wider than needed: bits that are known or not demanded are not computed. Shifts and masks by
//! constants become wires.
//!
//! ```text
//!   v5 = concat v4 0x000000           24 zeros above 8 bits
//!   v6 = shl v5 8                     v6 = concat 0x00 v4 0x0000
//!   v7 = or v6 v3                     v7 = concat v3 v4 0x0000          (v3 has 8 bits, zeros above)
//!   v8 = add v7 v7 of 64 bits         v8 = concat (add of 17 bits) 0
//!   v9 = slt v8 0                     v9 = slice 63 of v8
//! ```
//!
//! **Steps.** Forward: known bits. Backward: demanded bits. Then each node is rebuilt from runs of bits: constants,
//! bits of one argument, and bits that depend on both.
//!
//! **Limits.** Known are single bits and the maximum of a node, not relations between nodes.

use super::known::{Known, all, demanded, known};
use super::{rebuilt, same};
use crate::dataflow::Dataflow;
use crate::graph::{Binary, Compare, Graph, Id, Kind, Node};

/// The facts about a node and its arguments.
struct Facts {
    args: Vec<Known>,
    own: Known,
    demanded: u64,
}

pub fn run(dataflow: &Dataflow) -> Dataflow {
    let known = known(dataflow);
    let demanded = demanded(dataflow, &known);
    rebuilt(dataflow, |graph, id, node| {
        let old = dataflow.graph.node(id);
        let facts = Facts {
            args: old.args.iter().map(|arg| known[arg.index()]).collect(),
            own: known[id.index()],
            demanded: demanded[id.index()],
        };
        narrowed(graph, node, &facts)
    })
}

fn narrowed(graph: &mut Graph, node: Node, facts: &Facts) -> Id {
    if matches!(node.kind, Kind::Effect(_)) {
        return same(graph, node);
    }
    let open = facts.demanded & !facts.own.bits();
    if open == 0 {
        return graph.number(facts.own.ones & facts.demanded, node.bits);
    }
    match (node.kind, node.args.as_slice()) {
        (Kind::Binary(op @ (Binary::And | Binary::Or | Binary::Xor)), &[a, b]) => {
            bitwise(graph, op, [a, b], node.bits, facts)
        }
        (Kind::Binary(Binary::Add), &[a, b]) if facts.args[0].zeros | facts.args[1].zeros == all(node.bits) => {
            bitwise(graph, Binary::Or, [a, b], node.bits, facts)
        }
        (Kind::Binary(Binary::Mul), &[a, b]) if let Some(factor) = few(graph, [a, b]) => {
            multiplied(graph, factor, node.bits, facts)
        }
        (Kind::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul)), &[a, b]) => {
            sum(graph, op, [a, b], node.bits, facts)
        }
        (Kind::Binary(op), &[a, b]) => match by_constant(graph, op, [a, b], node.bits, facts) {
            Some(wires) => wires,
            None if matches!(op, Binary::Div | Binary::Mod) => divided(graph, op, [a, b], node.bits, facts),
            None => same(graph, node),
        },
        (Kind::Not, &[one]) => {
            let runs = runs(node.bits, |bit| open >> bit & 1 == 1);
            let parts = runs.into_iter().map(|(is_open, low, bits)| match is_open {
                true => {
                    let part = graph.slice(one, low, bits);
                    graph.not(part)
                }
                false => graph.number(facts.own.ones >> low, bits),
            });
            let parts = parts.collect();
            graph.concat(parts)
        }
        (Kind::Select, args) => {
            let args = args.to_vec();
            select(graph, &args, node.bits, open, facts)
        }
        (Kind::Compare(how), &[a, b]) => compare(graph, how, [a, b], facts),
        _ => same(graph, node),
    }
}

/// Runs of adjacent bits of the same class: (class, first bit, length).
fn runs<C: PartialEq>(bits: u16, class: impl Fn(u16) -> C) -> Vec<(C, u16, u16)> {
    let mut runs: Vec<(C, u16, u16)> = Vec::new();
    for bit in 0..bits {
        let own = class(bit);
        match runs.last_mut() {
            Some((last, _, len)) if *last == own => *len += 1,
            _ => runs.push((own, bit, 1)),
        }
    }
    runs
}

/// The class of a result bit of a bitwise operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bit {
    Known,
    First,
    Second,
    NotFirst,
    NotSecond,
    Both,
}

fn bitwise(graph: &mut Graph, op: Binary, [a, b]: [Id; 2], bits: u16, facts: &Facts) -> Id {
    let [x, y] = [facts.args[0], facts.args[1]];
    let is = |mask: u64, bit: u16| mask >> bit & 1 == 1;
    let class = |bit: u16| {
        if is(facts.own.bits(), bit) || !is(facts.demanded, bit) {
            return Bit::Known;
        }
        // The constant bits that make the operation pass the other argument's bit through.
        let (first, second) = match op {
            Binary::And => (is(y.ones, bit), is(x.ones, bit)),
            _ => (is(y.zeros, bit), is(x.zeros, bit)),
        };
        match (first, second) {
            (true, _) => Bit::First,
            (_, true) => Bit::Second,
            _ if op == Binary::Xor && is(y.ones, bit) => Bit::NotFirst,
            _ if op == Binary::Xor && is(x.ones, bit) => Bit::NotSecond,
            _ => Bit::Both,
        }
    };
    let mut parts = Vec::new();
    for (class, low, len) in runs(bits, class) {
        parts.push(match class {
            Bit::Known => graph.number((facts.own.ones & facts.demanded) >> low, len),
            Bit::First => graph.slice(a, low, len),
            Bit::Second => graph.slice(b, low, len),
            Bit::NotFirst | Bit::NotSecond => {
                let part = graph.slice(if class == Bit::NotFirst { a } else { b }, low, len);
                graph.not(part)
            }
            Bit::Both => {
                let (a, b) = (graph.slice(a, low, len), graph.slice(b, low, len));
                graph.binary(op, a, b)
            }
        });
    }
    graph.concat(parts)
}

/// An adder, subtractor or multiplier reduced to the demanded bits that are not known to be 0, and without the low bits
/// that both arguments have as zeros.
fn sum(graph: &mut Graph, op: Binary, [a, b]: [Id; 2], bits: u16, facts: &Facts) -> Id {
    let open = facts.demanded & !facts.own.bits();
    let end = 64 - open.leading_zeros() as u16;
    let mut low = 0;
    if matches!(op, Binary::Add | Binary::Sub) {
        low = facts.args[1].zeros.trailing_ones() as u16;
        if op == Binary::Add && low == 0 {
            low = facts.args[0].zeros.trailing_ones() as u16;
        }
    }
    let low = low.min(end - 1);
    let mut parts = Vec::new();
    if low > 0 {
        // Below, one argument is 0: the bits of the other one pass through.
        let (first, second) = (graph.slice(a, 0, low), graph.slice(b, 0, low));
        let is_first = facts.args[1].zeros & all(low) == all(low);
        parts.push(if is_first { first } else { second });
    }
    let (x, y) = (graph.slice(a, low, end - low), graph.slice(b, low, end - low));
    parts.push(graph.binary(op, x, y));
    if end < bits {
        parts.push(graph.number(facts.own.ones >> end, bits - end));
    }
    graph.concat(parts)
}

/// The most terms of a product that becomes a sum.
const MAX_TERMS: u32 = 4;

/// A node and the constant with few ones by which it is multiplied.
fn few(graph: &Graph, [a, b]: [Id; 2]) -> Option<(Id, u64)> {
    let (number, constant) = graph.as_const(b).map(|by| (a, by)).or_else(|| graph.as_const(a).map(|by| (b, by)))?;
    (constant.count_ones() <= MAX_TERMS).then_some((number, constant))
}

/// A product by a constant with few ones as a sum of shifted copies, in the demanded width.
fn multiplied(graph: &mut Graph, (number, constant): (Id, u64), bits: u16, facts: &Facts) -> Id {
    let open = facts.demanded & !facts.own.bits();
    let end = 64 - open.leading_zeros() as u16;
    let mut total = graph.number(0, end);
    for place in (0..end).filter(|place| constant >> place & 1 == 1) {
        let kept = graph.slice(number, 0, end - place);
        let term = match place {
            0 => kept,
            _ => {
                let zeros = graph.number(0, place);
                graph.concat(vec![zeros, kept])
            }
        };
        total = graph.binary(Binary::Add, total, term);
    }
    if end == bits {
        return total;
    }
    let above = graph.number(facts.own.ones >> end, bits - end);
    graph.concat(vec![total, above])
}

/// A division narrowed to the bits that its dividend can have. A divisor above them makes the quotient 0.
fn divided(graph: &mut Graph, op: Binary, [a, b]: [Id; 2], bits: u16, facts: &Facts) -> Id {
    let [used, of_divisor] = [0, 1].map(|place| (64 - facts.args[place].most(bits).leading_zeros() as u16).max(1));
    let (dividend, divisor) = (graph.slice(a, 0, used), graph.slice(b, 0, used));
    let mut result = graph.binary(op, dividend, divisor);
    if used < of_divisor {
        let above = graph.slice(b, used, of_divisor - used);
        let zero = graph.number(0, of_divisor - used);
        let is_small = graph.compare(Compare::Equal, above, zero);
        let whole = if op == Binary::Mod { dividend } else { graph.number(0, used) };
        result = graph.select(vec![is_small, result, whole]);
    }
    graph.fit(result, bits)
}

/// Shifts by a constant, and division by powers of two.
fn by_constant(graph: &mut Graph, op: Binary, [a, b]: [Id; 2], bits: u16, facts: &Facts) -> Option<Id> {
    let by = graph.as_const(b);
    let by = by.or_else(|| (facts.args[1].bits() == all(graph.bits(b))).then_some(facts.args[1].ones))?;
    let distance = (by % u64::from(bits)) as u16;
    let exponent = by.is_power_of_two().then(|| by.trailing_zeros() as u16);
    match (op, exponent) {
        (Binary::ShiftLeft | Binary::ShiftRight | Binary::SignedShiftRight, _) if distance == 0 => Some(a),
        (Binary::ShiftLeft, _) => {
            let (zeros, kept) = (graph.number(0, distance), graph.slice(a, 0, bits - distance));
            Some(graph.concat(vec![zeros, kept]))
        }
        (Binary::ShiftRight, _) => {
            let kept = graph.slice(a, distance, bits - distance);
            Some(graph.fit(kept, bits))
        }
        (Binary::SignedShiftRight, _) => {
            let kept = graph.slice(a, distance, bits - distance);
            Some(graph.sign_extend(kept, bits))
        }
        (Binary::Div, Some(exponent)) => {
            let kept = graph.slice(a, exponent, bits - exponent);
            Some(graph.fit(kept, bits))
        }
        (Binary::Div | Binary::Mod, None) if by > 2 && (by - 1).is_power_of_two() => {
            let exponent = (by - 1).trailing_zeros() as u16;
            // The part above the exponent must itself be at most a remainder.
            (facts.args[0].most(bits) >> exponent < by).then(|| by_one_more(graph, op, a, bits, exponent))
        }
        (Binary::Mod, Some(0)) => Some(graph.number(0, bits)),
        (Binary::Mod, Some(exponent)) => {
            let kept = graph.slice(a, 0, exponent);
            Some(graph.fit(kept, bits))
        }
        _ => None,
    }
}

/// Division by 2^k + 1: with `a = high * 2^k + low`, that is `high * (2^k + 1) + (low - high)`.
fn by_one_more(graph: &mut Graph, op: Binary, a: Id, bits: u16, exponent: u16) -> Id {
    let width = exponent + 1;
    let low = graph.slice(a, 0, exponent);
    let high = graph.slice(a, exponent, bits - exponent);
    let (low, high) = (graph.fit(low, width + 1), graph.fit(high, width + 1));
    let is_less = graph.compare(Compare::Below, low, high);
    let (up, down) = match op {
        Binary::Div => {
            let one = graph.number(1, width + 1);
            (high, graph.binary(Binary::Sub, high, one))
        }
        _ => {
            let rest = graph.binary(Binary::Sub, low, high);
            let divisor = graph.number((1 << exponent) + 1, width + 1);
            let more = graph.binary(Binary::Add, low, divisor);
            (rest, graph.binary(Binary::Sub, more, high))
        }
    };
    let result = graph.select(vec![is_less, down, up]);
    graph.fit(result, bits)
}

fn select(graph: &mut Graph, args: &[Id], bits: u16, open: u64, facts: &Facts) -> Id {
    let mut parts = Vec::new();
    for (is_open, low, len) in runs(bits, |bit| open >> bit & 1 == 1) {
        if !is_open {
            parts.push(graph.number((facts.own.ones & facts.demanded) >> low, len));
            continue;
        }
        let last = args.len() - 1;
        let own = args.iter().enumerate().map(|(place, arg)| {
            let is_value = place == last || place % 2 == 1;
            if is_value { graph.slice(*arg, low, len) } else { *arg }
        });
        let own = own.collect();
        parts.push(graph.select(own));
    }
    graph.concat(parts)
}

fn compare(graph: &mut Graph, how: Compare, [a, b]: [Id; 2], facts: &Facts) -> Id {
    let bits = graph.bits(a);
    let [x, y] = [facts.args[0], facts.args[1]];
    if (x.zeros & y.ones | x.ones & y.zeros) != 0 && how == Compare::Equal {
        return graph.number(0, 1);
    }
    if how == Compare::Equal {
        let same = x.zeros & y.zeros | x.ones & y.ones;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (is_same, low, len) in runs(bits, |bit| same >> bit & 1 == 1) {
            if !is_same {
                left.push(graph.slice(a, low, len));
                right.push(graph.slice(b, low, len));
            }
        }
        if left.is_empty() {
            return graph.number(1, 1);
        }
        let (left, right) = (graph.concat(left), graph.concat(right));
        return match (graph.bits(left), graph.as_const(right)) {
            (1, Some(1)) => left,
            (1, Some(_)) => graph.not(left),
            _ => graph.compare(Compare::Equal, left, right),
        };
    }
    let sign = 1 << (bits - 1);
    let same_sign = (x.zeros & y.zeros | x.ones & y.ones) & sign != 0;
    if how == Compare::SignedBelow && !same_sign {
        if (x.bits() & y.bits()) & sign != 0 {
            return graph.number(u64::from(x.ones & sign != 0), 1);
        }
        // One of the two bits decides if the other is known and no lower bit matters.
        if y.zeros == all(bits) {
            return graph.slice(a, bits - 1, 1);
        }
        if x.ones == all(bits) {
            let last = graph.slice(b, bits - 1, 1);
            return graph.not(last);
        }
        return graph.compare(how, a, b);
    }
    if x.most(bits) < y.least() {
        return graph.number(1, 1);
    }
    if x.least() >= y.most(bits) {
        return graph.number(0, 1);
    }
    // Bits above the highest one that may differ do not matter.
    let same = x.zeros & y.zeros | x.ones & y.ones;
    let differ = !same & all(bits);
    let end = 64 - differ.leading_zeros() as u16;
    let (left, right) = (graph.slice(a, 0, end), graph.slice(b, 0, end));
    match graph.as_const(right) {
        // Below a power of two: all bits from there on are 0.
        Some(limit) if limit.is_power_of_two() => {
            let from = limit.trailing_zeros() as u16;
            let above = graph.slice(left, from, end - from);
            let zero = graph.number(0, end - from);
            match end - from {
                1 => graph.not(above),
                _ => graph.compare(Compare::Equal, above, zero),
            }
        }
        _ => graph.compare(Compare::Below, left, right),
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::arith::apply;
    use crate::graph::Input;

    /// Two bytes divided by three bytes.
    const DIVIDED: &str = "program divided
v0 8 @0 byte 0
v1 8 @0 byte 1
v2 8 @0 byte 2
v3 8 @0 byte 3
v4 8 @0 byte 4
v5 16 @1 const 0x0
v6 8 @1 const 0x0
v7 32 @1 concat v0 v1 v5
v8 32 @1 concat v2 v3 v4 v6
v9 32 @2 OP v7 v8
v10 32 @3 const 0x0
v11 1 @3 const 0x0
verdict v9
head v10
tail v10
slow v11
";

    fn verdict(dataflow: &Dataflow, bytes: [u8; 5]) -> u64 {
        let graph = &dataflow.graph;
        let mut values: Vec<u64> = Vec::new();
        for node in graph.nodes() {
            let args: Vec<u64> = node.args.iter().map(|arg| values[arg.index()]).collect();
            let widths: Vec<u16> = node.args.iter().map(|arg| graph.bits(*arg)).collect();
            values.push(match node.kind {
                Kind::Input(Input::Byte(at)) => bytes[usize::from(at)].into(),
                kind => apply(kind, &args, &widths, node.bits),
            });
        }
        values[dataflow.ending.verdict.index()]
    }

    #[test]
    fn a_division_is_no_wider_than_its_dividend() {
        for op in ["div", "mod"] {
            let dataflow: Dataflow = DIVIDED.replace("OP", op).parse().unwrap_or_else(|error| panic!("{error}"));
            let narrowed = run(&dataflow);
            let divisions = narrowed.graph.nodes().iter().filter(|node| matches!(node.kind, Kind::Binary(_)));
            assert_eq!(divisions.map(|node| node.bits).max(), Some(16), "{op}");
            for dividend in [0, 1, 2, 255, 256, 4_660, 65_535_u16] {
                for divisor in [0, 1, 2, 255, 256, 4_660, 65_535, 65_536, 65_537, 131_072, 16_777_215_u32] {
                    let ([a, b], [c, d, e, _]) = (dividend.to_le_bytes(), divisor.to_le_bytes());
                    let [plain, other] = [&dataflow, &narrowed].map(|form| verdict(form, [a, b, c, d, e]));
                    assert_eq!(plain, other, "{dividend} {op} {divisor}");
                }
            }
        }
    }
}
