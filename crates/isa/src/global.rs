// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Global functions of a program, which the kernel verifies separately, with the types of their arguments.

use std::fmt;

/// A function with global linkage that a program calls.
///
/// # Source
/// [Linux kernel/bpf/btf.c `btf_prepare_func_args`]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GlobalFunction {
    /// Its first slot in the program.
    pub slot: usize,
    /// Its name.
    pub name: String,
    /// Its arguments, from `r1` on.
    pub arguments: Vec<GlobalArgument>,
}

/// An argument of a global function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalArgument {
    /// Its name; empty if the types have none.
    pub name: String,
    /// Its type.
    pub kind: ArgumentKind,
}

/// The type of an argument of a global function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Any number.
    Number,
    /// The context.
    Context,
    /// The address of readable and writable memory.
    Memory {
        /// Its size in bytes.
        bytes: u32,
        /// Whether it may be null: unless the argument is tagged `arg:nonnull`.
        nullable: bool,
    },
    /// A type that is not supported, or that the kernel refuses.
    Unknown(UnknownArgument),
}

/// An argument type of a global function that is not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownArgument {
    /// A structure by value, or a floating-point number.
    NoScalar,
    /// A pointer to an incomplete type.
    Unsized,
    /// A `struct bpf_dynptr *`.
    Dynptr,
    /// A pointer with a tag that only the kernel supports.
    Tagged(String),
}

impl fmt::Display for UnknownArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownArgument::NoScalar => f.write_str("neither a number nor a pointer"),
            UnknownArgument::Unsized => f.write_str("a pointer to something without a length"),
            UnknownArgument::Dynptr => f.write_str("a `struct bpf_dynptr *`"),
            UnknownArgument::Tagged(tag) => write!(f, "a pointer with tag `{tag}`"),
        }
    }
}
