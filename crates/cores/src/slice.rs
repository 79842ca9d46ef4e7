// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The key of a program's maps, as a function of the packet.
//!
//! **Goal.** The core of a packet from the key that the program will look up, faster than the program computes it.
//!
//! ```text
//!  dataflow ── nodes that lead to the bytes of the key ──► any packet:    the nodes are evaluated
//!           └─ with the header bytes of usual packets fixed ──► key byte i = packet byte o: loads at fixed offsets
//! ```
//!
//! **Steps.** [`KeySlice::new`] keeps the nodes that the key needs. For each of the usual [`FORMATS`] it rebuilds them
//! with that format's bytes as constants and its length as a bound, which folds parsers and joins. What remains of a
//! byte of the key is a constant, a byte of the packet, or a select between such bytes: programs put the smaller
//! address first. If the alternatives of all selects are one permutation of the key that is its own inverse, the hash
//! is made symmetric under it, so that the selects need no evaluation.
//!
//! **Holds.** The hash is a function of the key alone, in whatever way a packet's hash is computed. So packets with
//! equal keys have one core.

use std::collections::HashMap;

use flowloom_engine::Port;
use flowloom_ir::{Binary, Graph, Id, Input, Kind, Predicates, apply};

use crate::hash::{Factors, MAX_WORDS};
use crate::range::Ranges;
use crate::usual::{FORMATS, Format, Origin, UsualFormats};

/// The most nodes of a slice: more cost more than the program.
const MAX_NODES: usize = 20_000;
/// The bytes of the ingress port.
const PORT_BYTES: usize = 4;

/// A permutation of the bytes of the key that is its own inverse.
type Swap = Vec<usize>;

/// The computation of a key, and its hash.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeySlice {
    steps: Vec<Step>,
    /// By byte of the key, its node among the steps.
    bytes: Vec<u32>,
    words: Vec<Word>,
    is_symmetric: bool,
    factors: Factors,
    pub(crate) usual: UsualFormats,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    kind: Kind,
    args: Vec<u32>,
    widths: Vec<u16>,
    bits: u16,
}

/// Consecutive bytes of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    start: usize,
    len: usize,
    /// The word that the permutation puts in its place.
    partner: usize,
}

/// A byte of the key in a usual format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Packet(u16),
    Constant(u8),
    /// A byte of the ingress port.
    Port(u16),
}

/// A byte of the key in a usual format, with the conditions of a select.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Alternatives {
    conditions: Vec<Id>,
    leaves: Vec<Leaf>,
}

impl KeySlice {
    /// The slice of `bytes`, the nodes of the key's bytes, which depend on no effect. One of the bits `when` is 1 for each
    /// packet whose key counts; none is given if that is not known. `swap` is a permutation under which the hash has to
    /// be symmetric. `is_apart` tells whether a byte of the key is apart from the one before it
    /// in some map.
    ///
    /// # Errors
    /// The reason why the key has no such hash.
    pub(crate) fn new(
        graph: &Graph,
        (bytes, when): (&[Id], &[Id]),
        swap: Option<Swap>,
        is_apart: impl Fn(usize) -> bool,
    ) -> Result<KeySlice, String> {
        let of_key = needed(graph, bytes);
        if of_key.len() > MAX_NODES {
            return Err(format!("its key takes {} operations, at most {MAX_NODES} are looked at", of_key.len()));
        }
        let mut place: HashMap<Id, u32> = HashMap::new();
        let mut steps = Vec::new();
        for id in &of_key {
            let node = graph.node(*id);
            let args = node.args.iter().map(|arg| place[arg]).collect();
            let widths = node.args.iter().map(|arg| graph.bits(*arg)).collect();
            place.insert(*id, steps.len() as u32);
            steps.push(Step { kind: node.kind, args, widths, bits: node.bits });
        }
        let mut swap = swap;
        let mut found = Vec::new();
        let roots = [bytes, when].concat();
        let needed = needed(graph, &roots);
        for format in &FORMATS {
            let (folded, roots) = with_fixed(graph, &needed, &roots, format);
            let (folded_bytes, when) = roots.split_at(bytes.len());
            let mut accessing = Accessing::new(&folded, when);
            let leaves = match leaves(&mut accessing, folded_bytes, &mut swap) {
                Some(leaves) => leaves,
                // No packet of this format has a key.
                None if accessing.is_never => vec![Leaf::Constant(0); bytes.len()],
                None => continue,
            };
            found.push((format, leaves));
        }
        let identity: Swap = (0..bytes.len()).collect();
        let is_symmetric = swap.as_ref().is_some_and(|swap| *swap != identity);
        let swap = swap.unwrap_or(identity);
        let words = words(&swap, |at| is_apart(at) || found.iter().any(|(_, leaves)| !follows(leaves, at)));
        if words.len() > MAX_WORDS {
            return Err(format!("its key is in {} pieces, at most {MAX_WORDS} are hashed", words.len()));
        }
        let partners: Vec<usize> = words.iter().map(|word| word.partner).collect();
        let factors = Factors::new(&partners);
        let mut usual = UsualFormats::default();
        for (format, leaves) in found {
            let origins: Option<Vec<Origin>> = words.iter().map(|word| origin(word, &leaves)).collect();
            if let Some(origins) = origins {
                usual.add(format, &origins, &factors);
            }
        }
        let bytes = bytes.iter().map(|id| place[id]).collect();
        Ok(KeySlice { steps, bytes, words, is_symmetric, factors, usual })
    }

    /// Whether the hash is the same if both directions of a flow change places.
    pub(crate) fn is_symmetric(&self) -> bool {
        self.is_symmetric
    }

    /// Whether packets of usual formats need no evaluation.
    pub(crate) fn is_fast(&self) -> bool {
        !self.usual.is_empty()
    }

    /// The hash of a key, of which byte `at` is `byte(at)`.
    pub(crate) fn hash_of_key(&self, byte: impl Fn(usize) -> u8) -> u64 {
        self.factors.hash(|word| {
            let Word { start, len, .. } = self.words[word];
            (start..start + len).rev().fold(0, |number, at| number << 8 | u64::from(byte(at)))
        })
    }

    /// The hash of the key that the program computes for a packet.
    #[inline]
    pub(crate) fn hash(&self, packet: &[u8], port: Port, values: &mut Vec<u64>) -> u64 {
        match self.usual.hash(packet, port) {
            Some(hash) => hash,
            None => self.evaluated(packet, port, values),
        }
    }

    /// As [`KeySlice::hash`], by evaluation of all nodes.
    #[cold]
    pub(crate) fn evaluated(&self, packet: &[u8], port: Port, values: &mut Vec<u64>) -> u64 {
        let byte = |at: i64| usize::try_from(at).ok().and_then(|at| packet.get(at)).copied().unwrap_or(0);
        values.clear();
        let mut args = Vec::new();
        for step in &self.steps {
            args.clear();
            args.extend(step.args.iter().map(|arg| values[*arg as usize]));
            values.push(match step.kind {
                Kind::Input(Input::Byte(at)) => byte(at.into()).into(),
                Kind::Input(Input::Length) => packet.len() as u64,
                Kind::Input(Input::Port) => port.0.into(),
                Kind::Bytes { ahead } => {
                    let first = i64::from(args[0] as i32) + i64::from(ahead);
                    (0..i64::from(step.bits / 8)).rev().fold(0, |all, at| all << 8 | u64::from(byte(first + at)))
                }
                kind => apply(kind, &args, &step.widths, step.bits),
            });
        }
        self.hash_of_key(|at| values[self.bytes[at] as usize] as u8)
    }
}

/// The nodes that others need, in topological order.
fn needed(graph: &Graph, of: &[Id]) -> Vec<Id> {
    let mut is_needed = vec![false; graph.nodes().len()];
    of.iter().for_each(|id| is_needed[id.index()] = true);
    for id in graph.ids().rev() {
        if is_needed[id.index()] {
            graph.node(id).args.iter().for_each(|arg| is_needed[arg.index()] = true);
        }
    }
    graph.ids().filter(|id| is_needed[id.index()]).collect()
}

/// The nodes with bytes of the packet as constants, for packets that have at least the length of the format, and the
/// places of `bytes` in the new graph.
fn with_fixed(graph: &Graph, needed: &[Id], bytes: &[Id], format: &Format) -> (Graph, Vec<Id>) {
    let mut folded = Graph::default();
    let mut ranges = Ranges::new(format.len_bytes as u64);
    let mut place: HashMap<Id, Id> = HashMap::new();
    for id in needed {
        let node = graph.node(*id);
        let args: Vec<Id> = node.args.iter().map(|arg| place[arg]).collect();
        let fixed = match node.kind {
            Kind::Input(Input::Byte(at)) => format.bytes.iter().find(|(fixed, _)| *fixed == at),
            _ => None,
        };
        let new = match (fixed, node.kind) {
            (Some((_, value)), _) => folded.number((*value).into(), 8),
            (None, Kind::Compare(how)) => match ranges.compared(&folded, how, args[0], args[1]) {
                Some(is_true) => folded.number(is_true.into(), 1),
                None => folded.make(node.kind, args, node.bits),
            },
            _ => folded.make(node.kind, args, node.bits),
        };
        place.insert(*id, new);
    }
    // Bytes at offsets that are constants now.
    let fixed = |id: &Id| place[id];
    let bytes = bytes.iter().map(fixed).collect();
    refolded(folded, bytes, format)
}

/// Accesses at constant offsets have become inputs; those with known values become constants in turn, until nothing
/// changes.
fn refolded(graph: Graph, bytes: Vec<Id>, format: &Format) -> (Graph, Vec<Id>) {
    let needed = needed(&graph, &bytes);
    let is_known = |id: &Id| match graph.node(*id).kind {
        Kind::Input(Input::Byte(at)) => format.bytes.iter().any(|(fixed, _)| *fixed == at),
        _ => false,
    };
    match needed.iter().any(is_known) {
        true => with_fixed(&graph, &needed, &bytes, format),
        false => (graph, bytes),
    }
}

/// What is known of the packets of a format that access the maps.
struct Accessing<'g> {
    graph: &'g Graph,
    predicates: Predicates,
    /// One of these bits is 1.
    when: Vec<Id>,
    /// True if none of them can be.
    is_never: bool,
}

impl Accessing<'_> {
    fn new<'g>(graph: &'g Graph, when: &[Id]) -> Accessing<'g> {
        let can_be: Vec<Id> = when.iter().copied().filter(|bit| graph.as_const(*bit) != Some(0)).collect();
        let is_never = !when.is_empty() && can_be.is_empty();
        Accessing { graph, predicates: Predicates::new(graph), when: can_be, is_never }
    }

    /// The value of a select, if it is the same one for all of these packets.
    fn chosen(&mut self, parts: &[Id]) -> Option<Id> {
        let Accessing { graph, predicates, when, .. } = self;
        let (last, pairs) = parts.split_last().filter(|_| !when.is_empty())?;
        for pair in pairs.chunks_exact(2) {
            if when.iter().all(|bit| predicates.implies(graph, *bit, pair[0])) {
                return Some(pair[1]);
            }
            if !when.iter().all(|bit| predicates.exclude(graph, *bit, pair[0])) {
                return None;
            }
        }
        Some(*last)
    }
}

/// What a byte of the key is: the byte at bit `low` of a node; `None` if it is no byte of the packet.
fn byte(accessing: &mut Accessing<'_>, id: Id, low: u16) -> Option<Alternatives> {
    let graph = accessing.graph;
    let node = graph.node(id);
    let plain = |leaf| Some(Alternatives { conditions: Vec::new(), leaves: vec![leaf] });
    match node.kind {
        Kind::Const(value) => plain(Leaf::Constant(value.checked_shr(low.into()).unwrap_or(0) as u8)),
        Kind::Input(Input::Byte(at)) if low == 0 => plain(Leaf::Packet(at)),
        Kind::Input(Input::Port) if low.is_multiple_of(8) => plain(Leaf::Port(low / 8)),
        Kind::Slice { low: own } => byte(accessing, node.args[0], own + low),
        Kind::Concat => {
            let mut start = 0;
            for part in &node.args {
                let bits = graph.bits(*part);
                if start <= low && low + 8 <= start + bits {
                    return byte(accessing, *part, low - start);
                }
                start += bits;
            }
            None
        }
        // `address << 32 | 0xffff` and the like.
        Kind::Binary(op @ (Binary::ShiftLeft | Binary::ShiftRight)) => {
            let distance = u16::try_from(graph.as_const(node.args[1])?).ok().filter(|bits| bits.is_multiple_of(8))?;
            let from = match op {
                Binary::ShiftLeft => low.checked_sub(distance),
                _ => Some(low + distance),
            };
            match from.filter(|from| *from < node.bits) {
                Some(from) => byte(accessing, node.args[0], from),
                None => plain(Leaf::Constant(0)),
            }
        }
        Kind::Binary(op @ (Binary::Or | Binary::And)) => {
            let (one, other) = (byte(accessing, node.args[0], low)?, byte(accessing, node.args[1], low)?);
            let constant = |of: &Alternatives| match (of.leaves.as_slice(), of.conditions.is_empty()) {
                ([Leaf::Constant(byte)], true) => Some(*byte),
                _ => None,
            };
            match (op, constant(&one), constant(&other)) {
                (Binary::Or, Some(one), Some(other)) => plain(Leaf::Constant(one | other)),
                (_, Some(one), Some(other)) => plain(Leaf::Constant(one & other)),
                (Binary::And, Some(0), _) | (Binary::And, _, Some(0)) => plain(Leaf::Constant(0)),
                (Binary::Or, Some(0), _) | (Binary::And, Some(0xff), _) => Some(other),
                (Binary::Or, _, Some(0)) | (Binary::And, _, Some(0xff)) => Some(one),
                _ => None,
            }
        }
        Kind::Select => {
            if let Some(chosen) = accessing.chosen(&node.args) {
                return byte(accessing, chosen, low);
            }
            let (last, pairs) = node.args.split_last()?;
            let conditions = pairs.chunks_exact(2).map(|pair| pair[0]).collect();
            let values = pairs.chunks_exact(2).map(|pair| pair[1]).chain([*last]);
            let leaves: Option<Vec<Leaf>> = values
                .map(|value| match byte(accessing, value, low)? {
                    Alternatives { conditions, leaves } if conditions.is_empty() => leaves.first().copied(),
                    _ => None,
                })
                .collect();
            Some(Alternatives { conditions, leaves: leaves? })
        }
        _ => None,
    }
}

/// The bytes of the key of a usual format, if it can be read off the packet, up to the permutation, which is found if
/// there is none yet.
fn leaves(accessing: &mut Accessing<'_>, bytes: &[Id], swap: &mut Option<Swap>) -> Option<Vec<Leaf>> {
    let all: Vec<Alternatives> = bytes.iter().map(|id| byte(accessing, *id, 0)).collect::<Option<_>>()?;
    let selected = all.iter().find(|alternatives| !alternatives.conditions.is_empty());
    let (conditions, count) = selected.map_or((&[][..], 1), |all| (&all.conditions[..], all.leaves.len()));
    // All bytes have to change places together.
    if all.iter().any(|own| !own.conditions.is_empty() && own.conditions != conditions) {
        return None;
    }
    let alternative = |number: usize| -> Vec<Leaf> {
        all.iter().map(|own| own.leaves[if own.conditions.is_empty() { 0 } else { number }]).collect()
    };
    let first = alternative(0);
    for other in (1..count).map(alternative) {
        if other == first {
            continue;
        }
        let found = permutation(&first, &other)?;
        match swap {
            Some(swap) if *swap == found => {}
            Some(_) => return None,
            None => *swap = Some(found),
        }
    }
    Some(first)
}

/// The permutation that is its own inverse and makes one list of another.
pub(crate) fn permutation<T: PartialEq>(first: &[T], other: &[T]) -> Option<Swap> {
    let place = |(at, item): (usize, &T)| match first.get(at) == Some(item) {
        true => Some(at),
        false => first.iter().position(|of| of == item),
    };
    let swap: Swap = other.iter().enumerate().map(place).collect::<Option<_>>()?;
    (first.len() == other.len() && swap.iter().enumerate().all(|(at, to)| swap[*to] == at)).then_some(swap)
}

/// Whether a byte of the key follows the one before it in the packet, too.
fn follows(leaves: &[Leaf], at: usize) -> bool {
    match (leaves[at - 1], leaves[at]) {
        (Leaf::Packet(before), Leaf::Packet(own)) => before + 1 == own,
        (Leaf::Port(before), Leaf::Port(own)) => before + 1 == own,
        (Leaf::Constant(_), Leaf::Constant(_)) => true,
        _ => false,
    }
}

/// Splits the key into words that the permutation maps to words.
fn words(swap: &Swap, is_apart: impl Fn(usize) -> bool) -> Vec<Word> {
    let count = swap.len();
    let begins = |at: usize| at == 0 || is_apart(at) || swap[at] != swap[at - 1] + 1;
    let mut is_start: Vec<bool> = (0..count).map(begins).collect();
    for at in 0..count {
        is_start[at] |= is_start[swap[at]];
    }
    let mut starts: Vec<usize> = Vec::new();
    let mut last = 0;
    for (at, is_start) in is_start.into_iter().enumerate() {
        if is_start || at - last == 8 {
            starts.push(at);
            last = at;
        }
    }
    let end = |number: usize| starts.get(number + 1).copied().unwrap_or(count);
    let partner = |start: &usize| starts.binary_search(&swap[*start]).unwrap_or_default();
    let word =
        |(number, start): (usize, &usize)| Word { start: *start, len: end(number) - start, partner: partner(start) };
    starts.iter().enumerate().map(word).collect()
}

/// Where a word is in packets of a format; `None` if it is a part of the ingress port.
fn origin(word: &Word, leaves: &[Leaf]) -> Option<Origin> {
    let own = &leaves[word.start..word.start + word.len];
    match own[0] {
        Leaf::Packet(at) => Some(Origin::Packet { at: at.into(), mask: u64::MAX >> (64 - 8 * word.len), constant: 0 }),
        Leaf::Constant(_) => Some(Origin::constant(own.iter().rev().fold(0, |number, leaf| match leaf {
            Leaf::Constant(byte) => number << 8 | u64::from(*byte),
            Leaf::Packet(_) | Leaf::Port(_) => number << 8,
        }))),
        Leaf::Port(first) => (first == 0 && word.len == PORT_BYTES).then_some(Origin::Port),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use flowloom_ir::Compare;

    /// Addresses and ports, the smaller address first.
    fn firewall() -> (Graph, Vec<Id>) {
        let mut graph = Graph::default();
        let mut at = |first: i64, len: i64| -> Vec<Id> { (first..first + len).map(|at| graph.byte(at)).collect() };
        let (src, dst, sport, dport) = (at(26, 4), at(30, 4), at(34, 2), at(36, 2));
        let [low, high] = [&src, &dst].map(|bytes| graph.concat(bytes.clone()));
        let is_less = graph.compare(Compare::Below, low, high);
        let both: Vec<(Id, Id)> = [&src, &dst, &sport, &dport]
            .iter()
            .zip([&dst, &src, &dport, &sport])
            .flat_map(|(one, other)| one.iter().copied().zip(other.iter().copied()).collect::<Vec<_>>())
            .collect();
        let key = both.into_iter().map(|(one, other)| graph.select(vec![is_less, one, other])).collect();
        (graph, key)
    }

    fn packet(src: u8, dst: u8, sport: u8, dport: u8) -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        (packet[23], packet[29], packet[33], packet[35], packet[37]) = (17, src, dst, sport, dport);
        packet
    }

    #[test]
    fn a_select_of_directions_becomes_a_symmetric_hash() {
        let (graph, key) = firewall();
        let slice = KeySlice::new(&graph, (&key, &[]), None, |_| false).unwrap();
        assert!(slice.is_symmetric() && slice.usual.hash(&packet(1, 2, 7, 8), Port(1)).is_some());
        let words: Vec<(usize, usize, usize)> = slice.words.iter().map(|w| (w.start, w.len, w.partner)).collect();
        assert_eq!(words, [(0, 4, 1), (4, 4, 0), (8, 2, 3), (10, 2, 2)]);
        let mut values = Vec::new();
        let mut hash = |packet: &[u8]| {
            let hash = slice.hash(packet, Port(1), &mut values);
            assert_eq!(hash, slice.evaluated(packet, Port(1), &mut values));
            hash
        };
        let there = hash(&packet(1, 2, 7, 8));
        assert_eq!(there, hash(&packet(2, 1, 8, 7)));
        // Each pair is exchanged by itself, so that these have one core as well.
        assert_eq!(there, hash(&packet(2, 1, 7, 8)));
        assert_ne!(there, hash(&packet(1, 2, 7, 9)));
        assert_ne!(there, hash(&packet(1, 3, 7, 8)));
        // A packet that ends early has zeros beyond its end.
        assert_eq!(hash(&packet(1, 0, 0, 0)[..30]), hash(&packet(1, 0, 0, 0)));
        let key = [1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 8, 0];
        assert_ne!(slice.hash_of_key(|at| key[at]), there, "bytes are in network order");
        let key = [0, 0, 0, 1, 0, 0, 0, 2, 0, 7, 0, 8];
        assert_eq!(slice.hash_of_key(|at| key[at]), there);
    }

    #[test]
    fn offsets_that_a_format_fixes_become_loads() {
        let mut graph = Graph::default();
        let first = graph.byte(14);
        let words = graph.slice(first, 0, 4);
        let zeros = graph.number(0, 2);
        let rest = graph.number(0, 26);
        let offset = graph.concat(vec![zeros, words, rest]);
        let port = graph.make(Kind::Bytes { ahead: 14 }, vec![offset], 16);
        let key = [graph.slice(port, 0, 8), graph.slice(port, 8, 8)];
        let slice = KeySlice::new(&graph, (&key, &[]), None, |_| false).unwrap();
        assert!(!slice.is_symmetric() && slice.is_fast());
        let mut values = Vec::new();
        let mut with_options = packet(1, 2, 7, 8);
        with_options[14] = 0x46;
        with_options[38..40].copy_from_slice(&[3, 4]);
        for (packet, key, is_usual) in [(with_options, [3, 4], false), (packet(1, 2, 7, 8), [0, 7], true)] {
            assert_eq!(slice.usual.hash(&packet, Port(1)).is_some(), is_usual);
            let expected = slice.hash_of_key(|at| key[at]);
            assert_eq!(slice.hash(&packet, Port(1), &mut values), expected);
            assert_eq!(slice.evaluated(&packet, Port(1), &mut values), expected);
        }
    }

    #[test]
    fn bytes_may_be_shifted_and_joined() {
        let mut graph = Graph::default();
        let mut parts: Vec<Id> = (26..30).map(|at| graph.byte(at)).collect();
        parts.push(graph.number(0, 32));
        let address = graph.concat(parts);
        let (distance, mapped) = (graph.number(32, 64), graph.number(0xffff << 16, 64));
        let high = graph.binary(Binary::ShiftLeft, address, distance);
        let word = graph.binary(Binary::Or, high, mapped);
        let key: Vec<Id> = (0..8).map(|at| graph.slice(word, 8 * at, 8)).collect();
        let slice = KeySlice::new(&graph, (&key, &[]), None, |_| false).unwrap();
        let packet = packet(9, 2, 7, 8);
        let expected = [0, 0, 0xff, 0xff, 0, 0, 0, 9];
        let hash = slice.usual.hash(&packet, Port(1)).unwrap();
        assert_eq!(hash, slice.hash_of_key(|at| expected[at]));
        assert_eq!(hash, slice.evaluated(&packet, Port(1), &mut Vec::new()));
    }

    /// A key of IPv4 or else of another header, on a path that checks lengths which no format fixes.
    #[test]
    fn packets_without_an_access_do_not_count() {
        let (mut graph, key) = firewall();
        let zero = graph.number(0, 8);
        let ports: Vec<Id> = (54..58).map(|at| graph.byte(at)).collect();
        let other: Vec<Id> = (0..key.len()).map(|at| ports.get(at).copied().unwrap_or(zero)).collect();
        let (version, total, least) = (graph.byte(14), graph.byte(17), graph.number(28, 8));
        let four = graph.number(0x45, 8);
        let is_ipv4 = graph.compare(Compare::Equal, version, four);
        let is_short = graph.compare(Compare::Below, total, least);
        let is_long = graph.not(is_short);
        let is_whole = graph.and(is_ipv4, is_long);
        let six = graph.number(0x60, 8);
        let is_ipv6 = graph.compare(Compare::Equal, version, six);
        let when = graph.or(is_whole, is_ipv6);
        let key: Vec<Id> =
            key.iter().zip(&other).map(|(own, other)| graph.select(vec![is_whole, *own, *other])).collect();
        let usual = |when: &[Id]| KeySlice::new(&graph, (&key, when), None, |_| false).unwrap();
        let mut whole = packet(1, 2, 7, 8);
        whole[17] = 28;
        assert_eq!(usual(&[]).usual.hash(&whole, Port(1)), None, "without the access, either may be the key");
        let slice = usual(&[when]);
        let mut values = Vec::new();
        let hash = slice.usual.hash(&whole, Port(1)).unwrap();
        assert_eq!(hash, slice.evaluated(&whole, Port(1), &mut values));
        let mut back = packet(2, 1, 8, 7);
        back[17] = 28;
        assert_eq!(slice.usual.hash(&back, Port(1)), Some(hash));
        // An access that does not imply the condition leaves both.
        assert_eq!(usual(&[when, is_short]).usual.hash(&whole, Port(1)), None);
        // One that no packet of the format has, leaves nothing to compute.
        assert!(usual(&[is_ipv6]).usual.hash(&whole, Port(1)).is_some());
    }

    #[test]
    fn bytes_that_change_places_by_different_conditions_are_evaluated() {
        let (mut graph, mut key) = firewall();
        let one = graph.byte(0);
        let other = graph.slice(one, 0, 1);
        let (a, b) = (graph.byte(26), graph.byte(30));
        key[0] = graph.select(vec![other, a, b]);
        let slice = KeySlice::new(&graph, (&key, &[]), None, |_| false).unwrap();
        assert!(!slice.is_fast() && !slice.is_symmetric());
    }
}
