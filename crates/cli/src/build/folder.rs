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

/// Prepares a folder for these files, the manifest last: refuses to overwrite files of others, names all files, old and
/// new, in the manifest, removes those of an earlier build that are not among these, and names other sources.
pub(super) fn prepare(folder: &Path, files: &[File]) -> Result<(), Failure> {
    let is_new = |name: &str| files.iter().any(|file| file.name == name);
    let path = folder.join(MANIFEST);
    let known = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::file("read", &path, &error)),
    };
    let (head, names) = known.as_deref().and_then(|text| text.split_once('\n')).unwrap_or_default();
    // Another program's file may have this name: it is neither overwritten nor taken as a list of files.
    if known.is_some() && head != HEAD {
        return Err(Failure::Input(format!(
            "`{}` is no manifest of Flowloom, expected the first line `{HEAD}`; build into another folder",
            path.display()
        )));
    }
    // Names only: no path leads out of the folder.
    let is_name = |name: &&str| Path::new(name).file_name().is_some_and(|own| own == *name);
    let own: Vec<&str> = names.lines().filter(is_name).collect();
    let new = files.iter().map(|file| file.name.as_str()).filter(|name| *name != MANIFEST);
    let is_there = |name: &&str| !own.contains(name) && folder.join(name).symlink_metadata().is_ok();
    let others: Vec<&str> = new.clone().filter(is_there).collect();
    if !others.is_empty() {
        return Err(Failure::Input(format!(
            "`{}` has files that are not in a manifest of Flowloom (`{MANIFEST}`) and would be overwritten: {}; build \
             into another folder, or move them away",
            folder.display(),
            quoted(others)
        )));
    }
    let old: Vec<&str> = own.iter().copied().filter(|name| !is_new(name)).collect();
    // All names first: if this build is interrupted, the next one knows what it left.
    let all: String = new.chain(old.iter().copied()).map(|name| format!("{name}\n")).collect();
    fs::write(&path, format!("{HEAD}\n{all}")).map_err(|e| Failure::file("written", &path, &e))?;
    let mut removed = Vec::new();
    for old in old {
        let path = folder.join(old);
        match fs::remove_file(&path) {
            Ok(()) => removed.push(old),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::file("removed", &path, &error)),
        }
    }
    if !removed.is_empty() {
        print_note(&format!("removed files of an earlier build, which this one does not write: {}", quoted(removed)));
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
