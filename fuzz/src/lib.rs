// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz targets. A test of `crates/proofcheck` runs them on the corpora without a fuzzer.
#![forbid(unsafe_code)]

mod interpreter;
mod loader;
mod verifier;

pub use interpreter::interpreter;
pub use loader::loader;
pub use verifier::verifier;
