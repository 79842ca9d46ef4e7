//! Lines to text: the columns of the comments behind them.

use super::source::Comment;

/// Columns after which a comment does not move others to the right.
const MOST_SHARED: usize = 100;

/// How far a comment may stand away from its line, where no neighbour has one.
const MOST_APART: usize = 32;

/// A line to be.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pub(super) indent: usize,
    /// The words; empty for a blank line, and for a comment that goes on from the line before.
    pub(super) code: String,
    /// A comment behind the words.
    pub(super) comment: Option<Comment>,
    /// A comment alone, in the place of words.
    pub(super) is_comment: bool,
    /// It opens a block or an element.
    pub(super) opens: bool,
}

impl Line {
    fn is_blank(&self) -> bool {
        self.code.is_empty() && self.comment.is_none()
    }

    /// Whether its comment may stand in one column with those of its neighbours.
    pub(super) fn shares_column(&self) -> bool {
        self.width() + 2 <= MOST_SHARED
    }

    pub(super) fn width(&self) -> usize {
        if self.code.is_empty() { 0 } else { self.indent + self.code.chars().count() }
    }
}

/// The text of all lines.
pub(super) fn render(lines: Vec<Line>) -> String {
    let mut text = String::new();
    for run in lines.split_inclusive(|line| line.is_blank() || line.is_comment) {
        let column = column(run);
        for line in run {
            let mut shown = String::new();
            if !line.code.is_empty() {
                shown.push_str(&" ".repeat(line.indent));
                shown.push_str(&line.code);
            }
            if let Some(comment) = &line.comment {
                let column = if line.shares_column() { column } else { line.width() + 2 };
                shown.push_str(&" ".repeat(column.saturating_sub(line.width())));
                shown.push_str(&comment.text);
            }
            text.push_str(&shown);
            text.push('\n');
        }
    }
    text
}

/// The column of the comments of neighbouring lines.
fn column(run: &[Line]) -> usize {
    let shared = || {
        let lines = run.iter().filter(|line| line.shares_column());
        lines.filter_map(|line| Some((line.width() + 2, line.comment.as_ref()?.column)))
    };
    let least = shared().map(|(least, _)| least).max().unwrap_or(0);
    match shared().map(|(_, column)| column).next() {
        Some(first)
            if first >= least
                && shared().all(|(_, column)| column == first)
                && (shared().count() > 1 || first <= least + MOST_APART) =>
        {
            first
        }
        _ => least,
    }
}
