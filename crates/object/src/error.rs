// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of reading: of an object, of one of its programs, and its parts that are in no program.

use std::fmt;

use super::code::CodeError;
use super::{bytes_of, names};
use flowloom_isa::btf::BtfError;

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
