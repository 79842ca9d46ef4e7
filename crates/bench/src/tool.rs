// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tools that make the peers when the benchmark runs: compilers, and the libraries that they make.
#![allow(unsafe_code, reason = "libraries in C")]

use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

use crate::error::BenchError;

/// The compilers for eBPF to try, in order; the variable `CLANG` overrides them.
const CLANGS: [&str; 4] = ["clang", "clang-14", "clang-16", "clang-19"];

/// Runs a tool and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, BenchError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|source| BenchError::Missing { tool: tool.clone(), source })?;
    if !done.status.success() {
        let what = format!("`{tool}`: {}", String::from_utf8_lossy(&done.stderr).trim());
        return Err(BenchError::Peer { what });
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Compiles C for this processor with the libraries of these packages, and loads it. The code must have no initialisers
/// besides those of the packages.
pub(crate) fn library(
    folder: &Path,
    name: &str,
    source: &str,
    options: &[&str],
    packages: &[&str],
) -> Result<Library, BenchError> {
    let (path, target) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    write(&path, source)?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&target).args(options).arg(&path);
    if !packages.is_empty() {
        let flags = output(Command::new("pkg-config").args(["--cflags", "--libs"]).args(packages))?;
        compiler.args(flags.split_whitespace());
    }
    output(&mut compiler)?;
    // SAFETY: the caller's code has no initialisers, and those of the packages may run at any time.
    unsafe { Library::new(&target) }.map_err(|error| BenchError::Peer { what: error.to_string() })
}

/// Compiles C to an eBPF object; returns its path.
pub(crate) fn object(folder: &Path, source: &Path, name: &str, options: &[&str]) -> Result<PathBuf, BenchError> {
    let target = folder.join(format!("{name}.o"));
    let from_env = std::env::var("CLANG").ok();
    let candidates = from_env.as_deref().map_or(CLANGS.to_vec(), |one| vec![one]);
    let mut missing = None;
    for clang in candidates {
        let mut command = Command::new(clang);
        command.args(["-O2", "-g", "-target", "bpf"]).args(options);
        command.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        match output(command.arg("-c").arg(source).arg("-o").arg(&target)) {
            Ok(_) => return Ok(target),
            Err(error @ BenchError::Missing { .. }) => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(missing.unwrap_or_else(|| BenchError::Peer { what: "no compiler for eBPF".to_owned() }))
}

/// Writes a file, and its folder.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    let file = |source| BenchError::File { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(file)?;
    }
    std::fs::write(path, text).map_err(file)
}
