// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing objects, with clang, the kernel and its tools as oracles.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub(super) mod compiled;
pub(super) mod hostile;
mod loading;
mod maps_and_symbols;
mod old_compilers;
mod random;
mod roundtrip;
pub(super) mod samples;
