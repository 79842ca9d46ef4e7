// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of a session.

use std::error::Error;
use std::path::Path;

use flowloom_efsm::diagnostic::Diagnostics;

/// Why a function cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The source has errors.
    #[error(transparent)]
    Source(Box<Diagnostics>),
    /// Unreadable or invalid input.
    #[error("{0}")]
    Input(String),
    /// An engine refuses the function.
    #[error("{0}")]
    Refused(String),
    /// Several cores cannot run the function: all reasons.
    #[error("one core runs it: {}", .0.join("; "))]
    OneCore(Vec<String>),
    /// The environment lacks something.
    #[error("{0}")]
    Environment(String),
}

impl SessionError {
    /// An error of an input, with all its causes.
    pub fn input(error: &dyn Error) -> SessionError {
        SessionError::Input(with_causes(error))
    }

    /// A file that cannot be read.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> SessionError {
        SessionError::Input(format!("`{}` cannot be read: {error}", path.display()))
    }
}

/// The error and its causes in one line, without causes that the error already names.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = inner.source();
    }
    text
}
