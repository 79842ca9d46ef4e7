// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs Linux's own XDP programs on the interpreter and in the kernel. Run with `make evidence ONLY=scoreboard`.
//!
//! `scripts/linux-objects` makes the objects; `FLOWLOOM_OBJECTS` names another folder of them. `FLOWLOOM_OBJECT`
//! selects objects by a part of their name, `FLOWLOOM_TRIES` sets the tries per exploration; with either of the two the
//! book is not updated.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use crate::common::captures;
use crate::scoreboard;

use std::path::{Path, PathBuf};

use flowloom_testkit::skip;
use scoreboard::{Came, Row, fitted, page, trial};

/// Minimum number of programs that run and are compared; fewer mean that programs were lost.
const MIN_EQUAL: usize = 225;

/// Legitimate reasons to refuse a program: kernel functions, helpers and map kinds that Flowloom does not support, and
/// fields that this kernel does not have.
const LACKING: [&str; 4] = [
    "a function of the kernel, which is not supported",
    "`) is not supported",
    "kind is ",
    "the kernel has none of this name",
];

/// Every XDP program of Linux 6.1's and 6.12's samples and self tests, and of xdp-tools: read, explored, and compared
/// with the kernel on verdict, ports, bytes, events and maps, and with the proof of our verifier, which proves exactly
/// the programs that run. The table is in the book (`linux.md`), with the reasons for refusals and unreached code.
#[test]
#[ignore = "minutes"]
fn evidence_scoreboard() {
    const TEST: &str = "evidence_scoreboard";
    if let Err(reason) = flowloom_exec::KernelEngine::available() {
        return skip(TEST, &reason.to_string());
    }
    let folder = match fitted::objects() {
        Ok(folder) => folder,
        Err(reason) => return skip(TEST, &reason),
    };
    let only = std::env::var("FLOWLOOM_OBJECT").ok();
    let tries = std::env::var("FLOWLOOM_TRIES").ok();
    let is_partial = only.is_some() || tries.is_some();
    let tries = tries.map_or(60_000, |n| n.parse().unwrap_or_else(|_| panic!("FLOWLOOM_TRIES is no number: `{n}`")));
    let captures = captures::some(trial::PACKETS_OF_A_CAPTURE);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "o"))
        .filter(|path| only.as_ref().is_none_or(|only| path.to_string_lossy().contains(only)))
        .collect();
    files.sort();
    let mut rows: Vec<Row> = Vec::new();
    for path in &files {
        for row in trial::object(path, &captures, tries) {
            println!("{row}");
            for gap in row.gaps.iter().filter(|_| row.is_low()) {
                println!("  {} to {}: {}", gap.first, gap.last, gap.why);
            }
            rows.push(row);
        }
    }
    println!("\n{}", page::summary(&rows, files.len()));
    let bad: Vec<&Row> = rows.iter().filter(|row| matches!(row.came, Came::Unread(_) | Came::Differs(_))).collect();
    assert!(bad.is_empty(), "{} programs are not read or differ: {bad:#?}", bad.len());
    let ran = rows.iter().filter(|row| matches!(row.came, Came::Equal { .. })).count();
    let low = rows.iter().filter(|row| row.is_low()).count();
    assert!(low * 10 <= ran, "{low} of {ran} programs run less than 80% of their instructions");
    assert!(is_partial || ran >= MIN_EQUAL, "{ran} programs were compared, at least {MIN_EQUAL} are expected");
    let otherwise: Vec<&Row> = rows.iter().filter(|row| row.is_judged_otherwise()).collect();
    let long: Vec<String> =
        rows.iter().filter(|row| row.ratio().is_some_and(|ratio| ratio > 1.5)).map(ToString::to_string).collect();
    assert!(long.is_empty(), "our verifier looks at more than 1.5 times what the kernel's does: {long:#?}");
    assert!(otherwise.is_empty(), "our verifier judges {} programs otherwise: {otherwise:#?}", otherwise.len());
    // Only features outside the supported set.
    let is_foreign = |why: &str| LACKING.iter().any(|lacking| why.contains(lacking));
    let unfounded = rows.iter().filter(|row| match &row.came {
        Came::Refused(why) => !is_foreign(why),
        Came::Incomparable(_) => true,
        _ => false,
    });
    let unfounded: Vec<&Row> = unfounded.collect();
    assert!(unfounded.is_empty(), "{} programs are not run for no good reason: {unfounded:#?}", unfounded.len());
    // Only now: a failed run must not change the book.
    if std::env::var_os("FLOWLOOM_EVIDENCE").is_some() && !is_partial {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/linux.md");
        std::fs::write(&book, page::render(&rows, files.len(), captures.len()))
            .unwrap_or_else(|error| panic!("{}: {error}", book.display()));
    }
}
