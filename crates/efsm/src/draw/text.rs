//! Words in pictures: cut to lines, measured, escaped.

/// Size of the letters of labels.
pub(super) const FONT: f64 = 13.0;
/// From one line of a label to the next.
pub(super) const LINE: f64 = 17.0;
/// Width of a letter of the widest usual fixed-width font, in sizes.
const FIXED_EM: f64 = 0.605;
/// Width of a letter of a bold proportional font, as most names have it.
const BOLD_EM: f64 = 0.61;

/// The width of a label.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * FIXED_EM
}

/// The width of a bold name.
pub(super) fn bold_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * BOLD_EM
}

/// White space and comments become single spaces.
pub(super) fn one_line(text: &str) -> String {
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Joins parts with a separator and breaks the result, between parts where it can, into at most `most` lines of `columns`
/// letters; what does not fit ends in an ellipsis.
pub(super) fn lines(parts: &[String], separator: &str, columns: usize, most: usize) -> Vec<String> {
    let len = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for (i, part) in parts.iter().enumerate() {
        let part = if i + 1 == parts.len() { part.clone() } else { format!("{part}{separator}") };
        // The separator may hang over the end.
        if len(&part) <= columns + len(separator) {
            match lines.last_mut() {
                Some(line) if is_open && len(line) + 1 + len(&part) <= columns => *line = format!("{line} {part}"),
                _ => lines.push(part),
            }
            is_open = true;
            continue;
        }
        // A part that is longer than a line has its lines for itself.
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

/// At most `columns` letters.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Text as it may stand in XML, in elements and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no other control characters.
            letter if letter.is_control() && !matches!(letter, '\t' | '\n') => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
