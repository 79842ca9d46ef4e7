//! Plans of functions of the repository, lowered.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;
mod dataflow_corpus;

use std::sync::Arc;

use common::engines;
use common::shipped::shipped;
use dataflow_corpus::programs::case;
use dataflow_corpus::{mechanisms, packets};
use flowloom_engine::{Datapath, PORT_COUNT, Port, Ports};
use flowloom_hw::{Options, check, plan};
use flowloom_ir::Evaluator;
use flowloom_testkit::Rng;
use flowloom_verifier::{Options as Proving, verify};
use flowloom_verify::{CompareOptions, compare};
use flowloom_vm::Interpreter;

/// Functions that follow headers of various lengths, and the most stages that their pipelines may have.
const STAGES: [(&str, u32); 2] = [("big_flow", 12), ("udp_firewall", 12)];

#[test]
fn functions_that_follow_headers_are_shallow() {
    for (name, most) in STAGES {
        let function = shipped().into_iter().find(|function| function.name == name).unwrap();
        let program = engines::program(&function.variants[0].function);
        let proof = verify(&program, &Proving::default()).unwrap_or_else(|error| panic!("{error}"));
        let plan = plan(&program, &proof, &Options::default()).unwrap_or_else(|refusal| panic!("{refusal}"));
        eprintln!("{name}: {} stages, {} cycles", plan.schedule.stages, plan.latency_cycles());
        assert_eq!(check(&plan), [], "{name}");
        assert!(plan.schedule.stages <= most, "{name}: {} stages, expected at most {most}", plan.schedule.stages);
        // Packets of which the window does not show enough are told apart.
        assert_eq!(plan.dataflow.graph.as_const(plan.dataflow.ending.slow), None);
    }
}

/// Each packet finds the entries that the program's own order gives, although all reads come before all writes.
#[test]
fn entries_of_other_keys_are_found_before_an_own_change() {
    let name = "another_entry_is_changed_before";
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
