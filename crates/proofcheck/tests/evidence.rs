// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long proofs of this crate: `make evidence` runs and records them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod hostile;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use flowloom_verifier::{Options, Proof, VerifyError};

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
/// accepts runs on the interpreter without a fault, as its proof says.
#[test]
#[ignore = "20 minutes"]
fn evidence_fuzz_verifier() {
    fuzz("evidence_fuzz_verifier", "verifier");
}

/// A program of 4000 instructions is verified in less than this.
const ORDINARY: Duration = Duration::from_secs(1);
/// Whatever a program does, the verifier needs no more than this.
const LONGEST: Duration = Duration::from_secs(20);
const MAX_MIB: u64 = 2048;
/// So often each is verified; the median counts.
const TIMES: usize = 5;

/// A program of 4000 ordinary instructions is verified in less than a second; programs that make much of their paths, rounds,
/// depth and length are verified or refused in bounded time and memory, with a word that says what was too much.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_verifier_bounds() {
    println!("{:48} {:>9} {:>9} {:>7} {:>9} {:>7}  answer", "program", "slots", "looked at", "states", "ms", "MiB");
    let ordinary = hostile::Hostile { name: "4000 ordinary instructions", program: hostile::ordinary() };
    assert_eq!(ordinary.program.insns.len(), 4000);
    for (number, one) in std::iter::once(ordinary).chain(hostile::all()).enumerate() {
        let mut times: Vec<Duration> = Vec::new();
        let before_mib = peak_mib();
        let mut answer = None;
        for _ in 0..TIMES {
            let begun = Instant::now();
            answer = Some(flowloom_verifier::verify(&one.program, &Options::default()));
            times.push(begun.elapsed());
        }
        times.sort();
        let (median, mib) = (times[TIMES / 2], peak_mib().saturating_sub(before_mib));
        let (processed, states, said) = match answer.unwrap() {
            Ok(Proof { processed, states, .. }) => (processed.to_string(), states.to_string(), "safe".to_owned()),
            Err(VerifyError::Refused(refusal)) => ("-".to_owned(), "-".to_owned(), refusal.what.to_string()),
            Err(error) => ("-".to_owned(), "-".to_owned(), error.to_string()),
        };
        println!(
            "{:48} {:>9} {processed:>9} {states:>7} {:>9.1} {mib:>7}  {said}",
            one.name,
            one.program.insns.len(),
            median.as_secs_f64() * 1000.0,
        );
        let limit = if number == 0 { ORDINARY } else { LONGEST };
        assert!(median < limit, "{}: {median:?}, expected less than {limit:?}", one.name);
        assert!(mib < MAX_MIB, "{}: {mib} MiB, expected less than {MAX_MIB}", one.name);
        assert!(said == "safe" || is_too_much(&said), "{}: {said}", one.name);
    }
}

/// Whether a refusal says that there is too much of the program, or no end to it.
fn is_too_much(said: &str) -> bool {
    let words = ["not all paths have ended", "paths are pending", "the loop is endless", "expected 1 to 1000000"];
    words.iter().any(|part| said.contains(part))
}

/// The most memory that the process has had since this was asked last.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    // 5: the peak is forgotten [Linux Documentation/filesystems/proc.rst].
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    kib.unwrap() / 1024
}

/// The same programs, with a limit that ends them sooner: each gets an answer that says what was too much, or a proof.
#[test]
fn hostile_programs_come_to_an_end() {
    for one in hostile::all().into_iter().filter(|one| one.program.insns.len() < 100_000) {
        match flowloom_verifier::verify(&one.program, &Options { limit: 30_000, ..Options::default() }) {
            Ok(proof) => assert!(proof.processed <= 30_000, "{}: {}", one.name, proof.processed),
            Err(VerifyError::Refused(refusal)) => {
                let said = refusal.to_string();
                assert!(is_too_much(&said), "{}: {said}", one.name);
                assert!(refusal.details().contains("help: "), "{}: {}", one.name, refusal.details());
            }
            Err(error) => panic!("{}: {error}", one.name),
        }
    }
}
