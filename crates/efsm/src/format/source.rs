//! The words of a source, with the comments and line ends before each.

use crate::diagnostic::Sink;
use crate::syntax::token::{Kind, tokenize};

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comment {
    /// From `#` on.
    pub(super) text: String,
    /// It stands behind a word of the same line.
    pub(super) is_trailing: bool,
    /// The column of its `#`, from 0.
    pub(super) column: usize,
    /// An empty line stands before it.
    pub(super) after_blank: bool,
}

/// A word with what stands before it.
#[derive(Debug, Clone)]
pub(super) struct Word<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
    pub(super) comments: Vec<Comment>,
    /// A line ends before it.
    pub(super) after_line: bool,
    /// An empty line stands before it, behind the comments.
    pub(super) after_blank: bool,
}

/// The words of a text; the last one is [`Kind::End`].
pub(super) fn read<'s>(text: &'s str, sink: &mut Sink) -> Vec<Word<'s>> {
    let mut end = 0;
    let mut words = Vec::new();
    for token in tokenize(text, sink) {
        let span = token.span;
        words.push(word(text, end, span.start, token.kind, &text[span.start..span.end]));
        end = span.end;
    }
    words
}

/// The word at `start`; the one before it ends at `end`.
fn word<'s>(text: &'s str, end: usize, start: usize, kind: Kind, word_text: &'s str) -> Word<'s> {
    let mut word = Word { kind, text: word_text, comments: Vec::new(), after_line: false, after_blank: false };
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
            // A line of its own without a comment: the last part of the gap belongs to the word's line.
            is_empty = true;
        }
        word.after_line |= i > 0;
        line_start = place + line.len() + 1;
    }
    word.after_blank = is_empty;
    word
}

/// Whether two texts have the same words and comments.
pub(super) fn is_same(a: &[Word<'_>], b: &[Word<'_>]) -> bool {
    let comments = |word: &Word<'_>| word.comments.iter().map(|c| c.text.clone()).collect::<Vec<_>>();
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.kind == b.kind && a.text == b.text && comments(a) == comments(b))
}
