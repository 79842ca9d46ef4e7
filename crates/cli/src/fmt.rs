// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom fmt`: formats sources.

use std::io::Read;
use std::path::{Path, PathBuf};

use flowloom_efsm::format;

use crate::args::FmtArgs;
use crate::failure::Failure;
use crate::files::entries;
use crate::output::{counted, print, print_note};

pub(crate) fn fmt(args: &FmtArgs) -> Result<(), Failure> {
    if args.stdin {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|e| Failure::Input(format!("the standard input cannot be read: {e}")))?;
        let name = Path::new("standard input");
        let (text, formatted) = formatted(name, bytes)?;
        return if args.check { report_unformatted(&changed(name, &text, &formatted)) } else { print(&formatted) };
    }
    let mut files = Vec::new();
    for path in &args.files {
        collect(path, true, &mut files)?;
    }
    let mut wrong = Vec::new();
    let mut first_failure = None;
    for path in &files {
        let bytes = std::fs::read(path).map_err(|e| Failure::file("read", path, &e))?;
        let (text, formatted) = match formatted(path, bytes) {
            Ok(both) => both,
            Err(failure) => {
                // Format the other files nevertheless.
                failure.print();
                first_failure.get_or_insert(failure);
                continue;
            }
        };
        if text == formatted {
            continue;
        }
        if args.check {
            wrong.extend(changed(path, &text, &formatted));
        } else {
            std::fs::write(path, formatted).map_err(|e| Failure::file("written", path, &e))?;
        }
    }
    match first_failure {
        Some(_) if files.len() > 1 => Err(Failure::Input("some files were not rewritten".to_owned())),
        Some(_) => Err(Failure::Input("the file was not rewritten".to_owned())),
        None => report_unformatted(&wrong),
    }
}

/// Returns a file's text and its formatted text.
fn formatted(path: &Path, bytes: Vec<u8>) -> Result<(String, String), Failure> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Input(format!("`{}` is not UTF-8: invalid UTF-8 at byte {at}", path.display()))
    })?;
    let formatted = format(&path.display().to_string(), &text).map_err(|e| Failure::Source(Box::new(e)))?;
    Ok((text, formatted))
}

/// Collects a file, or the sources in a folder and its subfolders.
fn collect(path: &Path, is_named: bool, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        if is_named || path.extension() == Some("efsm".as_ref()) {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    for path in entries(path)?.iter().filter(|path| !path.is_symlink()) {
        collect(path, false, files)?;
    }
    Ok(())
}

/// Message for an unformatted file: its name and the first line that changes.
fn changed(path: &Path, text: &str, formatted: &str) -> Option<String> {
    if text == formatted {
        return None;
    }
    let same = text.split('\n').zip(formatted.split('\n')).take_while(|(a, b)| a == b).count();
    Some(format!("{}:{}: not formatted", path.display(), same + 1))
}

fn report_unformatted<'a>(wrong: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    let wrong: Vec<&str> = wrong.into_iter().map(String::as_str).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    print(&(wrong.join("\n") + "\n"))?;
    print_note(&format!("{} not formatted; run `flowloom fmt` without --check", counted(wrong.len(), "file")));
    Err(Failure::Finding)
}
