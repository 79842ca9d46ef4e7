// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was expected of an access, an operand or an argument.

use std::fmt;

use super::text::counted;

/// What was expected of an access, an operand or an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of `Display` say what each is")]
pub enum Expected {
    // Of an access.
    NotNull,
    NearOffset,
    OnStack,
    /// An access within the bytes known to be in the packet.
    InPacket {
        there: u32,
    },
    /// An access within the bytes known to be in the metadata area.
    InMetadata {
        there: u32,
    },
    InKey {
        bytes: i64,
    },
    /// An access within a value or record of this size.
    Inside {
        bytes: u32,
    },
    Memory,
    AsOnOtherPaths,
    KnownMap,
    /// The map is write-only for programs.
    MapRead,
    /// Programs may only write the map.
    MapWrite,
    /// An access that does not overlap the lock at this offset.
    OutsideLock {
        at: i64,
    },
    ContextField,
    ContextRead,
    WholeAddress,
    /// Memory that supports atomic operations.
    Atomic,
    Aligned {
        bytes: usize,
    },
    // Of the base of an address computation.
    NotNullBase,
    MemoryBase,
    NearNumber,
    BoundedNumber,
    Sum,
    // Of an argument.
    Number,
    GlobalArgument,
    Context,
    /// The kind of map, in words.
    Map(&'static str),
    /// The pointee, in words.
    AddressOf(&'static str),
    BytesThere {
        bytes: usize,
        each: Box<Expected>,
    },
    OutsidePacket,
    Length,
    BoundedLength,
    SomeLength,
    ConstantLength,
    Record,
    Lock,
    Text,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Expected::NotNull => "one that was compared with 0",
            Expected::NearOffset => "an offset that does not overflow",
            Expected::OnStack => "bytes -512 to -1 of the stack",
            Expected::InPacket { there } => return compared(f, *there, "data_end"),
            Expected::InMetadata { there } => return compared(f, *there, "data"),
            Expected::InKey { bytes } => return write!(f, "a read of its {}", counted(*bytes)),
            Expected::Inside { bytes: 1 } => "its only byte",
            Expected::Inside { bytes } => return write!(f, "one of its {bytes} bytes"),
            Expected::Memory => "memory that programs may access",
            Expected::AsOnOtherPaths => "what it is on the other paths: the context on all of them, or on none",
            Expected::KnownMap => "a value of a known map",
            Expected::MapRead => "a read: programs may not write that map",
            Expected::MapWrite => "a write: programs may not read that map",
            Expected::OutsideLock { at } => return write!(f, "bytes outside of its lock, at {at}"),
            Expected::ContextField => "a field of `struct xdp_md`: 4 bytes at 0, 4, 8, 12 or 16",
            Expected::ContextRead => "a read: the context cannot be written",
            Expected::WholeAddress => "addresses to be stored whole, in 8 bytes, at a multiple of 8",
            Expected::Atomic => "the stack, a value of a map or a record",
            Expected::Aligned { bytes } => return write!(f, "a multiple of {bytes}, which atomic operations need"),
            Expected::NotNullBase => "an address that was compared with 0",
            Expected::MemoryBase => "an address of memory",
            Expected::NearNumber => "an offset of less than 2^29 bytes",
            Expected::BoundedNumber => "one that is bounded on both sides, by less than 2^29",
            Expected::Sum => "a number added to an address, or subtracted from it",
            Expected::Number => "a number",
            Expected::GlobalArgument => "a number, the context, or a pointer to a type with a length",
            Expected::Context => "the context",
            Expected::Map(kind) => kind,
            Expected::AddressOf(what) => return write!(f, "the address of {what}"),
            Expected::BytesThere { bytes, each } => return write!(f, "{} there: {each}", counted(*bytes as i64)),
            Expected::OutsidePacket => "memory outside of the packet: copy it to the stack first",
            Expected::Length => "a length",
            Expected::BoundedLength => "a length with a bound",
            Expected::SomeLength => "a length of at least 1",
            Expected::ConstantLength => "a constant, below 2^30",
            Expected::Record => "the start of a reserved record",
            Expected::Lock => "the `struct bpf_spin_lock` of a map's value",
            Expected::Text => "a zero-terminated string in read-only data",
        };
        f.write_str(text)
    }
}

/// The bytes before `end`.
fn compared(f: &mut fmt::Formatter<'_>, there: u32, end: &str) -> fmt::Result {
    match there {
        1 => write!(f, "the byte that a comparison with `{end}` has shown to be there"),
        0 => write!(f, "one that a comparison with `{end}` has shown to be there"),
        some => write!(f, "the {some} bytes that a comparison with `{end}` has shown to be there"),
    }
}
