// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Source formatter: `flowloom fmt`.
//!
//! Changes only white space, never a token or a comment, and so preserves the meaning; the result is tokenized again to
//! verify this. The author chooses line breaks, within limits:
//!
//! - Declarations, clauses and rows start on their own lines, indented by 4 columns for each open brace.
//! - A block on one line stays there while it fits in [`MAX_COLUMNS`]. In a block of several lines, statements that
//!   share a line keep sharing it.
//! - Within a row or statement, a line may break before `when`, `stay`, `->`, an operator or a `/` between headers, and
//!   after a comma or an operator. Continuation lines are indented by 8 more columns. Lines that are too long are
//!   broken at these places.
//! - Blank lines between groups are kept, at most one in a row.
//! - Trailing comments of adjacent lines are aligned; a common column in the source is kept.
//!
//! ```text
//!  text ─ source: tokens, each with the gap before it ─ layout: lines ─ line: alignment of comments ─► text
//! ```
//!
//! Formatting is idempotent: every property of the source that decides about a line is preserved in the output.

mod layout;
mod line;
mod source;

use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostics, Sink};
use crate::model::{Source, Span};

/// Maximum line length in columns; comments and tokens that cannot be broken may exceed it.
pub const MAX_COLUMNS: usize = 120;

/// Formats `text`. `name` is the name of the source in messages.
///
/// # Errors
/// Syntax errors. Names and types are not checked.
pub fn format(name: &str, text: &str) -> Result<String, Diagnostics> {
    let mut sink = Sink::new(Arc::new(Source { name: name.to_owned(), text: text.to_owned() }));
    let failed = |sink: Sink| Diagnostics { name: name.to_owned(), list: sink.finish() };
    crate::syntax::parse(text, &mut sink);
    if sink.has_errors() {
        return Err(failed(sink));
    }
    let words = source::read(text, &mut sink);
    let formatted = line::render(layout::lines(&words));
    let again = source::read(&formatted, &mut sink);
    if sink.has_errors() || !source::is_same(&words, &again) {
        // Never return a text with another meaning.
        sink.error(Code::NotAvailable, Span::default(), "formatting would change the tokens of this source", "")
            .help("please report this; the source is unchanged");
        return Err(failed(sink));
    }
    Ok(formatted)
}

#[cfg(test)]
mod tests;
