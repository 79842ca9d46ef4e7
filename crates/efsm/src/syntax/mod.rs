// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lexer and recursive-descent parser, both with error recovery.
//!
//! An error discards as little as possible: a statement (to its `;`), a row (to the end of its block) or an element (to
//! the next one). The tree marks parts with missing contents (`has_syntax_errors`), so that the checker reports no
//! consequences.

pub(crate) mod ast;
mod cursor;
mod exprs;
mod items;
mod literal;
mod rows;
mod sets;
pub(crate) mod token;
pub(crate) mod words;

pub(crate) use literal::{Literal, read_value};

use crate::diagnostic::Sink;

/// Parses a program; errors go to `sink`.
pub(crate) fn parse<'s>(text: &'s str, sink: &mut Sink) -> ast::Program<'s> {
    let tokens = token::tokenize(text, sink);
    cursor::Parser::new(text, tokens, sink).program()
}
