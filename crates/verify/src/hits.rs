// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coverage counters of a stimulus.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_efsm::model::{BinaryOp, Relation, Type, Width};
use flowloom_wire::field::FieldId;

/// A coverage item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hit {
    /// An operator was evaluated, in 32 or 64 bits.
    Operator(Operator, u32),
    /// A comparison was evaluated.
    Compare {
        /// `==`, `<` and so on, by name.
        relation: &'static str,
        /// In two's complement.
        signed: bool,
        /// In 32 or 64 bits.
        width_bits: u32,
    },
    /// `before` or `after` was evaluated.
    Serial {
        /// True for `after`, false for `before`.
        after: bool,
        /// Width of the sequence space.
        serial_bits: u8,
    },
    /// A masked match was evaluated; the flag is true if negated.
    Masked(bool),
    /// A range was evaluated; the flag is true if negated.
    Range(bool),
    /// Two wide fields were compared; the flag is true if negated.
    SameField(bool),
    /// A set was searched; the flag is true if negated.
    OneOf(bool),
    /// A set of intervals was searched; the flag is true if negated.
    Within(bool),
    /// `present` was evaluated; the flag is true if negated.
    Present(bool),
    /// `full` was evaluated; the flag is true if negated.
    Full(bool),
    /// A variable of this place, width in bits and signedness was read.
    Variable(StorageClass, u8, bool),
    /// `now` was read.
    Now,
    /// `state` was read.
    State,
    /// A field was part of a constructed key.
    KeyField(FieldId),
    /// A field was read by a row.
    FieldRead(FieldId),
    /// A field was written.
    FieldWritten(FieldId),
    /// A timer was set by a row.
    TimerSet(Timer),
    /// An idle timer was re-armed.
    IdleRearmed,
    /// A packet met a context whose timer had expired.
    TimerExpired(Timer),
    /// A packet met a context at this offset from the deadline.
    Tick(Timer, Tick),
    /// A context was created.
    Created,
    /// A context was removed because it had its default value again.
    Removed,
    /// A context was not created because the table was full.
    Rejected,
    /// A context was evicted for another one.
    Evicted,
    /// A row was taken.
    Row,
    /// No row matched.
    NoMatch,
    /// A key field was absent.
    NoKey,
    /// A step, by name.
    Step(&'static str),
    /// A terminal action, by name.
    Terminal(&'static str),
    /// A packet took `goto` to another element.
    Goto,
}

/// Operators of expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
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
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `~`
    Not,
    /// `ror`
    RotateRight,
    /// `min`
    Min,
    /// `max`
    Max,
    /// `ewma`
    Ewma,
}

/// Storage class of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageClass {
    /// Flow register.
    Register,
    /// Global register.
    Global,
    /// Metadata.
    Metadata,
}

/// The two timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Re-armed by every packet.
    Idle,
    /// Set once.
    Hard,
}

/// Offset of a packet from a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tick {
    /// One nanosecond before it.
    Before,
    /// On it.
    At,
    /// One nanosecond after it.
    After,
}

impl Operator {
    /// All operators.
    pub const ALL: [Operator; 12] = [
        Operator::Add,
        Operator::Sub,
        Operator::And,
        Operator::Or,
        Operator::Xor,
        Operator::ShiftLeft,
        Operator::ShiftRight,
        Operator::Not,
        Operator::RotateRight,
        Operator::Min,
        Operator::Max,
        Operator::Ewma,
    ];
}

impl From<BinaryOp> for Operator {
    fn from(op: BinaryOp) -> Operator {
        match op {
            BinaryOp::Add => Operator::Add,
            BinaryOp::Sub => Operator::Sub,
            BinaryOp::And => Operator::And,
            BinaryOp::Or => Operator::Or,
            BinaryOp::Xor => Operator::Xor,
            BinaryOp::ShiftLeft => Operator::ShiftLeft,
            BinaryOp::ShiftRight => Operator::ShiftRight,
        }
    }
}

/// Source text of a relation.
pub fn relation_text(relation: Relation) -> &'static str {
    match relation {
        Relation::Equal => "==",
        Relation::NotEqual => "!=",
        Relation::Less => "<",
        Relation::LessEqual => "<=",
        Relation::Greater => ">",
        Relation::GreaterEqual => ">=",
    }
}

impl Hit {
    pub(crate) fn compare(relation: Relation, signed: bool, width: Width) -> Hit {
        Hit::Compare { relation: relation_text(relation), signed, width_bits: width.bits() }
    }

    pub(crate) fn variable(place: StorageClass, ty: Type) -> Hit {
        Hit::Variable(place, ty.width_bits, ty.signed)
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let negated = |n: &bool| if *n { "not " } else { "" };
        match self {
            Hit::Operator(op, bits) => write!(f, "operator {op:?}, {bits} bits"),
            Hit::Compare { relation, signed, width_bits } => {
                write!(f, "compare {relation}, {}, {width_bits} bits", if *signed { "signed" } else { "unsigned" })
            }
            Hit::Serial { after, serial_bits } => {
                write!(f, "serial {}, {serial_bits} bits", if *after { "after" } else { "before" })
            }
            Hit::Masked(n) => write!(f, "match {}masked", negated(n)),
            Hit::Range(n) => write!(f, "match {}range", negated(n)),
            Hit::SameField(n) => write!(f, "match {}same field", negated(n)),
            Hit::OneOf(n) => write!(f, "match {}one of a set", negated(n)),
            Hit::Within(n) => write!(f, "match {}within a set", negated(n)),
            Hit::Present(n) => write!(f, "match {}present", negated(n)),
            Hit::Full(n) => write!(f, "match {}full", negated(n)),
            Hit::Variable(place, bits, signed) => {
                write!(f, "read {place:?} {}{bits}", if *signed { "i" } else { "u" })
            }
            Hit::Now => f.write_str("read now"),
            Hit::State => f.write_str("read state"),
            Hit::KeyField(field) => write!(f, "key {}", field.name()),
            Hit::FieldRead(field) => write!(f, "read {}", field.name()),
            Hit::FieldWritten(field) => write!(f, "write {}", field.name()),
            Hit::TimerSet(timer) => write!(f, "timer {timer:?} set"),
            Hit::IdleRearmed => f.write_str("timer Idle re-armed"),
            Hit::TimerExpired(timer) => write!(f, "timer {timer:?} expired"),
            Hit::Tick(timer, tick) => {
                let at = match tick {
                    Tick::Before => "deadline - 1 ns",
                    Tick::At => "deadline",
                    Tick::After => "deadline + 1 ns",
                };
                write!(f, "tick {timer:?} at {at}")
            }
            Hit::Created => f.write_str("context created"),
            Hit::Removed => f.write_str("context removed"),
            Hit::Rejected => f.write_str("context rejected, table full"),
            Hit::Evicted => f.write_str("context evicted"),
            Hit::Row => f.write_str("packet took a row"),
            Hit::NoMatch => f.write_str("packet matched no row"),
            Hit::NoKey => f.write_str("packet lacks a key field"),
            Hit::Step(name) => write!(f, "step {name}"),
            Hit::Terminal(name) => write!(f, "action {name}"),
            Hit::Goto => f.write_str("action goto"),
        }
    }
}

/// Number of hits by item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    counts: BTreeMap<Hit, u64>,
}

impl Hits {
    pub(crate) fn count(&mut self, hit: Hit) {
        *self.counts.entry(hit).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Hits) {
        for (&hit, &n) in &other.counts {
            *self.counts.entry(hit).or_default() += n;
        }
    }

    /// Number of hits of this item.
    pub fn get(&self, hit: Hit) -> u64 {
        self.counts.get(&hit).copied().unwrap_or(0)
    }

    /// Table of the items of `expected` and of all other items that were hit.
    pub fn render(&self, expected: &[Hit]) -> String {
        let mut counts = self.counts.clone();
        for &hit in expected {
            counts.entry(hit).or_default();
        }
        counts.iter().map(|(hit, n)| format!("{n:>12}  {hit}\n")).collect()
    }
}
