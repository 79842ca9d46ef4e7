// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engines that are compared with the reference machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_context::ContextLayout;
use flowloom_cores::{CoreEngine, Cores, CoresOptions, Split};
use flowloom_efsm::model::Function;
use flowloom_engine::Datapath;
use flowloom_exec::KernelEngine;
use flowloom_isa::Program;
use flowloom_jit::Jit;
use flowloom_lower::{HeaderParser, LowerOptions, lower};
use flowloom_verifier::Proof;
use flowloom_verify::{Arrival, CompareOptions, ShrinkOptions, shrink, sweep_period};
use flowloom_vm::Interpreter;

pub fn program(function: &Function) -> Program {
    lower(function, &LowerOptions { counters: false, ..LowerOptions::default() })
        .unwrap_or_else(|e| panic!("{} does not lower: {e}", function.name))
}

/// The program that pipelines are made of.
pub fn pipeline_program(function: &Function) -> Program {
    lower(function, &LowerOptions { parser: HeaderParser::Target, ..LowerOptions::default() })
        .unwrap_or_else(|e| panic!("{} does not lower: {e}", function.name))
}

pub fn layouts(program: &Program) -> BTreeMap<String, ContextLayout> {
    program.maps.iter().filter_map(|m| Some((m.name.clone(), m.layout.clone()?))).collect()
}

pub fn options(function: &Arc<Function>, program: &Program) -> CompareOptions {
    CompareOptions { sweep_ns: sweep_period(function), layouts: layouts(program), ..CompareOptions::default() }
}

/// An engine, or the reason why there is none.
pub type Engine = Result<Box<dyn Datapath>, String>;

/// The proof of a program, which several engines share, or the reason why there is none.
type Proved = Result<Proof, String>;

fn proved(program: &Program) -> Proved {
    flowloom_verifier::verify(program, &flowloom_verifier::Options::default()).map_err(|e| e.to_string())
}

/// The engines other than the reference machine, by name; an error for an engine that does not take the program.
pub fn targets(program: &Program, with_kernel: bool) -> Vec<(&'static str, Engine)> {
    single(program, &proved(program), with_kernel)
}

/// [`targets`], and machine code on two cores; where a function runs on one, the reasons go to stderr.
pub fn all(function: &Function, program: &Program, with_kernel: bool) -> Vec<(&'static str, Engine)> {
    let proof = proved(program);
    let mut all = single(program, &proof, with_kernel);
    match Split::of_function(function) {
        Ok(split) => all.push((CORES, on_cores_with(program, &proof, split))),
        Err(reasons) => eprintln!("{} runs on one core: {}", function.name, reasons.join("; ")),
    }
    all
}

/// The name of machine code on two cores.
pub const CORES: &str = "jit on 2 cores";

/// The engines on one core.
fn single(program: &Program, proof: &Proved, with_kernel: bool) -> Vec<(&'static str, Engine)> {
    let interpreter = Interpreter::new(Arc::new(program.clone()))
        .map(|interp| flowloom_proofcheck::checked(interp).with_strict_stack());
    let mut targets: Vec<(&'static str, Engine)> =
        vec![("interp", interpreter.map(|i| Box::new(i) as Box<dyn Datapath>).map_err(|e| e.to_string()))];
    let boxed = |jit: Jit| -> Box<dyn Datapath> { Box::new(jit) };
    targets.push(("jit", compiled(program, proof).map(|jit| boxed(jit.with_cached_bytes(0)))));
    targets.push(("jit one by one", compiled(program, proof).map(|jit| boxed(jit.one_by_one()))));
    if with_kernel {
        let kernel = KernelEngine::load(program);
        targets.push(("kernel", kernel.map(|k| Box::new(k) as Box<dyn Datapath>).map_err(|e| e.to_string())));
    }
    targets
}

/// Machine code on two cores, which run even single packets on threads of their own.
pub fn on_cores(program: &Program, split: Split) -> Engine {
    on_cores_with(program, &proved(program), split)
}

fn on_cores_with(program: &Program, proof: &Proved, split: Split) -> Engine {
    let jit =
        || -> Result<Box<dyn CoreEngine>, String> { Ok(Box::new(compiled(program, proof)?.with_cached_bytes(0))) };
    let options = CoresOptions { parallel_from: 2, is_paced: false, ..CoresOptions::default() };
    Ok(Box::new(Cores::new(vec![jit()?, jit()?], split, options).map_err(|e| e.to_string())?))
}

/// The machine code of a program.
fn compiled(program: &Program, proof: &Proved) -> Result<Jit, String> {
    Jit::new(Arc::new(program.clone()), proof.as_ref().map_err(String::clone)?).map_err(|e| e.to_string())
}

/// The interpreter on the program whose headers the parser of the target finds: [`PARSER`].
pub fn parser(function: &Function) -> Engine {
    let options = LowerOptions { parser: HeaderParser::Target, ..LowerOptions::default() };
    let program = lower(function, &options).map_err(|error| error.to_string())?;
    let interpreter =
        Interpreter::new(Arc::new(program)).map(|interp| flowloom_proofcheck::checked(interp).with_strict_stack());
    interpreter.map(|i| Box::new(i) as Box<dyn Datapath>).map_err(|e| e.to_string())
}

/// The name of the engine of [`parser`].
pub const PARSER: &str = "parser";

/// The smallest part of a trace on which two engines still differ, and the difference.
pub fn smallest(
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    packets: &[Arrival],
    options: &CompareOptions,
    limits: &ShrinkOptions,
) -> String {
    match shrink(reference, target, packets, options, limits, &mut |_| ()) {
        Ok(Some(shrunk)) => {
            let line = |p: &Arrival| format!("{} ns, port {}: {:02x?}\n", p.time_ns, p.port, p.bytes);
            let packets: String = shrunk.packets.iter().map(line).collect();
            format!("{packets}{}", shrunk.report.disagreement.map_or(String::new(), |d| d.to_string()))
        }
        Ok(None) => "not seen again".to_owned(),
        Err(error) => format!("not shrunk: {error}"),
    }
}
