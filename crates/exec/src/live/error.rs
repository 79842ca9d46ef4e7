// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of running a function on interfaces, and the modes that they name.

use std::io;

use super::interface::Occupant;

/// The mode of attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before a socket buffer is allocated.
    Native,
    /// On socket buffers, with every driver.
    Skb,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Skb => "skb",
        })
    }
}

/// Errors of running a function on interfaces.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// No interface of that name.
    #[error("no interface `{name}` in this network namespace; `ip link` lists them")]
    NoInterface { name: String },
    /// Another program is attached.
    #[error("{0}")]
    Occupied(Box<Occupant>),
    /// The kernel or the driver refuses the program; the hint follows a semicolon.
    #[error("interface `{name}` refuses the program in mode {mode}: {source}{hint}")]
    Attach { name: String, mode: Mode, source: io::Error, hint: String },
    /// The program of an interface cannot be replaced; the hint follows a semicolon.
    #[error(
        "the program on interface `{name}` cannot be replaced: {source}; if another process has changed it, `bpftool net` \
         names what runs there{hint}"
    )]
    Replace { name: String, source: io::Error, hint: String },
    /// A system call failed.
    #[error("could not {action}: {source}")]
    System { action: String, source: io::Error },
}
