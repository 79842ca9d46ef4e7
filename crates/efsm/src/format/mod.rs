//! Sources in one shape: `flowloom fmt`.
//!
//! Only white space changes, never a word or a comment, so the function stays what it was; the result is read again to make
//! sure. Where lines end is the author's choice, within limits:
//!
//! - Declarations, clauses and rows start lines of their own; 4 columns for each brace that is open.
//! - A block that stood on one line stays there while it fits in [`MOST_COLUMNS`]. In one of several lines the statements
//!   that shared a line go on doing so.
//! - Within a row or statement a line may end before `when`, `stay`, `->`, an operator or a `/` between headers, or after a
//!   comma or an operator. What follows stands 8 columns further in. Lines that are too long are broken there.
//! - Blank lines separate groups as before, one at most.
//! - Comments at the ends of neighbouring lines start in one column: the one that they had, if they had one in common.
//!
//! ```text
//!  text ─ source: words with what stands before them ─ layout: lines ─ line: columns of comments ─► text
//! ```
//!
//! Formatting twice changes nothing: whatever decides about a line is still there in the line that comes of it.

mod layout;
mod line;
mod source;

use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostics, Sink};
use crate::model::{Source, Span};

/// Columns that a line has at most, where it can be broken; comments may be longer.
pub const MOST_COLUMNS: usize = 120;

/// The text in its one shape. `name` is what the source is called in messages.
///
/// # Errors
/// The text cannot be read as a function; whether it means something is not looked at.
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
        // Never hand out a text that says something else.
        sink.error(
            Code::NotAvailable,
            Span::default(),
            "this text cannot be formatted without a change of its words",
            "",
        )
        .help("please report it; the text is left as it is");
        return Err(failed(sink));
    }
    Ok(formatted)
}

#[cfg(test)]
mod tests;
