//! Programs in C and in our assembler, to objects and programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flowloom_isa::{ProgramKind, asm};
use flowloom_object::MapShape;

use crate::error::{SessionError, with_causes};
use crate::load::kernel_types;
use crate::times::parse_time;

/// The compilers that are tried, in this order; the variable `CLANG` names another one.
const COMPILERS: [&str; 4] = ["clang", "clang-14", "clang-16", "clang-19"];

/// How the name of a program in C ends.
const C_SOURCE: &str = ".bpf.c";
/// How the name of a program in assembler ends.
const ASSEMBLER: &str = ".bpf";

/// Whether the file is a program in C or assembler.
pub fn is_program(path: &Path) -> bool {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.ends_with(C_SOURCE) || name.ends_with(ASSEMBLER)
}

/// The programs of a file, and what keys and values of their maps are made of.
#[derive(Debug)]
pub struct Compiled {
    pub object: flowloom_object::Object,
    pub shapes: BTreeMap<String, MapShape>,
}

/// Reads an object, compiles a `.bpf.c` with `params` as its macros, or assembles a `.bpf`, which is XDP. With `kind`, all
/// programs are of that kind.
///
/// # Errors
/// [`SessionError::Environment`] where there is no compiler; otherwise what is wrong with the file.
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

/// The object that clang makes of a source.
fn clang(path: &Path, params: &[(String, String)]) -> Result<Vec<u8>, SessionError> {
    let defines: Vec<String> = params.iter().map(|(name, value)| format!("-D{name}={}", macro_value(value))).collect();
    let named = std::env::var("CLANG").ok();
    let candidates: Vec<&str> = named.as_deref().map_or(COMPILERS.to_vec(), |one| vec![one]);
    for command in candidates {
        let mut clang = Command::new(command);
        clang.args(["-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3"]);
        // Debian keeps the headers of the architecture apart; clang does not look there for this target.
        clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        let out = match clang.args(&defines).arg("-c").arg(path).args(["-o", "-"]).output() {
            Ok(out) => out,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(SessionError::Environment(format!("`{command}` does not start: {}", with_causes(&error))));
            }
        };
        if out.status.success() {
            return Ok(out.stdout);
        }
        let said = String::from_utf8_lossy(&out.stderr);
        let said = said.trim_end();
        if said.lines().any(lacks_header) {
            let what = "it needs the headers of libbpf and of Linux: `apt-get install libbpf-dev`";
            return Err(SessionError::Environment(format!("`{}` cannot be compiled: {what}\n{said}", path.display())));
        }
        return Err(SessionError::Input(format!("`{}` cannot be compiled by {command}:\n{said}", path.display())));
    }
    let tried = named.unwrap_or_else(|| COMPILERS.join(", "));
    Err(SessionError::Environment(format!(
        "`{}` is C, and there is no compiler for it (tried {tried}): `apt-get install clang`",
        path.display()
    )))
}

/// Folders of headers that packages install: those of libbpf and of Linux.
const INSTALLED: [&str; 3] = ["bpf/", "linux/", "asm/"];

/// Whether clang says in this line that an installed header is missing. Others are the user's own.
fn lacks_header(line: &str) -> bool {
    let name = line.split_once("fatal error: '").and_then(|(_, rest)| rest.split_once("' file not found"));
    name.is_some_and(|(name, _)| INSTALLED.iter().any(|folder| name.starts_with(folder)))
}

/// A value as C reads it: times are nanoseconds, addresses numbers.
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
    fn only_installed_headers_can_be_installed() {
        let line = |name: &str| format!("a.bpf.c:2:10: fatal error: '{name}' file not found");
        for name in ["bpf/bpf_helpers.h", "linux/bpf.h", "asm/types.h"] {
            assert!(lacks_header(&line(name)), "{name}");
        }
        for name in ["mine.h", "../linux/mine.h", "my/bpf/helpers.h"] {
            assert!(!lacks_header(&line(name)), "{name}");
        }
        assert!(!lacks_header("#include <linux/bpf.h> // file not found"));
    }
}
