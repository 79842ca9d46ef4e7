//! eBPF: the narrow waist of Flowloom [RFC 9669].
//!
//! ```text
//!  prog.o ──elf::read──► Program ──Interpreter──► verdicts, bytes, maps   (this defines what is right)
//!  lowering ───────────►    │
//!                           └──elf::write──► an object that `bpftool`, `ip link` and the kernel take
//! ```
#![forbid(unsafe_code)]

pub mod asm;
pub mod btf;
mod context;
pub mod disasm;
pub mod elf;
pub mod fib;
mod global;
pub mod helpers;
pub mod insn;
pub mod interp;
mod lack;
pub mod locks;
mod map_kind;
pub mod op;
#[cfg(test)]
mod op_gen;
mod program;
mod program_kind;
pub mod splice;
pub mod verifier;

pub use context::{Aged, ContextLayout, LayoutField, NO_DEADLINE, StateSuccessor, Succession};
pub use global::{ArgumentKind, GlobalArgument, GlobalFunction, UnknownArgument};
pub use insn::Insn;
pub use interp::{Interpreter, Plugin, PluginError, ProgramError};
pub use lack::{Lack, Want};
pub use map_kind::MapKind;
pub use program::{
    BPF_F_MMAPABLE, BPF_F_NO_COMMON_LRU, BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, LineInfo, MAX_ENTRIES, MapDef, Member,
    Program, Sibling,
};
pub use program_kind::ProgramKind;
