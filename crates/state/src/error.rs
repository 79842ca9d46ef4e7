// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters that no table can have, and insertions that a table refuses.

/// A parameter out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{parameter}` is {found}, a table takes {expected}")]
pub struct ParameterError {
    /// The parameter's name.
    pub parameter: &'static str,
    /// Its value.
    pub found: u64,
    /// The values that are accepted.
    pub expected: String,
}

/// The reason why an insertion had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many entries are stored as the table has by declaration.
    #[error("the table is full")]
    Full,
    /// The stash is full or all free slots rest. The insertion succeeds after some steps: hardware makes it wait.
    #[error("the stash is full or all free slots rest")]
    Busy,
}
