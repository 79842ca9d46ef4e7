// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF as data [RFC 9669]: instructions, programs with their maps, assembler and disassembler, BTF, and the table of
//! helpers from which every other crate takes what it knows of them.
//!
//! ```text
//!  text ──asm──► Program ──check──► decoded instructions (Op)
//!                   ▲
//!  objects, lowering┘
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as flowloom_isa;

pub mod alu;
pub mod asm;
pub mod btf;
pub mod check;
pub mod disasm;
mod global;
pub mod helpers;
pub mod insn;
pub mod limits;
mod map_kind;
pub mod op;
#[cfg(test)]
mod op_gen;
mod program;
mod program_kind;
mod refusal;
pub mod splice;
mod unresolved;

pub use check::{Finding, Flaw, ProgramError, decoded};
pub use global::{ArgumentKind, GlobalArgument, GlobalFunction, UnknownArgument};
pub use insn::Insn;
pub use map_kind::MapKind;
pub use program::{
    BPF_F_INNER_MAP, BPF_F_MMAPABLE, BPF_F_NO_COMMON_LRU, BPF_F_NO_PREALLOC, BPF_F_NUMA_NODE, BPF_F_PRESERVE_ELEMS,
    BPF_F_RDONLY, BPF_F_RDONLY_PROG, BPF_F_WRONLY, BPF_F_WRONLY_PROG, BPF_F_ZERO_SEED, LineInfo, MAX_ENTRIES, MapDef,
    Member, Program, Sibling,
};
pub use program_kind::ProgramKind;
pub use refusal::{Explained, Refusal};
pub use unresolved::{Reference, Unresolved};
