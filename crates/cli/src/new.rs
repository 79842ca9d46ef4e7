// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom new`: creates the folder of a new function.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flowloom_efsm::{Drawing, compile};

use crate::args::{NewArgs, Template};
use crate::failure::Failure;
use crate::output::print;

/// Placeholder for the function's name in template files.
const NAME: &str = "NAME";

/// Source, scenarios and README of a template.
fn files(template: Template) -> [&'static str; 3] {
    match template {
        Template::Flow => [
            include_str!("../templates/flow/function.efsm"),
            include_str!("../templates/flow/function.scenario"),
            include_str!("../templates/flow/README.md"),
        ],
        Template::Gate => [
            include_str!("../templates/gate/function.efsm"),
            include_str!("../templates/gate/function.scenario"),
            include_str!("../templates/gate/README.md"),
        ],
        Template::Table => [
            include_str!("../templates/table/function.efsm"),
            include_str!("../templates/table/function.scenario"),
            include_str!("../templates/table/README.md"),
        ],
    }
}

pub(crate) fn new(args: &NewArgs) -> Result<(), Failure> {
    let folder = &args.folder;
    let name = folder.file_name().and_then(OsStr::to_str).filter(|name| is_name(name)).ok_or_else(|| {
        Failure::Input(format!(
            "`{}` does not end in a valid function name: letters, digits and `_`, not starting with a digit",
            folder.display()
        ))
    })?;
    let [source, scenario, readme] = files(args.template).map(|text| text.replace(NAME, name));
    // Compiling rejects a keyword as the name.
    let (function, _) = compile(name, &source, &[]).map_err(|diagnostics| Failure::Source(Box::new(diagnostics)))?;
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(|e| Failure::file("created", parent, &e))?;
    }
    fs::create_dir(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::Input(format!("`{}` already exists; nothing was written", folder.display()))
        }
        _ => Failure::file("created", folder, &error),
    })?;
    let svg = Drawing::new(&function).svg().map_err(|error| Failure::Input(error.to_string()))?;
    let mut written = String::new();
    for (file, text) in [
        (format!("{name}.efsm"), &source),
        (format!("{name}.scenario"), &scenario),
        (format!("{name}.svg"), &svg),
        ("README.md".to_owned(), &readme),
    ] {
        let path = folder.join(file);
        write(&path, text)?;
        written.push_str(&format!("{}\n", path.display()));
    }
    print(&format!("{written}next: flowloom test {}\n", folder.display()))
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_letter) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Writes a new file; fails if it exists.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| Failure::file("written", path, &e))
}
