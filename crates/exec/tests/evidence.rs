// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long tests of this crate: `make evidence` runs and records them.
#![allow(clippy::panic, clippy::print_stdout)]

mod programs;

use flowloom_exec::KernelEngine;
use programs::{Kind, Tally, is_without_rights};

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// 100,000 random valid programs (arithmetic, jumps, loops, stack, packet, maps, atomics, functions, helpers) and
/// 100,000 mutants of such: where interpreter and kernel both run one, they agree on verdict, port, bytes, maps and
/// every number that the program holds at its end; the interpreter accepts what the verifier accepts, except for listed
/// cases; no panic.
#[test]
#[ignore = "half an hour"]
fn evidence_random_programs() {
    let test = "evidence_random_programs";
    flowloom_testkit::require!(KernelEngine::available());
    let (seed, count) = (from_env("FLOWLOOM_SEED", 4), from_env("FLOWLOOM_COUNT", 100_000));
    // Valid programs leak nothing; mutants may, so they run without the privilege to leak.
    let kind = if std::env::var_os("FLOWLOOM_WITHOUT_PERFMON").is_some() { Kind::Mutants } else { Kind::Valid };
    // The programs are independent: two threads run one half each.
    let halves = [0..count / 2, count / 2..count];
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let running = halves.map(|half| scope.spawn(move || programs::run(kind, seed, half)));
        for thread in running {
            tally.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    println!("{kind:?}, seed {seed}: {}", tally.render());
    let disagreements = &tally.disagreements;
    println!("{} disagreements\n", disagreements.len());
    for disagreement in disagreements {
        println!("{}", disagreement.lines().next().unwrap_or_default());
    }
    assert!(disagreements.is_empty(), "{}", disagreements[..disagreements.len().min(5)].join("\n"));
    if kind == Kind::Valid {
        assert!(tally.agreed * 4 >= tally.programs * 3, "fewer than three in four ran on both");
        is_without_rights(test);
    }
}
