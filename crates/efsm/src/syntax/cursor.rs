// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Token cursor of the parser, with error recovery.

use crate::diagnostic::{Code, Draft, Sink};
use crate::model::Span;

use super::ast::Name;
use super::token::{Kind, Token};
use super::words;

/// A construct could not be parsed, which was reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed;

pub(super) type Parsed<T> = Result<T, Failed>;

/// Recursive-descent parser over a token list.
pub(super) struct Parser<'s, 'k> {
    pub(super) text: &'s str,
    tokens: Vec<Token>,
    at: usize,
    pub(super) sink: &'k mut Sink,
    /// Remaining number of operators for the current expression; bounds the depth of the tree.
    pub(super) budget: u32,
}

impl<'s, 'k> Parser<'s, 'k> {
    /// `tokens` must end with [`Kind::End`].
    pub(super) fn new(text: &'s str, tokens: Vec<Token>, sink: &'k mut Sink) -> Parser<'s, 'k> {
        Parser { text, tokens, at: 0, sink, budget: 0 }
    }

    pub(super) fn peek(&self) -> Token {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[(self.at + ahead).min(last)]
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.peek().kind == kind
    }

    /// Text of the next token.
    pub(super) fn word(&self) -> &'s str {
        self.text_of(self.peek().span)
    }

    pub(super) fn text_of(&self, span: Span) -> &'s str {
        &self.text[span.start..span.end]
    }

    /// True if the next token is the name `word`.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.is(Kind::Name) && self.word() == word
    }

    /// Consumes and returns the next token, except [`Kind::End`], which is not consumed.
    pub(super) fn bump(&mut self) -> Token {
        let token = self.peek();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    /// Consumes the next token if it is of this kind.
    pub(super) fn eat(&mut self, kind: Kind) -> Option<Token> {
        if self.is(kind) { Some(self.bump()) } else { None }
    }

    /// Consumes the next token if it is the name `word`.
    pub(super) fn eat_word(&mut self, word: &str) -> Option<Token> {
        if self.is_word(word) { Some(self.bump()) } else { None }
    }

    /// Byte offset of the end of the last consumed token.
    pub(super) fn last_end(&self) -> usize {
        self.at.checked_sub(1).map_or(0, |i| self.tokens[i].span.end)
    }

    /// Span from `start` to the end of the last consumed token.
    pub(super) fn span_from(&self, start: usize) -> Span {
        Span { start, end: self.last_end().max(start) }
    }

    /// Name of the next token, for messages.
    pub(super) fn found(&self) -> String {
        match self.peek().kind {
            Kind::End => "the end of the file".to_owned(),
            _ => format!("`{}`", self.word()),
        }
    }

    /// Reports an unexpected token. Silent for [`Kind::Invalid`], which the lexer has reported.
    pub(super) fn unexpected(&mut self, expected: &str) -> Draft<'_> {
        if self.is(Kind::Invalid) {
            return self.sink.silent();
        }
        let (span, found) = (self.peek().span, self.found());
        self.sink.error(
            Code::UnexpectedToken,
            span,
            format!("expected {expected}, found {found}"),
            format!("expected {expected}"),
        )
    }

    pub(super) fn fail<T>(&mut self, expected: &str, help: impl Into<String>) -> Parsed<T> {
        self.unexpected(expected).help(help);
        Err(Failed)
    }

    pub(super) fn expect(&mut self, kind: Kind, expected: &str) -> Parsed<Token> {
        match self.eat(kind) {
            Some(token) => Ok(token),
            None => {
                let help = match kind {
                    Kind::Name => "names consist of letters, digits and `_`, and start with a letter",
                    Kind::OpenBrace => "enclose elements and the actions of rows in braces: `{ ... }`",
                    Kind::CloseParen => "every `(` is closed by a `)`",
                    Kind::OpenParen => "write the operand in parentheses",
                    Kind::Equal => "a value follows `=`",
                    _ => "see \"The language\" in the book",
                };
                self.fail(expected, help)
            }
        }
    }

    /// Consumes the `;` that ends `of`. If it is missing at the end of a line or block, reports the place after the
    /// last token and continues; anywhere else the statement fails.
    pub(super) fn semicolon(&mut self, of: &str) -> Parsed<()> {
        if self.eat(Kind::Semicolon).is_some() {
            return Ok(());
        }
        let end = self.last_end();
        let next = self.peek();
        let is_new_line = self.text[end..next.span.start].contains('\n');
        let ends_block = matches!(next.kind, Kind::CloseBrace | Kind::End);
        if is_new_line || ends_block {
            let place = Span { start: end.saturating_sub(1), end };
            let place = if self.text.is_char_boundary(place.start) { place } else { Span { start: end, end } };
            self.sink
                .error(Code::UnexpectedToken, place, format!("{of} does not end with `;`"), "`;` is missing after this")
                .help("add `;`");
            return Ok(());
        }
        let help = match next.kind {
            Kind::Name if words::TYPES.contains(&self.text_of(next.span)) && of.starts_with("the ") => {
                "a type follows `:`, as in `name: u32`"
            }
            Kind::Name => "declarations and actions end with `;`, each before the next",
            Kind::OpenParen => {
                "parentheses follow `forward`, `clone`, `emit`, the headers of `push`, `encap` and `emit`, and the \
                 functions `min`, `max`, `ror`, `ewma` and `hash`"
            }
            _ => "declarations and actions end with `;`",
        };
        self.fail(&format!("`;` after {of}"), help)
    }

    pub(super) fn name(&mut self, expected: &str) -> Parsed<Name<'s>> {
        let token = self.expect(Kind::Name, expected)?;
        Ok(Name { text: self.text_of(token.span), span: token.span })
    }

    /// Skips past the next `;` or block at this nesting level, or stops before the `}` that ends the level or before a
    /// line that starts with one of `stops`.
    pub(super) fn skip_statement(&mut self, stops: &[&str]) {
        let mut depth = 0_u32;
        loop {
            match self.peek().kind {
                Kind::End => return,
                Kind::Semicolon if depth == 0 => {
                    self.bump();
                    return;
                }
                Kind::CloseBrace if depth == 0 => return,
                Kind::OpenBrace => depth += 1,
                Kind::CloseBrace => {
                    depth -= 1;
                    if depth == 0 {
                        self.bump();
                        return;
                    }
                }
                Kind::Name if self.starts_line() && stops.contains(&self.word()) => return,
                _ => {}
            }
            self.bump();
        }
    }

    pub(super) fn starts_line(&self) -> bool {
        self.at == 0 || self.text[self.last_end()..self.peek().span.start].contains('\n')
    }
}
