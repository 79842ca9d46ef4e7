// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unresolved references: what a program needs from a loader that Flowloom does not provide.

/// An unresolved reference of a program, and the reason.
///
/// Its instruction is one that no engine runs: a call of an unknown function or the load of a platform variable.
/// References that the program cannot reach are not listed; a load of zero takes their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// The slot of the instruction.
    pub insn: usize,
    /// What it refers to.
    pub reference: Reference,
}

/// The target of an unresolved reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum Reference {
    /// A call of a kernel function, or its address.
    #[error("call of `{name}`, a function of the kernel")]
    Kfunc { name: String },
    /// The address of a kernel variable.
    #[error("address of `{name}`, a variable of the kernel")]
    Ksym { name: String },
    /// A configuration setting of the kernel.
    #[error("`{name}`, a setting of the kernel that an engine is not to know")]
    Kconfig { name: String },
    /// A symbol of another object.
    #[error("`{name}` is not defined in the object")]
    Undefined { name: String },
    /// A CO-RE relocation.
    #[error("adaptation to the types of the kernel: {what}: {why}")]
    Adaptation { what: String, why: String },
    /// A map whose values contain a field that the kernel treats specially.
    #[error("values of map `{map}` hold `{field}` at byte {offset}")]
    Field { map: String, field: String, offset: u32 },
    /// A map whose initial contents are not available.
    #[error("entry {index} of map `{map}` is to be `{member}`, {why}")]
    Member { map: String, index: u32, member: String, why: String },
}
