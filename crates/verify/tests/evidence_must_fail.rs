// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs our verifier on programs that Linux's verifier must refuse. Run with `make evidence ONLY=must-fail`.
//!
//! `scripts/linux-verifier-cases` makes them; `FLOWLOOM_CASES` names another folder of them, `FLOWLOOM_CASE` selects
//! them by a part of their name.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use crate::must_fail;

use std::path::{Path, PathBuf};

use flowloom_testkit::skip;
use must_fail::{Case, Judged, Kernel, Ours, adapted, cases, own, reasons, table};

/// Minimum number of must-fail programs that both refuse; fewer mean that cases were lost.
const MIN_REFUSED: usize = 150;

/// The cases of Linux 6.1's verifier tables and 6.12's `__failure` and `__success` functions as XDP, judged by the
/// running kernel and by our verifier: no program that accesses memory other than its own is accepted; every difference
/// is listed with its reason.
#[test]
#[ignore = "minutes"]
fn evidence_must_fail() {
    const TEST: &str = "evidence_must_fail";
    if let Err(reason) = flowloom_exec::KernelEngine::available() {
        return skip(TEST, &reason.to_string());
    }
    let folder = match folder() {
        Ok(folder) => folder,
        Err(reason) => return skip(TEST, &reason),
    };
    let only = std::env::var("FLOWLOOM_CASE").ok();
    let (mut read, unread) = cases::read(&folder);
    read.extend(own::cases());
    let adapted: Vec<Case> = read.iter().filter_map(adapted::to_xdp).collect();
    let judged: Vec<Judged> = read
        .into_iter()
        .chain(adapted)
        .filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only)))
        .map(Case::judged)
        .collect();
    table::print(&judged, &unread);
    if only.is_some() {
        table::print_programs(&judged);
    }
    let is_unfounded = |one: &&Judged| match (&one.ours, &one.kernel) {
        (Ours::Accepts(_), Kernel::Refuses(_)) => reasons::of_acceptance(one).is_none(),
        (Ours::Accepts(_), Kernel::Unasked(_)) | (Ours::Breaks, _) => true,
        (Ours::Refuses(_), Kernel::Accepts) => reasons::of_refusal(one).is_none(),
        _ => false,
    };
    let unfounded: Vec<&str> = judged.iter().filter(is_unfounded).map(|one| one.case.name.as_str()).collect();
    assert!(unfounded.is_empty(), "{} differences have no reason: {unfounded:#?}", unfounded.len());
    let refused = judged.iter().filter(|one| one.case.must_fail && table::is_refused_by_both(one)).count();
    let is_enough = only.is_some() || refused >= MIN_REFUSED;
    assert!(is_enough, "{refused} programs are refused by both, at least {MIN_REFUSED} are expected");
}

/// The folder of cases, built where it does not exist yet.
fn folder() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("FLOWLOOM_CASES") {
        return Ok(folder.into());
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = std::process::Command::new(top.join("scripts/linux-verifier-cases")).output();
    let made = made.map_err(|error| format!("scripts/linux-verifier-cases cannot be run: {error}"))?;
    if made.status.success() {
        return Ok(top.join("target/linux/verifier"));
    }
    let words = String::from_utf8_lossy(&made.stderr);
    Err(format!("scripts/linux-verifier-cases: {}", words.lines().last().unwrap_or("no reason given")))
}
