//! The long proofs of this crate: `make evidence` runs and records them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::Path;
use std::process::Command;

/// Fuzzes a target for `FLOWLOOM_FUZZ_SECONDS`, 20 minutes unless set.
fn fuzz(test: &str, target: &str) {
    let seconds = std::env::var("FLOWLOOM_FUZZ_SECONDS").unwrap_or_else(|_| "1200".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fuzz");
    let output = Command::new(script).args([target, &seconds]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(3) => return flowloom_testkit::skip(test, said.trim()),
        code => panic!("exit {code:?}\n{}{said}", String::from_utf8_lossy(&output.stdout)),
    }
    println!("{seconds} seconds with coverage and AddressSanitizer, no finding");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        println!("{}", line.trim());
    }
}

/// The loader, fuzzed for 20 minutes from the committed corpus: no panic, no overflow, no access outside, none that takes longer
/// than ten seconds or two gigabytes; what it writes it reads back.
#[test]
#[ignore = "20 minutes"]
fn evidence_fuzz_loader() {
    fuzz("evidence_fuzz_loader", "loader");
}

/// Program check, interpreter, assembler and disassembler, fuzzed for 20 minutes from the committed corpus: no panic, no
/// overflow, no access outside, none that takes longer than ten seconds; state goes out and in again.
#[test]
#[ignore = "20 minutes"]
fn evidence_fuzz_interpreter() {
    fuzz("evidence_fuzz_interpreter", "interpreter");
}

/// The verifier, fuzzed for 20 minutes from the committed corpus: no panic, none that takes longer than ten seconds; what it
/// takes runs on the interpreter without a fault, and does nothing but what was foretold.
#[test]
#[ignore = "20 minutes"]
fn evidence_fuzz_verifier() {
    fuzz("evidence_fuzz_verifier", "verifier");
}
