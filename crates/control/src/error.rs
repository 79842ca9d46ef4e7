// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of control.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The answer of a run that does not do what was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", content = "message", rename_all = "snake_case")]
pub enum Refusal {
    /// The request is invalid, or names something that does not exist.
    #[error("{0}")]
    Input(String),
    /// A finding: an entry that is missing, a program that is refused.
    #[error("{0}")]
    Finding(String),
    /// The environment lacks something, or the run is about to end.
    #[error("{0}")]
    Environment(String),
}

/// An error of control.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No directory for sockets.
    #[error("no directory for control sockets: {reason}")]
    NoDirectory { reason: String },
    /// Others may enter the directory.
    #[error(
        "`{}` belongs to user {found}, expected {expected}, or others may enter it: remove it, or set its mode to 0700",
        path.display()
    )]
    Shared { path: PathBuf, found: u32, expected: u32 },
    /// A file or socket.
    #[error("`{}` could not be {action}: {source}", path.display())]
    File { path: PathBuf, action: &'static str, source: io::Error },
    /// An address for metrics.
    #[error("metrics cannot be served at {address}: {reason}")]
    Metrics { address: String, reason: String },
    /// The peer does not speak this protocol.
    #[error("`{}` gave an unexpected answer, expected {expected}: {found}", path.display())]
    Protocol { path: PathBuf, expected: &'static str, found: String },
    /// The run refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl ControlError {
    /// True if the environment is the cause.
    pub fn is_environment(&self) -> bool {
        !matches!(self, ControlError::Refused(Refusal::Input(_) | Refusal::Finding(_)))
    }
}
