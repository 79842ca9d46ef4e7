// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Planted faults. Start with `make evidence ONLY=mutants`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::process::Command;

use crate::common::top;

/// Every fault of the lists `crates/*/mutants.toml`, planted one at a time in a copy of the sources (scripts/mutants), makes
/// a test fail, which is named; without them these tests pass.
#[test]
#[ignore = "minutes"]
fn evidence_mutants() {
    let status = Command::new(top().join("scripts/mutants")).status().unwrap();
    assert!(status.success(), "a fault is not found");
}
