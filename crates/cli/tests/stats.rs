// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom check --stats`: rows and registers compared with the papers.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::common::{files, name, ok, put, run, top};
use serde_json::Value;

/// Output of `check --stats --json`. Exit code 1 is accepted, as not every function runs on every engine.
fn stats(source: &str) -> Value {
    let ran = run(&["check", source, "--stats", "--json"]);
    assert!(ran.code <= Some(1), "{source}: {}{}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Our functions without a size in any paper.
const IN_NO_TABLE: &[&str] = &["conntrack", "gtpu_offload"];

#[test]
fn every_function_has_at_most_the_papers_rows_and_registers() {
    let mut rows = BTreeSet::new();
    let is_function = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "efsm");
    for source in files(&top().join("functions"), &[]).into_iter().filter(is_function) {
        let stats = stats(name(&source));
        let function = stats["function"].as_str().unwrap();
        let paper = &stats["paper"];
        if IN_NO_TABLE.contains(&function) {
            assert!(paper.is_null(), "{function}: {paper}");
            continue;
        }
        assert_eq!(paper["is_within"], true, "{function}: {paper:#}");
        assert!(rows.insert(paper["use_case"].as_str().unwrap().to_owned()), "{function}");
        // Stateful elements correspond to the paper's, one by one.
        let stateful = stats["elements"].as_array().unwrap().iter().filter(|e| e["is_stateful"] == true).count();
        let elements = paper["elements"].as_array().unwrap();
        assert_eq!(elements.len(), stateful, "{function}");
        for element in elements {
            for kind in ["rows", "registers", "globals"] {
                let (here, most) = (element["here"][kind].as_u64().unwrap(), element["paper"][kind].as_u64().unwrap());
                assert!(here <= most, "{function}: {element}");
            }
        }
        let text = run(&["check", name(&source), "--stats"]).stdout;
        assert!(text.contains("compared with `") && !text.contains("NO"), "{text}");
    }
    assert!(rows.len() >= 14, "{rows:?}");
}

#[test]
fn what_is_larger_than_the_papers_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let row = "on a { x += 1; pass; }\n";
    let text = format!("function big_flow;\nstateful f {{ key ip.src; states a, b; reg x: u32; reg y: u8; {row}on a when x == 1 {{ pass; }}\n\
                        on b when x == 1 {{ pass; }}\non b {{ y = 1; drop; }} }}\n").replace(row, "on a when x != 1 -> b { x += 1; pass; }\n");
    let path = put(&folder, "big_flow.efsm", text);
    let said = ok(&["check", name(&path), "--stats"]);
    assert!(said.contains("compared with `Big Flow Detector`, FlowBlaze table 3"), "{said}");
    assert!(said.lines().any(|line| line.split_whitespace().eq(["f", "4", "3", "2+0", "1+0", "NO"])), "{said}");
    let stats = stats(name(&path));
    assert_eq!((&stats["paper"]["is_within"], &stats["sum"]["rows"]), (&false.into(), &4.into()));
}
