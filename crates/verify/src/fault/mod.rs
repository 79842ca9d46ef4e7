//! Faults on purpose: to show that a comparison would have seen them.
//!
//! For tests and evidence only. A [`ModelFault`] changes the function before an engine gets it, as a wrong compiler would;
//! an [`AdapterFault`] sits between an engine and the comparison, as a wrong engine would.

mod adapter;
mod model;

pub use adapter::{AdapterFault, Faulty};
pub use model::ModelFault;
