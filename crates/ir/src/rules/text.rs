// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The syntax tree of rules.
//!
//! ```text
//!  sub-unsigned: (sub x:w y) => (sext w (sub (slice 0 m+1 x) (slice 0 m+1 y)))
//!    where m = unsigned x y, m+1 < w
//! ```
//!
//! A lower-case name is a value, an upper-case name a constant of the graph; either may have its width after a colon.
//! Expressions of widths and positions are evaluated from left to right, without parentheses. `[a x]*` stands for any
//! number of pairs of a `select`; `t@(...)` names a subterm. A line that begins with a blank continues the one before
//! it.

use crate::graph::{Binary, Compare};

/// An expression, evaluated from left to right in 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    /// The first operand.
    pub first: Atom,
    /// Operators with their second operands.
    pub rest: Vec<(Sign, Atom)>,
}

/// An operand.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Atom {
    Literal(u64),
    Name(String),
}

/// Operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sign {
    Add,
    Sub,
    Mul,
    Mod,
    And,
    Or,
    Xor,
    Left,
    Right,
}

/// A term: a value or a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// Any value.
    Any {
        /// The name.
        name: String,
        /// The width in bits.
        width: Option<Expr>,
    },
    /// A constant.
    Number {
        /// The value; an unbound name matches any constant.
        value: Expr,
        /// The width in bits.
        width: Option<Expr>,
    },
    /// An operation.
    Apply {
        /// The name of the subterm.
        name: Option<String>,
        /// The operation.
        op: Op,
        /// Widths and positions: `low bits` of a slice, `bits` of an extension.
        numbers: Vec<Expr>,
        /// The arguments.
        args: Vec<Item>,
    },
}

impl Expr {
    /// The name, if the expression is only a name.
    pub fn name(&self) -> Option<&str> {
        match (&self.first, self.rest.as_slice()) {
            (Atom::Name(name), []) => Some(name),
            _ => None,
        }
    }
}

impl Term {
    /// The name of the term.
    pub fn name(&self) -> Option<&str> {
        match self {
            Term::Any { name, .. } => Some(name),
            Term::Number { value, .. } => value.name(),
            Term::Apply { name, .. } => name.as_deref(),
        }
    }
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A term.
    One(Term),
    /// Any number of (condition, value) pairs.
    Pairs(Term, Term),
}

/// Operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Binary(Binary),
    Compare(Compare),
    Not,
    Select,
    Slice,
    Concat,
    SignExtend,
    /// Zero extension: short for a concatenation.
    Extend,
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Names a number.
    Let(String, Expr),
    /// Compares two numbers.
    Is(Expr, Order, Expr),
    /// A fact about values or numbers, with names for its results.
    Known(Vec<String>, Fact, Vec<Expr>),
}

/// Unsigned comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Order {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    Different,
}

/// Facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// `l n = zeros x`: the first run of zeros: `n` bits from bit `l` on.
    Zeros,
    /// `l n = ones x`: the first run of ones.
    Ones,
    /// `l n = same x y`: the first run of bits that are equal in all of them.
    Same,
    /// `differ x y`: they are never equal.
    Differ,
    /// `m = unsigned x y`: bits from `m` on are zeros.
    Unsigned,
    /// `m = signed x y`: bits from `m` on repeat the sign bit.
    Signed,
    /// `n = low x`: the number of trailing zeros, in all of them.
    Low,
    /// `k = power C`: the number is 2^k.
    Power,
    /// `i j = two-bits C`: the number is 2^i + 2^j, i below j.
    TwoBits,
    /// `i j = run C`: the number is 2^j - 2^i, i below j.
    Run,
    /// `once t`: the pattern has its only use. For cost alone.
    Once,
    /// `m = used t`: its users take bits below `m` only. For cost alone.
    Used,
    /// `k = unused t`: no user takes a bit below `k`. For cost alone.
    Unused,
    /// `division`: no condition; the proof characterises quotient and remainder.
    Division,
}
