// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fault injection, to show that a comparison detects faults.
//!
//! For tests and evidence only. A [`ModelFault`] changes the function before an engine gets it, like a wrong compiler;
//! an [`AdapterFault`] changes what an engine returns, like a wrong engine.

mod adapter;
mod model;

pub use adapter::{AdapterFault, Faulty};
pub use model::ModelFault;
