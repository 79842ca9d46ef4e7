//! What tests share: repeatable randomness, packets, golden files.
//!
//! - [`Rng`] gives random values that depend on a seed alone; `FLOWLOOM_SEED` replaces the seed.
//! - [`PacketBuilder`] makes packets with right lengths and checksums, and on demand with wrong ones;
//!   [`PacketBuilder::random`] draws one.
//! - [`mutate`] breaks a packet in the ways that packets break.
//! - [`instruction_cases`] are the instruction suite that engines for eBPF run.
//! - [`golden`] compares text with a file, and writes the file with `FLOWLOOM_BLESS=1`.
//! - [`Clang`] compiles eBPF from C.
//! - [`skip`] says why a test did not run.
//!
//! ```
//! use flowloom_testkit::{PacketBuilder, Rng, mutate};
//!
//! let mut packet = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1234, 80).payload(b"GET /").build();
//! assert_eq!(packet.len(), 14 + 20 + 20 + 5);
//! mutate(&mut Rng::new(1), &mut packet);
//! ```
#![forbid(unsafe_code)]

mod builder;
mod clang;
mod golden;
mod gtpu;
mod instructions;
mod mutate;
mod random;
mod rng;
pub mod scratch;

pub use builder::{Extension, PacketBuilder};
pub use clang::Clang;
pub use golden::golden;
pub use gtpu::Gtpu;
pub use instructions::{
    Expected, InKernel, InstructionCase, InstructionCode, InstructionMap, instruction_cases, words_of,
};
pub use mutate::mutate;
pub use rng::Rng;

/// Says on stderr that a test does not run, and why. The caller returns.
#[allow(clippy::print_stderr, reason = "tests speak on stderr")]
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
}
