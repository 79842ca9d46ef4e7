// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rendered cores, simulated by Verilator, against the interpreter and the evaluator of dataflow.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../../vm/tests/common/mod.rs"]
mod case;

mod blocks;
mod common;
mod evidence;
mod faults;
mod graphs;
mod instructions;
mod programs;
mod refusals;
mod shell;
mod sources;
mod stream;
mod text;
