// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several cores: which state is split, and by what packets are spread ([`Split`]); the engine ([`Cores`]).
//!
//! ```text
//!  batch ──► hash of the function's own key ──► core 0: its own engine and state ──┐
//!            (each core spreads a part)         core 1: its own engine and state ──┴─► results by packet, state merged
//! ```
//!
//! The results are those of one core: packets that share state go to one core in their order, and values that packets
//! only add to are kept by core and summed when they are read. A function for which that does not hold runs on one
//! core, and [`Split`] says why. So does any function from the moment on when a table that is split may be full: full
//! is a property of the whole table. Where threads would take longer, one runs the packets of all cores ([`Pace`]).
#![deny(unsafe_code)]

mod capture;
mod core_engine;
#[allow(unsafe_code, reason = "tasks borrow from the caller's stack")]
mod crew;
mod engine;
mod function;
mod hash;
mod merge;
mod object;
mod pace;
mod range;
mod slice;
mod split;
mod spread;
mod tables;
mod usual;

pub use core_engine::CoreEngine;
pub use crew::{Crew, Times, processor_time};
pub use engine::{Cores, CoresOptions, Counters};
pub use hash::core_of;
pub use pace::Pace;
pub use split::Split;
