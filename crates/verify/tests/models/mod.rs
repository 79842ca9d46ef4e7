// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs shipped functions on every engine against models of their purpose, which do not use states and rows.
#![allow(unreachable_pub, missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

pub mod bucket;
pub mod nat;

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::Datapath;

use crate::common::{engines, random};

/// The reference machine, the interpreter and, where available, the kernel.
pub fn engines(function: &Arc<Function>, test: &str) -> Vec<Box<dyn Datapath>> {
    let targets = engines::targets(&engines::program(function), random::is_kernel_there(test)).into_iter();
    let targets = targets.map(|(name, engine)| engine.unwrap_or_else(|error| panic!("{name}: {error}")));
    std::iter::once(Box::new(Machine::new(Arc::clone(function))) as Box<dyn Datapath>).chain(targets).collect()
}
