// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The known-bits and demanded-bits analyses.

use crate::arith::{cut, sign_extended};
use crate::dataflow::Dataflow;
use crate::graph::{Binary, Graph, Id, Kind};

/// The bits known to be 0, and those known to be 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) zeros: u64,
    pub(super) ones: u64,
}

/// A mask of the low `bits` bits.
pub(super) fn all(bits: u16) -> u64 {
    cut(u64::MAX, bits)
}

impl Known {
    fn number(value: u64, bits: u16) -> Known {
        Known { zeros: !value & all(bits), ones: value }
    }

    /// The mask of known bits.
    pub(super) fn bits(self) -> u64 {
        self.zeros | self.ones
    }

    /// The maximum of the value.
    pub(super) fn most(self, bits: u16) -> u64 {
        !self.zeros & all(bits)
    }

    /// The minimum of the value.
    pub(super) fn least(self) -> u64 {
        self.ones
    }

    fn at_most(most: u64, bits: u16) -> Known {
        let used = 64 - most.leading_zeros() as u16;
        Known { zeros: all(bits) & !all(used), ones: 0 }
    }
}

/// The maximum of each node.
pub fn largest(dataflow: &Dataflow) -> Vec<u64> {
    let (graph, known) = (&dataflow.graph, known(dataflow));
    let mut largest: Vec<u64> = Vec::with_capacity(graph.nodes().len());
    for id in graph.ids() {
        let node = graph.node(id);
        let of = |place: usize| largest[node.args[place].index()];
        let most = match node.kind {
            Kind::Slice { low } => of(0) >> low,
            Kind::Concat => {
                let (mut total, mut at) = (0, 0);
                for (place, arg) in node.args.iter().enumerate() {
                    total |= of(place) << at;
                    at += graph.bits(*arg);
                }
                total
            }
            Kind::Select => {
                let last = node.args.len() - 1;
                (0..=last).filter(|place| *place == last || place % 2 == 1).map(of).max().unwrap_or(u64::MAX)
            }
            Kind::Binary(Binary::Add) => of(0).saturating_add(of(1)),
            Kind::Binary(Binary::And) => of(0).min(of(1)),
            _ => u64::MAX,
        };
        // An adder that may overflow, and a slice of a larger value, can have any value.
        let whole = all(node.bits);
        let most = if most > whole { whole } else { most };
        largest.push(most.min(known[id.index()].most(node.bits)));
    }
    largest
}

/// The known bits of every node that is used.
pub(super) fn known(dataflow: &Dataflow) -> Vec<Known> {
    let graph = &dataflow.graph;
    let mut found: Vec<Known> = Vec::with_capacity(graph.nodes().len());
    let (mut args, mut widths) = (Vec::new(), Vec::new());
    for node in graph.nodes() {
        args.clear();
        args.extend(node.args.iter().map(|arg| found[arg.index()]));
        widths.clear();
        widths.extend(node.args.iter().map(|arg| graph.bits(*arg)));
        found.push(of(node.kind, &args, &widths, node.bits));
    }
    found
}

fn of(kind: Kind, args: &[Known], widths: &[u16], bits: u16) -> Known {
    let mask = all(bits);
    match (kind, args) {
        (Kind::Const(value), _) => Known::number(value, bits),
        (Kind::Slice { low }, [one]) => Known { zeros: one.zeros >> low & mask, ones: one.ones >> low & mask },
        (Kind::Concat, parts) => {
            let (mut joined, mut at) = (Known::default(), 0);
            for (part, width) in parts.iter().zip(widths) {
                joined.zeros |= part.zeros << at;
                joined.ones |= part.ones << at;
                at += width;
            }
            joined
        }
        (Kind::SignExtend, [one]) => {
            Known { zeros: sign_extended(one.zeros, widths[0]) & mask, ones: sign_extended(one.ones, widths[0]) & mask }
        }
        (Kind::Not, [one]) => Known { zeros: one.ones, ones: one.zeros },
        (Kind::Select, [pairs @ .., last]) => pairs
            .chunks_exact(2)
            .fold(*last, |both, pair| Known { zeros: both.zeros & pair[1].zeros, ones: both.ones & pair[1].ones }),
        (Kind::Binary(op), [a, b]) => binary(op, *a, *b, bits),
        _ => Known::default(),
    }
}

fn binary(op: Binary, a: Known, b: Known, bits: u16) -> Known {
    let mask = all(bits);
    let (most_a, most_b) = (a.most(bits), b.most(bits));
    let whole = u128::from(mask);
    match op {
        Binary::And => Known { zeros: a.zeros | b.zeros, ones: a.ones & b.ones },
        Binary::Or => Known { zeros: a.zeros & b.zeros, ones: a.ones | b.ones },
        Binary::Xor => Known { zeros: a.zeros & b.zeros | a.ones & b.ones, ones: a.zeros & b.ones | a.ones & b.zeros },
        Binary::Add => {
            let low = low_zeros(a, b, bits);
            match u128::from(most_a) + u128::from(most_b) {
                sum if sum <= whole => {
                    let above = Known::at_most(sum as u64, bits);
                    Known { zeros: above.zeros | low, ones: 0 }
                }
                _ => Known { zeros: low, ones: 0 },
            }
        }
        Binary::Mul => match u128::from(most_a) * u128::from(most_b) {
            product if product <= whole => Known::at_most(product as u64, bits),
            _ => Known::default(),
        },
        Binary::Div => Known::at_most(most_a, bits),
        // The remainder by 0 is the dividend.
        Binary::Mod if b.least() > 0 => Known::at_most(most_a.min(most_b - 1), bits),
        Binary::Mod => Known::at_most(most_a, bits),
        Binary::ShiftRight => Known::at_most(most_a, bits),
        _ => Known::default(),
    }
}

/// The number of low bits that are 0 in both operands of an adder.
fn low_zeros(a: Known, b: Known, bits: u16) -> u64 {
    all((a.zeros & b.zeros).trailing_ones().min(u32::from(bits)) as u16)
}

/// The demanded bits of every node.
pub(super) fn demanded(dataflow: &Dataflow, known: &[Known]) -> Vec<u64> {
    let graph = &dataflow.graph;
    let mut demanded = vec![0; graph.nodes().len()];
    let reaches = dataflow.reaches.iter().flat_map(|reach| [reach.when, reach.by.subject()]);
    for id in dataflow.ending.nodes().chain(reaches).chain(dataflow.wanted.values().copied()) {
        demanded[id.index()] = all(graph.bits(id));
    }
    for id in dataflow.used().into_iter().rev() {
        let node = graph.node(id);
        let own = match node.kind {
            Kind::Effect(_) => u64::MAX,
            _ => demanded[id.index()],
        };
        for (number, looked) in of_arguments(graph, id, own, known).into_iter().enumerate() {
            demanded[node.args[number].index()] |= looked & all(graph.bits(node.args[number]));
        }
    }
    demanded
}

/// The bits of its arguments that a node demands for these bits of its own.
fn of_arguments(graph: &Graph, id: Id, own: u64, known: &[Known]) -> Vec<u64> {
    let node = graph.node(id);
    let args = &node.args;
    let everything = || vec![u64::MAX; args.len()];
    if own == 0 {
        return vec![0; args.len()];
    }
    // Bits above the highest demanded one do not influence the bits below.
    let below = all(64 - own.leading_zeros() as u16);
    match node.kind {
        Kind::Slice { low } => vec![own << low],
        Kind::Concat => {
            let mut at = 0;
            let parts = args.iter().map(|arg| {
                let part = own >> at;
                at += graph.bits(*arg);
                part
            });
            parts.collect()
        }
        Kind::SignExtend => {
            let bits = graph.bits(args[0]);
            let sign = if own & !all(bits) != 0 { 1 << (bits - 1) } else { 0 };
            vec![own & all(bits) | sign]
        }
        Kind::Not => vec![own],
        Kind::Select => {
            let last = args.len() - 1;
            (0..args.len()).map(|place| if place == last || place % 2 == 1 { own } else { 1 }).collect()
        }
        Kind::Binary(op) => {
            let [a, b] = [known[args[0].index()], known[args[1].index()]];
            match op {
                Binary::And => vec![own & !b.zeros, own & !a.zeros],
                Binary::Or => vec![own & !b.ones, own & !a.ones],
                Binary::Xor => vec![own; 2],
                Binary::Add | Binary::Sub | Binary::Mul => vec![below; 2],
                _ => everything(),
            }
        }
        _ => everything(),
    }
}
