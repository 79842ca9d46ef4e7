// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of builds and simulations.

use std::path::PathBuf;

/// A model that could not be built, or a simulation that ended early.
#[derive(Debug, thiserror::Error)]
pub enum CosimError {
    /// A tool is not installed.
    #[error(
        "`{tool}` cannot be started: {source}; co-simulation needs Verilator 5, a C++ compiler and make \
             (Debian: verilator, g++, make)"
    )]
    Missing {
        /// The command.
        tool: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// Verilator or the C++ compiler rejected the design.
    #[error("`{tool}` failed for `{top}`:\n{output}")]
    Build {
        /// The command.
        tool: &'static str,
        /// The top module.
        top: String,
        /// Its messages.
        output: String,
    },
    /// A file or folder could not be read or written.
    #[error("`{}`: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The module has no such port.
    #[error("`{top}` has no {direction} `{name}`; it has {known}")]
    Port {
        /// The top module.
        top: String,
        /// `input` or `output`.
        direction: &'static str,
        /// The name.
        name: String,
        /// The ports of this direction.
        known: String,
    },
    /// The design does not do what it waits for.
    #[error("`{top}` is stuck: {what}")]
    Stuck {
        /// The top module.
        top: String,
        /// What does not happen.
        what: String,
    },
    /// Waveforms of a model that was built without them.
    #[error("`{top}` was built without waveforms; build it with `Design::with_waves`")]
    NoWaves {
        /// The top module.
        top: String,
    },
    /// Memories of a model that was built without them.
    #[error("`{top}` was built without memories; build it with `Design::with_memories`")]
    NoMemories {
        /// The top module.
        top: String,
    },
    /// The values of a whole number of cycles were expected.
    #[error("inputs are {found} bytes, a cycle of `{top}` takes {expected}")]
    Length {
        /// The top module.
        top: String,
        /// Bytes found.
        found: usize,
        /// Bytes of a cycle.
        expected: usize,
    },
    /// The process of the simulation ended.
    #[error("the simulation of `{top}` ended: {source}{output}")]
    Ended {
        /// The top module.
        top: String,
        /// The reason.
        source: std::io::Error,
        /// What it printed last, such as a failed assertion.
        output: String,
    },
}

impl CosimError {
    /// True if a tool is not installed: the environment lacks something, the design is not at fault.
    pub fn is_missing_tool(&self) -> bool {
        matches!(self, CosimError::Missing { .. })
    }
}
