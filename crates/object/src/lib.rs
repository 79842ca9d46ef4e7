// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects: relocatable ELF files that hold programs, in and out.
//!
//! ```text
//!   .o bytes ──read──► Object { programs } ──► interpreter, kernel, hardware
//!   Program ──write──► .o bytes ──► bpftool prog load · ip link set … xdp obj · xdp-loader · aya · read
//!      └─kernel_types──► types, lines ──► bpf(2), for a loader of our own
//! ```
//!
//! # Layout
//! What [`write()`] makes, and what [`read()`] takes from any compiler:
//!
//! | section | holds |
//! | --- | --- |
//! | the program's (`xdp`) | the program's own function, with a symbol |
//! | `.text` | functions that it calls |
//! | `.maps` | one zeroed definition a map; its BTF variable says what the map is |
//! | `.data*`, `.rodata*`, `.bss*` | contents of a data section, a map with one entry |
//! | `license` | text ended by a zero byte |
//! | `.BTF`, `.BTF.ext` | types of maps and functions; source lines |
//! | `.flowloom` | JSON that loaders skip: order of the maps, what the records of context tables mean |
//!
//! # Normal form
//! `read(write(p))` gives `p` again, but for: line information repeats the line in force at the start of each function
//! (the kernel wants one there); a column above 1023 becomes 0, not known; and an instruction that [`read()`] would
//! refuse is refused by [`write()`] already.

mod adapt;
mod code;
mod container;
mod error;
mod externs;
mod link;
mod maps;
mod read;
mod shapes;
mod sidecar;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub use adapt::{Kernel, KernelTypeIndex};
pub use code::CodeError;
pub use error::{ReadError, ReadFault, Refused, Unread};
pub use read::{Object, read, read_as, read_with};
pub use shapes::{MapShape, map_shapes};
pub use write::{KernelTypes, WriteError, declared_types, kernel_types, write};

/// The most slots of a program, as in the kernel.
pub(crate) const MAX_SLOTS: usize = 1_000_000;
/// The budget of memory for an object in bytes.
pub(crate) const MAX_UNFOLDED: u64 = 256 << 20;
/// The greatest line number that line information can express.
pub(crate) const MAX_LINE: u32 = (1 << 22) - 1;
/// The greatest column that line information can express.
pub(crate) const MAX_COLUMN: u32 = (1 << 10) - 1;

/// `1 byte`, `2 bytes`.
pub(crate) fn bytes_of(len: impl Into<u64>) -> String {
    match len.into() {
        1 => "1 byte".to_owned(),
        len => format!("{len} bytes"),
    }
}

/// The names of sections with a meaning.
pub(crate) mod names {
    pub(crate) const TEXT: &str = ".text";
    pub(crate) const MAPS: &str = ".maps";
    pub(crate) const KCONFIG: &str = ".kconfig";
    pub(crate) const KSYMS: &str = ".ksyms";
    pub(crate) const LEGACY_MAPS: &str = "maps";
    pub(crate) const LICENSE: &str = "license";
    pub(crate) const BTF: &str = ".BTF";
    pub(crate) const BTF_EXT: &str = ".BTF.ext";
    pub(crate) const SIDECAR: &str = ".flowloom";
}

/// Kinds of data sections, by the first part of their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataKind {
    /// `.data`: writable.
    Data,
    /// `.rodata`: read-only for programs.
    ReadOnly,
    /// `.bss`: zeros that occupy no bytes of the file.
    Zero,
}

impl DataKind {
    /// The kind of the section called `name`, if it is a data section.
    pub(crate) fn of(name: &str) -> Option<DataKind> {
        [(".data", DataKind::Data), (".rodata", DataKind::ReadOnly), (".bss", DataKind::Zero)]
            .into_iter()
            .find(|(prefix, _)| name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
            .map(|(_, kind)| kind)
    }
}
