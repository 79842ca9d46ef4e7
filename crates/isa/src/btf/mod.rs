// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BTF: the type information of a program [Linux Documentation/bpf/btf.rst].
//!
//! ```text
//!  .BTF bytes ──Btf::parse──► Btf { types, strings } ──Btf::emit──► .BTF bytes
//!  Builder::{string, add} ──►
//! ```
//!
//! Names stay offsets into the string table, as in the file: a million types may share a name, and a copy for each
//! would let a small file exhaust memory. All kinds are supported; reserved bits and dangling references are refused by
//! the parser, so that the ids in a [`Btf`] can be followed without further checks.

mod emit;
mod ext;
mod parse;
mod shape;
#[cfg(test)]
mod tests;

pub use emit::Builder;
pub use ext::{CoreRecord, Ext, ExtSection, FuncRecord, LineRecord};
pub use shape::{Form, Shape};

/// The magic number at the beginning of `.BTF` and `.BTF.ext`.
pub const MAGIC: u16 = 0xeb9f;
/// The limit of name offsets in the string table, as in the kernel.
pub const MAX_NAME_OFFSET: usize = 0x00ff_ffff;
/// The longest name; the kernel accepts 512 bytes.
const MAX_NAME: usize = 4096;
/// The most references followed from a type before it counts as recursive.
const MAX_DEPTH: usize = 64;

/// The id of a type; 0 is `void`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TypeId(pub u32);

/// The offset of a name in the string table; 0 is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(pub u32);

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the format, by its names")]
pub enum Type {
    /// An integer.
    Int {
        name: Name,
        size_bytes: u32,
        /// 1 signed, 2 character, 4 boolean.
        encoding: u8,
        offset_bits: u8,
        bits: u8,
    },
    /// A pointer to a type.
    Ptr(TypeId),
    /// `count` times `element`.
    Array { element: TypeId, index: TypeId, count: u32 },
    /// A structure.
    Struct(Composite),
    /// A union.
    Union(Composite),
    /// An enumeration of up to 32 bits.
    Enum { name: Name, size_bytes: u32, signed: bool, values: Vec<(Name, i32)> },
    /// A forward declaration of a structure or union.
    Fwd { name: Name, union: bool },
    /// A typedef.
    Typedef { name: Name, to: TypeId },
    /// `volatile`.
    Volatile(TypeId),
    /// `const`.
    Const(TypeId),
    /// `restrict`.
    Restrict(TypeId),
    /// A function: its prototype and linkage.
    Func { name: Name, proto: TypeId, linkage: Linkage },
    /// The signature of a function.
    FuncProto { ret: TypeId, params: Vec<(Name, TypeId)> },
    /// A variable.
    Var { name: Name, of: TypeId, linkage: Linkage },
    /// The variables of a section.
    DataSec { name: Name, size_bytes: u32, vars: Vec<SecVar> },
    /// A floating-point number.
    Float { name: Name, size_bytes: u32 },
    /// `btf_decl_tag` of a type, or of one of its members or parameters. `attribute` as for a type tag.
    DeclTag { name: Name, of: TypeId, component: i32, attribute: bool },
    /// `btf_type_tag`. `attribute` is the kind flag: any attribute instead of a tag.
    TypeTag { name: Name, to: TypeId, attribute: bool },
    /// An enumeration of up to 64 bits.
    Enum64 { name: Name, size_bytes: u32, signed: bool, values: Vec<(Name, u64)> },
}

/// A structure or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composite {
    /// The name, if any.
    pub name: Name,
    /// The size.
    pub size_bytes: u32,
    /// Whether members have explicit widths (the kind flag).
    pub bitfields: bool,
    /// The members.
    pub members: Vec<Member>,
}

/// A member of a structure or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The name, if any.
    pub name: Name,
    /// The type.
    pub of: TypeId,
    /// The offset.
    pub offset_bits: u32,
    /// The width of a bit field, else 0.
    pub width_bits: u8,
}

/// A variable in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecVar {
    /// The variable.
    pub var: TypeId,
    /// The offset; clang leaves it 0 for the linker.
    pub offset_bytes: u32,
    /// The size.
    pub size_bytes: u32,
}

/// The linkage of a function or variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// Local to the object.
    Static,
    /// Visible to all objects.
    Global,
    /// Defined elsewhere.
    Extern,
}

impl Type {
    /// The number of values of an enumeration.
    pub fn enumerators(&self) -> Option<usize> {
        match self {
            Type::Enum { values, .. } => Some(values.len()),
            Type::Enum64 { values, .. } => Some(values.len()),
            _ => None,
        }
    }

    /// The name of a value of an enumeration.
    pub fn enumerator(&self, index: usize) -> Option<Name> {
        match self {
            Type::Enum { values, .. } => values.get(index).map(|value| value.0),
            Type::Enum64 { values, .. } => values.get(index).map(|value| value.0),
            _ => None,
        }
    }
}

impl Linkage {
    fn number(self) -> u32 {
        match self {
            Linkage::Static => 0,
            Linkage::Global => 1,
            Linkage::Extern => 2,
        }
    }

    fn from_number(number: u32) -> Option<Linkage> {
        [Linkage::Static, Linkage::Global, Linkage::Extern].into_iter().find(|l| l.number() == number)
    }
}

/// Types and their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Btf {
    /// All types but `void`: type `n` is at index `n - 1`.
    types: Vec<Type>,
    /// Zero-terminated names; begins with an empty one.
    strings: Vec<u8>,
}

/// An error in type information.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum BtfError {
    /// The magic number is not that of little-endian BTF.
    #[error("magic number is {found:#06x}, expected {MAGIC:#06x} (big-endian BTF is not read)")]
    Magic { found: u16 },
    /// An unsupported version.
    #[error("version is {found}, expected 1")]
    Version { found: u8 },
    /// A range that exceeds its container.
    #[error("{what} at byte {offset} takes {needed} bytes, {available} are there")]
    Truncated { what: &'static str, offset: usize, needed: usize, available: usize },
    /// The string table does not begin and end with a zero byte.
    #[error("string table of {len} bytes does not begin and end with a zero byte")]
    Strings { len: usize },
    /// An unknown kind.
    #[error("type {id} at byte {offset} is of unknown kind {kind}")]
    Kind { id: u32, offset: usize, kind: u32 },
    /// A field of a type has an invalid value.
    #[error("type {id} at byte {offset}: {what} is {found:#x}")]
    Field { id: u32, offset: usize, what: &'static str, found: u32 },
    /// A name outside of the string table.
    #[error("{what} is named by offset {offset}, the string table has {len} bytes")]
    NameOffset { what: &'static str, offset: u32, len: usize },
    /// A name that is too long.
    #[error("name at offset {offset} of the string table is longer than {limit} bytes")]
    NameLength { offset: u32, limit: usize },
    /// A name that is not UTF-8.
    #[error("name at offset {offset} of the string table is not UTF-8")]
    NameText { offset: u32 },
    /// A dangling reference.
    #[error("type {id} refers to type {target}, the last one is {last}")]
    Reference { id: u32, target: u32, last: u32 },
    /// A type without a size, or with circular references.
    #[error("type {id} has no size: {why}")]
    NoSize { id: u32, why: &'static str },
    /// Records of `.BTF.ext` with an invalid size.
    #[error("{what} records are {found} bytes, expected at least {expected} and a multiple of 4")]
    RecordSize { what: &'static str, found: u32, expected: u32 },
    /// A section of `.BTF.ext` without records.
    #[error("{what} information at byte {offset} has no records")]
    NoRecords { what: &'static str, offset: usize },
    /// More than the format can address.
    #[error("{what} take {found} bytes, at most {limit} can be addressed")]
    TooLarge { what: &'static str, found: usize, limit: usize },
}

impl Btf {
    /// The type with this id; `None` for `void` and unused ids.
    pub fn get(&self, id: TypeId) -> Option<&Type> {
        let index = usize::try_from(id.0).ok()?.checked_sub(1)?;
        self.types.get(index)
    }

    /// The structure or union with this id.
    pub fn composite(&self, id: TypeId) -> Option<&Composite> {
        match self.get(id) {
            Some(Type::Struct(composite) | Type::Union(composite)) => Some(composite),
            _ => None,
        }
    }

    /// All types with their ids, in the order of the file.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().zip(1..).map(|(t, id)| (TypeId(id), t))
    }

    /// The bytes of a string of any length, such as a source line, without the terminator.
    ///
    /// # Errors
    /// [`BtfError::NameOffset`] if it begins outside of the string table.
    ///
    /// # Cost
    /// Linear in the length of the string, for each call.
    pub fn text_bytes(&self, name: Name) -> Result<&[u8], BtfError> {
        let tail = self.tail(name)?;
        let end = tail.iter().position(|b| *b == 0).unwrap_or(tail.len());
        Ok(&tail[..end])
    }

    /// The bytes of a name without the terminator. At most the longest name is scanned.
    ///
    /// # Errors
    /// [`BtfError::NameOffset`] if it begins outside of the string table, [`BtfError::NameLength`] if it is longer than
    /// 4096 bytes.
    pub fn name_bytes(&self, name: Name) -> Result<&[u8], BtfError> {
        let tail = self.tail(name)?;
        let tail = &tail[..tail.len().min(MAX_NAME + 1)];
        let end = tail.iter().position(|b| *b == 0);
        end.map(|end| &tail[..end]).ok_or(BtfError::NameLength { offset: name.0, limit: MAX_NAME })
    }

    fn tail(&self, name: Name) -> Result<&[u8], BtfError> {
        let tail = usize::try_from(name.0).ok().and_then(|at| self.strings.get(at..)).filter(|tail| !tail.is_empty());
        tail.ok_or(BtfError::NameOffset { what: "a string", offset: name.0, len: self.strings.len() })
    }

    /// A name as text.
    ///
    /// # Errors
    /// As [`Btf::name_bytes`], and [`BtfError::NameText`].
    pub fn name(&self, name: Name) -> Result<&str, BtfError> {
        std::str::from_utf8(self.name_bytes(name)?).map_err(|_| BtfError::NameText { offset: name.0 })
    }

    /// The type behind typedefs, qualifiers and tags.
    ///
    /// # Errors
    /// [`BtfError::NoSize`] if they are circular.
    pub fn resolve(&self, id: TypeId) -> Result<TypeId, BtfError> {
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            at = match self.get(at) {
                Some(
                    Type::Typedef { to, .. }
                    | Type::Volatile(to)
                    | Type::Const(to)
                    | Type::Restrict(to)
                    | Type::TypeTag { to, .. },
                ) => *to,
                _ => return Ok(at),
            };
        }
        Err(BtfError::NoSize { id: id.0, why: "its references have no end" })
    }

    /// The size of a value of the type.
    ///
    /// # Errors
    /// [`BtfError::NoSize`] for `void`, functions, forward declarations, circular types and arrays whose size exceeds
    /// 32 bits.
    pub fn size_bytes(&self, id: TypeId) -> Result<u32, BtfError> {
        let fail = |why| BtfError::NoSize { id: id.0, why };
        let mut at = id;
        let mut times: u32 = 1;
        for _ in 0..MAX_DEPTH {
            at = self.resolve(at)?;
            let one = match self.get(at) {
                None => return Err(fail("it is `void`")),
                Some(Type::Array { element, count, .. }) => {
                    times = times.checked_mul(*count).ok_or(fail("the array has more than 4 GiB"))?;
                    at = *element;
                    continue;
                }
                Some(Type::Ptr(_)) => 8,
                Some(Type::Struct(c) | Type::Union(c)) => c.size_bytes,
                Some(
                    Type::Int { size_bytes, .. }
                    | Type::Enum { size_bytes, .. }
                    | Type::Enum64 { size_bytes, .. }
                    | Type::Float { size_bytes, .. }
                    | Type::DataSec { size_bytes, .. },
                ) => *size_bytes,
                Some(Type::Var { of, .. }) => {
                    at = *of;
                    continue;
                }
                Some(_) => return Err(fail("it is a function or a declaration")),
            };
            return times.checked_mul(one).ok_or(fail("the array has more than 4 GiB"));
        }
        Err(fail("its references have no end"))
    }
}
