//! What the fuzz targets do with their bytes. A test of `crates/proofcheck` does the same with the corpora, without a fuzzer.
#![forbid(unsafe_code)]

mod interpreter;
mod loader;
mod verifier;

pub use interpreter::interpreter;
pub use loader::loader;
pub use verifier::verifier;
