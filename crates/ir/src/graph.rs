//! The dataflow of a program: values, and effects on what outlives the packet.
//!
//! ```text
//!   v3 = byte 12            8 bits of the packet
//!   v5 = concat v3 v4       16 bits, the least first
//!   v6 = eq v5 0x0008       1 bit
//!   v9 = call map_lookup_elem if v6 (…)     an effect: it happens where its predicate holds
//! ```
//!
//! A node comes after everything that it uses, so the order of the nodes is an order to evaluate them in. Effects besides name
//! those before them that they must not overtake.

use flowloom_bpf::op::{AtomicOp, Size};
use rustc_hash::FxHashMap;

use crate::arith;

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u32);

impl Id {
    /// Its place in the graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a packet brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// A byte of the packet as it came, by its offset from the first one; 0 behind the end. 8 bits.
    Byte(u16),
    /// How many bytes it has. 16 bits.
    Length,
    /// The port that it came by. 32 bits.
    Port,
    /// The address of the first byte of the only value of a map. 64 bits.
    Only(u32),
}

/// What a node computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number.
    Const(u64),
    /// What the packet brings.
    Input(Input),
    /// So many bits from bit `low` on.
    Slice {
        /// The first of them.
        low: u16,
    },
    /// All bits of the arguments, the least first.
    Concat,
    /// The last bit again and again above the others.
    SignExtend,
    /// Arithmetic on all bits of two numbers.
    Binary(Binary),
    /// One bit: how two numbers compare.
    Compare(Compare),
    /// Every bit the other way round.
    Not,
    /// Conditions and values by turns, a value last: the one behind the first condition that holds.
    Select,
    /// Bytes of the packet as it came, the first at so many behind the offset that the argument is (32 bits, signed, from the
    /// packet's first byte); 0 where there is none. 8 to 64 bits.
    Bytes {
        /// So many behind it.
        ahead: i32,
    },
    /// A byte of memory that a call may have changed, as it left it: the first behind all that the call was given before it. 0
    /// where the call has not happened. 8 bits.
    Changed {
        /// Its place among all bytes that the call may change.
        at: u16,
    },
    /// An effect.
    Effect(Effect),
}

/// Arithmetic on numbers of so many bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Division by 0 gives 0.
    Div,
    SignedDiv,
    /// The remainder by 0 is the dividend.
    Mod,
    SignedMod,
    And,
    Or,
    Xor,
    /// Shifts by the distance modulo the width.
    ShiftLeft,
    ShiftRight,
    SignedShiftRight,
}

/// How two numbers compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Compare {
    Equal,
    Below,
    SignedBelow,
}

/// What outlives the packet, or reads what does. The first argument is the predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Calls a helper; its answer is the value, 64 bits. Behind the predicate stand the arguments: numbers, and the bytes of
    /// memory, as the call's [`Pattern`](crate::Pattern) says.
    Call {
        /// Which.
        helper: i32,
        /// The number of its pattern.
        pattern: u16,
    },
    /// Reads memory of a map's value: its address, and what is added to it. Of a value that was not found: 0.
    Load(Size),
    /// Writes it: its address, what is added to it, the number.
    Store(Size),
    /// Changes it: its address, what is added to it, the operand, what a comparison compares with. The value is what was there.
    Atomic(AtomicOp, Size),
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// What it computes.
    pub kind: Kind,
    /// Out of what.
    pub args: Vec<Id>,
    /// How many bits it has; none for an effect without a value.
    pub bits: u16,
}

/// A program as dataflow.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    known: FxHashMap<Node, Id>,
    /// The instruction that a node was first made for.
    insns: Vec<u32>,
    current: u32,
}

impl Graph {
    /// The nodes, each behind all that it uses.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All of them by name.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Id> + use<> {
        (0..self.nodes.len() as u32).map(Id)
    }

    /// A node.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id.index()]
    }

    /// The instruction that a node was first made for.
    pub fn insn(&self, id: Id) -> usize {
        self.insns[id.index()] as usize
    }

    /// What follows is made for this instruction.
    pub fn at(&mut self, insn: usize) {
        self.current = insn as u32;
    }

    /// How many bits a node has.
    pub fn bits(&self, id: Id) -> u16 {
        self.node(id).bits
    }

    /// The number that a node is.
    pub fn as_const(&self, id: Id) -> Option<u64> {
        match self.node(id).kind {
            Kind::Const(value) => Some(value),
            _ => None,
        }
    }

    fn push(&mut self, node: Node) -> Id {
        let id = Id(self.nodes.len() as u32);
        self.nodes.push(node);
        self.insns.push(self.current);
        id
    }

    /// A node as it stands, without a look at what it could be instead.
    pub(crate) fn raw(&mut self, node: Node) -> Id {
        let id = self.push(node.clone());
        if !matches!(node.kind, Kind::Effect(_)) {
            self.known.entry(node).or_insert(id);
        }
        id
    }

    /// The same, where it is not there yet.
    pub(crate) fn settled(&mut self, node: Node) -> Id {
        match self.known.get(&node) {
            Some(known) => *known,
            None => self.raw(node),
        }
    }

    /// An effect; each is a node of its own.
    pub fn effect(&mut self, effect: Effect, args: Vec<Id>, bits: u16) -> Id {
        self.push(Node { kind: Kind::Effect(effect), args, bits })
    }

    /// A number of so many bits.
    pub fn number(&mut self, value: u64, bits: u16) -> Id {
        self.make(Kind::Const(arith::cut(value, bits)), Vec::new(), bits)
    }

    /// A value; the same for the same, and a number where that can be told.
    pub fn make(&mut self, kind: Kind, args: Vec<Id>, bits: u16) -> Id {
        if let Some(known) = self.simpler(kind, &args, bits) {
            return known;
        }
        let node = Node { kind, args, bits };
        if let Some(known) = self.known.get(&node) {
            return *known;
        }
        let id = self.push(node.clone());
        self.known.insert(node, id);
        id
    }

    /// What a node is without being made.
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
            // Whole bytes of them.
            Kind::Bytes { ahead } if low.is_multiple_of(8) && bits.is_multiple_of(8) => {
                Some(self.make(Kind::Bytes { ahead: ahead.wrapping_add(i32::from(low / 8)) }, node.args, bits))
            }
            _ => None,
        }
    }

    /// Parts that lie side by side in one number are one part; so are numbers.
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
            let merged = flat.last().and_then(|last| self.beside(*last, part));
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

    fn beside(&mut self, low: Id, high: Id) -> Option<Id> {
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

    /// Without what never holds, and up to what always does.
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
        // The condition itself, or its opposite.
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

    /// A byte of the packet as it came, by its offset from the first one; 0 before that, and behind the end.
    pub fn byte(&mut self, at: i64) -> Id {
        match u16::try_from(at) {
            Ok(at) => self.make(Kind::Input(Input::Byte(at)), Vec::new(), 8),
            Err(_) => self.number(0, 8),
        }
    }

    /// So many bits from bit `low` on.
    pub fn slice(&mut self, one: Id, low: u16, bits: u16) -> Id {
        self.make(Kind::Slice { low }, vec![one], bits)
    }

    /// All bits of these, the least first.
    pub fn concat(&mut self, parts: Vec<Id>) -> Id {
        let bits = parts.iter().map(|part| self.bits(*part)).sum();
        self.make(Kind::Concat, parts, bits)
    }

    /// Extended by zeros, or cut.
    pub fn fit(&mut self, one: Id, bits: u16) -> Id {
        let own = self.bits(one);
        if own >= bits {
            return self.slice(one, 0, bits);
        }
        let zeros = self.number(0, bits - own);
        self.concat(vec![one, zeros])
    }

    /// Extended by its last bit.
    pub fn sign_extend(&mut self, one: Id, bits: u16) -> Id {
        self.make(Kind::SignExtend, vec![one], bits)
    }

    /// Arithmetic on two numbers of as many bits.
    pub fn binary(&mut self, op: Binary, a: Id, b: Id) -> Id {
        let bits = self.bits(a);
        self.make(Kind::Binary(op), vec![a, b], bits)
    }

    /// Whether two numbers of as many bits compare so.
    pub fn compare(&mut self, how: Compare, a: Id, b: Id) -> Id {
        self.make(Kind::Compare(how), vec![a, b], 1)
    }

    /// Every bit the other way round.
    pub fn not(&mut self, one: Id) -> Id {
        let bits = self.bits(one);
        self.make(Kind::Not, vec![one], bits)
    }

    /// The bits that both have.
    pub fn and(&mut self, a: Id, b: Id) -> Id {
        self.binary(Binary::And, a, b)
    }

    /// The bits that one of them has.
    pub fn or(&mut self, a: Id, b: Id) -> Id {
        self.binary(Binary::Or, a, b)
    }

    /// The value behind the first condition that holds, the last one where none does.
    pub fn select(&mut self, parts: Vec<Id>) -> Id {
        let bits = parts.last().map_or(0, |last| self.bits(*last));
        self.make(Kind::Select, parts, bits)
    }
}
