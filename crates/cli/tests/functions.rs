// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions in `functions/` pass their scenarios on every engine that runs them.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::path::PathBuf;

use common::{clang, json, kernel, name, ok, run, top};

#[test]
fn scenarios_pass_and_reach_every_row_timer_and_default() {
    let test = "scenarios_pass_and_reach_every_row_timer_and_default";
    let engines = if kernel(test) { "machine,interp,kernel" } else { "machine,interp" };
    let table = ok(&["test", "functions", "--require-coverage", "--engine", engines]);
    assert!(!table.contains("FAIL") && !table.contains("not covered") && !table.contains("no scenarios"), "{table}");
}

#[test]
fn a_scenario_that_is_wrong_is_a_finding() {
    let folder = std::env::temp_dir().join(format!("flowloom-functions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let function = common::top().join("functions/super_spreader/super_spreader.efsm");
    std::fs::copy(function, folder.join("super_spreader.efsm")).unwrap();
    let text = "scenario \"wrong\"\nport 2  tcp 10.0.0.5:1 > 192.0.2.1:80 syn  -> forward 2\n";
    std::fs::write(folder.join("wrong.scenario"), text).unwrap();
    let ran = run(&["test", folder.to_str().unwrap(), "--engine", "machine,interp"]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn a_byte_order_mark_may_start_scenarios() {
    let folder = tempfile::tempdir().unwrap();
    let from = common::top().join("functions/port_knocking");
    std::fs::copy(from.join("port_knocking.efsm"), folder.path().join("port_knocking.efsm")).unwrap();
    let text = std::fs::read_to_string(from.join("port_knocking.scenario")).unwrap();
    std::fs::write(folder.path().join("port_knocking.scenario"), format!("\u{feff}{text}")).unwrap();
    ok(&["test", name(folder.path()), "--engine", "machine"]);
}

/// Every function and program in a folder and its subfolders.
fn sources(folder: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(path));
        } else if [".efsm", ".bpf.c", ".bpf"].iter().any(|end| name(&path).ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_function_and_program_is_proved_safe() {
    let has_clang = clang("every_function_and_program_is_proved_safe");
    let sources = sources(top().join("functions"));
    assert!(sources.len() > 30, "{sources:?}");
    for source in sources.iter().filter(|source| has_clang || !name(source).ends_with(".c")) {
        let checked = json(&["check", name(source), "--target", "interp", "--json"]);
        // `programs` is missing for a function.
        let programs = checked["programs"].as_array().cloned().unwrap_or_else(|| vec![checked]);
        assert!(!programs.is_empty(), "{}", source.display());
        for program in programs {
            assert_eq!(program["verified"]["safe"], true, "{}: {}", source.display(), program["verified"]);
        }
    }
}
