// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test support: seeded randomness, packets, golden files.
//!
//! - [`Rng`] draws random values that depend only on a seed; `FLOWLOOM_SEED` overrides the seed.
//! - [`PacketBuilder`] builds packets with valid lengths and checksums, or with wrong ones on request;
//!   [`PacketBuilder::random`] draws one.
//! - [`mutate`] corrupts a packet.
//! - [`instruction_cases`] is the instruction suite that all eBPF engines run.
//! - [`golden`] compares text with a file, or writes the file if `FLOWLOOM_BLESS=1`.
//! - [`markdown`] wraps generated pages.
//! - [`sources`] finds the sources of functions; [`is_selected`] leaves out those that `FLOWLOOM_FUNCTION` does not
//!   name.
//! - [`Clang`] compiles eBPF from C; [`cargo`] builds and runs other packages and features, for which [`dpdk_version`]
//!   tells whether DPDK is installed.
//! - [`require!`] and [`skip`] report why a test did not run.
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
mod cargo;
mod clang;
mod golden;
mod gtpu;
mod instructions;
pub mod markdown;
mod mutate;
mod random;
mod rng;
pub mod scratch;
mod sources;

pub use builder::{Extension, PacketBuilder};
pub use cargo::{cargo, cargo_output, dpdk_version};
pub use clang::Clang;
pub use golden::golden;
pub use gtpu::Gtpu;
pub use instructions::{
    Expected, InstructionCase, InstructionCode, InstructionMap, KernelBehaviour, instruction_cases, message_fragment,
};
pub use mutate::mutate;
pub use rng::Rng;
pub use sources::{is_selected, selects, sources};

/// The value of a result, or skips the test with the error as the reason.
///
/// ```
/// # fn has_sysfs() {
/// flowloom_testkit::require!(std::fs::read("/sys/devices/system/cpu/possible"));
/// # }
/// ```
#[macro_export]
macro_rules! require {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => {
                let here = std::any::type_name_of_val(&|| ()).trim_end_matches("::{{closure}}");
                return $crate::skip(here.rsplit("::").next().unwrap_or(here), &reason.to_string());
            }
        }
    };
}

/// Prints on stderr that a test is skipped, and why. The caller returns.
#[allow(clippy::print_stderr, reason = "tests speak on stderr")]
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
}
