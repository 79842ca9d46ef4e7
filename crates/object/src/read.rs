// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads objects into programs.
//!
//! Goal: what a loader would pass to the kernel, as [`Program`]s. Steps: parse the container; parse the types; read the
//! maps; find the functions; link each program with its callees ([`super::link`]). The result does not depend on the
//! object: maps are indices, calls are distances. A program that cannot be read does not affect the others; unresolved
//! references are listed in [`Program::unresolved`]. Maps of unsupported kinds are read: the engines refuse them.

use super::adapt::Kernel;
use super::container::{Budget, Container};
use super::error::{ReadError, ReadFault, Refused, Unread};
use super::link::{Linked, Linker};
use super::maps::Maps;
use super::names;
use flowloom_isa::btf::{Btf, Ext};
use flowloom_isa::{Program, ProgramKind};

/// The contents of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// The name under which the user knows it.
    pub name: String,
    /// Its programs, in the order of sections and, within one, of functions.
    ///
    /// Each has all maps of the object in the same order: programs of an object share them, and a map that only user
    /// space or another program accesses is part of the function too. Maps that the program does not refer to and that
    /// no engine supports are left out.
    pub programs: Vec<Program>,
    /// Its functions that would be programs but cannot be read.
    pub refused: Vec<Refused>,
    /// Requests to the loader that are not fulfilled although the programs run: those without an effect, and
    /// configuration settings of the kernel, which are 0.
    pub notes: Vec<String>,
    /// Its other parts that are in no program, with the reason.
    pub unread: Vec<Unread>,
}

impl Object {
    /// The XDP programs.
    pub fn xdp(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| program.kind.is_xdp())
    }

    /// The program with this function name or else in this section.
    pub fn program(&self, wanted: &str) -> Option<&Program> {
        self.matching(wanted).first().copied()
    }

    /// The programs with this function name or else in this section or called `SECTION/NAME`.
    pub fn matching(&self, wanted: &str) -> Vec<&Program> {
        let by = |is: &dyn Fn(&Program) -> bool| self.programs.iter().filter(|p| is(p)).collect::<Vec<_>>();
        let is_both = |p: &Program| {
            let rest = wanted.strip_prefix(p.section.as_str()).and_then(|rest| rest.strip_prefix('/'));
            rest == Some(p.name.as_str())
        };
        let tests: [&dyn Fn(&Program) -> bool; 3] = [&|p| p.name == wanted, &|p| p.section == wanted, &is_both];
        tests.into_iter().map(by).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

/// Reads an object from clang, another compiler or [`super::write()`]. `name` appears in errors.
///
/// # Errors
/// The first error with its section, symbol or byte; everything unsupported is refused by name. No input causes a panic
/// or takes more than some hundred megabytes.
///
/// # Cost
/// Linear in the object and the size of its linked programs.
///
/// # Source
/// [LLVM BPF ELF relocations], [Linux Documentation/bpf/btf.rst], libbpf's conventions for sections
pub fn read(bytes: &[u8], name: &str) -> Result<Object, ReadError> {
    read_with(bytes, name, &|| Err("the types of a kernel are not at hand".to_owned()))
}

/// As [`read()`], and applies CO-RE relocations against the types of a kernel. These are loaded once, when a program
/// needs them; if that fails, the reason becomes an unresolved reference of the program.
///
/// # Errors
/// As for [`read()`].
pub fn read_with(bytes: &[u8], name: &str, kernel: &Kernel<'_>) -> Result<Object, ReadError> {
    read_as(bytes, name, kernel, None)
}

/// As [`read_with()`], with all programs taken to be of `kind`, whatever their section names. Sections of programs for
/// device and CPU maps keep their meaning under [`ProgramKind::Xdp`].
///
/// # Errors
/// As for [`read()`].
pub fn read_as(bytes: &[u8], name: &str, kernel: &Kernel<'_>, kind: Option<ProgramKind>) -> Result<Object, ReadError> {
    match read_parts(bytes, kernel, kind) {
        Ok(Linked { programs, refused, unread, notes }) => {
            Ok(Object { name: name.to_owned(), programs, refused, notes, unread })
        }
        Err(fault) => Err(ReadError { object: name.to_owned(), fault }),
    }
}

fn read_parts(bytes: &[u8], kernel: &Kernel<'_>, kind: Option<ProgramKind>) -> Result<Linked, ReadFault> {
    let mut budget = Budget::new();
    let container = Container::parse(bytes, &mut budget)?;
    let mut notes = Vec::new();
    // Types are required if maps are declared with them, lines are optional; loaders continue without them otherwise.
    let needs_types = container.named(names::MAPS)?.is_some_and(|(_, section)| section.len > 0);
    let btf = match container.named(names::BTF)? {
        Some((number, section)) => {
            // Parsed types take up to this many times their bytes.
            budget.charge("types", section.bytes.len() as u64 * 8)?;
            match Btf::parse(container.types(number)) {
                Ok(btf) => Some(btf),
                Err(source) if needs_types => return Err(source.into()),
                Err(source) => {
                    notes.push(format!("section `{}` is damaged and not used: {source}", names::BTF));
                    None
                }
            }
        }
        None => None,
    };
    let ext = match (&btf, container.named(names::BTF_EXT)?) {
        (Some(_), Some((number, section))) => {
            budget.charge("lines", section.bytes.len() as u64 * 8)?;
            Ext::parse(container.types(number)).unwrap_or_else(|source| {
                notes.push(format!(
                    "section `{}` is damaged and not used, there are no source lines and no adaptations to a kernel: {source}",
                    names::BTF_EXT
                ));
                Ext::default()
            })
        }
        _ => Ext::default(),
    };
    let maps = Maps::read(&container, btf.as_ref(), &mut budget)?;
    let license = license(&container)?;
    let linker = Linker::new(&container, btf.as_ref(), &ext, &maps, kernel, kind)?;
    let mut linked = linker.programs(&license, &mut budget)?;
    notes.extend(maps.notes);
    notes.append(&mut linked.notes);
    linked.notes = notes;
    Ok(linked)
}

/// The text of the licence; a byte that is not UTF-8 makes it differ from the GPL for the kernel too.
fn license(container: &Container<'_>) -> Result<String, ReadFault> {
    let Some((_, section)) = container.named(names::LICENSE)? else { return Ok(String::new()) };
    let end = section.bytes.iter().position(|b| *b == 0).unwrap_or(section.bytes.len());
    Ok(String::from_utf8_lossy(&section.bytes[..end]).into_owned())
}
