//! Plans of functions of the repository, lowered.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;

use common::engines;
use common::shipped::shipped;
use flowloom_bpf::verifier::{Options as Proving, verify};
use flowloom_hw::{Options, check, plan};

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
