// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helpers to run the command, parse its output, and call the tools that check it.
// Each test binary uses a part.
#![allow(dead_code, unreachable_pub)]

pub mod lab;
pub mod tshark;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flowloom_exec::KernelEngine;
use flowloom_testkit::{Clang, skip};
use flowloom_trace::{CaptureReader, CaptureWriter, CapturedPacket, traces_from_env};
use serde_json::Value;

pub const PORT_KNOCKING: &str = "functions/port_knocking/port_knocking.efsm";
pub const BIG_FLOW: &str = "functions/big_flow/big_flow.efsm";
pub const REWRITE: &str = "corpus/rewrite.efsm";
pub const UDP_FLOWS: &str = "corpus/udp_flows.efsm";
pub const PASS_ALL: &str = "corpus/pass_all.efsm";

/// A function with few instructions, but more pairs of row and state than a counter map holds.
pub fn large_with_counters() -> String {
    let states: Vec<String> = (0..600).map(|n| format!("s{n}")).collect();
    let row = |n: u32| format!("    on s0 when ip.src == 10.0.{}.{} stay {{ pass; }}\n", n / 250, n % 250);
    let rows: String = (0..900).map(row).collect();
    let states = states.join(", ");
    format!(
        "function large;\nstateful s {{\n    key eth.src;\n    states {states};\n{rows}    otherwise {{ pass; }}\n}}\n"
    )
}

/// Engines that run on every machine.
pub const EVERYWHERE: [&str; 2] = ["machine", "interp"];

pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command, with the repository as working directory.
pub fn flowloom() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowloom"));
    command.current_dir(top()).stdin(Stdio::null());
    command
}

/// Output and exit code of a run of the command.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the command prints UTF-8");
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ran {
    #[track_caller]
    pub fn stdout_has(&self, texts: &[&str]) -> &Ran {
        texts.iter().for_each(|text| assert!(self.stdout.contains(text), "`{text}` is not in stdout: {self:?}"));
        self
    }

    #[track_caller]
    pub fn stderr_has(&self, texts: &[&str]) -> &Ran {
        texts.iter().for_each(|text| assert!(self.stderr.contains(text), "`{text}` is not in stderr: {self:?}"));
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    let ran = Ran::from(flowloom().args(arguments).output().unwrap());
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// Runs the command with `input` on stdin, of which it need not read all.
pub fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = flowloom();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs a command that must end with this exit code.
#[track_caller]
pub fn exits<S: AsRef<OsStr> + Debug>(code: i32, arguments: &[S]) -> Ran {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(code), "flowloom {arguments:?}:\n{}{}", ran.stdout, ran.stderr);
    ran
}

/// Runs a command that must succeed. Returns its stdout.
#[track_caller]
pub fn ok<S: AsRef<OsStr> + Debug>(arguments: &[S]) -> String {
    exits(0, arguments).stdout
}

/// Runs a command that must succeed and print JSON.
#[track_caller]
pub fn json<S: AsRef<OsStr> + Debug>(arguments: &[S]) -> Value {
    exits(0, arguments).json()
}

/// A command line in which `@` stands for a folder, and texts that stderr must have.
pub type Refusal<'a> = (&'a str, &'a [&'a str]);

/// Runs commands that must end with exit code 2, print nothing to stdout, and name the reason on stderr.
#[track_caller]
pub fn refused(folder: &str, cases: &[Refusal<'_>]) {
    let mut wrong = Vec::new();
    for (line, expected) in cases {
        let words = line.split(' ').map(|word| word.replace('@', folder).replace("else_", "else "));
        let Ran { code, stdout, stderr } = run(&words.collect::<Vec<_>>());
        // Diagnostics are wrapped at 100 columns.
        let says = |text: &str| stderr.contains(text) || stderr.replace("\n  │ ", "").contains(text);
        let missing: Vec<_> = expected.iter().filter(|text| !says(&text.replace('@', folder))).collect();
        if code != Some(2) || !stdout.is_empty() || !missing.is_empty() {
            wrong.push(format!("{line}\n  exit {code:?}, stdout `{stdout}`, missing {missing:?}\n{stderr}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub fn put(folder: &tempfile::TempDir, file: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(file);
    std::fs::write(&path, contents).unwrap();
    path
}

/// All files below a folder, sorted, except in folders of these names.
pub fn files(folder: &Path, without: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if !path.is_dir() {
            found.push(path);
        } else if !without.iter().any(|name| path.ends_with(name)) {
            found.extend(files(&path, without));
        }
    }
    found.sort();
    found
}

/// A UTF-8 path as an argument.
pub fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// True if the kernel engine is available; otherwise prints a SKIP line.
pub fn kernel(test: &str) -> bool {
    match KernelEngine::available() {
        Ok(()) => true,
        Err(reason) => {
            skip(test, &reason.to_string());
            false
        }
    }
}

/// The engines that run on this machine; prints a SKIP line if the kernel is not one of them.
pub fn engines(test: &str) -> Vec<&'static str> {
    let kernel = if kernel(test) { &["kernel"][..] } else { &[] };
    [&EVERYWHERE, kernel].concat()
}

/// True if C programs can be compiled; otherwise prints a SKIP line.
pub fn clang(test: &str) -> bool {
    Clang::find(test).is_some()
}

/// Head and end of a C program.
pub const C_HEAD: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";
pub const C_END: &str = "char LICENSE[] SEC(\"license\") = \"GPL\";\n";

/// Writes a C program, between its head and end, to `it.bpf.c` in a folder. `None`, with a SKIP line, if no compiler or
/// kernel is available.
pub fn c_program(test: &str, source: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    if !clang(test) || !kernel(test) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "it.bpf.c", format!("{C_HEAD}{source}\n{C_END}"));
    Some((folder, path))
}

/// Returns a tool's stdout; `None`, with a SKIP line, if it is not installed.
pub fn tool(test: &str, tool: &str, arguments: &[&str]) -> Option<String> {
    if Command::new(tool).arg("--version").output().is_err() {
        skip(test, &format!("`{tool}` is not installed"));
        return None;
    }
    let output = Command::new(tool).args(arguments).env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns the captures that `FLOWLOOM_TRACES` names; none, with a SKIP line, if it is not set.
pub fn captures(test: &str) -> Vec<PathBuf> {
    let captures = traces_from_env().unwrap_or_else(|error| panic!("{error}"));
    captures.unwrap_or_else(|| {
        skip(test, "`FLOWLOOM_TRACES` is not set");
        Vec::new()
    })
}

/// Name of a capture without extensions such as `.pcap.xz`.
pub fn stem(capture: &Path) -> String {
    capture.file_name().unwrap().to_string_lossy().split('.').next().unwrap().to_owned()
}

pub fn read(path: &Path) -> Vec<CapturedPacket> {
    let packets = CaptureReader::open(path).unwrap_or_else(|error| panic!("{error}"));
    packets.map(|packet| packet.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// A packet that entered by port 1 and was captured in full.
pub fn packet(time_ns: u64, bytes: Vec<u8>) -> CapturedPacket {
    CapturedPacket { time_ns, original_len_bytes: bytes.len() as u32, bytes, port: 1, ..CapturedPacket::default() }
}

pub fn write(path: &Path, packets: &[CapturedPacket]) {
    let mut writer = CaptureWriter::create(path).unwrap();
    for packet in packets {
        writer.write(packet.time_ns, packet.port, packet.original_len_bytes, None, &packet.bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// Generates packets for a function with `flowloom trace gen`.
pub fn generated(folder: &Path, function: &str, packets: usize, seed: u64) -> PathBuf {
    let path = folder.join(format!("generated-{seed}.pcapng"));
    let (packets, seed) = (packets.to_string(), seed.to_string());
    ok(&["trace", "gen", "--function", function, "--packets", &packets, "--seed", &seed, "-w", name(&path)]);
    path
}
