// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs shipped functions on every engine against models of their purpose, which do not use states and rows.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

pub mod bucket;
pub mod nat;

use std::path::Path;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_efsm::{Machine, compile};
use flowloom_engine::Datapath;
use flowloom_exec::KernelEngine;
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::skip;
use flowloom_vm::Interpreter;

/// A function of the folder `functions`, with parameter values.
pub fn function(name: &str, params: &[(&str, String)]) -> Arc<Function> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../functions/{name}/{name}.efsm"));
    let params: Vec<_> = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    match compile(&path.to_string_lossy(), &std::fs::read_to_string(&path).unwrap(), &params) {
        Ok((function, _)) => Arc::new(function),
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

/// The reference machine, the interpreter and, where available, the kernel.
pub fn engines(function: &Arc<Function>, test: &str) -> Vec<Box<dyn Datapath>> {
    let program = lower(function, &LowerOptions::default()).unwrap();
    let mut engines: Vec<Box<dyn Datapath>> = vec![
        Box::new(Machine::new(Arc::clone(function))),
        Box::new(Interpreter::new(Arc::new(program.clone())).unwrap()),
    ];
    match KernelEngine::available() {
        Ok(()) => engines.push(Box::new(KernelEngine::load(&program).unwrap())),
        Err(reason) => skip(test, &format!("the kernel cannot be asked: {reason}")),
    }
    engines
}
