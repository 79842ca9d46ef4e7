// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends of a command other than success.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use flowloom_engine::EngineError;
use flowloom_session::SessionError;
pub(crate) use flowloom_session::with_causes;

use crate::output::{print_error, print_note, render_diagnostic};

#[derive(Debug)]
pub(crate) enum Failure {
    /// A disagreement, a gap or an unfit target was found. It has been printed.
    Finding,
    /// As [`Failure::Finding`], but not printed yet.
    Found(String),
    /// The function, or a scenario, has errors.
    Source(Box<dyn miette::Diagnostic>),
    /// Usage error, or unreadable or invalid input.
    Input(String),
    /// The environment lacks something.
    Environment(String),
    /// A signal interrupted the work. Results up to then have been written.
    Interrupted,
}

/// Exit code after a signal, as shells report SIGINT.
pub(crate) const INTERRUPTED: i32 = 128 + 2;

impl Failure {
    /// Failure for invalid input, with all causes of the error.
    pub(crate) fn input(error: &dyn Error) -> Failure {
        Failure::Input(with_causes(error))
    }

    /// Failure for a file that cannot be read or written.
    pub(crate) fn file(action: &str, path: &Path, error: &std::io::Error) -> Failure {
        Failure::Input(format!("`{}` cannot be {action}: {error}", path.display()))
    }

    /// Prints the failure on stderr.
    pub(crate) fn print(&self) {
        match self {
            Failure::Finding => {}
            Failure::Source(diagnostics) => print_error(&render_diagnostic(diagnostics.as_ref())),
            Failure::Interrupted => print_note("interrupted: the rest of the input was not read"),
            Failure::Found(message) | Failure::Input(message) | Failure::Environment(message) => print_note(message),
        }
    }

    /// The message; empty for one that was printed before.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::Finding => String::new(),
            Failure::Source(diagnostics) => diagnostics.to_string(),
            Failure::Interrupted => "interrupted".to_owned(),
            Failure::Found(message) | Failure::Input(message) | Failure::Environment(message) => message.clone(),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Finding | Failure::Found(_) => 1,
            Failure::Source(_) | Failure::Input(_) => 2,
            Failure::Environment(_) => 3,
            Failure::Interrupted => INTERRUPTED as u8,
        })
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        Failure::input(&error)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        match error {
            SessionError::Source(diagnostics) => Failure::Source(diagnostics),
            SessionError::Input(message) => Failure::Input(message),
            SessionError::Refused(message) => Failure::Found(message),
            error @ SessionError::OneCore(_) => Failure::Found(error.to_string()),
            SessionError::Environment(message) => Failure::Environment(message),
        }
    }
}
