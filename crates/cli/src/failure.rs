//! How the command ends when it does not end well.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use flowloom_session::SessionError;
pub(crate) use flowloom_session::with_causes;

use crate::output::{complain, remark, render_diagnostic};

/// Why the command stops.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was looked for was found: a disagreement, a gap, an unfit target. It has been printed.
    Finding,
    /// The same, and this is yet to be printed.
    Found(String),
    /// The function, or a scenario, has errors.
    Source(Box<dyn miette::Diagnostic>),
    /// Wrong use, unreadable or wrong input.
    Input(String),
    /// The environment lacks something.
    Environment(String),
    /// A signal ended the work before its end; what was done until then is written.
    Interrupted,
}

/// The exit code after a signal, as shells give it for SIGINT.
pub(crate) const INTERRUPTED: i32 = 128 + 2;

impl Failure {
    /// A failure of an input, with all its causes.
    pub(crate) fn input(error: &dyn Error) -> Failure {
        Failure::Input(with_causes(error))
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(action: &str, path: &Path, error: &std::io::Error) -> Failure {
        Failure::Input(format!("`{}` cannot be {action}: {error}", path.display()))
    }

    /// Prints it on stderr.
    pub(crate) fn print(&self) {
        match self {
            Failure::Finding => {}
            Failure::Source(diagnostics) => complain(&render_diagnostic(diagnostics.as_ref())),
            Failure::Interrupted => remark("interrupted: the rest of the input was not read"),
            Failure::Found(message) | Failure::Input(message) | Failure::Environment(message) => remark(message),
        }
    }

    /// The code the command exits with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Finding | Failure::Found(_) => 1,
            Failure::Source(_) | Failure::Input(_) => 2,
            Failure::Environment(_) => 3,
            Failure::Interrupted => INTERRUPTED as u8,
        })
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        match error {
            SessionError::Source(diagnostics) => Failure::Source(diagnostics),
            SessionError::Input(message) => Failure::Input(message),
            SessionError::Refused(message) => Failure::Found(message),
            SessionError::Environment(message) => Failure::Environment(message),
        }
    }
}
