// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines to text: alignment of trailing comments.

use super::source::Comment;

/// A trailing comment that would start right of this column does not align with others.
const MAX_SHARED: usize = 100;

/// Maximum distance in columns from its line at which a lone trailing comment keeps its column.
const MAX_APART: usize = 32;

#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pub(super) indent: usize,
    /// Tokens; empty for a blank line, and for a comment that continues that of the line before.
    pub(super) code: String,
    /// A trailing comment.
    pub(super) comment: Option<Comment>,
    /// The line is a comment; `code` holds its text.
    pub(super) is_comment: bool,
    /// The line opens a block or an element.
    pub(super) opens: bool,
}

impl Line {
    fn is_blank(&self) -> bool {
        self.code.is_empty() && self.comment.is_none()
    }

    /// True if its comment may align with those of adjacent lines.
    pub(super) fn shares_column(&self) -> bool {
        self.width() + 2 <= MAX_SHARED
    }

    pub(super) fn width(&self) -> usize {
        if self.code.is_empty() { 0 } else { self.indent + self.code.chars().count() }
    }
}

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

/// Common column of the comments of adjacent lines.
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
                && (shared().count() > 1 || first <= least + MAX_APART) =>
        {
            first
        }
        _ => least,
    }
}
