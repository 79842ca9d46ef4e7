// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verified programs as machine code.
//!
//! ```text
//!  Program, Proof ──► functions ──Cranelift──► code ──► r0 ──► verdict, outputs
//!                                               └─► runtime: helpers of `vm`, lookups, tail calls, callbacks
//!                                                    └─► memory with addresses of the machine, flow tables
//! ```
//!
//! Addresses in registers are addresses of the machine, except for maps, which only helpers see. Nothing is checked
//! that the proof has: a program without a proof is not compiled. Helpers, maps and outcomes are those of the
//! interpreter, on other memory, so that both give the same results.

#![allow(unsafe_code, reason = "machine code runs on raw memory; each block has its reason")]

mod arithmetic;
mod batch;
mod capture;
mod compiled;
mod engine;
mod evict;
mod feed;
mod frame;
mod function;
mod if_conversion;
mod iterations;
mod key;
mod lookups;
mod packets;
mod pages;
mod pipeline;
mod prefetch;
mod resume;
mod runtime;
mod scout;
mod search;
mod seconds;
mod space;
mod state;
mod tables;

pub use engine::{Jit, JitError};
pub use flowloom_flowtable::prefetch;
pub use lookups::{Lookup, Obstacle, ObstacleKind};
