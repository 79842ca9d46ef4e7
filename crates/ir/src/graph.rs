// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dataflow graph: values, and effects on state that outlives the packet.
//!
//! ```text
//!   v3 = byte 12            8 bits of the packet
//!   v5 = concat v3 v4       16 bits, the least significant first
//!   v6 = eq v5 0x0008       1 bit
//!   v9 = call map_lookup_elem if v6 (…)     an effect: happens if its predicate holds
//! ```
//!
//! Nodes are in topological order: a node comes after all its arguments. Effects that conflict keep the order of their
//! nodes.

use flowloom_isa::op::{AtomicOp, Size};
use rustc_hash::FxHashMap;

use crate::arith;

/// The id of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u32);

impl Id {
    /// The id of the node at an index.
    pub fn new(index: usize) -> Id {
        Id(index as u32)
    }

    /// The index of the node in the graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An input of the dataflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// A byte of the packet as received, by its offset from the first byte; 0 past the end. 8 bits.
    Byte(u16),
    /// The packet length in bytes. 16 bits.
    Length,
    /// The ingress port. 32 bits.
    Port,
    /// The address of the first byte of the value of a map with one entry. 64 bits.
    Only(u32),
}

/// The operation of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A constant.
    Const(u64),
    /// An input.
    Input(Input),
    /// The bits of the argument from bit `low` on, as many as the node is wide.
    Slice {
        /// The lowest bit taken.
        low: u16,
    },
    /// The concatenation of the arguments, the least significant first.
    Concat,
    /// Sign extension to the width of the node.
    SignExtend,
    /// Arithmetic on two operands of the node's width.
    Binary(Binary),
    /// A comparison of two operands of equal width. 1 bit.
    Compare(Compare),
    /// Bitwise complement.
    Not,
    /// A select (priority mux): (condition, value) pairs, then the default. The value of the first condition that
    /// holds.
    Select,
    /// Bytes of the packet as received, starting `ahead` bytes after the offset in the argument (32 bits, signed,
    /// relative to the packet's first byte); 0 outside of the packet. 8 to 64 bits.
    Bytes {
        /// The distance from the offset, in bytes.
        ahead: i32,
    },
    /// A byte of memory that a call may write, after the call, which is the argument. 0 if the call has not happened. 8
    /// bits.
    Changed {
        /// Its index among all bytes that the call may write.
        at: u16,
    },
    /// An effect.
    Effect(Effect),
}

/// Arithmetic operations at the width of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Unsigned division; division by 0 gives 0.
    Div,
    SignedDiv,
    /// Unsigned remainder; the remainder by 0 is the dividend.
    Mod,
    SignedMod,
    And,
    Or,
    Xor,
    /// Shifts take the distance modulo the width.
    ShiftLeft,
    ShiftRight,
    SignedShiftRight,
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Compare {
    Equal,
    Below,
    SignedBelow,
}

/// Operations on state that outlives the packet. The first argument is the predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A helper call; the value is its result, 64 bits. After the predicate come the arguments: numbers, and the bytes
    /// of memory that the call reads, as laid out by its [`Pattern`](crate::Pattern).
    Call {
        /// The number of the helper.
        helper: i32,
        /// The index of the pattern.
        pattern: u16,
    },
    /// A load from a map value. Arguments: base address, offset. 0 if the lookup found no entry.
    Load(Size),
    /// A store to a map value. Arguments: base address, offset, value.
    Store(Size),
    /// An atomic read-modify-write of a map value. Arguments: base address, offset, operand, and the expected value of
    /// a compare-and-exchange. The result is the old value.
    Atomic(AtomicOp, Size),
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// The operation.
    pub kind: Kind,
    /// The arguments.
    pub args: Vec<Id>,
    /// The width of the value in bits; 0 for an effect without a value.
    pub bits: u16,
}

/// The nodes of a program, hash-consed: equal pure nodes are one node.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    known: FxHashMap<Node, Id>,
    /// By node, the index of the instruction that it was first made for.
    insns: Vec<u32>,
    current: u32,
    /// Offsets whose bytes are aligned where the offset is computed, by an instruction that parses headers.
    aligned: FxHashMap<Id, u32>,
}

impl Graph {
    /// All nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All ids in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    /// The node of an id.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id.index()]
    }

    /// The index of the instruction that a node was first made for.
    pub fn insn(&self, id: Id) -> usize {
        self.insns[id.index()] as usize
    }

    /// Attributes the nodes made from now on to an instruction.
    pub fn at(&mut self, insn: usize) {
        self.current = insn as u32;
    }

    /// Attributes bytes at an offset to the current instruction, whichever loads them: it gives whole headers.
    pub(crate) fn align_bytes(&mut self, offset: Id) {
        self.aligned.entry(offset).or_insert(self.current);
    }

    /// The width of a node in bits.
    pub fn bits(&self, id: Id) -> u16 {
        self.node(id).bits
    }

    /// The constant that a node is, if it is one.
    pub fn as_const(&self, id: Id) -> Option<u64> {
        match self.node(id).kind {
            Kind::Const(value) => Some(value),
            _ => None,
        }
    }

    fn push(&mut self, node: Node) -> Id {
        let id = Id(self.nodes.len() as u32);
        let aligner = match node.kind {
            Kind::Bytes { .. } => self.aligned.get(&node.args[0]),
            _ => None,
        };
        self.insns.push(aligner.copied().unwrap_or(self.current));
        self.nodes.push(node);
        id
    }

    /// Adds a node as given, without simplification; hash-consed.
    pub(crate) fn raw(&mut self, node: Node) -> Id {
        let id = self.push(node.clone());
        if !matches!(node.kind, Kind::Effect(_)) {
            self.known.entry(node).or_insert(id);
        }
        id
    }

    /// Adds a node that is in normal form already; hash-consed.
    pub(crate) fn interned(&mut self, node: Node) -> Id {
        match self.known.get(&node) {
            Some(known) => *known,
            None => self.raw(node),
        }
    }

    /// Replaces a node as given, without simplification or hash-consing: for planted faults.
    /// [`Dataflow::validate`](crate::Dataflow::validate) finds the invariants that it breaks.
    pub fn replace(&mut self, id: Id, node: Node) {
        self.nodes[id.index()] = node;
    }

    /// Exchanges two nodes and the instructions that they were made for, as [`Graph::replace`].
    pub fn swap(&mut self, one: Id, other: Id) {
        self.nodes.swap(one.index(), other.index());
        self.insns.swap(one.index(), other.index());
    }

    /// Adds an effect. Effects are never hash-consed.
    pub fn effect(&mut self, effect: Effect, args: Vec<Id>, bits: u16) -> Id {
        self.push(Node { kind: Kind::Effect(effect), args, bits })
    }

    /// A constant of the given width.
    pub fn number(&mut self, value: u64, bits: u16) -> Id {
        self.make(Kind::Const(arith::cut(value, bits)), Vec::new(), bits)
    }

    /// Adds a pure node: simplified and hash-consed.
    pub fn make(&mut self, kind: Kind, args: Vec<Id>, bits: u16) -> Id {
        if let Some(known) = self.simpler(kind, &args, bits) {
            return known;
        }
        self.interned(Node { kind, args, bits })
    }

    /// An existing or simpler node of equal value, if a simplification applies.
    fn simpler(&mut self, kind: Kind, args: &[Id], bits: u16) -> Option<Id> {
        let is_pure = !matches!(kind, Kind::Const(_) | Kind::Input(_) | Kind::Bytes { .. } | Kind::Effect(_));
        if is_pure && let Some(values) = args.iter().map(|arg| self.as_const(*arg)).collect::<Option<Vec<u64>>>() {
            let widths: Vec<u16> = args.iter().map(|arg| self.bits(*arg)).collect();
            return Some(self.number(arith::apply(kind, &values, &widths, bits), bits));
        }
        if let Some(selected) = self.of_selected(kind, args, bits) {
            return Some(selected);
        }
        match (kind, args) {
            (Kind::Slice { low: 0 } | Kind::SignExtend, [one]) if self.bits(*one) == bits => Some(*one),
            (Kind::Slice { low }, [one]) => self.slice_of(low, *one, bits),
            (Kind::Concat, [one]) => Some(*one),
            (Kind::Concat, parts) => self.joined(parts, bits),
            (Kind::Not, [one]) if self.node(*one).kind == Kind::Not => Some(self.node(*one).args[0]),
            (Kind::Compare(Compare::Equal), [a, b]) if a == b => Some(self.number(1, 1)),
            (Kind::Compare(_), [a, b]) if a == b => Some(self.number(0, 1)),
            (Kind::Binary(op), [a, b]) => self.neutral(op, *a, *b, bits),
            (Kind::Select, parts) => self.selected(parts, bits),
            (Kind::Bytes { ahead }, [offset]) => {
                let first = (self.as_const(*offset)? as i32).wrapping_add(ahead);
                let bytes = (0..bits / 8).map(|byte| self.byte(i64::from(first) + i64::from(byte))).collect();
                Some(self.concat(bytes))
            }
            _ => None,
        }
    }

    fn slice_of(&mut self, low: u16, one: Id, bits: u16) -> Option<Id> {
        let node = self.node(one).clone();
        match node.kind {
            Kind::Slice { low: inner } => Some(self.make(Kind::Slice { low: low + inner }, node.args, bits)),
            Kind::Concat => {
                let (mut start, mut parts) = (0, Vec::new());
                for part in node.args {
                    let len = self.bits(part);
                    let (first, end) = (low.max(start), (low + bits).min(start + len));
                    if first < end {
                        parts.push(self.make(Kind::Slice { low: first - start }, vec![part], end - first));
                    }
                    start += len;
                }
                Some(self.make(Kind::Concat, parts, bits))
            }
            // Only whole bytes of a packet access can be taken as a packet access.
            Kind::Bytes { ahead } if low.is_multiple_of(8) && bits.is_multiple_of(8) => {
                Some(self.make(Kind::Bytes { ahead: ahead.wrapping_add(i32::from(low / 8)) }, node.args, bits))
            }
            _ => None,
        }
    }

    /// Merges adjacent slices of one node, and adjacent constants, in a concatenation.
    fn joined(&mut self, parts: &[Id], bits: u16) -> Option<Id> {
        let mut flat: Vec<Id> = Vec::new();
        let mut changed = false;
        let nested = |graph: &Graph, part: &Id| match graph.node(*part).kind {
            Kind::Concat => graph.node(*part).args.clone(),
            _ => vec![*part],
        };
        let all: Vec<Id> = parts.iter().flat_map(|part| nested(self, part)).collect();
        changed |= all.len() != parts.len();
        for part in all {
            let merged = flat.last().and_then(|last| self.merged_pair(*last, part));
            match merged {
                Some(merged) => {
                    flat.pop();
                    flat.push(merged);
                    changed = true;
                }
                None => flat.push(part),
            }
        }
        changed.then(|| self.make(Kind::Concat, flat, bits))
    }

    fn merged_pair(&mut self, low: Id, high: Id) -> Option<Id> {
        let (a, b) = (self.node(low).clone(), self.node(high).clone());
        let bits = a.bits + b.bits;
        match (a.kind, b.kind) {
            (Kind::Const(x), Kind::Const(y)) if bits <= 64 => Some(self.number(x | y << a.bits, bits)),
            (Kind::Slice { low: first }, Kind::Slice { low: second })
                if a.args == b.args && first + a.bits == second =>
            {
                Some(self.make(Kind::Slice { low: first }, a.args, bits))
            }
            (Kind::Bytes { ahead: first }, Kind::Bytes { ahead: second })
                if a.args == b.args && first.wrapping_add(i32::from(a.bits / 8)) == second && bits <= 64 =>
            {
                Some(self.make(Kind::Bytes { ahead: first }, a.args, bits))
            }
            _ => None,
        }
    }

    fn neutral(&mut self, op: Binary, a: Id, b: Id, bits: u16) -> Option<Id> {
        let (x, y) = (self.as_const(a), self.as_const(b));
        let all = arith::cut(u64::MAX, bits);
        match (op, x, y) {
            (Binary::And, Some(0), _) | (Binary::And | Binary::Mul, _, Some(0)) | (Binary::Mul, Some(0), _) => {
                Some(self.number(0, bits))
            }
            (Binary::And, _, Some(mask)) if mask == all => Some(a),
            (Binary::And, Some(mask), _) if mask == all => Some(b),
            (Binary::Add | Binary::Or | Binary::Xor, Some(0), _) => Some(b),
            (Binary::Mul | Binary::Div, _, Some(1)) => Some(a),
            (
                Binary::Add
                | Binary::Sub
                | Binary::Or
                | Binary::Xor
                | Binary::ShiftLeft
                | Binary::ShiftRight
                | Binary::SignedShiftRight,
                _,
                Some(0),
            ) => Some(a),
            (Binary::And | Binary::Or, _, _) if a == b => Some(a),
            (Binary::Sub | Binary::Xor, _, _) if a == b => Some(self.number(0, bits)),
            _ => None,
        }
    }

    /// A select without the conditions that are constant.
    fn selected(&mut self, parts: &[Id], bits: u16) -> Option<Id> {
        let (last, pairs) = parts.split_last()?;
        let mut kept: Vec<Id> = Vec::new();
        let mut otherwise = *last;
        for pair in pairs.chunks_exact(2) {
            match self.as_const(pair[0]) {
                Some(0) => {}
                Some(_) => {
                    otherwise = pair[1];
                    break;
                }
                None => kept.extend(pair),
            }
        }
        while kept.last() == Some(&otherwise) {
            kept.truncate(kept.len() - 2);
        }
        if kept.is_empty() {
            return Some(otherwise);
        }
        // A one-bit select between 1 and 0 is its condition, or the complement.
        if let ([condition, value], 1) = (kept.as_slice(), bits) {
            match (self.as_const(*value), self.as_const(otherwise)) {
                (Some(1), Some(0)) => return Some(*condition),
                (Some(0), Some(1)) => return Some(self.make(Kind::Not, vec![*condition], 1)),
                _ => {}
            }
        }
        kept.push(otherwise);
        (kept != parts).then(|| self.make(Kind::Select, kept, bits))
    }

    /// A byte of the packet as received, by its offset; 0 for offsets outside of the packet.
    pub fn byte(&mut self, at: i64) -> Id {
        match u16::try_from(at) {
            Ok(at) => self.make(Kind::Input(Input::Byte(at)), Vec::new(), 8),
            Err(_) => self.number(0, 8),
        }
    }

    /// A bit slice of the given width from bit `low` on.
    pub fn slice(&mut self, one: Id, low: u16, bits: u16) -> Id {
        self.make(Kind::Slice { low }, vec![one], bits)
    }

    /// The concatenation of nodes, the least significant first.
    pub fn concat(&mut self, parts: Vec<Id>) -> Id {
        let bits = parts.iter().map(|part| self.bits(*part)).sum();
        self.make(Kind::Concat, parts, bits)
    }

    /// Zero-extends or truncates to a width.
    pub fn fit(&mut self, one: Id, bits: u16) -> Id {
        let own = self.bits(one);
        if own >= bits {
            return self.slice(one, 0, bits);
        }
        let zeros = self.number(0, bits - own);
        self.concat(vec![one, zeros])
    }

    /// Sign-extends to a width.
    pub fn sign_extend(&mut self, one: Id, bits: u16) -> Id {
        self.make(Kind::SignExtend, vec![one], bits)
    }

    /// Arithmetic on two nodes of equal width.
    pub fn binary(&mut self, op: Binary, a: Id, b: Id) -> Id {
        let bits = self.bits(a);
        self.make(Kind::Binary(op), vec![a, b], bits)
    }

    /// A comparison of two nodes of equal width.
    pub fn compare(&mut self, how: Compare, a: Id, b: Id) -> Id {
        self.make(Kind::Compare(how), vec![a, b], 1)
    }

    /// The bitwise complement.
    pub fn not(&mut self, one: Id) -> Id {
        let bits = self.bits(one);
        self.make(Kind::Not, vec![one], bits)
    }

    /// The bitwise AND.
    pub fn and(&mut self, a: Id, b: Id) -> Id {
        self.binary(Binary::And, a, b)
    }

    /// The bitwise OR.
    pub fn or(&mut self, a: Id, b: Id) -> Id {
        self.binary(Binary::Or, a, b)
    }

    /// A select; `parts` are (condition, value) pairs, then the default.
    pub fn select(&mut self, parts: Vec<Id>) -> Id {
        let bits = parts.last().map_or(0, |last| self.bits(*last));
        self.make(Kind::Select, parts, bits)
    }
}
