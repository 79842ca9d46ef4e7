//! Global functions of a program: those that the kernel verifies by themselves, with what their types say of their arguments.

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
    /// What only the kernel knows how to hand over, or nothing that it could check; in words.
    Unknown(String),
}
