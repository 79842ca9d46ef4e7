// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom verify` and `check` on objects: findings can be repeated, and what was not compared is not reported as
//! equal.

use crate::common::{self, C_HEAD, Ran, c_program, exits, kernel, name, piped, put, run};
use flowloom_testkit::Clang;
use serde_json::Value;

/// A program that executes more instructions per packet than the interpreter allows, and fewer than the kernel allows,
/// if a constant and a map entry enable it.
const LONG_WHEN_SET: &str = "const volatile __u32 rounds = 1;
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 2); __type(key, __u32); __type(value, __u64); } fl_on SEC(\".maps\");
static long step(__u32 i, void *ctx) {
    volatile __u32 *sum = ctx;
    *sum += i; *sum ^= i; *sum += 3;
    return 0;
}
SEC(\"xdp\") int slow(struct xdp_md *ctx) {
    __u32 sum = 0, zero = 0;
    __u64 *on = bpf_map_lookup_elem(&fl_on, &zero);
    if (!on)
        return XDP_PASS;
    *on += 1;
    if (rounds > 1000)
        bpf_loop(1 << 23, step, &sum, 0);
    return sum == 5 ? XDP_DROP : XDP_PASS;
}";

#[test]
fn an_interpreter_that_stops_is_a_finding_that_its_saved_case_shows_again() {
    let Some((folder, path)) =
        c_program("an_interpreter_that_stops_is_a_finding_that_its_saved_case_shows_again", LONG_WHEN_SET)
    else {
        return;
    };
    let at = |file: &str| folder.path().join(file);
    let capture = at("case.pcapng");
    let first = exits(1, &["verify", name(&path), "--packets", "4000", "--seed", "3", "-w", name(&capture), "--json"]);
    let first_report = first.json();
    let target = &first_report["targets"][0];
    let case = &target["case"];
    assert!(target["disagreement"].as_str().unwrap().contains("instructions for one packet"), "{first_report:#}");
    assert!(first_report["faults"][0]["what"].as_str().unwrap().contains("instructions for one packet"));
    assert_eq!(case["packets"].as_array().map(Vec::len), Some(1), "{first_report:#}");
    // The case has the constant, the entry, and the packet.
    assert!(case["state"][".rodata"][0]["value"].is_array(), "{case:#}");
    assert!(case["state"]["fl_on"][0]["value"].is_array(), "{case:#}");
    let (_, command) = first.stderr.split_once("reproduce: flowloom ").unwrap_or_else(|| panic!("{first:?}"));
    let words: Vec<&str> = command.split_whitespace().collect();
    assert!(words.contains(&"--state-in") && words.contains(&"--seed"), "{command}");
    let again = exits(1, &[&words[..], &["--json"]].concat());
    let again_report = again.json();
    assert_eq!(again_report["targets"][0]["disagreement"], target["disagreement"], "{again_report:#}");
    assert_eq!(again_report["seed"], case["seed"]);

    // Without the state, or without the constant alone, there is no difference.
    exits(0, &["verify", name(&path), "-r", name(&capture)]);
    let mut state: Value = serde_json::from_str(&std::fs::read_to_string(at("case.state.json")).unwrap()).unwrap();
    state.as_object_mut().unwrap().remove(".rodata");
    let unset = put(&folder, "unset.json", state.to_string());
    exits(0, &["verify", name(&path), "-r", name(&capture), "--state-in", name(&unset)]);

    // `run` accepts the same state, and sets the program's constant.
    let state = at("case.state.json");
    exits(2, &["run", name(&path), "-r", name(&capture), "--state-in", name(&state), "--engine", "interp"])
        .stderr_has(&["instructions for one packet"]);

    // A section of another length is rejected, and no input is overwritten.
    std::fs::write(at("short.json"), r#"{".rodata": [{"key": ["0x00","0x00","0x00","0x00"], "value": ["0x01"]}]}"#)
        .unwrap();
    exits(2, &["verify", name(&path), "-r", name(&capture), "--state-in", name(&at("short.json"))])
        .stderr_has(&["value is 1 byte, map `.rodata` expects 4"]);
    exits(2, &["verify", name(&path), "-r", name(&capture), "--state-in", name(&state), "-w", name(&state)])
        .stderr_has(&["would overwrite the state"]);
}

#[test]
fn maps_of_objects_are_state_by_any_name() {
    let Some((folder, path)) = c_program("maps_of_objects_are_state_by_any_name", LONG_WHEN_SET) else { return };
    let (capture, before, after) =
        (folder.path().join("in.pcap"), folder.path().join("before.json"), folder.path().join("after.json"));
    exits(0, &["trace", "gen", "--profile", "uniform", "-c", "3", "-w", name(&capture)]);
    let entry = |n: u8| {
        format!(
            r#"{{"fl_on":[{{"key":["0x00","0x00","0x00","0x00"],"value":["0x{n:02x}","0x00","0x00","0x00","0x00","0x00","0x00","0x00"]}}]}}"#
        )
    };
    std::fs::write(&before, entry(1)).unwrap();
    let ran =
        run(&["run", name(&path), "-r", name(&capture), "--state-in", name(&before), "--state-out", name(&after)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&after).unwrap().trim(), entry(4));
    // `--state-out` may name the file of `--state-in`.
    exits(0, &["run", name(&path), "-r", name(&capture), "--state-in", name(&after), "--state-out", name(&after)]);
    assert_eq!(std::fs::read_to_string(&after).unwrap().trim(), entry(7));
}

#[test]
fn what_the_verifier_refuses_is_a_finding_at_once() {
    let source = "SEC(\"xdp\") int f(struct xdp_md *ctx) { return *(char *)(long)ctx->data; }";
    let Some((folder, path)) = c_program("what_the_verifier_refuses_is_a_finding_at_once", source) else { return };
    let capture = folder.path().join("in.pcap");
    assert_eq!(run(&["trace", "gen", "--profile", "uniform", "-c", "3", "-w", name(&capture)]).code, Some(0));
    for arguments in [
        &["check", name(&path), "--target", "kernel"][..],
        // Rejected before any of these runs.
        &["verify", name(&path), "--packets", "10000000"],
        &["verify", name(&path), "-r", name(&capture)],
    ] {
        let ran = exits(1, arguments);
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains("verifier refuses"), "{arguments:?}: {ran:?}");
    }
    let report = run(&["verify", name(&path), "--json"]).json();
    assert!(report["targets"][0]["refused"].as_str().unwrap().contains("verifier refuses"), "{report:#}");
}

#[test]
fn the_number_of_runs_is_a_limit() {
    if !common::clang("the_number_of_runs_is_a_limit") || !kernel("the_number_of_runs_is_a_limit") {
        return;
    }
    for most in ["1", "10", "700"] {
        let report = run(&["verify", "functions/ebpf/router/router.bpf.c", "--packets", most, "--json"]).json();
        assert_eq!(report["tries"].as_u64(), most.parse().ok(), "{report:#}");
    }
}

#[test]
fn what_cannot_be_rewritten_is_named_with_its_line() {
    let source = "SEC(\"xdp\") int f(struct xdp_md *ctx) {
    return *(volatile unsigned short *)&ctx->ingress_ifindex; // HERE
}";
    let Some((_folder, path)) = c_program("what_cannot_be_rewritten_is_named_with_its_line", source) else { return };
    let report = run(&["check", name(&path), "--target", "kernel", "--json"]).json();
    let reason = &report["programs"][0]["targets"][0]["reasons"][0];
    assert!(reason["instruction"].is_u64(), "{report:#}");
    assert!(reason["source"]["text"].as_str().unwrap().contains("HERE"), "{report:#}");
    assert!(reason["reason"].as_str().unwrap().starts_with("it reads `ingress_ifindex` with 2 bytes"), "{report:#}");
}

#[test]
fn headers_of_ones_own_are_no_package() {
    let test = "headers_of_ones_own_are_no_package";
    let Some((folder, path)) = c_program(test, "#include \"mine.h\"") else { return };
    let ran = exits(2, &["check", name(&path)]);
    ran.stderr_has(&["'mine.h' file not found"]);
    assert!(!ran.stderr.contains("libbpf-dev"), "{ran:?}");
    put(&folder, "it.bpf.c", "#include <linux/no_such_header.h>\n");
    exits(3, &["check", name(&path)]).stderr_has(&["apt-get install libbpf-dev"]);
}

/// The plugin runs the first program of an object, also if it is rejected.
#[test]
fn a_first_program_that_is_refused_is_not_passed_over() {
    let test = "a_first_program_that_is_refused_is_not_passed_over";
    let bad =
        "int table[4] __attribute__((section(\"mine\")));\nSEC(\"xdp/a\") int first(void *ctx) { return table[1]; }";
    let good = "SEC(\"xdp/b\") int second(void *ctx) { return 2; }";
    for (source, code, said) in [(format!("{bad}\n{good}"), 1, "first"), (format!("{good}\n{bad}"), 0, "2\n")] {
        let Some(clang) = Clang::find(test) else { return };
        let object = clang.compile(&format!("{C_HEAD}{source}\n"), &["-Wno-unused-parameter"]).unwrap();
        let ran = Ran::from(piped(&["bpf", "plugin", "--elf"], &object));
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(said), "{ran:?}");
    }
}
