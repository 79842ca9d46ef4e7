// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output file of `--state-out`.
//!
//! The file is opened before the first packet, so that an unwritable path ends the run at once. The state is written to
//! a temporary file in the same folder and renamed at the end, so an earlier state survives a failure.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flowloom_efsm::layout;
use flowloom_engine::Snapshot;

use crate::failure::Failure;
use flowloom_session::Loaded;

const BUFFER_BYTES: usize = 1 << 16;

pub(crate) struct StateFile {
    /// Path as typed.
    path: PathBuf,
    /// Target of symbolic links, and the temporary file that replaces it; `None` if the path is not a regular file.
    replaced: Option<(PathBuf, PathBuf)>,
    file: File,
    is_done: bool,
}

impl StateFile {
    /// Creates the temporary file beside `path`.
    ///
    /// # Errors
    /// The path cannot be written.
    pub(crate) fn create(path: &Path) -> Result<StateFile, Failure> {
        let fails = |e: std::io::Error| Failure::file("written", path, &e);
        let found = fs::metadata(path);
        if found.as_ref().is_ok_and(|found| !found.is_file()) {
            let file = OpenOptions::new().write(true).open(path).map_err(fails)?;
            return Ok(StateFile { path: path.to_owned(), replaced: None, file, is_done: false });
        }
        // A read-only file must not be replaced either.
        if found.is_ok() {
            OpenOptions::new().append(true).open(path).map_err(fails)?;
        }
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = target.file_name().ok_or_else(|| fails(std::io::ErrorKind::IsADirectory.into()))?;
        let hidden = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        let temporary = target.with_file_name(hidden);
        let file = File::create(&temporary).map_err(fails)?;
        if let Ok(found) = found {
            file.set_permissions(found.permissions()).map_err(fails)?;
        }
        Ok(StateFile { path: path.to_owned(), replaced: Some((target, temporary)), file, is_done: false })
    }

    /// Writes the state, without the counter maps of our functions. All maps of an object are state, whatever their
    /// names.
    ///
    /// # Errors
    /// The file cannot be written; an earlier state stays.
    pub(crate) fn write(&mut self, loaded: &Loaded, snapshot: &Snapshot) -> Result<(), Failure> {
        let is_state = |name: &str| loaded.function().is_none() || !layout::is_instrument(name);
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, &self.file);
        let written = snapshot.write_json(&mut out, is_state).and_then(|()| out.write_all(b"\n"));
        let written = written.and_then(|()| out.flush()).and_then(|()| match &self.replaced {
            Some((target, temporary)) => fs::rename(temporary, target),
            None => Ok(()),
        });
        written.map_err(|e| Failure::file("written", &self.path, &e))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if let (false, Some((_, temporary))) = (self.is_done, &self.replaced) {
            // Ignore an error: the failure of the run is being reported.
            _ = fs::remove_file(temporary);
        }
    }
}
