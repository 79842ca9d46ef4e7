// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the fuzzers of `fuzz/` keep, without a fuzzer: every input of the corpora goes through what the targets do with it.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(unreachable_pub, reason = "the fuzz targets export what is taken from them")]

use std::path::{Path, PathBuf};

#[path = "../../../fuzz/src/interpreter.rs"]
mod interpreter;
#[path = "../../../fuzz/src/loader.rs"]
mod loader;
#[path = "../../../fuzz/src/verifier.rs"]
mod verifier;

fn corpus_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs `target` on each input of a corpus; returns the number for which it returns true, and the bytes of all.
fn replay(corpus: &str, target: fn(&[u8]) -> bool) -> (usize, usize) {
    let folder = corpus_of(corpus);
    let (mut taken, mut sizes) = (0, 0);
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        taken += usize::from(target(&bytes));
        sizes += bytes.len();
    }
    (taken, sizes)
}

#[test]
fn corpora_go_through_and_are_small() {
    let loader = replay("loader", loader::loader);
    let interpreter = replay("interpreter", interpreter::interpreter);
    let verifier = replay("verifier", verifier::verifier);
    let adapted = std::fs::read(corpus_of("loader").join("seed-core14")).unwrap();
    assert!(loader::is_adapted(&adapted), "the seed asks for types, and the fuzzer's kernel has none of them");
    assert!(loader.0 > 20 && interpreter.0 > 100, "{loader:?} {interpreter:?} are no corpora");
    assert!(verifier.0 > 20, "{verifier:?} is no corpus");
    let bytes = loader.1 + interpreter.1 + verifier.1;
    assert!(bytes < 300_000, "{loader:?} {interpreter:?} {verifier:?}, expected less than 300 kB");
}
