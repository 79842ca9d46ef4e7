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
