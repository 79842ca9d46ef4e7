// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom build --target verilog` and of the engine `pipeline`.

use std::process::Command;

use crate::common::{Ran, exits, flowloom, json, ok};
use flowloom_testkit::skip;

const TOY: &str = "functions/ebpf/toy/toy_printed.bpf";

/// Whether Verilator is installed; otherwise prints the reason to skip.
fn has_verilator(test: &str) -> bool {
    let found = Command::new("verilator").arg("--version").output().is_ok_and(|done| done.status.success());
    if !found {
        skip(test, "Verilator is not installed");
    }
    found
}

#[test]
fn a_folder_with_a_pipeline_simulates_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy").display().to_string();
    let text = ok(&["build", TOY, "--target", "verilog", "-o", &path]);
    assert!(text.contains("top module `fl_pipeline_toy_printed`"), "{text}");
    let value = json(&["build", TOY, "--target", "verilog", "-o", &path, "--json"]);
    assert_eq!(value["top"], "fl_pipeline_toy_printed");
    assert_eq!(value["latency_cycles"].as_u64().unwrap(), value["stages"].as_u64().unwrap() + 9);
    let files: Vec<&str> = value["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    for file in ["Makefile", "README.md", "bench.cpp", "fl_framer.sv", "fl_pipeline_toy_printed.sv", "vectors.txt"] {
        assert!(files.contains(&file), "{file} of {files:?}");
        assert!(folder.path().join("toy").join(file).is_file(), "{file}");
    }
    if has_verilator("a_folder_with_a_pipeline_simulates_by_itself") {
        let ran = Command::new("make").args(["-s", "-C", &path, "lint", "sim"]).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            ran.status.success() && text.contains("all as expected"),
            "{text}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}

#[test]
fn functions_without_a_pipeline_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let flowlet = "functions/flowlet/flowlet.efsm";
    let ran = exits(1, &["build", flowlet, "--target", "verilog", "-o", &path]);
    assert!(ran.stderr.contains("no hardware block is rendered for `fl_clone`"), "{ran:?}");
    let ran = exits(2, &["build", TOY, "--target", "verilog", "-o", &path, "--counters"]);
    assert!(ran.stderr.contains("--counters requires --target bpf"), "{ran:?}");
}

#[test]
fn the_pipeline_is_an_engine() {
    if !has_verilator("the_pipeline_is_an_engine") {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        Ran::from(flowloom().args(arguments).env("XDG_CACHE_HOME", cache.path()).output().unwrap())
    };
    let ran = run(&["verify", TOY, "--targets", "pipeline"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("pipeline: equal to `interp`"), "{ran:?}");
    let ran = run(&["test", "functions/ebpf/toy/toy_printed.scenario", "--engine", "pipeline"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Packets of a function behind one another, on its own traffic: redirects to all ports, and a slice of several stages
/// with a division.
#[test]
fn packets_follow_one_another_through_a_pipeline() {
    if !has_verilator("packets_follow_one_another_through_a_pipeline") {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    for (name, packets) in [("paxos_coordinator", "3000"), ("policer", "2000")] {
        let file = format!("functions/{name}/{name}.efsm");
        let arguments = ["verify", &file, "--targets", "interp,pipeline", "--packets", packets];
        let ran = Ran::from(flowloom().args(arguments).env("XDG_CACHE_HOME", cache.path()).output().unwrap());
        assert!(ran.code == Some(0) && ran.stdout.contains("pipeline"), "{ran:?}");
    }
}
