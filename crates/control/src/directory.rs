// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of control sockets, and the runs that have one.
//!
//! ```text
//!  root            /run/flowloom/control/PID.sock
//!  other users     $XDG_RUNTIME_DIR/flowloom/control/PID.sock
//! ```
//!
//! `FLOWLOOM_RUNTIME_DIR` replaces it. A socket whose process no longer listens is stale: a process that was killed
//! leaves it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::error::ControlError;
use crate::protocol::Greeting;

/// The variable that names another directory.
const VARIABLE: &str = "FLOWLOOM_RUNTIME_DIR";

/// The directory for the control sockets of this user; it may not exist.
///
/// # Errors
/// There is none.
pub fn directory() -> Result<PathBuf, ControlError> {
    Ok(match given() {
        Some(path) => path,
        None => folder()?.join("control"),
    })
}

/// The runtime folder of this user, for what a run leaves besides its socket; it may not exist.
///
/// # Errors
/// There is none.
pub fn folder() -> Result<PathBuf, ControlError> {
    if let Some(path) = given() {
        return Ok(path);
    }
    if user()? == 0 {
        return Ok("/run/flowloom".into());
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(path) => Ok(Path::new(&path).join("flowloom")),
        None => Err(ControlError::NoDirectory {
            reason: format!("neither {VARIABLE} nor XDG_RUNTIME_DIR is set; set one to a directory of your own"),
        }),
    }
}

/// The directory that the user names.
fn given() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The user of this process.
fn user() -> Result<u32, ControlError> {
    let path = Path::new("/proc/self");
    fs::metadata(path).map(|process| process.uid()).map_err(|source| file(path, "inspected", source))
}

pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> ControlError {
    ControlError::File { path: path.to_owned(), action, source }
}

/// Creates the directory if it is missing; an error if other users may enter it.
pub(crate) fn make(path: &Path) -> Result<(), ControlError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| file(path, "created", e))?;
    let (found, expected) = (fs::metadata(path).map_err(|e| file(path, "inspected", e))?, user()?);
    if found.uid() != expected || found.mode() & 0o077 != 0 {
        return Err(ControlError::Shared { path: path.to_owned(), found: found.uid(), expected });
    }
    Ok(())
}

/// A run that listens.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its socket.
    pub path: PathBuf,
    /// What it says of itself.
    pub greeting: Greeting,
}

/// The sockets of a directory.
#[derive(Debug, Default)]
pub struct Runs {
    /// The runs that listen, by process id.
    pub found: Vec<Found>,
    /// Sockets that are stale.
    pub stale: Vec<PathBuf>,
    /// Why others cannot be used: a process that is stopped, another version of the protocol.
    pub odd: Vec<ControlError>,
}

/// The runs that listen, and other sockets.
///
/// # Errors
/// The directory cannot be read; that it is missing is no error.
pub fn runs() -> Result<Runs, ControlError> {
    runs_in(&directory()?)
}

/// As [`runs`], in another directory.
///
/// # Errors
/// Those of [`runs`].
pub fn runs_in(folder: &Path) -> Result<Runs, ControlError> {
    let mut runs = Runs::default();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(runs),
        entries => entries.map_err(|e| file(folder, "read", e))?,
    };
    for entry in entries {
        let path = entry.map_err(|e| file(folder, "read", e))?.path();
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match Client::connect(&path) {
            Ok(client) => runs.found.push(Found { greeting: client.greeting().clone(), path }),
            Err(ControlError::File { source, .. }) if is_stale(&source) => runs.stale.push(path),
            // It ended meanwhile.
            Err(_) if !path.exists() => {}
            Err(error) => runs.odd.push(error),
        }
    }
    runs.found.sort_by_key(|run| run.greeting.pid);
    Ok(runs)
}

/// The run of a process, without a look at others; `None` if it has no socket, or a stale one.
///
/// # Errors
/// Its socket cannot be used.
pub fn run_of(pid: u32) -> Result<Option<Found>, ControlError> {
    let path = directory()?.join(format!("{pid}.sock"));
    match Client::connect(&path) {
        Ok(client) => Ok(Some(Found { greeting: client.greeting().clone(), path })),
        Err(ControlError::File { source, .. }) if is_stale(&source) || source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn is_stale(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused)
}
