//! What a command reads and what it writes: no output may take the place of an input, or of another output.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::is_stream;
use crate::failure::Failure;

/// So many links are followed from a name to a file.
const MOST_LINKS: usize = 40;

/// The files of a command, as they were typed.
#[derive(Default)]
pub(crate) struct Files<'a> {
    /// What each is for, in words that `would overwrite` stands before.
    inputs: Vec<(&'static str, &'a Path)>,
    /// The option that names each.
    outputs: Vec<(&'static str, &'a Path)>,
}

impl<'a> Files<'a> {
    /// Adds files that are read; `what` is for `would overwrite the ...`.
    pub(crate) fn reads(mut self, what: &'static str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Files<'a> {
        self.inputs.extend(paths.into_iter().map(|path| (what, path.as_path())));
        self
    }

    /// Adds a file that is written, with the option that names it.
    pub(crate) fn writes(mut self, option: &'static str, path: Option<&'a PathBuf>) -> Files<'a> {
        self.outputs.extend(path.map(|path| (option, path.as_path())));
        self
    }

    /// Refuses to write to a file that is read or written otherwise. Nothing has been opened yet.
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

/// Refuses a path that cannot be written. An existing file stays as it is, a new one is not left behind.
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
        // A link that leads nowhere: its target is made when it is written.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(fails(error)),
    }
}

/// What makes two names one file.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// A file that exists.
    File(u64, u64),
    /// A file that would be made: its folder, and its name there.
    New(PathBuf),
    /// A device or a pipe, or what cannot be made: nothing is overwritten there.
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
        // A link that leads nowhere: the file is made where it points to.
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
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
