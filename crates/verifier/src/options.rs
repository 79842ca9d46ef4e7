// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options: the budget, and whether paths are pruned.

/// Options of the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The budget of walked instructions, over all paths.
    pub limit: u64,
    /// Whether paths are pruned at verified states. Without pruning every path is walked to its exit: this is the
    /// oracle for pruned walks, and too slow for all but small programs. Iterations of callbacks and of `may_goto` are
    /// pruned nevertheless.
    pub prune: bool,
}

impl Default for Options {
    fn default() -> Options {
        // The kernel's budget.
        Options { limit: 1_000_000, prune: true }
    }
}
