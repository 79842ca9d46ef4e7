// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of all programs and functions of the repository; prints their figures. Run with `cargo test -p flowloom-verify
//! --release --test all evidence_plans:: -- --ignored --nocapture`.
//!
//! `FLOWLOOM_PROGRAM` selects programs by a part of their name, and prints the time of each pass.
#![allow(clippy::panic, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use crate::common;
use crate::dataflow_corpus;

use std::time::{Duration, Instant};

use common::engines;
use common::shipped::shipped;
use dataflow_corpus::programs::classical;
use flowloom_ir::build;
use flowloom_isa::Program;
use flowloom_plan::{Options, PASSES, Plan, Refusal, Scheme, Target, check, plan};
use flowloom_testkit::Clang;
use flowloom_verifier::{Options as Proving, Proof, verify};

/// Expected upper bound of planning time; the time decides nothing.
const SLOW: Duration = Duration::from_secs(2);
/// Number of times that a plan is made; the median counts.
const TIMES: usize = 3;
/// Minimum number of functions that have a plan.
const ENOUGH: usize = 14;

/// Every classical program, as clang compiles it for the oldest and for a newer instruction set, and every function of
/// the repository has a plan in which the checker finds no fault, or is refused with its line, the reason and a
/// workaround. Prints stages, cycles, the scheme of each map, and the seconds that the dataflow, all passes and the
/// plan take together, the median of three. The seconds decide nothing; programs that take two or more are listed.
#[test]
#[ignore = "a minute"]
fn evidence_plans() {
    let Some(clang) = Clang::find("evidence_plans") else { return };
    let only = std::env::var("FLOWLOOM_PROGRAM").unwrap_or_default();
    println!(
        "{:34} {:>6} {:>6} {:>6} {:>7} {:>7}  schemes",
        "program", "slots", "nodes", "stages", "cycles", "seconds"
    );
    let mut planned = 0;
    let mut slow = Vec::new();
    let programs = [("v2", "-mcpu=v2"), ("v3", "-mcpu=v3")].map(|(name, cpu)| {
        let programs = classical(&clang, cpu).into_iter();
        programs.map(move |program| (format!("{} ({name})", program.name), program)).collect::<Vec<_>>()
    });
    for (name, program) in programs.into_iter().flatten().filter(|(name, _)| name.contains(&only)) {
        let (plan, took) = made(&program, !only.is_empty());
        let plan = plan.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        row(&name, &program, &plan, took);
        slow.extend((took >= SLOW).then_some(name));
    }
    for function in shipped().into_iter().filter(|function| function.name.contains(&only)) {
        let program = engines::program(&function.variants[0].function);
        let (plan, took) = made(&program, !only.is_empty());
        match plan {
            Ok(plan) => {
                planned += 1;
                row(&function.name, &program, &plan, took);
            }
            Err(refusal) => println!("{:34} {:>6} {refusal}", function.name, program.insns.len()),
        }
        slow.extend((took >= SLOW).then(|| function.name.clone()));
    }
    assert!(!only.is_empty() || planned >= ENOUGH, "{planned} functions have a plan");
    match slow.as_slice() {
        [] => println!("all planned in less than {SLOW:?}"),
        slow => println!("planned in {SLOW:?} or more: {}", slow.join(", ")),
    }
}

/// The plan of a program, and the time that it took.
fn made(program: &Program, shows_passes: bool) -> (Result<Plan, Box<Refusal>>, Duration) {
    let proof = verify(program, &Proving::default()).unwrap_or_else(|error| panic!("{}: {error}", program.name));
    if shows_passes {
        show_passes(program, &proof);
    }
    let mut runs: Vec<_> = (0..TIMES)
        .map(|_| {
            let started = Instant::now();
            let plan = plan(program, &proof, &Options::default());
            (started.elapsed(), plan)
        })
        .collect();
    runs.sort_by_key(|(took, _)| *took);
    let (took, plan) = runs.swap_remove(TIMES / 2);
    (plan, took)
}

fn row(name: &str, program: &Program, plan: &Plan, took: Duration) {
    assert_eq!(check(plan), [], "{name}");
    let count = |scheme: Scheme| plan.maps.iter().filter(|map| map.scheme == scheme).count();
    let schemes = Scheme::ALL.map(|scheme| (count(scheme), scheme)).into_iter().filter(|(count, _)| *count > 0);
    let schemes: Vec<String> = schemes.map(|(count, scheme)| format!("{count} {}", scheme.as_str())).collect();
    println!(
        "{name:34} {:>6} {:>6} {:>6} {:>7} {:>7.2}  {}",
        program.insns.len(),
        plan.dataflow.graph.nodes().len(),
        plan.schedule.stages,
        plan.latency_cycles(),
        took.as_secs_f64(),
        schemes.join(", ")
    );
}

fn show_passes(program: &Program, proof: &Proof) {
    let started = Instant::now();
    let mut dataflow = build(program, proof).unwrap_or_else(|refusal| panic!("{refusal}"));
    let show = |name: &str, nodes: usize, took: Duration| println!("  {name:20} {nodes:>6} nodes {took:.2?}");
    show("build", dataflow.graph.nodes().len(), started.elapsed());
    for pass in PASSES {
        let started = Instant::now();
        dataflow = pass.apply(&dataflow, &Target::default());
        show(pass.name, dataflow.graph.nodes().len(), started.elapsed());
    }
}
