// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of a pipeline: a manifest lists the files of a build, so that a later build removes those that it no longer
//! writes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use flowloom_rtl::File;

use crate::failure::Failure;
use crate::files::entries;
use crate::output::{print_note, quoted};

/// The name of the manifest.
const MANIFEST: &str = "manifest.txt";
/// Its first line.
const HEAD: &str =
    "# The files of this folder that Flowloom wrote: a later build removes those that it does not write.";

/// The files, and their manifest.
pub(super) fn with_manifest(mut files: Vec<File>) -> Vec<File> {
    let names: String = files.iter().map(|file| format!("{}\n", file.name)).collect();
    files.push(File { name: MANIFEST.to_owned(), text: format!("{HEAD}\n{names}") });
    files
}

/// Removes the files of an earlier build that are not among these, and names other sources in the folder.
pub(super) fn remove_old(folder: &Path, files: &[File]) -> Result<(), Failure> {
    let is_new = |name: &str| files.iter().any(|file| file.name == name);
    let path = folder.join(MANIFEST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::file("read", &path, &error)),
    };
    let (head, names) = text.split_once('\n').unwrap_or_default();
    // A file of another program's may have this name: it is overwritten no more than followed.
    if !text.is_empty() && head != HEAD {
        return Err(Failure::Input(format!(
            "`{}` is no manifest of Flowloom, expected the first line `{HEAD}`; build into another folder",
            path.display()
        )));
    }
    // Names only: no path leads out of the folder.
    let is_name = |name: &&str| Path::new(name).file_name().is_some_and(|own| own == *name);
    for old in names.lines().filter(is_name).filter(|name| !is_new(name)) {
        let path = folder.join(old);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Failure::file("removed", &path, &error)),
            _ => {}
        }
    }
    let is_source = |path: &&Path| path.extension().is_some_and(|kind| kind == "sv" || kind == "svh" || kind == "v");
    let all = entries(folder)?;
    let names = all.iter().map(|path| path.as_path()).filter(is_source).filter_map(|path| path.file_name()?.to_str());
    let others: Vec<&str> = names.filter(|name| !is_new(name)).collect();
    if !others.is_empty() {
        print_note(&format!(
            "`{}` has other sources, which are not part of the pipeline: {}",
            folder.display(),
            quoted(others)
        ));
    }
    Ok(())
}
