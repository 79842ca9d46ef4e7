// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The function argument: a file, or a folder that holds one.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::output::quoted;

/// Suffixes of function files, in the order in which a folder is searched.
const KINDS: [&str; 4] = [".efsm", ".bpf.c", ".bpf", ".o"];

/// Path of a function file. A folder stands for the one function in it.
pub(super) fn function_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| if path.is_dir() { in_folder(&path) } else { Ok(path) })
}

/// Returns the function in a folder: its only source, else its only object. Of several, the one named like the folder.
fn in_folder(folder: &Path) -> Result<PathBuf, String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| format!("the folder cannot be read: {error}"))?;
    files.retain(|file| file.is_file());
    files.sort();
    let own_name = folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    for kind in KINDS {
        let name =
            |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let of_kind: Vec<&PathBuf> = files.iter().filter(|file| name(file).ends_with(kind)).collect();
        let same =
            of_kind.iter().find(|file| own_name.as_ref().is_some_and(|own| name(file) == format!("{own}{kind}")));
        match (of_kind.as_slice(), same) {
            ([], _) => {}
            ([only], _) => return Ok((*only).clone()),
            (_, Some(same)) => return Ok((**same).clone()),
            (several, None) => {
                let names = quoted(several.iter().map(|file| name(file)));
                return Err(format!("the folder has several functions; choose one of {names}"));
            }
        }
    }
    Err(format!("the folder has no function: expected a file that ends in {}", quoted(KINDS)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_function() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("gate");
        std::fs::create_dir(&folder).unwrap();
        assert!(in_folder(&folder).is_err_and(|error| error.contains("`.efsm`, `.bpf.c`, `.bpf`, `.o`")));
        std::fs::write(folder.join("prog.o"), "").unwrap();
        assert_eq!(in_folder(&folder), Ok(folder.join("prog.o")));
        for name in ["b.efsm", "a.efsm", "notes.scenario"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert!(in_folder(&folder).is_err_and(|error| error.contains("`a.efsm`, `b.efsm`")));
        std::fs::write(folder.join("gate.efsm"), "").unwrap();
        assert_eq!(in_folder(&folder), Ok(folder.join("gate.efsm")));
    }
}
