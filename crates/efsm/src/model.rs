//! The checked model of a function: what the front end makes and the reference machine, the lowering and every other
//! target start from.
//!
//! Nothing here can be wrong in itself: names are resolved to numbers, constants fit, the terminal action of each row is
//! there. Parameters have become constants.
//!
//! # Arithmetic
//! An expression is computed in its [`Width`]: 32 bits, or 64 where the destination or an operand is wider than 32 (or
//! where signed and unsigned 32-bit operands meet). Operands are extended by their own signedness, results wrap, and a
//! destination takes the low bits. Values of 128 bits (addresses) are [`Wide`]: they can only be moved and compared for
//! equality.

use std::sync::Arc;

use flowloom_wire::field::FieldId;
use flowloom_wire::{Graph, Header};

/// A network function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The source it was read from.
    pub source: Arc<Source>,
    /// The parse graph: the standard one, with the headers that the function declares.
    pub graph: Arc<Graph>,
    /// Metadata fields: 0 when the packet arrives, alive as long as the packet.
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

/// The lines of a source, for callers that look up many places: [`Source::locate`] reads all of the text before a place.
#[derive(Debug)]
pub struct Lines<'a> {
    source: &'a Source,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// The lines of `source`.
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
    /// First byte.
    pub start: usize,
    /// One after the last byte.
    pub end: usize,
}

/// The type of a register, global or metadata field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// 8, 16, 32 or 64; 128 for addresses, which are never signed.
    pub width_bits: u8,
    /// Two's complement.
    pub signed: bool,
}

impl Type {
    /// Whether values of it are [`Wide`].
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

/// One element of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its name; at most 15 bytes of letters, digits and `_`, since it names the map of the contexts.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// What picks the context; `None` for a stateless element.
    pub stateful: Option<Stateful>,
    /// The rows in priority order.
    pub rows: Vec<Row>,
    /// What happens where no row matches or a key field is absent.
    pub otherwise: Otherwise,
}

/// The stateful part of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stateful {
    /// The flow key; `None` means one instance for all packets.
    pub key: Option<Key>,
    /// How many contexts there may be.
    pub size: u32,
    /// How often expired contexts are removed.
    pub sweep_ns: u64,
    /// What happens to a context too many.
    pub policy: Policy,
    /// Where the policy stands; the element's place where it is not written.
    pub policy_span: Span,
    /// State names; number 0 is the initial one.
    pub states: Vec<String>,
    /// For each state, what follows when a timer of it runs out ([`Stateful::successor`]). A successor has no successor
    /// itself.
    pub successors: Vec<Option<Successor>>,
    /// Flow registers.
    pub registers: Vec<Variable>,
    /// Global registers.
    pub globals: Vec<Variable>,
    /// Contexts that are there from the start, at most `size`, each key once.
    pub preloaded: Vec<Preloaded>,
}

impl Stateful {
    /// What follows a state when one of its timers runs out; `None` means the default context.
    pub fn successor(&self, state: u16) -> Option<Successor> {
        self.successors.get(usize::from(state)).copied().flatten()
    }
}

/// What happens where a row would store one context more than there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The row's updates and its transition are dropped.
    Reject,
    /// The context with the smallest value of this register goes, of several the one with the smallest key.
    EvictLowest(u16),
    /// The context with the largest value of this register goes, of several the one with the smallest key.
    EvictHighest(u16),
    /// The context goes that packets have not found for the longest time, of several the one with the smallest key.
    EvictOldest,
}

/// The state that a context enters at the deadline of a timer, its registers kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Successor {
    /// The state.
    pub state: u16,
    /// Its idle timeout, counted from the deadline.
    pub idle_ns: Option<u64>,
    /// Its hard timeout, counted from the deadline.
    pub hard_ns: Option<u64>,
}

/// A context that is there from the start, without timers.
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
    /// Both directions of a connection share one context.
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

/// One row of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it stands.
    pub span: Span,
    /// The states it applies to, ascending; empty in a stateless element.
    pub states: Vec<u16>,
    /// What must hold, all of it.
    pub conditions: Vec<Condition>,
    /// The next state.
    pub next: NextState,
    /// New register values, in parallel; at most one for each destination.
    pub updates: Vec<Update>,
    /// What happens to the packet.
    pub actions: Actions,
}

/// What happens where no row matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otherwise {
    /// Where it stands; the element's place where it is not written.
    pub span: Span,
    /// Metadata writes of constants and the terminal action; never writes a header.
    pub actions: Actions,
}

/// The next state of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextState {
    /// State and deadlines stay; also what stateless elements have.
    Stay,
    /// A transition: old deadlines are gone, these are set.
    To {
        /// The next state.
        state: u16,
        /// Idle timeout.
        idle_ns: Option<u64>,
        /// Hard timeout.
        hard_ns: Option<u64>,
    },
}

/// The width in which an expression is computed.
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
        /// The width both sides are computed in.
        width: Width,
        /// Whether order is that of two's complement.
        signed: bool,
    },
    /// Serial-number order: `left before right` where the sign of left - right, in `serial_bits`, is negative;
    /// `left after right` where left - right is positive.
    Serial {
        /// Left operand.
        left: Expr,
        /// Right operand.
        right: Expr,
        /// `after` instead of `before`.
        after: bool,
        /// Holds where the relation does not.
        negated: bool,
        /// Width of the sequence space: 8, 16, 32 or 64.
        serial_bits: u8,
    },
    /// `operand & mask == value`: exact match of addresses and prefixes; also of any field.
    Masked {
        /// What is compared.
        operand: Wide,
        /// The bits that count.
        mask: u128,
        /// Their value.
        value: u128,
        /// Holds where the match does not.
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
        /// Holds where the range does not.
        negated: bool,
    },
    /// A number is one of a set.
    OneOf {
        /// The number.
        operand: Expr,
        /// The set, ascending; each value within `width`.
        values: Vec<u64>,
        /// The width it is computed in.
        width: Width,
        /// Holds where it is none of them.
        negated: bool,
    },
    /// A value lies in one of many intervals, unsigned.
    Within {
        /// The value.
        operand: Wide,
        /// First and last values, ascending, none next to another.
        values: Arc<Vec<(u128, u128)>>,
        /// Holds where it lies in none of them.
        negated: bool,
    },
    /// Two values above 64 bits are equal.
    Same {
        /// Left value.
        left: Wide,
        /// Right value.
        right: Wide,
        /// Holds where they differ.
        negated: bool,
    },
    /// The packet has a header or field.
    Present {
        /// The field, or one that is present exactly where the header is.
        field: FieldId,
        /// Holds where it is absent.
        negated: bool,
    },
    /// The packet's key has no context, and the table holds as many as it may.
    Full {
        /// Holds where that is not so.
        negated: bool,
    },
}

/// A value that is moved and compared for equality as a whole; those above 64 bits can be nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wide {
    /// A constant.
    Constant(u128),
    /// A packet field, as it was when the packet reached this element.
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

/// How two numbers are compared.
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
    /// A packet field of at most 64 bits, as it was when the packet reached this element.
    Field(FieldId),
    /// The packet's time, in units of `unit_ns` (rounded down); its low bits where the width is 32, so that it wraps with
    /// a register of 32 bits beside it.
    Now {
        /// Nanoseconds in a unit.
        unit_ns: u64,
    },
    /// The number of the state that was matched.
    State,
    /// All bits inverted.
    Not(Box<Expr>),
    /// Two operands.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `left` rotated right by `right` in `rotate_bits` (8, 16, 32 or 64), the width of `left`'s own type.
    RotateRight {
        /// What is rotated.
        left: Box<Expr>,
        /// By how many bits, modulo the width.
        right: Box<Expr>,
        /// Width of the rotation.
        rotate_bits: u8,
    },
    /// The smaller or larger of two values.
    Extreme {
        /// The larger instead of the smaller.
        max: bool,
        /// Compare in two's complement.
        signed: bool,
        /// One value.
        left: Box<Expr>,
        /// The other value.
        right: Box<Expr>,
    },
    /// 32 bits of a value, from its low end: number 0 is the lowest.
    Word {
        /// The value.
        of: Wide,
        /// Which 32 bits of it.
        index: u8,
    },
    /// [`crate::hash::hashword`] of these words, each computed in 32 bits.
    Hash(Vec<Expr>),
    /// `average + ((sample - average) >> shift)`, the shift arithmetic; a shift by the width or more gives 0.
    Ewma {
        /// The average so far.
        average: Box<Expr>,
        /// The new sample.
        sample: Box<Expr>,
        /// The weight as a shift.
        shift: u8,
    },
}

/// Operations on two operands; all wrap.
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
    /// `<<`: by the width or more gives 0. The amount is the operand's value, unsigned in the width.
    ShiftLeft,
    /// `>>`, logical: by the width or more gives 0.
    ShiftRight,
}

/// A register that an update writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// A flow register.
    Register(u16),
    /// A global register.
    Global(u16),
}

/// A new value for a register; reads the values from before the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// What is written.
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
        /// The width it is computed in.
        width: Width,
    },
    /// For a target wider than 64 bits, a value of the same width. The front end turns a write of an IPv4 constant to
    /// `ip.src` into one to `ipv4.src`, so that a constant for a field is always a full IPv6 address.
    Wide(Wide),
}

/// The packet actions of a row: they read registers after the updates, and fields and metadata from before the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actions {
    /// Writes of fields and metadata, in parallel; at most one for each destination.
    pub writes: Vec<Write>,
    /// Changes of the frame as a whole and packets that leave besides it, in order, after the writes.
    pub steps: Vec<Step>,
    /// What becomes of the packet.
    pub terminal: Terminal,
}

/// A write of a field or of metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What is written.
    pub target: WriteTarget,
    /// The value.
    pub value: NewValue,
    /// Where it stands.
    pub span: Span,
}

/// What a packet action writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteTarget {
    /// A packet field; the row does not match where it is absent.
    Field(FieldId),
    /// A metadata field.
    Metadata(u16),
}

/// One step of a row's actions; its values are those of the row's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub kind: StepKind,
    /// Where it stands.
    pub span: Span,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// A VLAN tag or an MPLS label becomes the outermost one.
    Push(HeaderTemplate),
    /// The outermost VLAN tag or MPLS label goes; the row does not match where there is none.
    Pop(Header),
    /// These headers come between the link layer and the outermost IP header; the row does not match where there is none.
    Encapsulate(Vec<HeaderTemplate>),
    /// Everything from the outermost IP header up to the inner one goes; the row does not match where there is none.
    Decapsulate,
    /// A copy of the frame as it is now leaves by this port, computed in 32 bits.
    Clone(Expr),
    /// A packet made of these headers leaves by a port.
    Emit {
        /// The port, computed in 32 bits.
        port: Expr,
        /// Its headers, from the outermost.
        headers: Vec<HeaderTemplate>,
    },
    /// A record is written for user space.
    Log(Log),
}

/// What a row reports to user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The number of the statement in the source; rows that are alternatives of one share it.
    pub id: u32,
    /// How much it matters.
    pub level: Level,
    /// What is said.
    pub text: String,
    /// What is reported with it.
    pub values: Vec<Logged>,
}

/// How much a report matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// `log`
    Log,
    /// `alert`
    Alert,
}

/// A value of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// What was written for it.
    pub name: String,
    /// The value.
    pub value: NewValue,
    /// How readers show it.
    pub shown: Shown,
}

/// How a reported value is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shown {
    /// As a number that is never negative.
    Unsigned,
    /// As a number that may be negative.
    Signed,
    /// As an IPv4 address.
    Ipv4,
    /// As an address of 128 bits; a mapped one as the IPv4 address.
    Address,
    /// As a MAC address.
    Mac,
}

/// A header that is made, what is not given taken from its defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// Which header.
    pub header: Header,
    /// Fields of it, by their names in an outermost header, and their values; each field once.
    pub values: Vec<(FieldId, NewValue)>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminal {
    /// Dropped.
    Drop,
    /// Handed on.
    Pass,
    /// Handed on, for a reason: to the slow path or the host.
    Punt,
    /// Out of this port, computed in 32 bits.
    Forward(Expr),
    /// Out of the port it came in by.
    Reply,
    /// A copy out of every bound port but the one it came in by.
    Flood,
    /// Into a later element.
    Goto(u16),
}
