// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons why the kernel cannot be used as an engine.

/// The capabilities needed to load XDP, with their numbers in the kernel's `capability.h`.
pub(super) const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// Reasons why the kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Missing privileges.
    #[error("loading XDP programs needs root or the capabilities {}; missing: {}", needed(), missing.join(", "))]
    NotPermitted {
        /// The missing capabilities.
        missing: Vec<&'static str>,
    },
    /// The process has the capabilities, but the kernel refuses.
    #[error("the kernel denies bpf(2) to this process despite its capabilities (lockdown, a sandbox or seccomp)")]
    Denied,
    /// The kernel has no bpf(2), or no XDP.
    #[error("this kernel was built without XDP (it needs CONFIG_BPF_SYSCALL and CONFIG_NET)")]
    NotBuilt,
    /// Another error.
    #[error("a test program could not be run: {0}")]
    Other(String),
}

fn needed() -> String {
    NEEDED.map(|(name, _)| name).join(", ")
}
