// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long test of steps, which prints its figures; `FLOWLOOM_SEED` and `FLOWLOOM_COUNT` set seed and size.
#![allow(clippy::panic, clippy::print_stdout)]

use crate::common;

use common::random::{self, Reach};

/// Of 4000 random functions those whose rows push, pop, encapsulate and decapsulate, with packets generated for them:
/// reference machine, interpreter and kernel agree on every packet and on the final state, each step taken at least
/// 1000 times.
#[test]
#[ignore = "minutes"]
fn evidence_steps() {
    let seed = random::seed(50_000);
    let count = random::count(4000);
    let kernel = random::is_kernel_there("evidence_steps");
    let tally = random::run_some(Reach::Common, random::changes_frame, seed, 0..count, 120, kernel);
    println!("{} functions of seed {seed}, {} packets", tally.functions, tally.counts.packets);
    for (engine, compared) in &tally.compared {
        let of = |counts: &std::collections::BTreeMap<String, u64>| counts.get(engine).copied().unwrap_or(0);
        let (refused, too_large) = (of(&tally.refused), of(&tally.too_large));
        println!("{engine}: {compared} packets compared, {refused} refused; {too_large} functions too large for it");
    }
    let steps = ["push", "pop", "encap", "decap"].map(flowloom_verify::Hit::Step);
    print!("{}", tally.hits.render(&steps));
    assert!(tally.disagreements.is_empty(), "{}", tally.disagreements.join("\n"));
    if count >= 4000 {
        let missed: Vec<_> = steps.into_iter().filter(|&step| tally.hits.get(step) < 1000).collect();
        assert!(missed.is_empty(), "below 1000: {missed:?}");
    }
}
