// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures that the user provides to the tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::TraceError;

/// The environment variable that names the folder of captures.
pub(crate) const VARIABLE: &str = "FLOWLOOM_TRACES";
const ENDINGS: [&str; 4] = [".pcap", ".pcapng", ".pcap.xz", ".pcapng.xz"];

/// Returns the captures in the folder named by `FLOWLOOM_TRACES`, sorted; `None` if the variable is not set.
///
/// # Errors
/// If the folder cannot be listed or holds no capture: a user who sets the variable expects captures to be read.
pub fn traces_from_env() -> Result<Option<Vec<PathBuf>>, TraceError> {
    std::env::var_os(VARIABLE).map(|folder| captures_in(&folder)).transpose()
}

fn captures_in(folder: &OsStr) -> Result<Vec<PathBuf>, TraceError> {
    let folder = Path::new(folder);
    let unlisted = |source| TraceError::Folder { folder: folder.to_owned(), source };
    let mut captures = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unlisted)? {
        let path = entry.map_err(unlisted)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) && path.is_file() {
            captures.push(path);
        }
    }
    if captures.is_empty() {
        return Err(TraceError::NoCaptures { folder: folder.to_owned() });
    }
    captures.sort();
    Ok(captures)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_found_by_name_and_sorted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.pcap", "a.pcapng.xz", "notes.txt", "c.PCAPNG", "d.pcap.gz"] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        std::fs::create_dir(folder.path().join("e.pcap")).unwrap();
        let found = captures_in(folder.path().as_os_str()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.pcapng.xz", "b.pcap", "c.PCAPNG"]);
    }

    #[test]
    fn a_folder_without_captures_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("notes.txt"), b"").unwrap();
        assert!(matches!(captures_in(folder.path().as_os_str()), Err(TraceError::NoCaptures { .. })));
        let missing = folder.path().join("missing");
        assert!(matches!(captures_in(missing.as_os_str()), Err(TraceError::Folder { .. })));
    }
}
