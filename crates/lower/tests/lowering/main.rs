// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential test of the lowering: on crafted and random packets, a function behaves the same in the reference
//! machine and as a lowered program in the interpreter, with and without counters, in each verdict and in the state.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod agree;
mod fields;
mod golden;
mod large_sets;
mod limits;
mod locks;
mod sources;
mod tables;
