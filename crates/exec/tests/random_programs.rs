// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few hundred random programs and mutants of them: interpreter and kernel agree. `evidence_random_programs` is the
//! long form.
#![allow(clippy::panic, clippy::print_stdout, clippy::print_stderr)]
#![allow(dead_code, reason = "the proof adds figures up")]

mod programs;

use flowloom_exec::KernelEngine;
use flowloom_testkit::require;
use programs::{Kind, Tally, is_without_rights, run};

fn seed() -> u64 {
    let given = std::env::var("FLOWLOOM_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or(31)
}

fn agree(tally: &Tally) {
    let disagreements = &tally.disagreements;
    assert!(
        disagreements.is_empty(),
        "{}:\n{}",
        disagreements.len(),
        disagreements[..disagreements.len().min(3)].join("\n")
    );
}

#[test]
fn valid_programs_agree() {
    require!(KernelEngine::available());
    let tally = run(Kind::Valid, seed(), 0..400);
    agree(&tally);
    eprintln!("{}", tally.render());
    assert!(tally.agreed > 300 && tally.verdicts.len() == 5, "{}", tally.render());
}

#[test]
fn mutants_agree() {
    require!(KernelEngine::available());
    if !is_without_rights("mutants_agree") {
        return;
    }
    let tally = run(Kind::Mutants, seed(), 0..400);
    agree(&tally);
    println!("{}", tally.render());
    assert!(tally.agreed > 40 && tally.refused.values().sum::<u64>() > 40, "{}", tally.render());
}
