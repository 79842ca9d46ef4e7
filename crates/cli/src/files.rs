// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Check of a command's input and output files: no output may overwrite an input or another output.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::is_stream;
use crate::failure::Failure;

/// Maximum number of symbolic links that are followed.
const MAX_LINKS: usize = 40;

/// Input and output files of a command, as typed.
#[derive(Default)]
pub(crate) struct Files<'a> {
    /// Description of each input, as it follows `would overwrite` in the message.
    inputs: Vec<(&'static str, &'a Path)>,
    /// Option that names each output.
    outputs: Vec<(&'static str, &'a Path)>,
}

impl<'a> Files<'a> {
    /// Adds input files; `what` completes the message `would overwrite the ...`.
    pub(crate) fn reads(mut self, what: &'static str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Files<'a> {
        self.inputs.extend(paths.into_iter().map(|path| (what, path.as_path())));
        self
    }

    /// Adds an output file, with the option that names it.
    pub(crate) fn writes(mut self, option: &'static str, path: Option<&'a PathBuf>) -> Files<'a> {
        self.outputs.extend(path.map(|path| (option, path.as_path())));
        self
    }

    /// Rejects an output that is also an input or another output. Opens no file.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let inputs: Vec<_> = self.inputs.iter().map(|(_, path)| Identity::of(path)).collect();
        let outputs: Vec<_> = self.outputs.iter().map(|(_, path)| Identity::of(path)).collect();
        for (number, ((option, path), identity)) in self.outputs.iter().zip(&outputs).enumerate() {
            if *identity == Identity::None {
                continue;
            }
            if let Some(at) = inputs.iter().position(|input| input == identity) {
                let (what, input) = self.inputs[at];
                let called = if input == *path { String::new() } else { format!(" `{}`", input.display()) };
                return Err(Failure::Input(format!(
                    "{option} `{}` would overwrite {what}{called}; write to another file",
                    path.display()
                )));
            }
            if let Some(at) = outputs[..number].iter().position(|output| output == identity) {
                let (other, _) = self.outputs[at];
                return Err(Failure::Input(format!(
                    "{other} and {option} would both write `{}`; name two files",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

/// The files and folders in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e| Failure::file("read", folder, &e);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// Rejects a path that cannot be written. Leaves an existing file unchanged and no new file behind.
pub(crate) fn can_be_written(path: &Path) -> Result<(), Failure> {
    let fails = |e: std::io::Error| Failure::file("written", path, &e);
    if is_stream(path) {
        return Ok(());
    }
    if fs::metadata(path).is_ok() {
        return OpenOptions::new().append(true).open(path).map(drop).map_err(fails);
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path).map_err(fails),
        // A dangling link: writing creates its target.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(fails(error)),
    }
}

/// Identity of a file: equal for two paths to the same file.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode of an existing file.
    File(u64, u64),
    /// A file that does not exist yet: its folder, and its name there.
    New(PathBuf),
    /// A device, a pipe, or a path that cannot be created: nothing can be overwritten.
    None,
}

impl Identity {
    fn of(path: &Path) -> Identity {
        if is_stream(path) {
            return Identity::None;
        }
        if let Ok(found) = fs::metadata(path) {
            return if found.is_file() { Identity::File(found.dev(), found.ino()) } else { Identity::None };
        }
        // For a dangling link, the file is created at its target.
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Ok(target) = fs::read_link(&path) else { break };
            path = path.parent().map_or_else(PathBuf::new, Path::to_owned).join(target);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match (fs::canonicalize(folder), path.file_name()) {
            (Ok(folder), Some(name)) => Identity::New(folder.join(name)),
            _ => Identity::None,
        }
    }
}
