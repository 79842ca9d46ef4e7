//! What the text of rules says.
//!
//! ```text
//!  sub-unsigned: (sub x:w y) => (sext w (sub (slice 0 m+1 x) (slice 0 m+1 y)))
//!    where m = unsigned x y, m+1 < w
//! ```
//!
//! A small letter begins a value, a capital a number of the graph, both with their width behind a colon where it is asked for. What
//! stands for widths and places is reckoned without brackets, from left to right. `[a x]*` stands for any number of pairs of a
//! `select`; `t@(...)` gives a part a name. A line that begins with a blank goes on with the one before it.

use crate::graph::{Binary, Compare};

/// A number, reckoned from left to right in 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    /// What it begins with.
    pub first: Atom,
    /// What is done with it, one after the other.
    pub rest: Vec<(Sign, Atom)>,
}

/// The least number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Atom {
    Literal(u64),
    Name(String),
}

/// What is done with two numbers.
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

/// A value, or what one looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// Any value.
    Any {
        /// Its name.
        name: String,
        /// Its bits.
        width: Option<Expr>,
    },
    /// A number.
    Number {
        /// Which; a name alone is any.
        value: Expr,
        /// Its bits.
        width: Option<Expr>,
    },
    /// An operation.
    Apply {
        /// Its name.
        name: Option<String>,
        /// Which.
        op: Op,
        /// Widths and places: `low bits` of a slice, `bits` of an extension.
        numbers: Vec<Expr>,
        /// What it works on.
        args: Vec<Item>,
    },
}

impl Expr {
    /// The name that it is, where it is nothing but one.
    pub fn name(&self) -> Option<&str> {
        match (&self.first, self.rest.as_slice()) {
            (Atom::Name(name), []) => Some(name),
            _ => None,
        }
    }
}

impl Term {
    /// Its own name.
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
    /// One.
    One(Term),
    /// Any number of pairs, each a condition and a value.
    Pairs(Term, Term),
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Binary(Binary),
    Compare(Compare),
    Not,
    Select,
    Slice,
    Concat,
    SignExtend,
    /// Extended by zeros: short for a concat.
    Extend,
}

/// When a rule may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// A name for a number.
    Let(String, Expr),
    /// How two numbers compare.
    Is(Expr, Order, Expr),
    /// What is known of values or numbers, with names for what comes out.
    Known(Vec<String>, Fact, Vec<Expr>),
}

/// How two numbers compare, without signs.
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

/// What can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// `l n = zeros x`: its first run of zeros: `n` bits from bit `l` on.
    Zeros,
    /// `l n = ones x`: of ones.
    Ones,
    /// `l n = same x y`: the first run of bits that are the same in all of them.
    Same,
    /// `differ x y`: they never are the same.
    Differ,
    /// `m = unsigned x y`: above `m` bits there are zeros.
    Unsigned,
    /// `m = signed x y`: above `m` bits there is the last of these again and again.
    Signed,
    /// `n = low x`: so many zeros at the least end, in all of them.
    Low,
    /// `k = power C`: the number is 2^k.
    Power,
    /// `i j = two-bits C`: the number is 2^i + 2^j, i below j.
    TwoBits,
    /// `i j = run C`: the number is 2^j - 2^i, i below j.
    Run,
    /// `once t`: only the rest of the pattern uses it. A question of cost.
    Once,
    /// `m = used t`: all that use it take bits below `m` only. A question of cost.
    Used,
    /// `k = unused t`: none that uses it takes a bit below `k`. A question of cost.
    Unused,
    /// `division`: asks for nothing; the proof is by what quotient and rest are.
    Division,
}
