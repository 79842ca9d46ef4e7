// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions in `functions/` pass their scenarios on every engine that runs them.

use crate::common::{clang, engines, exits, files, json, name, ok, put, top};

#[test]
fn scenarios_pass_and_reach_every_row_timer_and_default() {
    let test = "scenarios_pass_and_reach_every_row_timer_and_default";
    let table = ok(&["test", "functions", "--require-coverage", "--engine", &engines(test).join(",")]);
    assert!(!table.contains("FAIL") && !table.contains("not covered") && !table.contains("no scenarios"), "{table}");
}

#[test]
fn a_scenario_that_is_wrong_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let function = top().join("functions/super_spreader/super_spreader.efsm");
    std::fs::copy(function, folder.path().join("super_spreader.efsm")).unwrap();
    let text = "scenario \"wrong\"\nport 2  tcp 10.0.0.5:1 > 192.0.2.1:80 syn  -> forward 2\n";
    put(&folder, "wrong.scenario", text);
    exits(1, &["test", name(folder.path()), "--engine", "machine,interp"]);
}

#[test]
fn a_byte_order_mark_may_start_scenarios() {
    let folder = tempfile::tempdir().unwrap();
    let from = top().join("functions/port_knocking");
    std::fs::copy(from.join("port_knocking.efsm"), folder.path().join("port_knocking.efsm")).unwrap();
    let text = std::fs::read_to_string(from.join("port_knocking.scenario")).unwrap();
    put(&folder, "port_knocking.scenario", format!("\u{feff}{text}"));
    ok(&["test", name(folder.path()), "--engine", "machine"]);
}

#[test]
fn every_function_and_program_is_proved_safe() {
    let has_clang = clang("every_function_and_program_is_proved_safe");
    let mut sources = files(&top().join("functions"), &[]);
    sources.retain(|path| [".efsm", ".bpf.c", ".bpf"].iter().any(|end| name(path).ends_with(end)));
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
