// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Expressions and conditions.
//!
//! Precedence from lowest to highest: `||` · `&&` · comparisons, `before`, `after`, `in` · `|` · `^` · `&` · `<< >>` ·
//! `+ -` · `*` · `~ - !`. Unlike in C, comparisons bind less tightly than `&`, so `field & mask == value` needs no
//! parentheses.

use crate::diagnostic::Code;
use crate::model::{BinaryOp, Relation};

use super::ast::{Expr, ExprKind, Name};
use super::cursor::{Failed, Parsed, Parser};
use super::literal::{BadLiteral, Literal, read_colons, read_dotted, read_number};
use super::token::Kind;

/// Maximum number of operators, calls and parentheses in an expression.
const MAX_OPERATORS: u32 = 200;

/// Binary arithmetic operators of one precedence level.
type Level = &'static [(Kind, Option<BinaryOp>)];

const LEVELS: [Level; 6] = [
    &[(Kind::Or, Some(BinaryOp::Or))],
    &[(Kind::Xor, Some(BinaryOp::Xor))],
    &[(Kind::And, Some(BinaryOp::And))],
    &[(Kind::ShiftLeft, Some(BinaryOp::ShiftLeft)), (Kind::ShiftRight, Some(BinaryOp::ShiftRight))],
    &[(Kind::Plus, Some(BinaryOp::Add)), (Kind::Minus, Some(BinaryOp::Sub))],
    &[(Kind::Star, None)],
];

impl<'s> Parser<'s, '_> {
    /// Parses the conditions of a row. Without `||` at the top level, each operand of `&&` is a condition with its own
    /// operator budget; otherwise all are one tree.
    pub(super) fn conditions(&mut self) -> Parsed<Vec<Expr<'s>>> {
        let mut conditions = Vec::new();
        loop {
            self.budget = MAX_OPERATORS;
            conditions.push(self.comparison()?);
            if self.eat(Kind::AndAnd).is_none() {
                break;
            }
        }
        if !self.is(Kind::OrOr) {
            return Ok(conditions);
        }
        self.budget = MAX_OPERATORS;
        let mut operands = conditions.into_iter();
        let Some(mut left) = operands.next() else { return Ok(Vec::new()) };
        for right in operands {
            self.charge_operator()?;
            left = self.node(left, right, ExprKind::And);
        }
        Ok(vec![self.join(left, Kind::OrOr, Self::conjunction, ExprKind::Or)?])
    }

    pub(super) fn expr(&mut self) -> Parsed<Expr<'s>> {
        self.budget = MAX_OPERATORS;
        let expr = self.comparison()?;
        if matches!(self.peek().kind, Kind::Slash | Kind::Percent) {
            self.reject_division();
            return Err(Failed);
        }
        Ok(expr)
    }

    fn charge_operator(&mut self) -> Parsed<()> {
        match self.budget.checked_sub(1) {
            Some(budget) => {
                self.budget = budget;
                Ok(())
            }
            None => {
                let span = self.peek().span;
                self.sink
                    .error(
                        Code::TooDeep,
                        span,
                        format!("the expression has more than {MAX_OPERATORS} operators and parentheses"),
                        "one too many",
                    )
                    .help("keep a part of it in a metadata field, written by an element before this");
                Err(Failed)
            }
        }
    }

    fn reject_division(&mut self) {
        let span = self.peek().span;
        let found = self.word();
        let help = match found {
            "/" => "divide by a power of two with `>> n`; a prefix such as `10.0.0.0/8` follows `in`",
            _ => "the remainder of a power of two is `x & (2^n - 1)`, as in `x & 7` for 8",
        };
        self.sink
            .error(Code::UnknownOperator, span, format!("there is no `{found}`"), "not an operator of the language")
            .help(help);
    }

    fn conjunction(&mut self) -> Parsed<Expr<'s>> {
        let left = self.comparison()?;
        self.join(left, Kind::AndAnd, Self::comparison, ExprKind::And)
    }

    fn disjunction(&mut self) -> Parsed<Expr<'s>> {
        let left = self.conjunction()?;
        self.join(left, Kind::OrOr, Self::conjunction, ExprKind::Or)
    }

    /// Parses the operands after `left` that this operator joins.
    fn join(
        &mut self,
        mut left: Expr<'s>,
        operator: Kind,
        operand: fn(&mut Self) -> Parsed<Expr<'s>>,
        make: fn(Box<Expr<'s>>, Box<Expr<'s>>) -> ExprKind<'s>,
    ) -> Parsed<Expr<'s>> {
        while self.eat(operator).is_some() {
            self.charge_operator()?;
            let right = operand(self)?;
            left = self.node(left, right, make);
        }
        Ok(left)
    }

    fn node(
        &self,
        left: Expr<'s>,
        right: Expr<'s>,
        make: impl FnOnce(Box<Expr<'s>>, Box<Expr<'s>>) -> ExprKind<'s>,
    ) -> Expr<'s> {
        let span = self.span_from(left.span.start);
        Expr { span, kind: make(Box::new(left), Box::new(right)) }
    }

    fn comparison(&mut self) -> Parsed<Expr<'s>> {
        let left = self.arithmetic(0)?;
        let relation = match self.peek().kind {
            Kind::EqualEqual => Relation::Equal,
            Kind::NotEqual => Relation::NotEqual,
            Kind::Less => Relation::Less,
            Kind::LessEqual => Relation::LessEqual,
            Kind::Greater => Relation::Greater,
            Kind::GreaterEqual => Relation::GreaterEqual,
            Kind::Name if self.word() == "before" || self.word() == "after" => {
                let after = self.word() == "after";
                self.bump();
                self.charge_operator()?;
                let right = self.arithmetic(0)?;
                return Ok(self.node(left, right, |left, right| ExprKind::Serial { after, left, right }));
            }
            Kind::Name if self.word() == "in" => {
                self.bump();
                self.charge_operator()?;
                return self.membership(left);
            }
            Kind::Slash | Kind::Percent => {
                self.reject_division();
                return Err(Failed);
            }
            _ => return Ok(left),
        };
        self.bump();
        self.charge_operator()?;
        let right = self.arithmetic(0)?;
        let compared = self.node(left, right, |left, right| ExprKind::Compare(relation, left, right));
        if matches!(
            self.peek().kind,
            Kind::EqualEqual | Kind::NotEqual | Kind::Less | Kind::LessEqual | Kind::Greater | Kind::GreaterEqual
        ) {
            return self.fail(
                "the end of the comparison",
                "comparisons do not chain; join two with `&&`, or write `field in low..high`",
            );
        }
        Ok(compared)
    }

    /// Parses the right operand of `in`.
    fn membership(&mut self, left: Expr<'s>) -> Parsed<Expr<'s>> {
        if self.is(Kind::OpenBrace) {
            return self.set(left);
        }
        let first = self.arithmetic(4)?;
        let start = left.span.start;
        if let ExprKind::Name(text) = first.kind
            && !matches!(self.peek().kind, Kind::Slash | Kind::DotDot)
        {
            let name = Name { text, span: first.span };
            return Ok(Expr { span: self.span_from(start), kind: ExprKind::InNamed(Box::new(left), name) });
        }
        if self.eat(Kind::Slash).is_some() {
            let length = self.unary()?;
            let kind = ExprKind::InPrefix(Box::new(left), Box::new(first), Box::new(length));
            return Ok(Expr { span: self.span_from(start), kind });
        }
        if self.eat(Kind::DotDot).is_some() {
            self.eat(Kind::Equal);
            let high = self.arithmetic(4)?;
            let kind = ExprKind::InRange(Box::new(left), Box::new(first), Box::new(high));
            return Ok(Expr { span: self.span_from(start), kind });
        }
        self.fail(
            "`/` and a prefix length, or `..` and the end of a range",
            "as in `ip.src in 10.0.0.0/8`, `l4.dport in 1024..65535` or `l4.dport in {80, 443}`; a single value is \
                 compared with `==`",
        )
    }

    /// Parses `{a, b}` after `in`, starting at the brace. On an error it consumes the closing brace too, so that the
    /// set is not mistaken for the block of the row.
    fn set(&mut self, left: Expr<'s>) -> Parsed<Expr<'s>> {
        let open = self.bump();
        let mut values = Vec::new();
        loop {
            let value = self.charge_operator().and_then(|()| self.arithmetic(0));
            let Ok(value) = value else {
                self.skip_set();
                return Err(Failed);
            };
            values.push(value);
            if self.eat(Kind::Comma).is_some() {
                continue;
            }
            if self.eat(Kind::CloseBrace).is_some() {
                let span = self.span_from(left.span.start);
                return Ok(Expr { span, kind: ExprKind::InSet(Box::new(left), values) });
            }
            let help = match self.peek().kind {
                Kind::DotDot => {
                    "write a range without braces, `x in low..high`, or in a named set: `set ports = { 80..90, 443 };`"
                }
                Kind::Slash => {
                    "write a prefix without braces, `ip.src in 10.0.0.0/8`, or in a named set: \
                     `set blocked = { 10.0.0.0/8, 192.0.2.1 };`"
                }
                _ => "the values of a set are separated by commas: `l4.dport in {80, 443}`",
            };
            self.unexpected("`,` or `}` after a value of the set").secondary_label(open.span, "opened here").help(help);
            self.skip_set();
            return Err(Failed);
        }
    }

    /// Parses a constant in a named set; each has its own operator budget.
    pub(super) fn set_value(&mut self) -> Parsed<Expr<'s>> {
        self.budget = MAX_OPERATORS;
        self.arithmetic(4)
    }

    pub(super) fn skip_set(&mut self) {
        while !matches!(self.peek().kind, Kind::CloseBrace | Kind::Semicolon | Kind::OpenBrace | Kind::End) {
            self.bump();
        }
        self.eat(Kind::CloseBrace);
    }

    fn arithmetic(&mut self, level: usize) -> Parsed<Expr<'s>> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.arithmetic(level + 1)?;
        while let Some((_, op)) = operators.iter().find(|(kind, _)| self.is(*kind)) {
            self.bump();
            self.charge_operator()?;
            let right = self.arithmetic(level + 1)?;
            left = match op {
                Some(op) => self.node(left, right, |left, right| ExprKind::Binary(*op, left, right)),
                None => self.node(left, right, ExprKind::Multiply),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr<'s>> {
        let token = self.peek();
        let make: fn(Box<Expr<'s>>) -> ExprKind<'s> = match token.kind {
            Kind::Tilde => ExprKind::Invert,
            Kind::Minus => ExprKind::Negate,
            Kind::Bang => ExprKind::Not,
            _ => return self.primary(),
        };
        self.bump();
        self.charge_operator()?;
        let inner = self.unary()?;
        let span = self.span_from(token.span.start);
        Ok(Expr { span, kind: make(Box::new(inner)) })
    }

    fn primary(&mut self) -> Parsed<Expr<'s>> {
        let token = self.peek();
        let word = self.word();
        let read: fn(&str) -> Result<Literal, BadLiteral> = match token.kind {
            Kind::Number => read_number,
            Kind::Dotted => read_dotted,
            Kind::Colons => read_colons,
            Kind::Name => return self.name_or_call(),
            Kind::OpenParen => {
                self.bump();
                self.charge_operator()?;
                let inner = self.disjunction()?;
                if matches!(self.peek().kind, Kind::Slash | Kind::Percent) {
                    self.reject_division();
                    return Err(Failed);
                }
                if self.eat(Kind::CloseParen).is_none() {
                    if self.is(Kind::Invalid) {
                        return Err(Failed);
                    }
                    let found = self.found();
                    let here = self.peek().span;
                    self.sink
                        .error(Code::Unclosed, here, format!("expected `)`, found {found}"), "expected `)`")
                        .secondary_label(token.span, "opened here")
                        .help("every `(` is closed by a `)`");
                    return Err(Failed);
                }
                return Ok(Expr { span: self.span_from(token.span.start), kind: inner.kind });
            }
            Kind::FiveTuple => {
                return self
                    .fail("a value", "`5-tuple` denotes five fields in a `key`; a row names one field, as `ip.src`");
            }
            _ => {
                return self
                    .fail("a value", "a value is a number, a time, an address, a field, a register or metadata");
            }
        };
        self.bump();
        match read(word) {
            Ok(literal) => Ok(Expr { span: token.span, kind: ExprKind::Literal(literal) }),
            Err(BadLiteral { message, help }) => {
                self.sink.error(Code::BadLiteral, token.span, message, "found here").help(help);
                Err(Failed)
            }
        }
    }

    fn name_or_call(&mut self) -> Parsed<Expr<'s>> {
        let token = self.bump();
        let name = Name { text: self.text_of(token.span), span: token.span };
        if self.eat(Kind::OpenParen).is_none() {
            return Ok(Expr { span: token.span, kind: ExprKind::Name(name.text) });
        }
        let mut arguments = Vec::new();
        if !self.is(Kind::CloseParen) {
            loop {
                self.charge_operator()?;
                arguments.push(self.comparison()?);
                if self.eat(Kind::Comma).is_none() {
                    break;
                }
            }
        }
        self.expect(Kind::CloseParen, "`,` or `)`")?;
        Ok(Expr { span: self.span_from(token.span.start), kind: ExprKind::Call(name, arguments) })
    }
}
