// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Global functions of a program, which the kernel verifies separately, with the types of their arguments.

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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownArgument {
    /// A structure by value, or a floating-point number.
    #[error("neither a number nor a pointer")]
    NoScalar,
    /// A pointer to an incomplete type.
    #[error("a pointer to something without a length")]
    Unsized,
    /// A `struct bpf_dynptr *`.
    #[error("a `struct bpf_dynptr *`")]
    Dynptr,
    /// A pointer with a tag that only the kernel supports.
    #[error("a pointer with tag `{0}`")]
    Tagged(String),
}
