// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::path::{Path, PathBuf};

/// The `.efsm` sources in a folder and its subfolders: paths, in order, and texts.
///
/// # Panics
/// A file or folder cannot be read.
#[allow(clippy::unwrap_used, reason = "an assertion for tests")]
pub fn sources(folder: impl AsRef<Path>) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "efsm") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found.sort();
    found
}

/// Whether the proofs that take one function after another take this one: `FLOWLOOM_FUNCTION` selects one by the name
/// of its file without the ending. Without it, all are taken.
pub fn is_selected(name: &str) -> bool {
    std::env::var_os("FLOWLOOM_FUNCTION").is_none_or(|only| only == name)
}

/// Whether `FLOWLOOM_FUNCTION` selects one function.
pub fn selects() -> bool {
    std::env::var_os("FLOWLOOM_FUNCTION").is_some()
}
