// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Markdown of generated pages.

use textwrap::{Options, fill};

const COLUMNS: usize = 100;

/// Wraps paragraphs and list items at 100 columns. Tables, headings, comments and blank lines stay.
#[must_use]
pub fn wrapped(page: &str) -> String {
    let (mut text, mut item) = (String::new(), String::new());
    let flush = |item: &mut String, text: &mut String| {
        if !item.is_empty() {
            let indent = item.len() - item.trim_start().len();
            let hanging = " ".repeat(if item.trim_start().starts_with("- ") { indent + 2 } else { indent });
            text.push_str(&fill(item, Options::new(COLUMNS).subsequent_indent(&hanging).break_words(false)));
            text.push('\n');
            item.clear();
        }
    };
    for line in page.lines() {
        let start = line.trim_start();
        if start.is_empty() || ["|", "#", "<"].iter().any(|mark| start.starts_with(mark)) {
            flush(&mut item, &mut text);
            text.push_str(line);
            text.push('\n');
        } else if item.is_empty() || start.starts_with("- ") {
            flush(&mut item, &mut text);
            item.push_str(line);
        } else {
            item.push(' ');
            item.push_str(start);
        }
    }
    flush(&mut item, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn paragraphs_and_items_are_wrapped_and_tables_stay() {
        let words = "word ".repeat(30);
        let row = format!("| {words} |");
        let page = format!("# T\n\nA paragraph\nof {words}\n\n- item {words}\n  - inner {words}\n\n{row}\n");
        let wrapped = wrapped(&page);
        assert!(wrapped.lines().all(|line| line.len() <= 100 || line == row), "{wrapped}");
        assert!(wrapped.contains("\nA paragraph of word") && wrapped.contains(&row), "{wrapped}");
        assert!(wrapped.contains("\n  word") && wrapped.contains("\n    word"), "{wrapped}");
        assert_eq!(super::wrapped(&wrapped), wrapped);
    }
}
