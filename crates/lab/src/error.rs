// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the test bed.

use std::io;

use flowloom_exec::{ExecError, LiveError};
use flowloom_ports::PortsError;

/// An error of this crate.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A privilege is missing.
    #[error("could not {action}: {source}; the test bed needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root")]
    Privilege { action: &'static str, source: io::Error },
    /// A tool is missing.
    #[error("`{tool}` cannot be started: {source}; `apt-get install {package}`")]
    Tool { tool: &'static str, package: &'static str, source: io::Error },
    /// A tool has failed.
    #[error("`{command}` failed: {output}")]
    Command { command: String, output: String },
    /// A system call failed.
    #[error("could not {action}: {source}")]
    System { action: &'static str, source: io::Error },
    /// A C program cannot be compiled or loaded.
    #[error("hand-written C, `{name}`: {what}")]
    Native { name: String, what: String },
    /// An engine cannot be made, or fails.
    #[error("{0}")]
    Engine(String),
    /// Packets are missing, although no more were on the way than the queues hold.
    #[error("{sent} packets were sent, {refused} of them not taken by the first interface, and {arrived} arrived")]
    Lost { sent: u64, arrived: u64, refused: u64 },
    /// Nothing arrives, although packets are sent.
    #[error("{name}: no packet of {sent} arrived after the function")]
    Nothing { name: String, sent: u64 },
    /// A signal ended the measurement.
    #[error("interrupted")]
    Interrupted,
    /// A device or the packet loop has failed.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The kernel refuses the function.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

impl LabError {
    /// True if the environment lacks something: a privilege, a tool, a feature. The command exits with code 3.
    pub fn is_environment(&self) -> bool {
        match self {
            LabError::Privilege { .. } | LabError::Tool { .. } | LabError::Command { .. } | LabError::System { .. } => {
                true
            }
            LabError::Ports(error) => error.is_environment(),
            LabError::Exec(error) => matches!(error, ExecError::Unavailable(_) | ExecError::Live(_)),
            LabError::Native { .. }
            | LabError::Engine(_)
            | LabError::Lost { .. }
            | LabError::Nothing { .. }
            | LabError::Interrupted => false,
        }
    }

    pub(crate) fn of_call(action: &'static str, source: io::Error) -> LabError {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LabError::Privilege { action, source },
            _ => LabError::System { action, source },
        }
    }
}

impl From<LiveError> for LabError {
    fn from(error: LiveError) -> LabError {
        LabError::Exec(error.into())
    }
}
