// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom explain` on the toy and the firewall, and of its refusals.

use std::path::{Path, PathBuf};

use crate::common::{self, Ran, exits, flowloom, json, name, ok, run};
use flowloom_testkit::{golden, skip};
use serde_json::Value;

const TOY: &str = "functions/ebpf/toy/toy_printed.bpf";
const FIREWALL: &str = "functions/ebpf/simple_firewall/simple_firewall.bpf.c";
/// Compiler that produced the instructions in the goldens.
const COMPILER: &str = "clang-14";

fn file(name: &str) -> PathBuf {
    Path::new("tests/explain").join(name)
}

/// Output of `explain` for the firewall, compiled by [`COMPILER`]. `None`, with a SKIP line, if it is not installed.
fn firewall(test: &str, arguments: &[&str]) -> Option<String> {
    let ran =
        Ran::from(flowloom().args(["explain", FIREWALL]).args(arguments).env("CLANG", COMPILER).output().unwrap());
    if ran.code == Some(3) {
        skip(test, ran.stderr.lines().next().unwrap_or("no compiler"));
        return None;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    Some(ran.stdout)
}

#[test]
fn the_toy_is_told() {
    golden(file("toy.txt"), &ok(&["explain", TOY]));
    golden(file("toy_verbose.txt"), &ok(&["explain", TOY, "-v"]));
    golden(file("toy.json"), &ok(&["explain", TOY, "--json"]));
}

#[test]
fn the_firewall_is_told() {
    let test = "the_firewall_is_told";
    let Some(text) = firewall(test, &[]) else { return };
    golden(file("simple_firewall.txt"), &text);
    golden(file("simple_firewall_verbose.txt"), &firewall(test, &["-v"]).unwrap());
    golden(file("simple_firewall.json"), &firewall(test, &["--json"]).unwrap());
}

#[test]
fn the_papers_layout_is_told() {
    golden(file("toy_blocks.txt"), &ok(&["explain", TOY, "--schedule", "blocks"]));
    golden(file("toy_blocks_verbose.txt"), &ok(&["explain", TOY, "--schedule", "blocks", "-v"]));
    golden(file("toy_blocks.json"), &ok(&["explain", TOY, "--schedule", "blocks", "--json"]));
    // Both schedules use the same keys.
    let [blocks, dataflow] = ["blocks", "dataflow"].map(|how| json(&["explain", TOY, "--schedule", how, "--json"]));
    for told in [&blocks, &dataflow] {
        for key in ["stages", "latency_cycles", "ilp_max", "ilp_avg", "clock_mhz", "window_bytes"] {
            assert!(told[key].is_number(), "{key}");
        }
        let map = &told["maps"][0];
        assert_eq!((&map["name"], &map["hazard"]), (&"stats".into(), &"atomic".into()));
        for key in ["read_stage", "write_stage", "hold_cycles"] {
            assert!(map[key].is_u64(), "{key}");
        }
    }
    assert_eq!((&blocks["schedule"], &dataflow["schedule"]), (&"blocks".into(), &"dataflow".into()));
    assert!(blocks["stages"].as_u64() > dataflow["stages"].as_u64());
    assert_eq!(json(&["explain", TOY, "--json"]), dataflow, "which is what is told unless asked otherwise");
    let unpruned = json(&["explain", TOY, "--schedule", "blocks", "--no-prune", "--json"]);
    assert!(unpruned["state_bytes"].as_u64() > blocks["state_bytes"].as_u64());
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("toy.html");
    ok(&["explain", TOY, "--schedule", "blocks", "--html", name(&page)]);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("laid out block by block") && text.contains("waits for a call"), "{text}");
    ok(&["explain", TOY, "--html", name(&page)]);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("<dt>device</dt><dd><b>xcu50</b>"), "{text}");
}

/// A program that uses the packet length waits for the last word, unless the shell provides the length: 23 words for a
/// frame of 1518 bytes. The rendered pipeline stores packets whole, and its latency is that of a packet of one word.
#[test]
fn the_length_may_be_given() {
    if !common::clang("the_length_may_be_given") {
        return;
    }
    let program = "functions/ebpf/tunnel/tunnel.bpf.c";
    for (how, words) in [("dataflow", 0), ("blocks", 23)] {
        let told =
            |arguments: &[&str]| json(&[&["explain", program, "--schedule", how, "--json"][..], arguments].concat());
        let (awaited, given) = (told(&[]), told(&["--length-given"]));
        let of = |told: &Value| (told["latency"]["last_word"].as_u64(), told["latency_cycles"].as_u64().unwrap());
        let ((waits, long), (waits_not, short)) = (of(&awaited), of(&given));
        assert_eq!((waits, waits_not, long - short), (Some(words), Some(0), words), "{how}");
        let said = given["latency"]["last_word_reason"].as_str().unwrap();
        assert_eq!(said, "the exact length is used; it arrives with the first word");
    }
    // Bounds checks alone do not benefit.
    let latency = |arguments: &[&str]| json(&[&["explain", TOY, "--json"][..], arguments].concat())["latency"].clone();
    assert_eq!(latency(&[]), latency(&["--length-given"]));
    // The predicted latency is that of the rendered pipeline: framer, 10 stages, emitter with a shift.
    let made = ["predict", program, "--flows", "1", "--rate", "1Mpps", "-c", "100", "--json"];
    let p50 = json(&made)["latency"]["p50_cycles"].as_u64().unwrap();
    let told = json(&["explain", program, "--json"]);
    assert_eq!((Some(p50), p50), (told["latency_cycles"].as_u64(), 2 + told["stages"].as_u64().unwrap() + 10));
}

#[test]
fn the_book_shows_what_is_printed() {
    let page = std::fs::read_to_string(common::top().join("docs/book/src/explaining.md")).unwrap();
    let shown = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let printed = ok(&["explain", TOY]);
    assert!(printed.starts_with(shown), "the book shows\n{shown}\nprinted is\n{printed}");
}

#[test]
fn schemes_clocks_and_queues_are_as_asked_for() {
    let stats = |arguments: &[&str]| json(&[&["explain", TOY, "--json"][..], arguments].concat());
    let of = |report: &Value, key: &str| report["maps"][0][key].clone();
    let flushed = stats(&["--scheme", "stats=flush"]);
    assert_eq!((of(&flushed, "hazard"), of(&flushed, "reason")), ("flush".into(), "requested".into()));
    assert!(of(&flushed, "restart_stage").is_u64() && flushed["regions"][0]["restarts"] == true);
    let scheduled = stats(&["--scheme", "stats=schedule", "--queues", "3"]);
    assert_eq!((of(&scheduled, "hazard"), of(&scheduled, "queues")), ("schedule".into(), 3.into()));
    assert!(of(&scheduled, "hold_cycles").as_u64() > Some(1));
    assert_eq!((&scheduled["latency"]["schedulers"], &flushed["latency"]["buffers"]), (&1.into(), &1.into()));
    assert_eq!(scheduled["notes"][0], "latency and holds are those of the plan: --scheme is about the plan");
    let stages = |clock: &str| stats(&["--clock", clock])["stages"].as_u64().unwrap();
    assert!(stages("100") <= stages("250") && stages("250") < stages("600"));
    let (pruned, whole) = (stats(&[]), stats(&["--no-prune"]));
    assert_eq!((&pruned["pruned"], &whole["pruned"]), (&true.into(), &false.into()));
    assert_eq!(whole["live"][0]["packet_bits"], 512);
    assert!(whole["register_bits"].as_u64() > pruned["register_bits"].as_u64());
}

/// A program without a plan is a finding in both `explain` and `predict`; `--json` prints the refusal with a stable
/// code.
#[test]
fn refusals_have_a_code_and_one_exit_code() {
    let cases =
        [("crates/cli/tests/explain/own_write.bpf", "own-write"), ("crates/cli/tests/verifier/null.bpf", "unsafe")];
    for (program, code) in cases {
        for verb in [&["explain"][..], &["predict", "--flows", "1", "-c", "10"]] {
            let told = exits(1, &[verb, &[program, "--json"]].concat()).json();
            let refusal = &told["refusal"];
            assert_eq!(refusal["code"], code, "{verb:?} {program}");
            assert!(refusal["instruction"].is_u64() && refusal["line"]["line"].is_u64(), "{told}");
            assert!(refusal["message"].is_string() && refusal["help"].is_string(), "{told}");
        }
    }
}

#[test]
fn what_has_no_pipeline_is_refused_with_place_reason_and_way_out() {
    let cases: [(&[&str], i32, &[&str]); 6] = [
        (
            &[TOY, "--scheme", "stats=none"],
            1,
            &["no pipeline", "`toy_printed`", "map `stats`", "by `none`: packets write it", "choose `flush`"],
        ),
        (
            &[TOY, "--clock", "900"],
            1,
            &[
                "`toy_printed` at 900 MHz",
                "toy_printed.bpf:25",
                "takes 2.0 levels, expected at most 1.3",
                "a slower clock",
            ],
        ),
        (&[TOY, "--scheme", "statistics=flush"], 2, &["no map `statistics`", "`stats`"]),
        (
            &["crates/cli/tests/verifier/null.bpf"],
            1,
            &["is rejected by the verifier", "null.bpf:12", "may be null", "compare the address with 0 first"],
        ),
        (&["crates/cli/tests/verifier/endless.bpf"], 1, &["is rejected by the verifier", "endless.bpf:"]),
        (
            &["crates/cli/tests/explain/own_write.bpf"],
            1,
            &["no pipeline", "own_write.bpf:18", "map `table` is read again", "keep the entry in a variable"],
        ),
    ];
    for (arguments, code, expected) in cases {
        let ran = run(&[&["explain"][..], arguments].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{arguments:?}: {ran:?}");
        for words in expected {
            assert!(ran.stderr.contains(words), "{arguments:?}: `{words}` is not in\n{}", ran.stderr);
        }
    }
    // A refused program gets no HTML page.
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    assert_eq!(run(&["explain", TOY, "--scheme", "stats=none", "--html", name(&page)]).code, Some(1));
    assert!(!page.exists());
}

/// The parser of a function is counted apart from the other operations; a program in C has none.
#[test]
fn operations_of_the_parser_are_counted_apart() {
    let function = "functions/port_knocking/port_knocking.efsm";
    let value = json(&["explain", function, "--json"]);
    let count = |key: &str| value[key].as_u64().unwrap();
    let (all, parser) = (count("operations"), count("parser_operations"));
    // The limit of the operations besides the parser's is a goal of functions like this one.
    assert!(parser > 1000 && all - parser > 100 && all - parser < 1500, "{all}, {parser}");
    let text = ok(&["explain", function]);
    let told = format!("{all} operations ({parser} of the parser, {} others)", all - parser);
    assert!(text.replace(' ', "").contains(&told.replace(' ', "")), "{text}");
    assert_eq!(json(&["explain", TOY, "--json"])["parser_operations"], 0);
}
