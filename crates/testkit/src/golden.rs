// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::path::Path;

/// Compares text with a golden file, or writes the file if `FLOWLOOM_BLESS=1`. The path is relative to the manifest of
/// the package under test, where `cargo test` runs.
///
/// # Panics
/// The text differs, or the file cannot be read or written.
#[track_caller]
#[allow(clippy::panic, reason = "an assertion for tests")]
pub fn golden(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var("FLOWLOOM_BLESS").is_ok_and(|value| value == "1") {
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, text));
        if let Err(error) = written {
            panic!("cannot write golden file `{}`: {error}", path.display());
        }
        return;
    }
    match std::fs::read_to_string(path) {
        Ok(expected) => {
            if let Some(difference) = difference(&expected, text) {
                panic!("`{}` differs {difference}\n(FLOWLOOM_BLESS=1 accepts the new text)", path.display());
            }
        }
        Err(error) => panic!("cannot read golden file `{}`: {error} (FLOWLOOM_BLESS=1 writes it)", path.display()),
    }
}

/// Describes the first line that differs, followed by the whole new text.
fn difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let mut old = expected.split('\n');
    let mut new = found.split('\n');
    let mut number = 1;
    loop {
        match (old.next(), new.next()) {
            (Some(a), Some(b)) if a == b => number += 1,
            (a, b) => {
                let line = |line: Option<&str>| line.map_or("end of text".to_owned(), |line| format!("`{line}`"));
                return Some(format!(
                    "in line {number}: expected {}, found {}; the new text is\n{found}",
                    line(a),
                    line(b)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let found = difference("a\nb\n", "a\nc\n").unwrap_or_default();
        assert!(found.starts_with("in line 2: expected `b`, found `c`;"), "{found}");
        let found = difference("a\n", "a").unwrap_or_default();
        assert!(found.starts_with("in line 2: expected ``, found end of text;"), "{found}");
        let found = difference("a\r\n", "a\n").unwrap_or_default();
        assert!(found.starts_with("in line 1"), "{found}");
    }
}
