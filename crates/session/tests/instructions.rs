// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instruction suite on every engine that runs programs on plain memory.

#[path = "../../vm/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_isa::Program;
use flowloom_session::engines::EngineName;
use flowloom_testkit::{Expected, KernelBehaviour, instruction_cases};

/// True if the program has no backward jump.
fn is_loop_free(program: &Program) -> bool {
    let code = flowloom_isa::decoded(program).unwrap_or_default();
    code.iter().flatten().all(|op| op.distance().is_none_or(|distance| distance >= 0))
}

#[test]
fn the_dataflow_matches_the_instruction_suite() {
    matches_the_suite("dataflow", is_loop_free);
}

/// Machine code runs all that the verifier proves: loops too, but no reads of uninitialised registers.
#[test]
fn machine_code_matches_the_instruction_suite() {
    matches_the_suite("jit", |_| true);
}

fn matches_the_suite(engine: &str, runs: fn(&Program) -> bool) {
    let run = EngineName::by_name(engine).and_then(|engine| engine.kind().plugin).unwrap();
    let (mut equal, mut wrong) = (0, Vec::new());
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for case in instruction_cases() {
        let Expected::Ends { r0, .. } = case.expected else { continue };
        let program = common::program(&case);
        match run(Arc::new(program.clone()), &case.memory) {
            Ok(found) if found == r0 => equal += 1,
            Err(reason) if !runs(&program) || case.kernel != KernelBehaviour::Same => {
                *refused.entry(reason).or_default() += 1;
            }
            found => wrong.push(format!("{} `{}`: found {found:x?}, expected {r0:x}", case.place, case.name)),
        }
    }
    refused.iter().for_each(|(reason, cases)| eprintln!("{cases} refused: {reason}"));
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), wrong.len() + equal, wrong.join("\n"));
    let without: usize = refused.values().sum();
    eprintln!("{equal} cases are equal, {without} refused");
    assert!(equal > 600, "{equal} cases are equal");
}
