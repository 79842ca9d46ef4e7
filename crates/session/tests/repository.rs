// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions and programs of the repository.

use std::path::{Path, PathBuf};

use flowloom_session::{FunctionFile, Loaded};
use flowloom_testkit::is_selected;

use crate::stream::top;

/// Every function and program with its file name, or the one that `FLOWLOOM_FUNCTION` selects.
pub(crate) fn all() -> Vec<(String, PathBuf)> {
    let folder = |path: PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let functions = folder(top().join("functions")).chain(folder(top().join("functions/ebpf")));
    let files = functions.filter(|path| path.is_dir()).flat_map(folder);
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_ebpf = path.parent().unwrap().parent().unwrap().ends_with("ebpf");
        name.ends_with(".efsm") || (is_ebpf && name.ends_with(".bpf.c"))
    };
    let mut all: Vec<(String, PathBuf)> =
        files.filter(is_one).map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect();
    all.sort();
    all.retain(|(name, _)| is_selected(name.split('.').next().unwrap()));
    all
}

pub(crate) fn open(path: &Path) -> Loaded {
    Loaded::open(&FunctionFile { path: path.to_owned(), ..FunctionFile::default() })
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
