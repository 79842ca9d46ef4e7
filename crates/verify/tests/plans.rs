// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of lowered functions of the repository.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common;
use crate::dataflow_corpus;

use std::sync::Arc;

use common::engines;
use common::shipped::shipped;
use dataflow_corpus::programs::{case, classical};
use dataflow_corpus::{mechanisms, packets};
use flowloom_engine::{Datapath, PORT_COUNT, Port, Ports};
use flowloom_ir::Evaluator;
use flowloom_isa::Program;
use flowloom_plan::{Liveness, MapPlan, Options, Scheme, check, plan};
use flowloom_testkit::{Clang, Rng, golden};
use flowloom_verifier::{Options as Proving, verify};
use flowloom_verify::{CompareOptions, compare};
use flowloom_vm::Interpreter;

/// A line of the golden table: the figures of a plan, or the code of the refusal.
fn row(name: &str, program: &Program) -> String {
    let proof = verify(program, &Proving::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let plan = match plan(program, &proof, &Options::default()) {
        Ok(plan) => plan,
        Err(refusal) => return format!("{name:36} no plan: {}\n", refusal.reason.code()),
    };
    assert_eq!(check(&plan), [], "{name}");
    let scheme = |map: &MapPlan| match map.scheme {
        Scheme::None | Scheme::Atomic => format!("{} {}", map.name, map.scheme.as_str()),
        Scheme::Schedule => format!("{} schedule hold {} queues {}", map.name, map.hold_cycles, map.queues),
        Scheme::Flush => format!("{} flush hold {}", map.name, map.hold_cycles),
    };
    let schemes: Vec<String> = plan.maps.iter().map(scheme).collect();
    format!(
        "{name:36} {:>6} {:>6} {:>9} {:>6}  {}\n",
        plan.schedule.stages,
        plan.latency_cycles(),
        Liveness::of(&plan).register_bits(),
        plan.operations().iter().sum::<usize>(),
        schemes.join(", ")
    )
}

/// The golden table of plans: one line for each function and program, so that a regression is a diff of one line.
/// `FLOWLOOM_BLESS=1` accepts the new figures. The checker finds no fault in any of the plans.
#[test]
fn plans_have_their_figures() {
    let Some(clang) = Clang::find("plans_have_their_figures") else { return };
    let mut grid = format!("{:36} {:>6} {:>6} {:>9} {:>6}  maps\n", "program", "stages", "cycles", "bits", "nodes");
    for function in shipped() {
        grid.push_str(&row(
            &format!("{}.efsm", function.name),
            &engines::pipeline_program(&function.variants[0].function),
        ));
    }
    for program in classical(&clang, "-mcpu=v3").iter().chain(&mechanisms::programs()) {
        grid.push_str(&row(&program.name, program));
    }
    golden("tests/golden/plans.txt", &grid);
}

/// Compares a program with its plan, executed in the order of its stages.
fn agrees_in_stage_order(name: &str) {
    let program = Arc::new(mechanisms::programs().into_iter().find(|program| program.name == name).unwrap());
    let proof = verify(&program, &Proving::default()).unwrap_or_else(|error| panic!("{error}"));
    let plan = plan(&program, &proof, &Options::default()).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(check(&plan), []);
    let mut rng = Rng::from_env(7);
    let case = case(packets::small_numbers(&mut rng, 2000), &mut rng);
    let mut interp = Interpreter::new(Arc::clone(&program)).unwrap();
    let mut own = Evaluator::in_order(Arc::clone(&program), plan.dataflow.clone(), plan.order()).unwrap();
    let ports = Ports::bound((0..PORT_COUNT).map(Port));
    interp.bind_ports(&ports);
    own.bind_ports(&ports);
    let options = CompareOptions { seed: case.seed, state: case.state, is_foreign: true, ..CompareOptions::default() };
    let report = compare(&mut interp, &mut own, &case.packets, &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.agrees(), "{report:?}");
    assert!(report.packets_compared >= 2000, "{report:?}");
}

/// Each packet reads the entries as in program order, although all reads precede all writes.
#[test]
fn entries_of_other_keys_are_found_before_an_own_change() {
    agrees_in_stage_order("another_entry_is_changed_before");
}

/// The result of an insertion accounts for the packet's own deletion, although neither has committed.
#[test]
fn an_insertion_finds_the_room_of_an_own_deletion() {
    agrees_in_stage_order("an_entry_is_deleted_before_another_is_added");
}
