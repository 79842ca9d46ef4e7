// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long tests of generated folders and of "hdl" with other tools. Start with `make evidence`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{clang, files, name, ok, run, top};
use flowloom_testkit::skip;

const FIREWALL: &str = "functions/ebpf/simple_firewall/simple_firewall.bpf.c";

/// Number of programs and functions that have a pipeline, at least: fewer mean that some were lost.
const MIN_PIPELINES: usize = 25;

/// Builds the pipeline of a program. False if it has none.
fn build(program: &Path, folder: &Path) -> bool {
    let [program, folder] = [program, folder].map(|path| path.display().to_string());
    let ran = run(&["build", &program, "--target", "verilog", "-o", &folder]);
    assert!(
        ran.code == Some(0) || (ran.code == Some(1) && ran.stderr.contains("has no pipeline")),
        "{program}: {ran:?}"
    );
    ran.code == Some(0)
}

/// Runs a script. `None`, with the reason as a skip, if the machine lacks something.
pub(crate) fn script(test: &str, script: &str, arguments: &[PathBuf]) -> Option<Output> {
    let ran = Command::new(top().join(script)).args(arguments).output().unwrap();
    if ran.status.code() == Some(3) {
        skip(test, String::from_utf8_lossy(&ran.stderr).trim());
        return None;
    }
    Some(ran)
}

/// Yosys 0.70 reads every module of "hdl" and the pipelines of all programs and functions that have one by `read_slang`,
/// and its checks of hierarchy and netlist find nothing. A module with a loop of gates, one with an unknown module
/// and one that uses a signal before its declaration are rejected. Prints modules, cells and warnings.
#[test]
#[ignore = "minutes"]
fn evidence_slang() {
    const TEST: &str = "evidence_slang";
    if !clang(TEST) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The source that has the name of its folder, of C programs the only one.
    let is_program = |path: &PathBuf| {
        let (file, parent) = (name(path.file_name().unwrap().as_ref()), path.parent().unwrap());
        let is_named = parent.file_name().is_some_and(|folder| file == format!("{}.efsm", name(folder.as_ref())));
        is_named || parent.parent().unwrap().ends_with("functions/ebpf") && file.ends_with(".bpf.c")
    };
    let programs = files(&top().join("functions"), &[]).into_iter().filter(is_program);
    let mut read = vec![top().join("hdl")];
    for program in programs {
        let stem = name(program.file_name().unwrap().as_ref()).split('.').next().unwrap().to_owned();
        let own = folder.path().join(&stem);
        if build(&program, &own) {
            read.push(own);
        } else {
            println!("{stem:36} has no pipeline");
        }
    }
    let Some(ran) = script(TEST, "scripts/read-slang", &read) else { return };
    let text = String::from_utf8(ran.stdout).unwrap();
    print!("{text}");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(read.len() > MIN_PIPELINES, "{} pipelines", read.len() - 1);
    for (fault, text) in [
        (
            "loop",
            "module loop (input logic a_i, output logic b_o);\n  logic c;\n  assign c = a_i ^ b_o;\n  assign b_o = ~c;\nendmodule\n",
        ),
        ("unknown", "module unknown (input logic a_i);\n  fl_missing u_missing (.a_i);\nendmodule\n"),
        ("late", "module late (output logic b_o);\n  assign b_o = c;\n  logic c;\n  assign c = 1'b0;\nendmodule\n"),
    ] {
        let wrong = folder.path().join(format!("wrong_{fault}"));
        std::fs::create_dir(&wrong).unwrap();
        std::fs::write(wrong.join(format!("{fault}.sv")), text).unwrap();
        let Some(ran) = script(TEST, "scripts/read-slang", &[wrong]) else { return };
        assert_eq!(ran.status.code(), Some(1), "{fault}: {}", String::from_utf8_lossy(&ran.stdout));
    }
}

/// The generated folder of the firewall, copied into an image of Debian that has Verilator, make and g++ alone, passes
/// Verilator's lint and simulates with its own Makefile; with a wrong verdict in its vectors, it does not. Prints the
/// versions of the packages and the result.
#[test]
#[ignore = "minutes"]
fn evidence_empty_machine() {
    const TEST: &str = "evidence_empty_machine";
    if !clang(TEST) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let firewall = folder.path().join("firewall");
    ok(&["build", FIREWALL, "--target", "verilog", "-o", firewall.to_str().unwrap()]);
    let make = ["make", "-s", "lint", "sim"].map(PathBuf::from);
    let arguments: Vec<PathBuf> = std::iter::once(firewall.clone()).chain(make).collect();
    let Some(ran) = script(TEST, "scripts/debian-image", &arguments) else { return };
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && text.contains("all as expected"), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    let shown = text.lines().filter(|line| line.starts_with("Debian ") || line.ends_with("all as expected"));
    shown.for_each(|line| println!("{line}"));
    let outside = vec![firewall.clone(), "ls".into(), top().canonicalize().unwrap()];
    let Some(ran) = script(TEST, "scripts/debian-image", &outside) else { return };
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && text.contains("No such file"), "the repository can be seen: {text}");
    let vectors = std::fs::read_to_string(firewall.join("vectors.txt")).unwrap();
    let mut lines: Vec<String> = vectors.lines().map(str::to_owned).collect();
    let last = lines.iter().rposition(|line| line.starts_with("packet ")).unwrap();
    let mut fields: Vec<&str> = lines[last].split(' ').collect();
    // `packet`, port, time and bytes, then the expected verdict: one that the packet does not have.
    let (found, expected) = (fields[4], if fields[4] == "1" { "2" } else { "1" });
    let message = [format!("found verdict {found} ("), format!(", expected {expected} (")];
    fields[4] = expected;
    lines[last] = fields.join(" ");
    std::fs::write(firewall.join("vectors.txt"), format!("{}\n", lines.join("\n"))).unwrap();
    let Some(ran) = script(TEST, "scripts/debian-image", &arguments) else { return };
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(!ran.status.success(), "wrong vectors are accepted: {text}");
    assert!(message.iter().all(|part| text.contains(part)), "no `{}`: {text}", message.concat());
    println!("with another verdict in its vectors: exit code {}", ran.status.code().unwrap());
}
