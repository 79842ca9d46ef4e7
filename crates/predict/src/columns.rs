// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vectorised evaluation of dataflow: a column for each node, a lane for each packet.
//!
//! ```text
//!            packet 0  packet 1  packet 2 …
//!  v3  16 b    0x0800    0x86dd    0x0800       wide columns: a number each
//!  v9   1 b         1         0         1       conditions: a bit each, 64 packets in a number
//! ```
//!
//! Only the cones of the wanted nodes are evaluated. Adjacent bytes of the packet are one load; leading zeros cost
//! nothing.

use std::collections::HashMap;

use flowloom_ir::{Binary, Compare, Graph, Id, Input, Kind, Node};

use super::ops::{Bit, Bits, Op, Wide};
use super::value::mask;

/// Lanes: the columns of so many packets stay in the cache.
pub(super) const LANES: usize = 128;
/// The bytes of the packet in one column.
const WORD_BYTES: usize = 8;
/// Words of a bit mask over all lanes.
pub(super) const WORDS: usize = LANES / 64;

#[derive(Debug)]
enum Step {
    Wide(Wide, Op),
    Bits(Bits, Bit),
}

/// The column of a node that is not wanted.
static NO_NUMBERS: [u64; LANES] = [0; LANES];

/// The location of the value of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Wide(Wide),
    Bits(Bits),
}

/// The columns of some nodes and of their cones.
#[derive(Debug)]
pub(super) struct Columns {
    steps: Vec<Step>,
    places: Vec<Place>,
    wide: Vec<[u64; LANES]>,
    bits: Vec<[u64; WORDS]>,
    /// Columns filled from the packet, 8 bytes each, by their offset in units of 8 bytes.
    words: Vec<(usize, Wide)>,
    lengths: [u64; LANES],
    ports: [u64; LANES],
    /// The bytes of each packet, if nodes read at offsets known only at run time.
    packets: Option<Vec<Vec<u8>>>,
    /// Loads by first byte, width and byte order; and columns that are all ones where a bit is set.
    loads: HashMap<(u16, u16, bool), Wide>,
    masks: HashMap<Bits, Wide>,
}

/// Which nodes depend on the packet alone: on no effect and no address.
pub(super) fn is_pure(graph: &Graph) -> Vec<bool> {
    let mut pure: Vec<bool> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let is_own = !matches!(node.kind, Kind::Effect(_) | Kind::Input(Input::Only(_))) && node.bits <= 64;
        let all = node.args.iter().all(|arg| pure[arg.index()]);
        pure.push(is_own && all);
    }
    pure
}

/// A part of a concatenation: adjacent bytes of the packet, or a node.
enum Part {
    Bytes { first: u16, count: u16, is_big: bool },
    Node(Id),
}

/// The parts of a concatenation with their bit positions, without zeros.
fn parts(graph: &Graph, node: &Node) -> Vec<(Part, u16)> {
    let mut parts: Vec<(Part, u16)> = Vec::new();
    let mut at = 0;
    for id in &node.args {
        let byte = match graph.node(*id).kind {
            Kind::Input(Input::Byte(byte)) => Some(byte),
            _ => None,
        };
        match (byte, parts.last_mut()) {
            (Some(byte), Some((Part::Bytes { first, count, is_big }, begins)))
                if *begins + 8 * *count == at && (!*is_big || *count == 1) && byte == *first + *count =>
            {
                (*count, *is_big) = (*count + 1, false);
            }
            (Some(byte), Some((Part::Bytes { first, count, is_big }, begins)))
                if *begins + 8 * *count == at && (*is_big || *count == 1) && byte + 1 == *first =>
            {
                (*first, *count, *is_big) = (byte, *count + 1, true);
            }
            (Some(byte), _) => parts.push((Part::Bytes { first: byte, count: 1, is_big: false }, at)),
            (None, _) if graph.as_const(*id) == Some(0) => {}
            (None, _) => parts.push((Part::Node(*id), at)),
        }
        at += graph.bits(*id);
    }
    parts
}

/// `count` bytes of a packet, the first one least significant; 0 past the end.
fn bytes_at(packet: &[u8], first: i32, count: usize) -> u64 {
    // Usually all 8 are present, and the excess is masked out.
    let chunk = usize::try_from(first).ok().and_then(|first| packet.get(first..)?.first_chunk());
    if let Some(chunk) = chunk.filter(|_| (1..=WORD_BYTES).contains(&count)) {
        return u64::from_le_bytes(*chunk) & (u64::MAX >> (64 - 8 * count));
    }
    (0..count).rev().fold(0, |value, byte| {
        let at = usize::try_from(i64::from(first) + byte as i64).ok();
        value << 8 | u64::from(at.and_then(|at| packet.get(at)).copied().unwrap_or(0))
    })
}

impl Columns {
    /// Columns for these nodes, which have to be pure.
    pub(super) fn of(graph: &Graph, wanted: &[Id]) -> Columns {
        let mut is_needed = vec![false; graph.nodes().len()];
        wanted.iter().for_each(|id| is_needed[id.index()] = true);
        for at in (0..is_needed.len()).rev() {
            let node = &graph.nodes()[at];
            match node.kind {
                _ if !is_needed[at] => {}
                // Bytes are loaded where they are used.
                Kind::Concat => parts(graph, node).iter().for_each(|(part, _)| match part {
                    Part::Node(id) => is_needed[id.index()] = true,
                    Part::Bytes { .. } => {}
                }),
                _ => node.args.iter().for_each(|arg| is_needed[arg.index()] = true),
            }
        }
        let mut columns = Columns {
            steps: Vec::new(),
            places: vec![Place::Nowhere; is_needed.len()],
            wide: Vec::new(),
            bits: Vec::new(),
            words: Vec::new(),
            lengths: [0; LANES],
            ports: [0; LANES],
            packets: None,
            loads: HashMap::new(),
            masks: HashMap::new(),
        };
        for (at, node) in graph.nodes().iter().enumerate().filter(|(at, _)| is_needed[*at]) {
            columns.places[at] =
                if node.bits == 1 { columns.add_bits(graph, node) } else { columns.add_wide(graph, node) };
        }
        columns
    }

    fn push_wide(&mut self, op: Op) -> Wide {
        self.wide.push([0; LANES]);
        self.steps.push(Step::Wide(self.wide.len() - 1, op));
        self.wide.len() - 1
    }

    fn load(&mut self, first: u16, bits: u16, is_big: bool) -> Wide {
        if let Some(known) = self.loads.get(&(first, bits, is_big)) {
            return *known;
        }
        let (word, low) = (usize::from(first) / WORD_BYTES, 8 * (first % WORD_BYTES as u16));
        let own = self.word(word);
        let next = if low + bits > 64 { Some(self.word(word + 1)) } else { None };
        let place = self.push_wide(Op::Load { own, next, low, bits, is_big });
        self.loads.insert((first, bits, is_big), place);
        place
    }

    /// The column of 8 bytes of the packet.
    fn word(&mut self, number: usize) -> Wide {
        if let Some((_, known)) = self.words.iter().find(|(other, _)| *other == number) {
            return *known;
        }
        let place = self.constant(0);
        self.words.push((number, place));
        place
    }

    /// A column of all ones where a condition holds.
    fn mask_of(&mut self, id: Id) -> Wide {
        let bits = self.bits_of(id);
        if let Some(known) = self.masks.get(&bits) {
            return *known;
        }
        let place = self.push_wide(Op::Mask(bits));
        self.masks.insert(bits, place);
        place
    }

    fn constant(&mut self, value: u64) -> Wide {
        self.wide.push([value; LANES]);
        self.wide.len() - 1
    }

    fn push_bits(&mut self, bit: Bit) -> Bits {
        self.bits.push([0; WORDS]);
        self.steps.push(Step::Bits(self.bits.len() - 1, bit));
        self.bits.len() - 1
    }

    /// The column of a node as numbers.
    fn wide_of(&mut self, id: Id) -> Wide {
        match self.places[id.index()] {
            Place::Wide(place) => place,
            Place::Bits(place) => self.push_wide(Op::Number(place)),
            // Not reachable: arguments come first.
            Place::Nowhere => 0,
        }
    }

    /// The column of a node as bits: whether it is not 0.
    fn bits_of(&mut self, id: Id) -> Bits {
        match self.places[id.index()] {
            Place::Bits(place) => place,
            Place::Wide(place) => {
                let zero = self.constant(0);
                let is_zero = self.push_bits(Bit::Compare(Compare::Equal, place, zero, 64));
                self.push_bits(Bit::Not(is_zero))
            }
            Place::Nowhere => 0,
        }
    }

    fn add_wide(&mut self, graph: &Graph, node: &Node) -> Place {
        let all = mask(node.bits);
        let op = match (node.kind, &node.args[..]) {
            (Kind::Const(value), _) => return Place::Wide(self.constant(value)),
            (Kind::Input(Input::Byte(at)), _) => return Place::Wide(self.load(at, 8, false)),
            (Kind::Input(Input::Length), _) => Op::Length,
            (Kind::Input(Input::Port), _) => Op::Port,
            (Kind::Concat, _) => {
                let parts: Vec<(Wide, u16)> = parts(graph, node)
                    .into_iter()
                    .map(|(part, begins)| match part {
                        Part::Node(id) => (self.wide_of(id), begins),
                        Part::Bytes { first, count, is_big } => (self.load(first, 8 * count, is_big), begins),
                    })
                    .collect();
                match parts[..] {
                    [(only, 0)] => return Place::Wide(only),
                    _ => Op::Concat(parts),
                }
            }
            (Kind::Bytes { ahead }, [offset]) => {
                self.packets.get_or_insert_with(|| vec![Vec::new(); LANES]);
                Op::Bytes { offset: self.wide_of(*offset), ahead, bytes: usize::from(node.bits / 8) }
            }
            (Kind::Slice { low }, [one]) => Op::Slice(self.wide_of(*one), low, all),
            (Kind::Not, [one]) => Op::Not(self.wide_of(*one), all),
            (Kind::Select, [pairs @ .., last]) => {
                let pairs = pairs.chunks_exact(2).map(|pair| (self.mask_of(pair[0]), self.wide_of(pair[1]))).collect();
                Op::Select(pairs, self.wide_of(*last))
            }
            (Kind::Binary(op @ (Binary::ShiftLeft | Binary::ShiftRight)), [a, b]) if graph.as_const(*b).is_some() => {
                let distance = (graph.as_const(*b).unwrap_or(0) % u64::from(node.bits)) as u16;
                let a = self.wide_of(*a);
                if op == Binary::ShiftLeft { Op::ShiftLeft(a, distance, all) } else { Op::Slice(a, distance, all) }
            }
            (
                Kind::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul | Binary::And | Binary::Or | Binary::Xor)),
                [a, b],
            ) => Op::Binary(op, self.wide_of(*a), self.wide_of(*b), all),
            (kind, args) => {
                let args = args.iter().map(|arg| (self.wide_of(*arg), graph.bits(*arg))).collect();
                Op::Other(kind, args, node.bits)
            }
        };
        Place::Wide(self.push_wide(op))
    }

    fn add_bits(&mut self, graph: &Graph, node: &Node) -> Place {
        let bit = match (node.kind, &node.args[..]) {
            (Kind::Const(value), _) => Bit::Const(value != 0),
            (Kind::Slice { low }, [one]) => Bit::Slice(self.wide_of(*one), low),
            (Kind::Not, [one]) => Bit::Not(self.bits_of(*one)),
            (Kind::Select, [pairs @ .., last]) => {
                let pairs = pairs.chunks_exact(2).map(|pair| (self.bits_of(pair[0]), self.bits_of(pair[1]))).collect();
                Bit::Select(pairs, self.bits_of(*last))
            }
            (Kind::Compare(how), [a, b]) => Bit::Compare(how, self.wide_of(*a), self.wide_of(*b), graph.bits(*a)),
            (Kind::Binary(Binary::And), [a, b]) => Bit::And(self.bits_of(*a), self.bits_of(*b)),
            (Kind::Binary(Binary::Or), [a, b]) => Bit::Or(self.bits_of(*a), self.bits_of(*b)),
            (Kind::Binary(Binary::Xor), [a, b]) => Bit::Xor(self.bits_of(*a), self.bits_of(*b)),
            (kind, args) => {
                let args = args.iter().map(|arg| (self.wide_of(*arg), graph.bits(*arg))).collect();
                let wide = self.push_wide(Op::Other(kind, args, node.bits));
                Bit::Slice(wide, 0)
            }
        };
        Place::Bits(self.push_bits(bit))
    }

    /// Puts a packet into a lane: its bytes, its full length, its port.
    pub(super) fn put(&mut self, lane: usize, bytes: &[u8], len_bytes: u32, port: u32) {
        for (number, place) in &self.words {
            let left = bytes.get(number * WORD_BYTES..).unwrap_or_default();
            let word = left.first_chunk().copied().unwrap_or_else(|| {
                let mut word = [0; WORD_BYTES];
                word[..left.len()].copy_from_slice(left);
                word
            });
            self.wide[*place][lane] = u64::from_le_bytes(word);
        }
        if let Some(packets) = &mut self.packets {
            packets[lane].clear();
            packets[lane].extend_from_slice(bytes);
        }
        // 16 bits, as in the program.
        self.lengths[lane] = u64::from(len_bytes as u16);
        self.ports[lane] = port.into();
    }

    /// The numbers of a wanted node.
    pub(super) fn numbers(&self, id: Id) -> &[u64; LANES] {
        match self.places.get(id.index()) {
            Some(Place::Wide(place)) => &self.wide[*place],
            _ => &NO_NUMBERS,
        }
    }

    /// The bits of a wanted one-bit node.
    pub(super) fn conditions(&self, id: Id) -> [u64; WORDS] {
        match self.places.get(id.index()) {
            Some(Place::Bits(place)) => self.bits[*place],
            _ => [0; WORDS],
        }
    }

    pub(super) fn run(&mut self) {
        for step in &self.steps {
            match step {
                Step::Wide(to, op) => {
                    let (before, own) = self.wide.split_at_mut(*to);
                    let own = &mut own[0];
                    match op {
                        Op::Length => *own = self.lengths,
                        Op::Port => *own = self.ports,
                        Op::Bytes { offset, ahead, bytes } => {
                            let packets = self.packets.as_deref().unwrap_or_default();
                            for ((own, packet), offset) in own.iter_mut().zip(packets).zip(&before[*offset]) {
                                *own = bytes_at(packet, (*offset as i32).wrapping_add(*ahead), *bytes);
                            }
                        }
                        _ => op.run(before, &self.bits, own),
                    }
                }
                Step::Bits(to, bit) => {
                    let (before, own) = self.bits.split_at_mut(*to);
                    bit.run(&self.wide, before, &mut own[0]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
