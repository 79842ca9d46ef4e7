// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of tables.

/// Why a table cannot be made.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// More entries than a word of the index can number.
    #[error("table of {entries} entries, expected at most {most}")]
    Entries { entries: u32, most: u32 },
    /// A key that is empty or too long.
    #[error("key of {bytes} bytes, expected 1 to {most}")]
    Key { bytes: u32, most: u32 },
    /// The address space has no room.
    #[error("memory of a table ({bytes} bytes) cannot be mapped: {source}")]
    Memory { bytes: u64, source: std::io::Error },
}
