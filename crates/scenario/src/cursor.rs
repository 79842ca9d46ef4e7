// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parser of one statement's tokens, and of value expressions with names and counters.

use std::collections::BTreeMap;

use flowloom_efsm::model::Span;
use flowloom_engine::{PORT_COUNT, Port};

use super::error::PendingError;
use super::lex::{Form, Kind, Token, Value, hex};

/// Values bound by `let` and `repeat`.
pub(super) type Names = BTreeMap<String, Value>;

/// A position in the tokens of a statement.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    pub(super) names: &'a Names,
}

impl<'a> Cursor<'a> {
    /// Starts at the first of `tokens`, which are part of `text`.
    pub(super) fn new(text: &'a str, tokens: &'a [Token], names: &'a Names) -> Cursor<'a> {
        Cursor { text, tokens, at: 0, names }
    }

    pub(super) fn peek(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    /// Span of the next token; the end of the last one if none is left.
    pub(super) fn span(&self) -> Span {
        match self.tokens.get(self.at) {
            Some(token) => token.span,
            None => {
                let end = self.tokens.last().map_or(0, |token| token.span.end);
                Span { start: end, end }
            }
        }
    }

    /// Span of the token before the next one.
    pub(super) fn last_span(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or_else(|| self.span(), |token| token.span)
    }

    /// Span from `start` to the last token.
    pub(super) fn since(&self, start: Span) -> Span {
        Span { start: start.start, end: self.last_span().end }
    }

    pub(super) fn peek_word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.peek_word() == Some(word)
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Kind::Sign(found)) if *found == sign)
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn eat_sign(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        self.at += usize::from(found);
        found
    }

    /// Parses bytes in hexadecimal, if there are any.
    pub(super) fn hex_bytes(&mut self) -> Option<Vec<u8>> {
        let bytes = self.hex_digits().and_then(hex)?;
        self.skip();
        Some(bytes)
    }

    /// The digits of the next token, if it is a hexadecimal number. Leading zeros are significant in byte strings.
    pub(super) fn hex_digits(&self) -> Option<&'a str> {
        let token = self.tokens.get(self.at)?;
        self.text.get(token.span.start..token.span.end)?.strip_prefix("0x")
    }

    /// Describes the next token.
    pub(super) fn found(&self) -> String {
        match self.peek() {
            None => "the end of the line".to_owned(),
            Some(Kind::Word(word)) => format!("`{word}`"),
            Some(Kind::Sign(sign)) => format!("`{sign}`"),
            Some(Kind::Bytes(_)) => "a text".to_owned(),
            Some(Kind::Value(value)) => value.form.name().to_owned(),
        }
    }

    /// An error at the next token: `what` was expected.
    pub(super) fn expected(&self, what: &str) -> PendingError {
        PendingError::new(self.span(), format!("found {}, expected {what}", self.found()))
            .label(format!("expected {what}"))
    }

    pub(super) fn sign(&mut self, sign: &'static str) -> Result<(), PendingError> {
        if self.eat_sign(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }

    pub(super) fn keyword(&mut self, word: &'static str) -> Result<(), PendingError> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// Parses items with commas between them; at least one.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, PendingError>,
    ) -> Result<Vec<T>, PendingError> {
        let mut items = vec![item(self)?];
        while self.eat_sign(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(super) fn word(&mut self, what: &str) -> Result<(&'a str, Span), PendingError> {
        let span = self.span();
        match self.peek_word() {
            Some(word) => {
                self.at += 1;
                Ok((word, span))
            }
            None => Err(self.expected(what)),
        }
    }

    pub(super) fn text(&mut self, what: &str) -> Result<&'a [u8], PendingError> {
        match self.peek() {
            Some(Kind::Bytes(bytes)) => {
                self.at += 1;
                Ok(bytes)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Checks that all tokens are consumed.
    pub(super) fn end(&self) -> Result<(), PendingError> {
        if self.is_done() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }

    /// True if a value starts here.
    pub(super) fn is_value(&self) -> bool {
        match self.peek() {
            Some(Kind::Value(_)) => true,
            Some(Kind::Word(word)) => self.names.contains_key(word),
            Some(Kind::Sign(sign)) => *sign == "[",
            _ => false,
        }
    }

    /// Parses a value: a sum of products of literals and names.
    pub(super) fn value(&mut self, what: &str) -> Result<Value, PendingError> {
        let start = self.span();
        let mut left = self.product(what)?;
        loop {
            let op: fn(u128, u128) -> Option<u128> = if self.eat_sign("+") {
                u128::checked_add
            } else if self.eat_sign("-") {
                u128::checked_sub
            } else {
                return Ok(left);
            };
            let right = self.product(what)?;
            left = self.combine(start, left, right, op)?;
        }
    }

    fn product(&mut self, what: &str) -> Result<Value, PendingError> {
        let start = self.span();
        let mut left = self.factor(what)?;
        loop {
            let op: fn(u128, u128) -> Option<u128> = if self.eat_sign("*") {
                u128::checked_mul
            } else if self.eat_sign("%") {
                u128::checked_rem
            } else {
                return Ok(left);
            };
            let right = self.factor(what)?;
            left = self.combine(start, left, right, op)?;
        }
    }

    fn factor(&mut self, what: &str) -> Result<Value, PendingError> {
        if self.eat_sign("[") {
            if self.is_sign("[") {
                return Err(self.expected(what)); // brackets only delimit an address
            }
            let value = self.value(what)?;
            self.sign("]")?;
            return Ok(value);
        }
        let value = match self.peek() {
            Some(Kind::Value(value)) => *value,
            Some(Kind::Word(word)) => match self.names.get(word) {
                Some(value) => *value,
                None => {
                    let known: Vec<String> = self.names.keys().map(|name| format!("`{name}`")).collect();
                    let help = match known.is_empty() {
                        true => format!("define it with `let {word} = …`"),
                        false => format!("defined names are {}; define it with `let {word} = …`", known.join(", ")),
                    };
                    return Err(self.expected(what).help(help));
                }
            },
            _ => return Err(self.expected(what)),
        };
        self.at += 1;
        Ok(value)
    }

    /// Applies an operator. The result has the form of the operand that is not a plain number.
    fn combine(
        &self,
        start: Span,
        left: Value,
        right: Value,
        op: fn(u128, u128) -> Option<u128>,
    ) -> Result<Value, PendingError> {
        let span = self.since(start);
        let form = match (left.form, right.form) {
            (form, Form::Number) | (Form::Number, form) => form,
            (l, r) if l == r => l,
            (l, r) => {
                return Err(PendingError::new(span, format!("cannot combine {} and {}", l.name(), r.name())));
            }
        };
        let wide = match form {
            Form::V4 => 32,
            Form::Mac => 48,
            Form::Time => 64,
            Form::Number | Form::V6 => 128,
        };
        match op(left.bits, right.bits).filter(|bits| wide == 128 || bits >> wide == 0) {
            Some(bits) => Ok(Value { bits, form }),
            None => {
                Err(PendingError::new(span, format!("the result is not a valid {}", &form.name()[2..].trim_start()))
                    .help("values are not negative, and `%` needs a divisor other than 0"))
            }
        }
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u128, PendingError> {
        let start = self.span();
        let value = self.value(what)?;
        let span = self.since(start);
        match value.form {
            Form::Number => Ok(value.bits),
            form => Err(PendingError::new(span, format!("found {}, expected {what}", form.name()))),
        }
    }

    pub(super) fn port(&mut self) -> Result<Port, PendingError> {
        Ok(Port(self.number_to("port", u128::from(PORT_COUNT) - 1)? as u32))
    }

    /// Parses a number up to `most`.
    pub(super) fn number_to(&mut self, what: &str, most: u128) -> Result<u128, PendingError> {
        let start = self.span();
        let number = self.number(what)?;
        let span = self.since(start);
        if number > most {
            return Err(PendingError::new(span, format!("{number} is not a valid {what}, expected at most {most}")));
        }
        Ok(number)
    }

    pub(super) fn time_ns(&mut self) -> Result<u64, PendingError> {
        let start = self.span();
        let value = self.value("a time")?;
        let span = self.since(start);
        match value.form {
            Form::Time => Ok(value.bits as u64),
            Form::Number if value.bits == 0 => Ok(0),
            form => Err(PendingError::new(span, format!("found {}, expected a time", form.name()))
                .help("a time has a unit: `10ms`, `2s`, `1m`")),
        }
    }
}
