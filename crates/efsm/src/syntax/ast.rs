// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The syntax tree: the source with spans, before name resolution.

use crate::model::{BinaryOp, Level, Relation, Span};

use super::Literal;

/// A token's text and its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'s> {
    pub(crate) text: &'s str,
    pub(crate) span: Span,
}

/// A source file.
#[derive(Debug, Default)]
pub(crate) struct Program<'s> {
    pub(crate) name: Option<Name<'s>>,
    pub(crate) params: Vec<Param<'s>>,
    pub(crate) constants: Vec<Constant<'s>>,
    pub(crate) sets: Vec<Set<'s>>,
    pub(crate) metadata: Vec<Variable<'s>>,
    pub(crate) headers: Vec<Header<'s>>,
    pub(crate) elements: Vec<Element<'s>>,
    /// A declaration could not be parsed, so names may be missing.
    pub(crate) has_syntax_errors: bool,
}

/// `param name: type = default;`
#[derive(Debug)]
pub(crate) struct Param<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) ty: Name<'s>,
    pub(crate) default: Option<Expr<'s>>,
}

/// `const name = value;`
#[derive(Debug)]
pub(crate) struct Constant<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) value: Expr<'s>,
}

/// `set name = { ... };` or `set name = file("path");`
#[derive(Debug)]
pub(crate) struct Set<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) contents: SetContents<'s>,
}

#[derive(Debug)]
pub(crate) enum SetContents<'s> {
    Items(Vec<SetItem<'s>>),
    /// The path, without quotes.
    File(Name<'s>),
}

/// An entry of a named set.
#[derive(Debug)]
pub(crate) struct SetItem<'s> {
    pub(crate) span: Span,
    pub(crate) kind: SetItemKind<'s>,
}

#[derive(Debug)]
pub(crate) enum SetItemKind<'s> {
    Value(Expr<'s>),
    /// `address/length`
    Prefix(Expr<'s>, Expr<'s>),
    /// `low..high`
    Range(Expr<'s>, Expr<'s>),
}

/// `meta`, `reg` and `global`: `name: type time(unit) = initial;`
#[derive(Debug)]
pub(crate) struct Variable<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) ty: Option<Name<'s>>,
    pub(crate) unit: Option<Expr<'s>>,
    pub(crate) initial: Option<Expr<'s>>,
}

/// `header name after parent when field == value, ... { field: type; ... }`
#[derive(Debug)]
pub(crate) struct Header<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) after: Name<'s>,
    pub(crate) when: Vec<(Name<'s>, Expr<'s>)>,
    /// (name, type) of each field.
    pub(crate) fields: Vec<(Name<'s>, Name<'s>)>,
    pub(crate) has_syntax_errors: bool,
}

/// `stateful name { ... }` or `stateless name { ... }`.
#[derive(Debug)]
pub(crate) struct Element<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) is_stateful: bool,
    pub(crate) clauses: Vec<Clause<'s>>,
    pub(crate) rows: Vec<Row<'s>>,
    pub(crate) otherwise: Vec<Otherwise<'s>>,
    /// A clause could not be parsed, so names may be missing.
    pub(crate) has_syntax_errors: bool,
    /// A row could not be parsed, so transitions may be missing.
    pub(crate) has_row_errors: bool,
}

/// A declaration in an element.
#[derive(Debug)]
pub(crate) struct Clause<'s> {
    /// The keyword.
    pub(crate) word: Name<'s>,
    pub(crate) kind: ClauseKind<'s>,
}

#[derive(Debug)]
pub(crate) enum ClauseKind<'s> {
    Key(Key<'s>),
    Size(Expr<'s>),
    Sweep(Expr<'s>),
    Full(Policy<'s>),
    Expire(Expire<'s>),
    Preload(Preload<'s>),
    States(Vec<Name<'s>>),
    Register(Variable<'s>),
    Global(Variable<'s>),
}

/// `full reject;` or `full evict ...;`
#[derive(Debug, Clone, Copy)]
pub(crate) enum Policy<'s> {
    Reject,
    /// `evict lowest register`
    Lowest(Name<'s>),
    /// `evict highest register`
    Highest(Name<'s>),
    Oldest,
}

/// `expire state -> successor (timers);`
#[derive(Debug)]
pub(crate) struct Expire<'s> {
    pub(crate) state: Name<'s>,
    pub(crate) to: Name<'s>,
    pub(crate) timers: Vec<Timer<'s>>,
}

/// `preload values -> state { registers }`
#[derive(Debug)]
pub(crate) struct Preload<'s> {
    /// Everything but the registers.
    pub(crate) span: Span,
    /// Values of the key's parts.
    pub(crate) key: Vec<Expr<'s>>,
    pub(crate) state: Name<'s>,
    pub(crate) registers: Vec<(Name<'s>, Expr<'s>)>,
}

/// A flow key, unresolved.
#[derive(Debug)]
pub(crate) struct Key<'s> {
    pub(crate) span: Span,
    pub(crate) biflow: bool,
    /// Empty for `none`.
    pub(crate) fields: Vec<Name<'s>>,
}

#[derive(Debug)]
pub(crate) struct Row<'s> {
    /// From the first token to the last one before the block.
    pub(crate) head: Span,
    pub(crate) states: States<'s>,
    pub(crate) conditions: Vec<Expr<'s>>,
    pub(crate) next: Next<'s>,
    pub(crate) block: Block<'s>,
}

#[derive(Debug)]
pub(crate) enum States<'s> {
    /// No `on`: the row of a stateless element.
    Absent,
    Any,
    Listed(Vec<Name<'s>>),
}

#[derive(Debug)]
pub(crate) enum Next<'s> {
    Absent,
    Stay,
    To { state: Name<'s>, span: Span, timers: Vec<Timer<'s>> },
}

/// `idle T` or `hard T`.
#[derive(Debug)]
pub(crate) struct Timer<'s> {
    pub(crate) word: Name<'s>,
    pub(crate) value: Expr<'s>,
}

/// `otherwise { ... }`
#[derive(Debug)]
pub(crate) struct Otherwise<'s> {
    pub(crate) word: Name<'s>,
    pub(crate) block: Block<'s>,
}

/// `{ ... }`
#[derive(Debug)]
pub(crate) struct Block<'s> {
    pub(crate) span: Span,
    pub(crate) statements: Vec<Statement<'s>>,
    pub(crate) has_syntax_errors: bool,
}

#[derive(Debug)]
pub(crate) enum Statement<'s> {
    Assign {
        target: Name<'s>,
        op: Option<BinaryOp>,
        value: Expr<'s>,
        span: Span,
    },
    Step {
        span: Span,
        kind: Step<'s>,
    },
    /// `forget;`
    Forget {
        span: Span,
    },
    Terminal {
        span: Span,
        kind: Terminal<'s>,
    },
}

/// An action on the whole frame.
#[derive(Debug)]
pub(crate) enum Step<'s> {
    Push(Template<'s>),
    Pop(Name<'s>),
    Encap(Vec<Template<'s>>),
    Decap,
    Clone(Expr<'s>),
    Emit(Expr<'s>, Vec<Template<'s>>),
    /// `log("text", value, ...)`; the text is without quotes.
    Log(Level, Name<'s>, Vec<Expr<'s>>),
}

/// `header(field = value, ...)`
#[derive(Debug)]
pub(crate) struct Template<'s> {
    pub(crate) header: Name<'s>,
    pub(crate) values: Vec<(Name<'s>, Expr<'s>)>,
}

#[derive(Debug)]
pub(crate) enum Terminal<'s> {
    Drop,
    Pass,
    Punt,
    Forward(Option<Expr<'s>>),
    Reply,
    Flood,
    Goto(Name<'s>),
}

/// An expression or a condition; the checker tells them apart.
#[derive(Debug)]
pub(crate) struct Expr<'s> {
    pub(crate) span: Span,
    pub(crate) kind: ExprKind<'s>,
}

#[derive(Debug)]
pub(crate) enum ExprKind<'s> {
    Literal(Literal),
    Name(&'s str),
    /// `~x`
    Invert(Box<Expr<'s>>),
    /// `-x`
    Negate(Box<Expr<'s>>),
    Binary(BinaryOp, Box<Expr<'s>>, Box<Expr<'s>>),
    /// `a * b`, of constants only.
    Multiply(Box<Expr<'s>>, Box<Expr<'s>>),
    Call(Name<'s>, Vec<Expr<'s>>),
    Compare(Relation, Box<Expr<'s>>, Box<Expr<'s>>),
    /// `a before b`, `a after b`
    Serial {
        after: bool,
        left: Box<Expr<'s>>,
        right: Box<Expr<'s>>,
    },
    /// `a in address/length`
    InPrefix(Box<Expr<'s>>, Box<Expr<'s>>, Box<Expr<'s>>),
    /// `a in {b, c}`
    InSet(Box<Expr<'s>>, Vec<Expr<'s>>),
    /// `a in name`
    InNamed(Box<Expr<'s>>, Name<'s>),
    /// `a in low..high`
    InRange(Box<Expr<'s>>, Box<Expr<'s>>, Box<Expr<'s>>),
    /// `!x`
    Not(Box<Expr<'s>>),
    /// `a && b`
    And(Box<Expr<'s>>, Box<Expr<'s>>),
    /// `a || b`
    Or(Box<Expr<'s>>, Box<Expr<'s>>),
}
