// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs in C and assembler: those in `functions/`, and the messages about invalid programs.

use crate::common::{self, exits, json, kernel, name, ok, put, top};
use flowloom_isa::{asm, disasm};
use serde_json::Value;

/// Expected results in `flowloom test` for a program's scenarios on an engine.
fn results<'t>(program: &'t Value, engine: &str) -> Vec<(&'t str, &'t Value)> {
    let scenarios = program["scenarios"].as_array().unwrap();
    let result = |scenario: &'t Value| (scenario["scenario"].as_str().unwrap(), scenario);
    scenarios.iter().map(result).filter(|(_, scenario)| !scenario["engines"][engine].is_null()).collect()
}

#[test]
fn classical_programs_do_what_their_scenarios_say() {
    let test = "classical_programs_do_what_their_scenarios_say";
    if !common::clang(test) {
        return;
    }
    let engines = if kernel(test) { "interp,kernel" } else { "interp" };
    let text = ok(&["test", "functions/ebpf", "--require-coverage", "--json", "--engine", engines]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let programs = report["functions"].as_array().unwrap();
    assert!(programs.len() >= 14, "{} programs", programs.len());
    for program in programs {
        let called = program["function"].as_str().unwrap();
        for engine in engines.split(',') {
            let results = results(program, engine);
            assert!(results.len() >= 3, "{called} has {} scenarios", results.len());
            for (scenario, tried) in results {
                let cell = &tried["engines"][engine];
                // The kernel's test runs reject frames without an Ethernet header.
                let is_too_short = cell["why"].as_str().is_some_and(|why| why.contains("shorter than 14 bytes"));
                let is_left_out = engine == "kernel" && is_too_short;
                assert!(cell["result"] == "ok" || is_left_out, "{called} \"{scenario}\" on {engine}: {cell}");
            }
        }
    }
}

/// Without packets, a program is explored, and the cases found are run on both engines.
#[test]
fn programs_are_explored_and_agree() {
    let test = "programs_are_explored_and_agree";
    if !common::clang(test) || !kernel(test) {
        return;
    }
    let verify = |program: &str| json(&["verify", program, "--packets", "20000", "--targets", "kernel", "--json"]);
    for program in ["functions/ebpf/xdp2/xdp2.bpf.c", "functions/ebpf/router/router.bpf.c"] {
        let report = verify(program);
        let target = &report["targets"][0];
        assert_eq!((&target["target"], &target["agrees"]), (&"kernel".into(), &true.into()), "{program}: {report}");
        assert!(target["packets_compared"].as_u64().unwrap() > 50, "{program}: {report}");
        let share = report["slots_reached"].as_u64().unwrap() * 100 / report["slots"].as_u64().unwrap();
        assert!(share >= 80, "{program}: {share}% of its instructions are reached");
    }
}

/// eHDL's Listing 2: the printed instructions have the printed line numbers.
#[test]
fn the_toy_is_as_it_is_printed() {
    let path = top().join("functions/ebpf/toy/toy_printed.bpf");
    let program = asm::program("toy_printed.bpf", &std::fs::read_to_string(path).unwrap()).unwrap();
    let text = disasm::disassemble(&program.insns, &program.maps).unwrap();
    let lines: Vec<(usize, &str)> = program.lines.iter().map(|line| line.insn).zip(text.lines()).collect();
    assert_eq!(lines.len(), 31, "{text}");
    let printed = [
        (0, "r2 = *(u32 *)(r1 + 4)"),
        (1, "r1 = *(u32 *)(r1 + 0)"),
        (2, "r3 = 0"),
        (3, "*(u32 *)(r10 - 4) = r3"),
        (8, "r2 = *(u8 *)(r1 + 12)"),
        (9, "r1 = *(u8 *)(r1 + 13)"),
        (10, "r1 <<= 8"),
        (11, "r1 |= r2"),
        (12, "if r1 == 34525 goto +4"),
        (19, "r1 = 3"),
        (20, "*(u32 *)(r10 - 4) = r1"),
        (21, "r2 = r10"),
        (22, "r2 += -4"),
        (26, "r1 = r0"),
        (27, "r0 = 3"),
        (28, "if r1 == 0 goto +2"),
        (29, "r2 = 1"),
        (30, "lock *(u64 *)(r1 + 0) += r2"),
        (31, "exit"),
    ];
    for (slot, expected) in printed {
        let found = lines.iter().find(|(at, _)| *at == slot).map(|(_, insn)| insn.trim());
        assert_eq!(found, Some(expected), "{slot}");
    }
}

#[test]
fn a_program_in_assembler_becomes_an_object() {
    let folder = tempfile::tempdir().unwrap();
    ok(&["build", "functions/ebpf/toy/toy_printed.bpf", "--target", "bpf", "-o", name(folder.path())]);
    let bytes = std::fs::read(folder.path().join("toy_printed.o")).unwrap();
    let object = flowloom_object::read(&bytes, "toy_printed.o").unwrap();
    assert_eq!(object.programs.len(), 1);
    assert_eq!(object.programs[0].insns.len(), 32);
    assert_eq!(object.programs[0].license, "Dual MIT/GPL");
}

#[test]
fn the_program_of_the_book_runs() {
    let book = std::fs::read_to_string(top().join("docs/book/src/running.md")).unwrap();
    let block = book.split("```bpf\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    put(&folder, "count.bpf", block);
    put(
        &folder,
        "count.scenario",
        "scenario \"counts\"\nrepeat 3 { udp 10.0.0.1:1 > 10.0.0.2:2 -> pass }\nmap packets 0 is 3\n",
    );
    ok(&["test", name(folder.path()), "--engine", "interp", "--require-coverage"]);
}

#[test]
fn scenarios_may_be_about_objects_and_about_one_of_several_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "p.bpf", COUNTER);
    ok(&["build", name(&path), "--target", "bpf", "-o", name(folder.path())]);
    put(
        &folder,
        "p.scenario",
        "function p.o\nscenario \"passes\"\nudp 10.0.0.1:1 > 10.0.0.2:2 -> pass\nmap m 1 is 0\n",
    );
    let said = ok(&["test", name(&folder.path().join("p.scenario")), "--engine", "interp"]);
    assert!(said.contains("3 lines"), "{said}");
    if !common::clang("scenarios_may_be_about_objects_and_about_one_of_several_programs") {
        return;
    }
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
                  SEC(\"xdp\") int first(struct xdp_md *ctx) { return FIRST; }\n\
                  SEC(\"xdp\") int second(struct xdp_md *ctx) { return 1; }\n";
    put(&folder, "two.bpf.c", source);
    let text = "function two.bpf.c\nparam FIRST = 3\n\
                scenario \"first\"\nprogram first\nudp 10.0.0.1:1 > 10.0.0.2:2 -> reply\n\
                scenario \"second\"\nprogram second\nudp 10.0.0.1:1 > 10.0.0.2:2 -> drop\n\
                scenario \"first, in another way\"\nprogram first\nparam FIRST = 2\nudp 10.0.0.1:1 > 10.0.0.2:2 -> pass\n";
    ok(&["test", name(&put(&folder, "two.scenario", text)), "--engine", "interp"]);
    let text = "function two.bpf.c\nparam FIRST = 3\nscenario \"none\"\nudp 10.0.0.1:1 > 10.0.0.2:2 -> reply\n";
    exits(2, &["test", name(&put(&folder, "two.scenario", text)), "--engine", "interp"])
        .stderr_has(&["`first`, `second`"]);
}

const COUNTER: &str =
    ".program p\n.license \"GPL\"\n.map m array key 4 value 4 entries 2\nr1 = map[m] ll\nr0 = 2\nexit\n";

#[test]
fn lines_that_no_scenario_runs_are_a_finding_where_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let source = COUNTER.replace("exit", "if r0 == 2 goto out\nr0 = 1\nout: exit");
    put(&folder, "p.bpf", &source);
    put(&folder, "p.scenario", "scenario \"all\"\nudp 10.0.0.1:1 > 10.0.0.2:2 -> pass\nmap m 1 is 0\n");
    exits(0, &["test", name(folder.path()), "--engine", "interp"])
        .stdout_has(&["4 of 5 lines", "not covered: p p.bpf:7: r0 = 1"]);
    exits(1, &["test", name(folder.path()), "--engine", "interp", "--require-coverage"]);
}

#[test]
fn what_a_program_does_otherwise_is_a_finding_with_the_part() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, "p.bpf", COUNTER);
    put(&folder, "p.scenario", "scenario \"wrong\"\nset m 1 to 7\nudp 10.0.0.1:1 > 10.0.0.2:2 -> drop\nmap m 1 is 8\n");
    exits(1, &["test", name(folder.path()), "--engine", "interp"])
        .stdout_has(&["expected DROP, found PASS by port 1", "map `m`: expected 8, found 7"]);
}

#[test]
fn programs_that_cannot_be_taken_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "bad.bpf", ".program p\nr0 = q\n");
    exits(2, &["check", name(&path)]).stderr_has(&["line 2, column 6: found `q`"]);
    exits(2, &["check", name(&put(&folder, "good.bpf", COUNTER)), "--param", "A=1"]).stderr_has(&["--param A"]);
    if !common::clang("programs_that_cannot_be_taken_are_refused_with_their_place") {
        return;
    }
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nSEC(\"xdp\") int p(struct xdp_md *ctx) { return VERDICT; }\n";
    let path = put(&folder, "p.bpf.c", source);
    exits(2, &["check", name(&path)]).stderr_has(&["'VERDICT'"]);
    ok(&["check", name(&path), "--param", "VERDICT=2", "--target", "interp"]);
    let several = source.replace("VERDICT", "2") + "SEC(\"xdp\") int q(struct xdp_md *ctx) { return 1; }\n";
    let path = put(&folder, "several.bpf.c", &several);
    let build = ["build", name(&path), "--target", "bpf", "-o", name(folder.path())];
    exits(2, &build).stderr_has(&["`p`, `q`"]);
    ok(&[&build[..], &["--program", "q"]].concat());
}
