//! Global functions of a program: those that the kernel verifies by themselves, with what their types say of their arguments.

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
    /// What it is called with, from `r1` on.
    pub arguments: Vec<GlobalArgument>,
}

/// An argument of a global function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalArgument {
    /// Its name; empty where the types do not say.
    pub name: String,
    /// What callers give.
    pub kind: ArgumentKind,
}

/// What callers of a global function give as an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Any number.
    Number,
    /// The context.
    Context,
    /// The address of readable and writable memory.
    Memory {
        /// Its length.
        bytes: u32,
        /// Whether it may be null: unless the argument is tagged `arg:nonnull`.
        nullable: bool,
    },
    /// Something that no other target can hand over, or that the kernel cannot check.
    Unknown(UnknownArgument),
}

/// An argument of a global function that Flowloom does not hand over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownArgument {
    /// A structure by value, or a floating-point number.
    NoScalar,
    /// A pointer to a type that has no length.
    Unsized,
    /// A `struct bpf_dynptr *`.
    Dynptr,
    /// A pointer with this tag, which only the kernel can honour.
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
