//! The dataflow of programs does what the interpreter does.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;
mod dataflow_corpus;

use flowloom_testkit::{Clang, Rng};

use common::shipped::shipped;
use dataflow_corpus::programs::{classical, explored, lowered};
use dataflow_corpus::{Subject, agree, as_built};

/// Cases that an exploration tries.
const TRIES: u64 = 20_000;
/// Percent of a program's slots that they are to reach.
const ENOUGH: usize = 80;
/// Packets of each kind for a lowered function.
const PACKETS: usize = 400;

#[test]
fn classical_programs_are_their_dataflow() {
    let Some(clang) = Clang::find("classical_programs_are_their_dataflow") else { return };
    let programs = classical(&clang);
    assert!(programs.len() >= 14, "{}", programs.len());
    let seed = Rng::from_env(1);
    for program in programs {
        let (cases, percent) = explored(&program, &mut seed.clone(), TRIES, ENOUGH);
        let subject = Subject { program, cases, sweep_ns: None, routes: None };
        let agreed = agree(&subject, &as_built).unwrap_or_else(|refusal| panic!("{refusal}"));
        let (program, nodes) = (&subject.program, agreed.nodes);
        eprintln!("{}: {percent}% of {} slots, {nodes} nodes", program.name, program.insns.len());
        assert!(percent >= ENOUGH, "{}: too little was reached", program.name);
    }
}

#[test]
fn lowered_functions_are_their_dataflow() {
    let seed = Rng::from_env(1);
    let functions = shipped();
    assert!(functions.len() > 20, "{}", functions.len());
    for function in functions {
        for variant in &function.variants {
            let subject = lowered(variant, &mut seed.clone(), PACKETS);
            let agreed = match agree(&subject, &as_built) {
                Ok(a) => a,
                Err(refusal) => {
                    eprintln!("REFUSED {refusal}");
                    continue;
                }
            };
            let (slots, nodes, took) = (subject.program.insns.len(), agreed.nodes, agreed.took);
            eprintln!("{} ({}): {slots} slots, {nodes} nodes, {took:.1?}", function.name, variant.params);
        }
    }
}

#[test]
#[ignore]
fn dump_classical() {
    let clang = Clang::find("x").unwrap();
    let name = std::env::var("FN").unwrap();
    for program in classical(&clang).into_iter().filter(|p| p.name == name) {
        eprintln!("{}", flowloom_bpf::disasm::disassemble(&program.insns, &program.maps).unwrap());
    }
}

#[test]
#[ignore]
fn dump_nodes() {
    let clang = Clang::find("x").unwrap();
    let name = std::env::var("FN").unwrap();
    let at: usize = std::env::var("AT").unwrap().parse().unwrap();
    for program in classical(&clang).into_iter().filter(|p| p.name == name) {
        let d = dataflow_corpus::built(&std::sync::Arc::new(program)).unwrap();
        for (i, n) in d.graph.nodes().iter().enumerate() {
            if matches!(n.kind, flowloom_ir::Kind::Effect(_)) {
                let insn = d.graph.insn(flowloom_ir::Id::from_index(i));
                if insn + 20 > at && insn < at + 20 {
                    eprintln!("{i}: insn {insn} {:?} {:?}", n.kind, n.args);
                }
            }
        }
    }
}
