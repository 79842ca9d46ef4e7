// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the dataflow of programs with the interpreter.
//!
//! [`agree`] builds the dataflow of a program and runs it against the interpreter; callers pass a function that derives
//! other forms of the dataflow, so that every form runs the same cases.
#![allow(unreachable_pub, missing_docs, clippy::panic, clippy::print_stderr, clippy::unwrap_used)]

pub mod linux;
pub mod mechanisms;
pub mod packets;
pub mod programs;
pub mod random;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowloom_cores::Split;
use flowloom_engine::PORT_COUNT;
use flowloom_engine::{Datapath, Port, Ports};
use flowloom_ir::{Dataflow, Evaluator, Id, Input, Kind, Refusal, build};
use flowloom_isa::Program;
use flowloom_jit::{Jit, JitError};
use flowloom_plan::{PASSES, Target, optimize};
use flowloom_verifier::{Options, Proof, verify};
use flowloom_verify::explore::Case;
use flowloom_verify::{CompareOptions, ShrinkOptions, compare};
use flowloom_vm::{Interpreter, fib};

use crate::common::engines;

/// Sets the way in which machine code runs.
type Mode = fn(Jit) -> Jit;

/// Derives equivalent forms of a dataflow, with their names.
pub type Forms = dyn Fn(Dataflow) -> Vec<(String, Dataflow)>;

/// The dataflow as built, after a round trip through text, and after all passes.
pub fn behind_all_passes(dataflow: Dataflow) -> Vec<(String, Dataflow)> {
    let read: Dataflow = dataflow.to_string().parse().unwrap_or_else(|error| panic!("{}: {error}", dataflow.name));
    let optimized = optimize(&dataflow, &Target::default());
    vec![("as built".to_owned(), dataflow), ("as text".to_owned(), read), ("behind all passes".to_owned(), optimized)]
}

/// The dataflow as built, after a round trip through text, and after every pass.
pub fn after_every_pass(dataflow: Dataflow) -> Vec<(String, Dataflow)> {
    let mut forms = behind_all_passes(dataflow);
    forms.truncate(2);
    let mut dataflow = forms[0].1.clone();
    for (number, pass) in PASSES.iter().enumerate() {
        dataflow = pass.apply(&dataflow, &Target::default());
        forms.push((format!("after pass {number}, {}", pass.name), dataflow.clone()));
    }
    forms
}

pub struct Subject {
    pub program: Program,
    pub cases: Vec<Case>,
    /// Sweep period of both engines.
    pub sweep_ns: Option<u64>,
    /// Routes for `fib_lookup` and `check_mtu`.
    pub routes: Option<fib::Table>,
}

/// Result for a program.
#[derive(Debug, Default, Clone)]
pub struct Agreed {
    pub packets: u64,
    /// Of the first dataflow as built.
    pub nodes: usize,
    pub effects: usize,
    /// Packets of the last form that took the slow path.
    pub slow: u64,
    pub took: Duration,
}

fn proved(program: &Program) -> Proof {
    verify(program, &Options::default()).unwrap_or_else(|error| panic!("{}: {error}", program.name))
}

/// Runs every form of the program's dataflow against the interpreter, on every case.
///
/// # Errors
/// The program has no dataflow.
pub fn agree(subject: &Subject, forms: &Forms) -> Result<Agreed, Box<Refusal>> {
    let mut agreed = Agreed::default();
    // Constants set by a loader make a different program.
    let mut by_constants: BTreeMap<&BTreeMap<String, Vec<u8>>, Vec<&Case>> = BTreeMap::new();
    subject.cases.iter().for_each(|case| by_constants.entry(&case.constants).or_default().push(case));
    for cases in by_constants.values() {
        let program = Arc::new(cases[0].program(&subject.program));
        let started = Instant::now();
        let proof = proved(&program);
        let dataflow = build(&program, &proof)?;
        agreed.took = agreed.took.max(started.elapsed());
        let nodes = dataflow.graph.nodes();
        agreed.nodes = agreed.nodes.max(nodes.len());
        agreed.effects = nodes.iter().filter(|node| matches!(node.kind, Kind::Effect(_))).count();
        for case in cases {
            code_agrees_on(subject, &program, &proof, case);
        }
        cores_agree(subject, &program, &dataflow, cases);
        for (form, dataflow) in forms(dataflow) {
            agreed.slow = 0;
            for case in cases {
                let (packets, slow) = agree_on(subject, &program, (&form, &dataflow), case);
                agreed.packets += packets;
                agreed.slow += slow;
            }
        }
    }
    Ok(agreed)
}

/// Checks that the machine code agrees with the interpreter on a case.
fn code_agrees_on(subject: &Subject, program: &Arc<Program>, proof: &Proof, case: &Case) {
    // In batches, with scouts whatever the sizes of tables, and one by one. The memory of ring buffers outlives a run.
    let modes: [(&str, Mode); 2] = [("in batches", |jit| jit.with_cached_bytes(0)), ("one by one", Jit::one_by_one)];
    for (mode, set) in modes {
        let jit = match Jit::new(Arc::clone(program), proof) {
            Ok(jit) => set(jit),
            Err(refused @ JitError::Probes { .. }) => return eprintln!("{}: no machine code: {refused}", program.name),
            Err(error) => panic!("{}: {error}", program.name),
        };
        let mut jit = match &subject.routes {
            Some(routes) => jit.with_routes(routes.clone()),
            None => jit,
        };
        compared(subject, program, &mut jit, &format!("{} as machine code, {mode}", program.name), case);
    }
}

/// Checks that machine code on two cores agrees with the interpreter, if packets share state that can be split.
fn cores_agree(subject: &Subject, program: &Arc<Program>, dataflow: &Dataflow, cases: &[&Case]) {
    let split = match Split::of_dataflow(dataflow) {
        Ok(split) => split,
        Err(reasons) => return eprintln!("{} runs on one core: {}", program.name, reasons.join("; ")),
    };
    // Functions that draw on routes would need them on each core.
    if subject.routes.is_some() || !split.has_state() {
        return;
    }
    let mut cores = match engines::on_cores(program, split) {
        Ok(cores) => cores,
        Err(error) => return eprintln!("{} is not on two cores: {error}", program.name),
    };
    for case in cases.iter().filter(|case| !case.packets.is_empty()) {
        compared(subject, program, cores.as_mut(), &format!("{} on two cores", program.name), case);
    }
}

/// Checks that an engine agrees with the interpreter on a case; returns the number of packets.
fn compared(subject: &Subject, program: &Arc<Program>, own: &mut dyn Datapath, name: &str, case: &Case) -> u64 {
    let mut interp = Interpreter::new(Arc::clone(program)).unwrap();
    if let Some(routes) = &subject.routes {
        interp = interp.with_routes(routes.clone());
    }
    let ports = Ports::bound((0..PORT_COUNT).map(Port));
    interp.bind_ports(&ports);
    own.bind_ports(&ports);
    let options = CompareOptions {
        seed: case.seed,
        sweep_ns: subject.sweep_ns,
        snapshot_every: usize::MAX,
        state: case.state.clone(),
        is_foreign: true,
        ..CompareOptions::default()
    };
    let report = compare(&mut interp, own, &case.packets, &options);
    let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
    if report.agrees() {
        return report.packets_compared;
    }
    let few = ShrinkOptions { max_packets: 200_000, ..ShrinkOptions::default() };
    let smallest = engines::smallest(&mut interp, own, &case.packets, &options, &few);
    let state = case.state.to_json();
    panic!("{name}:\n{smallest}\nseed {}, constants {:02x?}\nstate at first: {state:.2000}", case.seed, case.constants);
}

/// Checks that both engines agree on a case; returns the number of packets, and of those that took the slow path, which
/// are longer than the window.
fn agree_on(subject: &Subject, program: &Arc<Program>, (form, dataflow): (&str, &Dataflow), case: &Case) -> (u64, u64) {
    let mut own = Evaluator::new(Arc::clone(program), dataflow.clone()).unwrap();
    if let Some(routes) = &subject.routes {
        own = own.with_routes(routes.clone());
    }
    let name = format!("{} {form}", program.name);
    let packets_compared = compared(subject, program, &mut own, &name, case);
    let long = case.packets.iter().filter(|packet| packet.bytes.len() > Target::default().window_bytes as usize).count()
        as u64;
    // A packet whose end is moved may be longer than it came.
    let (graph, tail) = (&dataflow.graph, dataflow.graph.node(dataflow.ending.tail));
    let is_length = |id: &Id| graph.node(*id).kind == Kind::Input(Input::Length);
    let is_cut = tail.kind != Kind::Concat || !tail.args.first().is_some_and(is_length);
    assert!(is_cut || own.slow_packets() <= long, "{name}: {} of {long} long packets are slow", own.slow_packets());
    (packets_compared, own.slow_packets())
}
