// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The drawings stored beside the functions equal the output of `draw`. `make drawings` rewrites them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use flowloom_efsm::{Drawing, compile};
use flowloom_testkit::golden;

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "efsm")).collect()
}

#[test]
fn drawings_are_up_to_date() {
    let sources = sources();
    assert!(sources.len() >= 6, "{sources:?}");
    for source in sources {
        let text = std::fs::read_to_string(&source).unwrap();
        let name = source.file_name().unwrap().to_str().unwrap();
        let (function, _) = compile(name, &text, &[]).unwrap_or_else(|e| panic!("{name}: {:?}", e.list));
        golden(source.with_extension("svg"), &Drawing::new(&function).svg());
    }
}
