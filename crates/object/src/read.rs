//! Reads objects into programs.
//!
//! Goal: what a loader would pass to the kernel, as [`Program`]s. Steps: parse the container; parse the types; read the
//! maps; find the functions; link each program with its callees ([`super::link`]). The result does not depend on the
//! object: maps are indices, calls are distances. A program that cannot be read does not affect the others; unresolved
//! references are listed in [`Program::lacks`]. Maps of unsupported kinds are read: the engines refuse them.

use std::fmt;

use super::adapt::Kernel;
use super::code::CodeError;
use super::container::{Budget, Container};
use super::link::{Linked, Linker};
use super::maps::Maps;
use super::{bytes_of, names};
use flowloom_isa::Program;
use flowloom_isa::ProgramKind;
use flowloom_isa::btf::{Btf, BtfError, Ext};

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

/// A part of an object that is in no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// What it is: `function`, `code`, `map` or `section`.
    pub what: &'static str,
    /// Its name; for code, that of its section.
    pub name: String,
    /// Why it is in no program.
    pub why: String,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`: {}", self.what, self.name, self.why)
    }
}

/// A program that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("program `{name}`: {fault}")]
pub struct Refused {
    /// The name of the function.
    pub name: String,
    /// Its section.
    pub section: String,
    /// The number of the object's programs before it.
    pub before: usize,
    /// The reason.
    #[source]
    pub fault: ReadFault,
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

/// An object that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object `{object}`: {fault}")]
pub struct ReadError {
    /// The name under which the user knows it.
    pub object: String,
    /// The reason.
    #[source]
    pub fault: ReadFault,
}

/// Why an object cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum ReadFault {
    /// Not a little-endian eBPF object.
    #[error("{what} is {found:x?}, expected {expected}")]
    NotBpf { what: &'static str, found: Vec<u8>, expected: &'static str },
    /// A table of the container is malformed.
    #[error("{what}: {why}")]
    Header { what: &'static str, why: String },
    /// An index out of range.
    #[error("{what} is number {found}, there are {count}")]
    Index { what: &'static str, found: u64, count: usize },
    /// A section outside of the file.
    #[error("section `{section}`: {} at {offset}, the file has {}", bytes_of(*len), bytes_of(*file as u64))]
    Contents { section: String, offset: u64, len: u64, file: usize },
    /// An offset outside of a section or between its records.
    #[error("section `{section}`: offset {offset}, expected a multiple of {unit} below {len}")]
    Offset { section: String, offset: u64, len: u64, unit: u64 },
    /// An invalid name.
    #[error("name of {what} {number}, at {offset} of its string table: {why}")]
    Name { what: &'static str, number: usize, offset: u32, why: &'static str },
    /// The object exceeds its budget of memory.
    #[error("{what}: the object unfolds to more than {limit} bytes")]
    TooLarge { what: &'static str, limit: u64 },
    /// An excessive number.
    #[error("{found} {what}, at most {limit} are read")]
    TooMany { what: &'static str, found: usize, limit: usize },
    /// A duplicate.
    #[error("{what} `{name}` is there twice")]
    Twice { what: &'static str, name: String },
    /// Something required is missing.
    #[error("{what} `{name}` is missing")]
    Missing { what: &'static str, name: &'static str },
    /// Valid, but not supported.
    #[error("{what} in {place} is not supported")]
    Unsupported { what: String, place: String },
    /// Malformed type information.
    #[error("section `{section}`: {source}")]
    Btf { section: &'static str, source: BtfError },
    /// The types of a section list a type that is not a variable.
    #[error("section `{section}`: type {id} is no variable")]
    NoVariable { section: String, id: u32 },
    /// A variable without a symbol.
    #[error("variable `{name}` has no symbol in section `{section}`")]
    NoSymbol { name: String, section: &'static str },
    /// A field of a map definition.
    #[error("map `{map}`, `{what}`: {why}")]
    Definition { map: String, what: String, why: String },
    /// `.flowloom` does not match the object.
    #[error("section `.flowloom`: {why}")]
    Sidecar { why: String },
    /// No program.
    #[error("no program: a function in an executable section other than `.text` is expected")]
    NoProgram,
    /// A function outside of its section.
    #[error("function `{function}` at byte {offset} of `{section}`: {why}")]
    Function { function: String, section: String, offset: u64, why: String },
    /// A relocation that is not supported.
    #[error("{place}: {why}")]
    Instruction { place: String, why: String },
    /// The instructions do not form functions.
    #[error("program `{program}`: {source}")]
    Code { program: String, source: CodeError },
}

impl From<BtfError> for ReadFault {
    fn from(source: BtfError) -> ReadFault {
        ReadFault::Btf { section: names::BTF, source }
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
