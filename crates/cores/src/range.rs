// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of values, as far as they follow from the least length of a packet: they decide comparisons with its end.

use flowloom_ir::{Binary, Compare, Graph, Id, Input, Kind};

/// The greatest length of a packet.
const MAX_LENGTH: u64 = 65_535;

/// The ranges of a graph's nodes, which are found as they are asked for.
#[derive(Debug)]
pub(crate) struct Ranges {
    least_length: u64,
    /// By node, the least and the greatest value, unsigned.
    known: Vec<(u64, u64)>,
}

impl Ranges {
    /// For packets of at least this length in bytes.
    pub(crate) fn new(least_length: u64) -> Ranges {
        Ranges { least_length, known: Vec::new() }
    }

    fn of(&mut self, graph: &Graph, id: Id) -> (u64, u64) {
        while self.known.len() <= id.index() {
            let range = self.computed(graph, Id::new(self.known.len()));
            self.known.push(range);
        }
        self.known[id.index()]
    }

    /// The result of a comparison, if it is the same for all values.
    pub(crate) fn compared(&mut self, graph: &Graph, how: Compare, a: Id, b: Id) -> Option<bool> {
        let (a, b, bits) = (self.of(graph, a), self.of(graph, b), graph.bits(a));
        compared(how, a, b, bits)
    }

    fn computed(&self, graph: &Graph, id: Id) -> (u64, u64) {
        let node = graph.node(id);
        let all = greatest(node.bits);
        let args: Vec<(u64, u64)> = node.args.iter().map(|arg| self.known[arg.index()]).collect();
        let within = |low: Option<u64>, high: Option<u64>| match (low, high) {
            (Some(low), Some(high)) if high <= all => (low, high),
            _ => (0, all),
        };
        match (node.kind, args.as_slice()) {
            (Kind::Const(value), _) => (value, value),
            (Kind::Input(Input::Length), _) => (self.least_length.min(MAX_LENGTH), MAX_LENGTH),
            (Kind::Slice { low }, [(least, most)]) => {
                within(least.checked_shr(low.into()), most.checked_shr(low.into()))
            }
            (Kind::SignExtend, [range]) if range.1 <= greatest(graph.bits(node.args[0])) >> 1 => *range,
            (Kind::Concat, parts) => {
                let (mut range, mut at) = ((0, 0), 0_u32);
                for (part, id) in parts.iter().zip(&node.args) {
                    let shifted = |value: u64| value.checked_shl(at).unwrap_or(0);
                    range = (range.0 | shifted(part.0), range.1 | shifted(part.1));
                    at += u32::from(graph.bits(*id));
                }
                range
            }
            (Kind::Binary(Binary::Add), [a, b]) => within(a.0.checked_add(b.0), a.1.checked_add(b.1)),
            (Kind::Binary(Binary::Sub), [a, b]) => within(a.0.checked_sub(b.1), a.1.checked_sub(b.0)),
            (Kind::Binary(Binary::Mul), [a, b]) => within(a.0.checked_mul(b.0), a.1.checked_mul(b.1)),
            (Kind::Binary(Binary::And), [a, b]) => (0, a.1.min(b.1)),
            (Kind::Compare(how), [a, b]) => {
                let result = compared(how, *a, *b, graph.bits(node.args[0]));
                result.map_or((0, 1), |is_true| (is_true.into(), is_true.into()))
            }
            (Kind::Select, [parts @ .., last]) => {
                parts.chunks_exact(2).fold(*last, |all, pair| (all.0.min(pair[1].0), all.1.max(pair[1].1)))
            }
            _ => (0, all),
        }
    }
}

/// The greatest number of this width.
fn greatest(bits: u16) -> u64 {
    u64::MAX >> (64 - bits.clamp(1, 64))
}

fn compared(how: Compare, a: (u64, u64), b: (u64, u64), bits: u16) -> Option<bool> {
    let decided = |always: bool, never: bool| if always { Some(true) } else { never.then_some(false) };
    let below = || decided(a.1 < b.0, a.0 >= b.1);
    match how {
        Compare::Below => below(),
        Compare::SignedBelow if a.1.max(b.1) <= greatest(bits) >> 1 => below(),
        Compare::SignedBelow => None,
        Compare::Equal => decided(a.0 == a.1 && a == b, a.1 < b.0 || b.1 < a.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_packet_is_compared_with_offsets() {
        let mut graph = Graph::default();
        let length = graph.make(Kind::Input(Input::Length), Vec::new(), 16);
        let length = graph.fit(length, 32);
        let words = graph.byte(14);
        let words = graph.slice(words, 0, 4);
        let zeros = graph.number(0, 2);
        let rest = graph.number(0, 26);
        // 4 times a number of 4 bits, after the Ethernet header: at most 74.
        let options = graph.concat(vec![zeros, words, rest]);
        let ethernet = graph.number(14, 32);
        let end = graph.binary(Binary::Add, options, ethernet);
        let [less, most, more] = [73, 74, 75].map(|number| graph.number(number, 32));
        let mut ranges = Ranges::new(74);
        assert_eq!(ranges.compared(&graph, Compare::Below, length, end), Some(false));
        assert_eq!(ranges.compared(&graph, Compare::SignedBelow, length, less), Some(false));
        assert_eq!(ranges.compared(&graph, Compare::Below, length, more), None);
        assert_eq!(ranges.compared(&graph, Compare::Below, end, more), Some(true));
        assert_eq!(ranges.compared(&graph, Compare::Equal, end, more), Some(false));
        assert_eq!(ranges.compared(&graph, Compare::Equal, end, most), None);
        assert_eq!(Ranges::new(73).compared(&graph, Compare::Below, length, end), None);
    }
}
