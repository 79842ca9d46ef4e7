// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles programs in C and assembles programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flowloom_isa::{ProgramKind, asm};
use flowloom_object::MapShape;

use crate::error::{SessionError, with_causes};
use crate::load::kernel_types;
use crate::times::parse_time;

/// The compilers to try, in order; the variable `CLANG` overrides them.
const COMPILERS: [&str; 4] = ["clang", "clang-14", "clang-16", "clang-19"];

const C_SOURCE: &str = ".bpf.c";
const ASSEMBLER: &str = ".bpf";

/// True if the file is a program in C or assembler.
pub fn is_program(path: &Path) -> bool {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.ends_with(C_SOURCE) || name.ends_with(ASSEMBLER)
}

/// The programs of a file, and the types of their maps' keys and values.
#[derive(Debug)]
pub struct Compiled {
    pub object: flowloom_object::Object,
    pub shapes: BTreeMap<String, MapShape>,
}

/// Reads an object, compiles a `.bpf.c` with `params` as macros, or assembles a `.bpf`, which is XDP. `kind` overrides
/// the kind of all programs.
///
/// # Errors
/// [`SessionError::Environment`] if there is no compiler or a required header; otherwise an error in the file.
pub fn compiled(
    path: &Path,
    bytes: &[u8],
    params: &[(String, String)],
    kind: Option<ProgramKind>,
) -> Result<Compiled, SessionError> {
    let name = path.display().to_string();
    if name.ends_with(C_SOURCE) {
        return object(&name, &clang(path, params)?, kind);
    }
    if let Some((param, _)) = params.first() {
        return Err(SessionError::Input(format!("--param {param} sets a parameter of a source, `{name}` has none")));
    }
    if name.ends_with(ASSEMBLER) {
        let text = String::from_utf8_lossy(bytes);
        let program = asm::program(&name, &text)
            .map_err(|errors| SessionError::Input(format!("`{name}` cannot be assembled:\n{errors}")))?;
        let object = flowloom_object::Object { name, programs: vec![program], ..flowloom_object::Object::default() };
        return Ok(Compiled { object, shapes: BTreeMap::new() });
    }
    object(&name, bytes, kind)
}

fn object(name: &str, bytes: &[u8], kind: Option<ProgramKind>) -> Result<Compiled, SessionError> {
    let object = flowloom_object::read_as(bytes, name, &kernel_types, kind).map_err(|e| SessionError::input(&e))?;
    let shapes = flowloom_object::map_shapes(bytes, name).map_err(|e| SessionError::input(&e))?;
    Ok(Compiled { object, shapes })
}

fn clang(path: &Path, params: &[(String, String)]) -> Result<Vec<u8>, SessionError> {
    let defines: Vec<String> = params.iter().map(|(name, value)| format!("-D{name}={}", macro_value(value))).collect();
    let from_env = std::env::var("CLANG").ok();
    let candidates: Vec<&str> = from_env.as_deref().map_or(COMPILERS.to_vec(), |one| vec![one]);
    for command in candidates {
        let mut clang = Command::new(command);
        clang.args(["-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3"]);
        // Debian keeps architecture headers in a directory that clang does not search for this target.
        clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        let out = match clang.args(&defines).arg("-c").arg(path).args(["-o", "-"]).output() {
            Ok(out) => out,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(SessionError::Environment(format!(
                    "`{command}` cannot be started: {}",
                    with_causes(&error)
                )));
            }
        };
        if out.status.success() {
            return Ok(out.stdout);
        }
        let output = String::from_utf8_lossy(&out.stderr);
        let output = output.trim_end();
        if output.lines().any(misses_system_header) {
            let what = "missing headers of libbpf or Linux: `apt-get install libbpf-dev`";
            return Err(SessionError::Environment(format!(
                "`{}` cannot be compiled: {what}\n{output}",
                path.display()
            )));
        }
        return Err(SessionError::Input(format!("`{}` cannot be compiled by {command}:\n{output}", path.display())));
    }
    let candidates_text = from_env.unwrap_or_else(|| COMPILERS.join(", "));
    Err(SessionError::Environment(format!(
        "`{}` needs a C compiler (tried {candidates_text}): `apt-get install clang`",
        path.display()
    )))
}

/// Header directories that packages install: those of libbpf and of Linux.
const INSTALLED: [&str; 3] = ["bpf/", "linux/", "asm/"];

/// True if this line of clang reports a missing installed header. Other headers are the user's own.
fn misses_system_header(line: &str) -> bool {
    let name = line.split_once("fatal error: '").and_then(|(_, rest)| rest.split_once("' file not found"));
    name.is_some_and(|(name, _)| INSTALLED.iter().any(|folder| name.starts_with(folder)))
}

/// Formats a value for C: times in nanoseconds, addresses as integers.
fn macro_value(value: &str) -> String {
    if let Ok(time) = parse_time(value) {
        return format!("{}ULL", time.as_nanos());
    }
    match value.parse::<std::net::Ipv4Addr>() {
        Ok(address) => format!("{:#x}", address.to_bits()),
        Err(_) => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_system_headers_are_suggested_for_installation() {
        let line = |name: &str| format!("a.bpf.c:2:10: fatal error: '{name}' file not found");
        for name in ["bpf/bpf_helpers.h", "linux/bpf.h", "asm/types.h"] {
            assert!(misses_system_header(&line(name)), "{name}");
        }
        for name in ["mine.h", "../linux/mine.h", "my/bpf/helpers.h"] {
            assert!(!misses_system_header(&line(name)), "{name}");
        }
        assert!(!misses_system_header("#include <linux/bpf.h> // file not found"));
    }
}
