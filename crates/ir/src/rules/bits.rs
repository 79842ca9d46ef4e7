// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about the bits of a node that follow from slices, concatenations and constants.

use std::rc::Rc;

use crate::graph::{Graph, Id, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bit {
    Known(bool),
    /// A bit of a node.
    Of(Id, u16),
}

/// A memo table of the bits of nodes.
#[derive(Debug, Default)]
pub(super) struct Bits {
    known: Vec<Option<Rc<[Bit]>>>,
}

impl Bits {
    /// The bits of a node, the least significant first.
    pub(super) fn of(&mut self, graph: &Graph, id: Id) -> Rc<[Bit]> {
        if let Some(Some(known)) = self.known.get(id.index()) {
            return Rc::clone(known);
        }
        let node = graph.node(id);
        let bits: Rc<[Bit]> = match node.kind {
            Kind::Const(value) => (0..node.bits).map(|at| Bit::Known(value >> at.min(63) & 1 == 1)).collect(),
            Kind::Concat => node.args.iter().flat_map(|part| self.of(graph, *part).to_vec()).collect(),
            Kind::Slice { low } => {
                let all = self.of(graph, node.args[0]);
                all[usize::from(low)..usize::from(low + node.bits)].into()
            }
            Kind::SignExtend => {
                let own = self.of(graph, node.args[0]);
                let last = own.last().copied().unwrap_or(Bit::Known(false));
                let above = usize::from(node.bits) - own.len();
                own.iter().copied().chain(std::iter::repeat_n(last, above)).collect()
            }
            _ => (0..node.bits).map(|at| Bit::Of(id, at)).collect(),
        };
        self.known.resize(graph.nodes().len().max(self.known.len()), None);
        self.known[id.index()] = Some(Rc::clone(&bits));
        bits
    }
}

/// The first run of bits with a property: (start, length).
pub(super) fn run(len: usize, mut is: impl FnMut(usize) -> bool) -> Option<(u64, u64)> {
    let start = (0..len).find(|at| is(*at))?;
    let end = (start..len).find(|at| !is(*at)).unwrap_or(len);
    Some((start as u64, (end - start) as u64))
}

/// The width without leading zeros; at least 1.
pub(super) fn unsigned(bits: &[Bit]) -> u64 {
    let zeros = bits.iter().rev().take_while(|bit| **bit == Bit::Known(false)).count();
    (bits.len() - zeros).max(1) as u64
}

/// The width without redundant sign bits.
pub(super) fn signed(bits: &[Bit]) -> u64 {
    let copies = bits.iter().rev().take_while(|bit| Some(*bit) == bits.last()).count();
    (bits.len() - copies + 1) as u64
}

/// The number of trailing zeros.
pub(super) fn low(bits: &[Bit]) -> u64 {
    bits.iter().take_while(|bit| **bit == Bit::Known(false)).count() as u64
}

/// The exponent of a power of two.
pub(super) fn power(value: u64) -> Option<u64> {
    value.is_power_of_two().then(|| u64::from(value.trailing_zeros()))
}

/// The exponents in 2^i + 2^j.
pub(super) fn two_bits(value: u64) -> Option<(u64, u64)> {
    (value.count_ones() == 2).then(|| (u64::from(value.trailing_zeros()), 63 - u64::from(value.leading_zeros())))
}

/// The exponents in 2^j - 2^i.
pub(super) fn run_of_ones(value: u64) -> Option<(u64, u64)> {
    let (first, len) = (value.trailing_zeros(), value.count_ones());
    (value != 0 && first + len == 64 - value.leading_zeros()).then(|| (first.into(), (first + len).into()))
}
