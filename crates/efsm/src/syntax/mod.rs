//! Text to syntax tree: lexer and recursive descent, both of which go on after an error.
//!
//! A mistake costs as little of the source as possible: a statement (to its `;`), a row (to the end of its block) or an
//! element (to the next one). What could not be read is left out of the tree, and the tree says so (`is_damaged`), so
//! that the checker does not complain about the consequences.

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

/// Reads a program; what is wrong goes to `sink`.
pub(crate) fn parse<'s>(text: &'s str, sink: &mut Sink) -> ast::Program<'s> {
    let tokens = token::tokenize(text, sink);
    cursor::Parser::new(text, tokens, sink).program()
}
