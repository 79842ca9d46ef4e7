// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens of a source, with the comments and line breaks before each.

use crate::diagnostic::Sink;
use crate::syntax::token::{Kind, tokenize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comment {
    /// From `#` to the end of the line.
    pub(super) text: String,
    /// A token precedes it on the same line.
    pub(super) is_trailing: bool,
    /// Column of its `#`, from 0.
    pub(super) column: usize,
    pub(super) after_blank: bool,
}

/// A token with the comments and breaks before it.
#[derive(Debug, Clone)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
    pub(super) comments: Vec<Comment>,
    pub(super) after_line: bool,
    /// A blank line precedes it, after its comments.
    pub(super) after_blank: bool,
}

/// Tokenizes a text; the last token is [`Kind::End`].
pub(super) fn read<'s>(text: &'s str, sink: &mut Sink) -> Vec<Token<'s>> {
    let mut end = 0;
    let mut words = Vec::new();
    for token in tokenize(text, sink) {
        let span = token.span;
        words.push(word(text, end, span.start, token.kind, &text[span.start..span.end]));
        end = span.end;
    }
    words
}

/// The token at `start`; `end` is the end of the token before it.
fn word<'s>(text: &'s str, end: usize, start: usize, kind: Kind, word_text: &'s str) -> Token<'s> {
    let mut word = Token { kind, text: word_text, comments: Vec::new(), after_line: false, after_blank: false };
    let mut line_start = text[..end].rfind('\n').map_or(0, |at| at + 1);
    let mut is_empty = false;
    for (i, line) in text[end..start].split('\n').enumerate() {
        let place = if i == 0 { end } else { line_start };
        if let Some(at) = line.find('#') {
            word.comments.push(Comment {
                text: line[at..].trim_end().to_owned(),
                is_trailing: i == 0 && end > 0,
                column: text[line_start..place + at].chars().count(),
                after_blank: is_empty,
            });
            is_empty = false;
        } else if i > 0 && place + line.len() < start {
            // A whole line without a comment. The last part of the gap belongs to the token's line.
            is_empty = true;
        }
        word.after_line |= i > 0;
        line_start = place + line.len() + 1;
    }
    word.after_blank = is_empty;
    word
}

/// True if two texts have the same tokens and comments.
pub(super) fn is_same(a: &[Token<'_>], b: &[Token<'_>]) -> bool {
    let comments = |word: &Token<'_>| word.comments.iter().map(|c| c.text.clone()).collect::<Vec<_>>();
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.kind == b.kind && a.text == b.text && comments(a) == comments(b))
}
