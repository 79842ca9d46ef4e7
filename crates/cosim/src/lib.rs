// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds Verilator models of SystemVerilog modules and drives them cycle by cycle.
//!
//! ```text
//!  Design ─► verilator ─► C++ ─► harness ─► Model (an executable, cached) ─► Simulation (its process) ◄─► cycles
//! ```
//!
//! A [`Design`] names the top module, its files and parameters. [`Model::build`] compiles it together with a harness
//! that is generated from its ports, and caches the executable by the contents of all of it. A [`Simulation`] is a
//! process: it reads the values of all inputs for a number of cycles and answers those of all outputs, sampled before
//! the rising edge. All registers start with random values of a seed, so a missing reset is seen.
//!
//! A design with [`Streams`] transfers words at full rate, or with gaps at the input and back-pressure at the output
//! ([`Stalls`]): valid and ready are handled inside of the process, which gives back what happened in which cycle
//! ([`Simulation::transfer`]). Each [`Access`] of a host is made beside the words while they are on their way.
//!
//! A design with [`Memories`] tells which words of them have changed ([`Simulation::changed_words`]), so that a host need not
//! list a large table by one access a word. Verilator makes these arrays readable; the sources of the design stay as they
//! are.
//!
//! This crate knows clocks, ports and streams, but no function of the modules. It needs Verilator, a C++ compiler and
//! make; without them, [`CosimError::Missing`] says what to install.
#![forbid(unsafe_code)]

mod design;
mod error;
mod harness;
mod model;
mod port;
mod simulation;

pub use design::{Design, Memories, Streams};
pub use error::CosimError;
pub use model::Model;
pub use port::Port;
pub use simulation::{Access, ChangedWords, End, Event, Simulation, Stalls, Transfer, Word};
