//! An object to programs.
//!
//! Goal: what a loader would hand to the kernel, as [`Program`]s. Steps: take the container apart; understand the types;
//! read the maps; find the functions; link each program with what it calls ([`super::link`]). After it, nothing of a
//! program depends on the object: maps are numbers, calls are distances. A program that cannot be read leaves the others;
//! what it wants and is not given is listed in [`Program::lacks`]. Kinds of maps that nothing runs are read: the engines
//! refuse them.

use std::fmt;

use super::adapt::Kernel;
use super::code::CodeError;
use super::container::{Budget, Container};
use super::link::{Linked, Linker};
use super::maps::Maps;
use super::{bytes_of, names};
use crate::btf::{Btf, BtfError, Ext};
use crate::program::Program;
use crate::program_kind::ProgramKind;

/// What an object holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// How its user calls it.
    pub name: String,
    /// Its programs, in the order of sections and, within one, of functions.
    ///
    /// Each has all maps of the object in the same order: programs of an object share them, and a map that only user
    /// space or another program touches is part of the function too. Left out are maps that the program does not name and
    /// that no engine could make.
    pub programs: Vec<Program>,
    /// Its functions that would be programs and cannot be read.
    pub refused: Vec<Refused>,
    /// What it asks of a loader and is not given, although its programs are run, in words: what makes no difference to them, and
    /// settings of the kernel, which are 0.
    pub notes: Vec<String>,
    /// What else is in it and is not part of a program, each with the reason.
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

/// A program that cannot be read, beside others that can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("program `{name}`: {fault}")]
pub struct Refused {
    /// Name of the function.
    pub name: String,
    /// The section it stands in.
    pub section: String,
    /// How many of the object's programs stand before it.
    pub before: usize,
    /// Why.
    #[source]
    pub fault: ReadFault,
}

impl Object {
    /// The XDP programs.
    pub fn xdp(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|program| program.kind.is_xdp())
    }

    /// The program with this function name or, if there is none, in this section.
    pub fn program(&self, wanted: &str) -> Option<&Program> {
        self.matching(wanted).first().copied()
    }

    /// The programs with this function name or, if there are none, in this section or called `SECTION/NAME`.
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
    /// How its user calls it.
    pub object: String,
    /// What is wrong with it.
    #[source]
    pub fault: ReadFault,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum ReadFault {
    /// It is no little-endian eBPF object.
    #[error("{what} is {found:x?}, expected {expected}")]
    NotBpf { what: &'static str, found: Vec<u8>, expected: &'static str },
    /// A table of the container is damaged.
    #[error("{what}: {why}")]
    Header { what: &'static str, why: String },
    /// A number that counts something that is not there.
    #[error("{what} is number {found}, there are {count}")]
    Index { what: &'static str, found: u64, count: usize },
    /// A section outside of the file.
    #[error("section `{section}`: {} at {offset}, the file has {}", bytes_of(*len), bytes_of(*file as u64))]
    Contents { section: String, offset: u64, len: u64, file: usize },
    /// A place outside of a section or between its records.
    #[error("section `{section}`: offset {offset}, expected a multiple of {unit} below {len}")]
    Offset { section: String, offset: u64, len: u64, unit: u64 },
    /// A name that is none.
    #[error("name of {what} {number}, at {offset} of its string table: {why}")]
    Name { what: &'static str, number: usize, offset: u32, why: &'static str },
    /// More than fits memory.
    #[error("{what}: the object unfolds to more than {limit} bytes")]
    TooLarge { what: &'static str, limit: u64 },
    /// More than anyone needs.
    #[error("{found} {what}, at most {limit} are read")]
    TooMany { what: &'static str, found: usize, limit: usize },
    /// Something is there twice.
    #[error("{what} `{name}` is there twice")]
    Twice { what: &'static str, name: String },
    /// Something that is needed is not there.
    #[error("{what} `{name}` is missing")]
    Missing { what: &'static str, name: &'static str },
    /// Valid, but not read by Flowloom.
    #[error("{what} in {place} is not supported")]
    Unsupported { what: String, place: String },
    /// Damaged type information.
    #[error("section `{section}`: {source}")]
    Btf { section: &'static str, source: BtfError },
    /// A section's types list something that is no variable.
    #[error("section `{section}`: type {id} is no variable")]
    NoVariable { section: String, id: u32 },
    /// A variable without a place.
    #[error("variable `{name}` has no symbol in section `{section}`")]
    NoSymbol { name: String, section: &'static str },
    /// A field of a map's definition.
    #[error("map `{map}`, `{what}`: {why}")]
    Definition { map: String, what: String, why: String },
    /// `.flowloom` does not fit the object.
    #[error("section `.flowloom`: {why}")]
    Sidecar { why: String },
    /// No function that could be run.
    #[error("no program: a function in an executable section other than `.text` is expected")]
    NoProgram,
    /// A function outside of its section.
    #[error("function `{function}` at byte {offset} of `{section}`: {why}")]
    Function { function: String, section: String, offset: u64, why: String },
    /// An instruction that needs the loader in a way that is not understood.
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

/// Reads an object that clang, another compiler or [`super::write()`] made. `name` is what errors call it.
///
/// # Errors
/// What is wrong, and in which section, symbol or byte; everything that is not supported is refused by name. No input
/// makes it panic or take more than some hundred megabytes.
///
/// # Cost
/// In proportion to the object and to what its programs unfold to.
///
/// # Source
/// [LLVM BPF ELF relocations], [Linux Documentation/bpf/btf.rst], libbpf's conventions for sections
pub fn read(bytes: &[u8], name: &str) -> Result<Object, ReadError> {
    read_with(bytes, name, &|| Err("the types of a kernel are not at hand".to_owned()))
}

/// As [`read()`], and adapts programs to the types of a kernel (CO-RE). They are asked for once, where a program wants them;
/// the reason why there are none becomes what the program lacks.
///
/// # Errors
/// As for [`read()`].
pub fn read_with(bytes: &[u8], name: &str, kernel: &Kernel<'_>) -> Result<Object, ReadError> {
    read_as(bytes, name, kernel, None)
}

/// As [`read_with()`], and takes all programs to be of `kind`, whatever their sections are called. Sections of programs for
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
    // Types are needed where maps are declared with them, lines where they are good; loaders go on without them otherwise.
    let needs_types = container.named(names::MAPS)?.is_some_and(|(_, section)| section.len > 0);
    let btf = match container.named(names::BTF)? {
        Some((number, section)) => {
            // Types in memory take up to this many times their bytes.
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

/// The text of the licence; a byte that is not UTF-8 makes it another one than the GPL for the kernel too.
fn license(container: &Container<'_>) -> Result<String, ReadFault> {
    let Some((_, section)) = container.named(names::LICENSE)? else { return Ok(String::new()) };
    let end = section.bytes.iter().position(|b| *b == 0).unwrap_or(section.bytes.len());
    Ok(String::from_utf8_lossy(&section.bytes[..end]).into_owned())
}
