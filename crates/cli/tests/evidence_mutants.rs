// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Planted faults. Start with `make evidence ONLY=mutants`.

use std::process::Command;

use toml::Table;

use crate::common::top;

#[test]
fn every_planted_fault_has_its_place() {
    let mut count = 0;
    for entry in std::fs::read_dir(top().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(list) = std::fs::read_to_string(folder.join("mutants.toml")) else { continue };
        let list: Table = list.parse().unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for mutant in list["mutant"].as_array().unwrap() {
            let of = |key: &str| mutant[key].as_str().unwrap_or_else(|| panic!("{}: `{key}`", folder.display()));
            let text = std::fs::read_to_string(folder.join(of("file"))).unwrap();
            assert_eq!(text.matches(of("old")).count(), 1, "{}: `{}`", folder.display(), of("name"));
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
}

/// Every fault of the lists `crates/*/mutants.toml`, planted one at a time in a copy of the sources (scripts/mutants), makes
/// a test fail, which is named; without them these tests pass.
#[test]
#[ignore = "minutes"]
fn evidence_mutants() {
    let status = Command::new(top().join("scripts/mutants")).status().unwrap();
    assert!(status.success(), "a fault is not found");
}
