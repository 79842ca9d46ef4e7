// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text in pictures: wrapping, width, escaping.

/// Font size of labels.
pub(super) const FONT: f64 = 13.0;
/// Line height of labels.
pub(super) const LINE: f64 = 17.0;
/// Glyph width of the widest common fixed-width font, in em.
const FIXED_EM: f64 = 0.605;
/// Average glyph width of a bold proportional font for typical names, in em.
const BOLD_EM: f64 = 0.61;

/// Width of a label.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * FIXED_EM
}

pub(super) fn bold_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * BOLD_EM
}

/// Collapses white space and comments to single spaces.
pub(super) fn one_line(text: &str) -> String {
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Joins parts with a separator and wraps the result, preferably between parts, to at most `most` lines of `columns`
/// characters. Truncated text ends in an ellipsis.
pub(super) fn lines(parts: &[String], separator: &str, columns: usize, most: usize) -> Vec<String> {
    let len = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for (i, part) in parts.iter().enumerate() {
        let part = if i + 1 == parts.len() { part.clone() } else { format!("{part}{separator}") };
        // The separator may exceed the line length.
        if len(&part) <= columns + len(separator) {
            match lines.last_mut() {
                Some(line) if is_open && len(line) + 1 + len(&part) <= columns => *line = format!("{line} {part}"),
                _ => lines.push(part),
            }
            is_open = true;
            continue;
        }
        // A part longer than a line starts on its own line.
        is_open = false;
        let mut is_first = true;
        for word in part.split(' ').filter(|word| !word.is_empty()).map(|word| cut(word, columns)) {
            match lines.last_mut() {
                Some(line) if !is_first && len(line) + 1 + len(&word) <= columns => *line = format!("{line} {word}"),
                _ => lines.push(word),
            }
            is_first = false;
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(line) = lines.last_mut() {
            let kept: String = line.chars().take(columns.saturating_sub(2)).collect();
            *line = format!("{} …", kept.trim_end());
        }
    }
    lines
}

/// Truncates text to at most `columns` characters.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Escapes text for XML elements and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML 1.0 allows no other control characters.
            letter if letter.is_control() && !matches!(letter, '\t' | '\n') => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
