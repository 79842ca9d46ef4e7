// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checked model of a function: the output of the front end, and the input of the reference machine, the lowering
//! and every other target.
//!
//! A model is consistent: names are resolved to numbers, constants fit, every row has a terminal action. Parameters
//! have become constants.
//!
//! # Arithmetic
//! An expression is computed in its [`Width`]: 32 bits, or 64 if the destination or an operand is wider than 32 (or if
//! signed and unsigned 32-bit operands meet). Operands are extended by their own signedness, results wrap, and a
//! destination takes the low bits. Values of 128 bits (addresses) are [`Wide`]: they can only be moved and compared for
//! equality.

use std::cmp::Ordering;
use std::sync::Arc;

use flowloom_wire::field::FieldId;
use flowloom_wire::{Graph, Header};

/// A network function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The name.
    pub name: String,
    /// The source.
    pub source: Arc<Source>,
    /// The parse graph: the standard one, with the headers that the function declares.
    pub graph: Arc<Graph>,
    /// Metadata fields: 0 when the packet arrives, with the packet's lifetime.
    pub metadata: Vec<Variable>,
    /// The elements in order; a packet enters the first.
    pub elements: Vec<Element>,
}

/// A source file.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name, as the user gave it.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// Line (from 1), column (from 1) and the text of the line at a byte offset.
    pub fn locate(&self, offset: usize) -> (u32, u32, &str) {
        let offset = offset.min(self.text.len());
        let start = self.text[..offset].rfind('\n').map_or(0, |i| i + 1);
        let line = self.text[..start].matches('\n').count() as u32 + 1;
        let text = self.text[start..].lines().next().unwrap_or("");
        (line, (offset - start) as u32 + 1, text)
    }
}

/// A line index of a source, for callers that look up many places: [`Source::locate`] scans all of the text before a
/// place.
#[derive(Debug)]
pub struct Lines<'a> {
    source: &'a Source,
    /// The offset of each line.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// The line index of `source`.
    pub fn of(source: &'a Source) -> Lines<'a> {
        let ends = source.text.match_indices('\n').map(|(at, _)| at + 1);
        Lines { source, starts: std::iter::once(0).chain(ends).collect() }
    }

    /// As [`Source::locate`].
    pub fn locate(&self, offset: usize) -> (u32, u32, &'a str) {
        let text = &self.source.text;
        let offset = offset.min(text.len());
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = self.starts[line - 1];
        let end = self.starts.get(line).copied().unwrap_or(text.len());
        (line as u32, (offset - start) as u32 + 1, text[start..end].lines().next().unwrap_or(""))
    }
}

/// Byte offsets in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The offset after the last byte.
    pub end: usize,
}

/// The type of a register, global or metadata field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// 8, 16, 32 or 64; 128 for addresses, which are never signed.
    pub width_bits: u8,
    /// Whether it is signed (two's complement).
    pub signed: bool,
}

impl Type {
    /// Whether its values are [`Wide`].
    pub fn is_wide(self) -> bool {
        self.width_bits > 64
    }
}

/// A register, global register or metadata field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Its initial value, as the low `width_bits` bits.
    pub initial: u128,
    /// Where it is declared.
    pub span: Span,
}

/// An element of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its name; at most 15 bytes of letters, digits and `_`, since it names the map of the contexts.
    pub name: String,
    /// The place of its declaration.
    pub span: Span,
    /// The stateful part; `None` for a stateless element.
    pub stateful: Option<Stateful>,
    /// The rows in priority order.
    pub rows: Vec<Row>,
    /// The actions if no row matches or a key field is absent.
    pub otherwise: Otherwise,
}

/// The stateful part of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stateful {
    /// The flow key; `None` means one instance for all packets.
    pub key: Option<Key>,
    /// The most contexts.
    pub size: u32,
    /// The period of sweeps.
    pub sweep_ns: u64,
    /// The policy of a full table.
    pub policy: Policy,
    /// The place of the policy, or of the element if there is none.
    pub policy_span: Span,
    /// State names; number 0 is the initial one.
    pub states: Vec<String>,
    /// By state, its successor when a timer expires ([`Stateful::successor`]). A successor has no successor itself.
    pub successors: Vec<Option<Successor>>,
    /// Flow registers.
    pub registers: Vec<Variable>,
    /// Global registers.
    pub globals: Vec<Variable>,
    /// Preloaded contexts, at most `size`, each key once.
    pub preloaded: Vec<Preloaded>,
}

impl Stateful {
    /// The successor of a state when one of its timers expires; `None` means the default context.
    pub fn successor(&self, state: u16) -> Option<Successor> {
        self.successors.get(usize::from(state)).copied().flatten()
    }
}

/// The policy of a full table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Drop the row's updates and its transition.
    Reject,
    /// Evict the context with the smallest value of this register, of several the one with the smallest key.
    EvictLowest(u16),
    /// Evict the context with the largest value of this register, of several the one with the smallest key.
    EvictHighest(u16),
    /// Evict the context that packets have not found for the longest time, of several the one with the smallest key.
    EvictOldest,
}

/// The state that a context enters at the deadline of a timer, with its registers kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Successor {
    /// The state.
    pub state: u16,
    /// Its idle timeout, counted from the deadline.
    pub idle_ns: Option<u64>,
    /// Its hard timeout, counted from the deadline.
    pub hard_ns: Option<u64>,
}

/// A preloaded context, without timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preloaded {
    /// The bytes of its key.
    pub key: Vec<u8>,
    /// Its state.
    pub state: u16,
    /// Its registers, in declared order.
    pub registers: Vec<u128>,
}

/// A flow key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Whether both directions of a connection share one context.
    pub biflow: bool,
    /// Its parts in order.
    pub parts: Vec<KeyPart>,
}

/// A part of a flow key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    /// A packet field.
    Field(FieldId),
    /// A metadata field.
    Metadata(u16),
}

impl Key {
    /// The packet fields of the key.
    pub fn fields(&self) -> impl Iterator<Item = FieldId> {
        self.parts.iter().filter_map(|part| match part {
            KeyPart::Field(field) => Some(*field),
            KeyPart::Metadata(_) => None,
        })
    }
}

/// A row of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it stands.
    pub span: Span,
    /// The states in which it applies, ascending; empty in a stateless element.
    pub states: Vec<u16>,
    /// The conditions, all of which must hold.
    pub conditions: Vec<Condition>,
    /// The next state.
    pub next: NextState,
    /// Register updates, in parallel; at most one for each destination.
    pub updates: Vec<Update>,
    /// The packet actions.
    pub actions: Actions,
}

/// The actions if no row matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otherwise {
    /// The place of the clause, or of the element if there is none.
    pub span: Span,
    /// Metadata writes of constants and the terminal action; no header writes.
    pub actions: Actions,
}

/// The next state of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextState {
    /// State and deadlines are unchanged; also for stateless elements.
    Stay,
    /// A transition: the old timers stop, these start.
    To {
        /// The next state.
        state: u16,
        /// Idle timeout.
        idle_ns: Option<u64>,
        /// Hard timeout.
        hard_ns: Option<u64>,
    },
}

/// The width in which an expression is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl Width {
    /// The number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Width::W32 => 32,
            Width::W64 => 64,
        }
    }
}

/// An enabling condition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// A comparison of numbers.
    Compare {
        /// Left operand.
        left: Expr,
        /// The relation.
        relation: Relation,
        /// Right operand.
        right: Expr,
        /// The width in which both sides are evaluated.
        width: Width,
        /// Whether the order is signed.
        signed: bool,
    },
    /// Serial-number order: `left before right` if left - right, in `serial_bits`, is negative; `left after right` if
    /// it is positive.
    Serial {
        /// Left operand.
        left: Expr,
        /// Right operand.
        right: Expr,
        /// `after` instead of `before`.
        after: bool,
        /// Whether the relation is negated.
        negated: bool,
        /// Width of the sequence space: 8, 16, 32 or 64.
        serial_bits: u8,
    },
    /// `operand & mask == value`: exact match of addresses and prefixes; also of any field.
    Masked {
        /// The compared value.
        operand: Wide,
        /// The mask.
        mask: u128,
        /// The expected value.
        value: u128,
        /// Whether the match is negated.
        negated: bool,
    },
    /// `low <= field <= high`, unsigned.
    Range {
        /// The field, at most 64 bits wide.
        field: FieldId,
        /// Least value.
        low: u64,
        /// Largest value.
        high: u64,
        /// Whether the range is negated.
        negated: bool,
    },
    /// Membership of a number in a set.
    OneOf {
        /// The number.
        operand: Expr,
        /// The set, ascending; each value within `width`.
        values: Vec<u64>,
        /// The width in which it is evaluated.
        width: Width,
        /// Whether membership is negated.
        negated: bool,
    },
    /// Membership of a value in one of many unsigned intervals.
    Within {
        /// The value.
        operand: Wide,
        /// The intervals (first, last), ascending and non-adjacent.
        values: Arc<Vec<(u128, u128)>>,
        /// Whether membership is negated.
        negated: bool,
    },
    /// Equality of two values above 64 bits.
    Same {
        /// Left value.
        left: Wide,
        /// Right value.
        right: Wide,
        /// Whether equality is negated.
        negated: bool,
    },
    /// Presence of a header or field.
    Present {
        /// The field, or one that is present if and only if the header is.
        field: FieldId,
        /// Whether presence is negated.
        negated: bool,
    },
    /// The packet's key has no context, and the table is full.
    Full {
        /// Whether that is negated.
        negated: bool,
    },
}

/// A value that is only moved and compared for equality; those above 64 bits have no other form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wide {
    /// A constant.
    Constant(u128),
    /// A packet field, as when the packet reached this element.
    Field(FieldId),
    /// A flow register of this element.
    Register(u16),
    /// A global register of this element.
    Global(u16),
    /// In packet actions: a register as it was before the row's updates.
    Old(Destination),
    /// A metadata field.
    Metadata(u16),
}

/// Relations of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Relation {
    /// The negated relation.
    pub fn inverse(self) -> Relation {
        match self {
            Relation::Equal => Relation::NotEqual,
            Relation::NotEqual => Relation::Equal,
            Relation::Less => Relation::GreaterEqual,
            Relation::LessEqual => Relation::Greater,
            Relation::Greater => Relation::LessEqual,
            Relation::GreaterEqual => Relation::Less,
        }
    }

    /// The relation with its operands swapped.
    pub fn swap_operands(self) -> Relation {
        match self {
            Relation::Equal | Relation::NotEqual => self,
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
        }
    }

    /// Whether the relation holds for operands of this order.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Less => order.is_lt(),
            Relation::LessEqual => order.is_le(),
            Relation::Greater => order.is_gt(),
            Relation::GreaterEqual => order.is_ge(),
        }
    }
}

/// An arithmetic expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant, two's complement in 64 bits.
    Constant(u64),
    /// A flow register of this element.
    Register(u16),
    /// A global register of this element.
    Global(u16),
    /// In packet actions: a register as it was before the row's updates.
    Old(Destination),
    /// A metadata field.
    Metadata(u16),
    /// A packet field of at most 64 bits, as when the packet reached this element.
    Field(FieldId),
    /// The packet's time in units of `unit_ns`, rounded down; its low bits in a width of 32, so that it wraps like a
    /// register of 32 bits.
    Now {
        /// The unit in nanoseconds.
        unit_ns: u64,
    },
    /// The number of the matched state.
    State,
    /// All bits inverted.
    Not(Box<Expr>),
    /// A binary operation.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `left` rotated right by `right` in `rotate_bits` (8, 16, 32 or 64), the width of `left`'s own type.
    RotateRight {
        /// The rotated value.
        left: Box<Expr>,
        /// The distance, modulo the width.
        right: Box<Expr>,
        /// The width of the rotation.
        rotate_bits: u8,
    },
    /// The smaller or larger of two values.
    MinMax {
        /// The larger instead of the smaller.
        max: bool,
        /// Whether the comparison is signed.
        signed: bool,
        /// One value.
        left: Box<Expr>,
        /// The other value.
        right: Box<Expr>,
    },
    /// A 32-bit word of a value: number 0 is the lowest.
    Word {
        /// The value.
        of: Wide,
        /// The index of the word.
        index: u8,
    },
    /// [`crate::hash::hashword`] of these words, each evaluated in 32 bits.
    Hash(Vec<Expr>),
    /// `average + ((sample - average) >> shift)` with an arithmetic shift; a shift by the width or more gives 0.
    Ewma {
        /// The average so far.
        average: Box<Expr>,
        /// The new sample.
        sample: Box<Expr>,
        /// The weight as a shift.
        shift: u8,
    },
}

/// Binary operations; all wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`: by the width or more gives 0. The distance is the operand's value, unsigned in the width.
    ShiftLeft,
    /// `>>`, logical: by the width or more gives 0.
    ShiftRight,
}

/// The destination of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// A flow register.
    Register(u16),
    /// A global register.
    Global(u16),
}

/// An update of a register; it reads the values from before the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The destination.
    pub destination: Destination,
    /// The new value.
    pub value: NewValue,
    /// Where it stands.
    pub span: Span,
}

/// A value that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewValue {
    /// A number; the target takes its low bits.
    Number {
        /// The value.
        value: Expr,
        /// The width in which it is evaluated.
        width: Width,
    },
    /// A value of the same width, for a target wider than 64 bits. The front end turns a write of an IPv4 constant to
    /// `ip.src` into one to `ipv4.src`, so that a constant for a field is always a full IPv6 address.
    Wide(Wide),
}

/// The packet actions of a row: they read registers after the updates, and fields and metadata from before the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actions {
    /// Writes of fields and metadata, in parallel; at most one for each destination.
    pub writes: Vec<Write>,
    /// Structural edits of the frame, and packets that leave besides it, in order, after the writes.
    pub steps: Vec<Step>,
    /// The terminal action.
    pub terminal: Terminal,
}

/// A write of a field or of metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The target.
    pub target: WriteTarget,
    /// The value.
    pub value: NewValue,
    /// Where it stands.
    pub span: Span,
}

/// The target of a packet write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteTarget {
    /// A packet field; the row does not match if it is absent.
    Field(FieldId),
    /// A metadata field.
    Metadata(u16),
}

/// A step of a row's actions; its values are evaluated like those of the row's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The kind.
    pub kind: StepKind,
    /// Where it stands.
    pub span: Span,
}

/// The kinds of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// Pushes a VLAN tag or an MPLS label.
    Push(HeaderTemplate),
    /// Pops the outermost VLAN tag or MPLS label; the row does not match if there is none.
    Pop(Header),
    /// Inserts these headers between the link layer and the outermost IP header; the row does not match if there is
    /// none.
    Encapsulate(Vec<HeaderTemplate>),
    /// Removes everything from the outermost IP header up to the inner one; the row does not match if there is none.
    Decapsulate,
    /// Sends a copy of the frame in its current state through this port, evaluated in 32 bits.
    Clone(Expr),
    /// Sends a packet made of these headers through a port.
    Emit {
        /// The port, evaluated in 32 bits.
        port: Expr,
        /// Its headers, from the outermost.
        headers: Vec<HeaderTemplate>,
    },
    /// Writes a record for user space.
    Log(Log),
}

/// A `log` or `alert` statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The number of the statement in the source; alternatives of one row share it.
    pub id: u32,
    /// The level.
    pub level: Level,
    /// The text.
    pub text: String,
    /// The values.
    pub values: Vec<Logged>,
}

/// The level of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// `log`
    Log,
    /// `alert`
    Alert,
}

/// A logged value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Its source text.
    pub name: String,
    /// The value.
    pub value: NewValue,
    /// The format for readers.
    pub format: LogFormat,
}

/// The format of a logged value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// An unsigned number.
    Unsigned,
    /// A signed number.
    Signed,
    /// An IPv4 address.
    Ipv4,
    /// An address of 128 bits; a mapped one as the IPv4 address.
    Address,
    /// A MAC address.
    Mac,
}

/// A new header; fields that are not given have defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// The header.
    pub header: Header,
    /// Its fields, by their names in an outermost header, and their values; each field once.
    pub values: Vec<(FieldId, NewValue)>,
}

/// Terminal actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminal {
    /// Dropped.
    Drop,
    /// Passed on.
    Pass,
    /// Passed on, for a reason: to the slow path or the host.
    Punt,
    /// Sent through this port, evaluated in 32 bits.
    Forward(Expr),
    /// Sent through the ingress port.
    Reply,
    /// A copy sent through every bound port except the ingress port.
    Flood,
    /// Continues in a later element.
    Goto(u16),
}
