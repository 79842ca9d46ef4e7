//! What programs want of a loader and are not given.

/// A place of a program that nothing here can run, and why: the object asks its loader for something that Flowloom does
/// not give.
///
/// The instruction there is one that no engine takes: the call of an unknown function or the load of a variable of the
/// platform. Places that the program cannot reach are not listed; they hold a load of zero instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// The slot of the instruction.
    pub insn: usize,
    /// What is wanted there.
    pub want: Want,
}

/// What an instruction wants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum Want {
    /// A function of the kernel is called, or its address taken.
    #[error("call of `{name}`, a function of the kernel")]
    Kfunc { name: String },
    /// The address of a variable of the kernel.
    #[error("address of `{name}`, a variable of the kernel")]
    Ksym { name: String },
    /// A setting of the kernel that the program runs on.
    #[error("`{name}`, a setting of the kernel that an engine is not to know")]
    Kconfig { name: String },
    /// Something of another object.
    #[error("`{name}` is not defined in the object")]
    Undefined { name: String },
    /// An adaptation to the types of the kernel (CO-RE).
    #[error("adaptation to the types of the kernel: {what}: {why}")]
    Adaptation { what: String, why: String },
    /// A map whose values hold something that the kernel treats in its own way.
    #[error("values of map `{map}` hold `{field}` at byte {offset}")]
    Field { map: String, field: String, offset: u32 },
    /// A map that holds something from the start that is not there.
    #[error("entry {index} of map `{map}` is to be `{member}`, {why}")]
    Member { map: String, index: u32, member: String, why: String },
}
