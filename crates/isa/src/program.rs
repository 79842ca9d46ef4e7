// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program with its maps: the result of reading an object or of lowering, and the input of every engine.

use std::fmt;
use std::sync::Arc;

use crate::global::GlobalFunction;
use crate::insn::{Insn, imm64};
use crate::map_kind::MapKind;
use crate::program_kind::ProgramKind;
use crate::unresolved::Unresolved;
use flowloom_context::ContextLayout;
use flowloom_wire::Graph;

/// Flag of a hash map: entries are allocated on demand, so that a full map holds exactly its declared size.
pub const BPF_F_NO_PREALLOC: u32 = 1;
/// Flag: the map is read-only for programs (`.rodata`).
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// Flag: a data section that user space may map (`.data`, `.bss`, `.rodata`).
pub const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Flag of an LRU table: each CPU has an LRU list of its own.
pub const BPF_F_NO_COMMON_LRU: u32 = 1 << 1;
/// Flag: the loader chooses the NUMA node of the map.
pub const BPF_F_NUMA_NODE: u32 = 1 << 2;
/// Flag: the map is read-only for user space.
pub const BPF_F_RDONLY: u32 = 1 << 3;
/// Flag: the map is write-only for user space.
pub const BPF_F_WRONLY: u32 = 1 << 4;
/// Flag of a hash table: its hash is not seeded at random.
pub const BPF_F_ZERO_SEED: u32 = 1 << 6;
/// Flag: the map is write-only for programs.
pub const BPF_F_WRONLY_PROG: u32 = 1 << 8;
/// Flag of a perf event array: entries remain after the process that inserted them has closed the map.
pub const BPF_F_PRESERVE_ELEMS: u32 = 1 << 11;
/// Flag of an array in a map of maps: arrays of other sizes may take its place.
pub const BPF_F_INNER_MAP: u32 = 1 << 12;
/// The greatest capacity of a map, and so of a context table, on any engine.
pub const MAX_ENTRIES: u32 = u32::MAX / 2;

/// A map of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapDef {
    /// The name: at most 15 bytes of letters, digits, `_` and `.`, longer ones are truncated in the kernel.
    pub name: String,
    /// The kind.
    pub kind: MapKind,
    /// The key size in bytes.
    pub key_bytes: u32,
    /// The value size in bytes.
    pub value_bytes: u32,
    /// The capacity in entries.
    pub max_entries: u32,
    /// Flags `BPF_F_*`.
    pub flags: u32,
    /// For a data section: the initial contents of its only entry.
    pub initial: Option<Vec<u8>>,
    /// For a context table: the layout of its records.
    pub layout: Option<ContextLayout>,
    /// For a map of maps: the template of its maps.
    pub inner: Option<Box<MapDef>>,
    /// For a map of maps or of programs: its initial contents, by key.
    pub members: Vec<(u32, Member)>,
    /// The offset of the `struct bpf_spin_lock` in each value.
    pub spin_lock: Option<u32>,
}

impl MapDef {
    /// Whether it may be an entry of a map of maps with the template `inner`: everything that programs are compiled for
    /// is equal. For arrays this includes the number of entries, unless a flag permits others [Linux
    /// kernel/bpf/map_in_map.c, arraymap.c].
    pub fn fits_inside(&self, inner: &MapDef) -> bool {
        let compiled = |map: &MapDef| (map.kind, map.key_bytes, map.value_bytes, map.flags, map.spin_lock);
        let any_number = self.kind != MapKind::Array || self.flags & BPF_F_INNER_MAP != 0;
        compiled(self) == compiled(inner) && (any_number || self.max_entries == inner.max_entries)
    }
}

/// An initial entry of a map of maps or of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Member {
    /// A map, by its index in [`Program::maps`].
    Map(usize),
    /// A program, by its index in [`Program::siblings`].
    Program(usize),
}

/// A program of the same object, a possible target of tail calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sibling {
    /// The name of the function (the symbol).
    pub name: String,
    /// Its section.
    pub section: String,
    /// The instructions; map indices are those of the program that it is a sibling of.
    pub insns: Vec<Insn>,
    /// Source lines, ascending by instruction.
    pub lines: Vec<LineInfo>,
}

impl Sibling {
    /// As a program of its own, on the maps of `program`, whose siblings are its own as well.
    pub fn as_program(&self, program: &Program) -> Program {
        Program {
            name: self.name.clone(),
            section: self.section.clone(),
            insns: self.insns.clone(),
            lines: self.lines.clone(),
            maps: program.maps.clone(),
            siblings: Arc::clone(&program.siblings),
            ..Program::default()
        }
    }
}

/// A source location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineInfo {
    /// The first slot that it applies to.
    pub insn: usize,
    /// The source file, as given to the compiler.
    pub file: String,
    /// The text of the line.
    pub text: String,
    /// The line number, from 1.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
}

/// `prog.c:12 `text of the line``.
impl fmt::Display for LineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        match self.text.trim() {
            "" => Ok(()),
            text => write!(f, " `{text}`"),
        }
    }
}

/// A program with its maps.
///
/// A 64-bit immediate load whose source is [`crate::insn::imm64::MAP`] or [`crate::insn::imm64::MAP_VALUE`] has the
/// index into `maps` as its immediate; objects have a relocation, the kernel a file descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// The name of the function (the symbol).
    pub name: String,
    /// Its section, e.g. `xdp`.
    pub section: String,
    /// Its kind.
    pub kind: ProgramKind,
    /// The instructions.
    pub insns: Vec<Insn>,
    /// Unresolved references, ascending by instruction. A program with any is refused by every engine.
    pub unresolved: Vec<Unresolved>,
    /// The number of CO-RE relocations applied.
    pub adapted: usize,
    /// Its maps.
    pub maps: Vec<MapDef>,
    /// Source lines, ascending by instruction.
    pub lines: Vec<LineInfo>,
    /// The licence for the kernel.
    pub license: String,
    /// All programs of its object, itself included, in their order; empty unless a map holds programs.
    pub siblings: Arc<[Sibling]>,
    /// The global functions that it calls, by their slots: the kernel verifies each separately. Empty if an object has
    /// no types.
    pub globals: Vec<GlobalFunction>,
    /// The headers that `fl_parse` knows; the well-known ones if `None`.
    pub headers: Option<Arc<Graph>>,
}

/// The last location at or before `insn`; `lines` ascend by instruction.
fn line_of(lines: &[LineInfo], insn: usize) -> Option<&LineInfo> {
    let after = lines.partition_point(|line| line.insn <= insn);
    after.checked_sub(1).map(|i| &lines[i])
}

impl Sibling {
    /// The source location of the instruction at `insn`.
    pub fn line_of(&self, insn: usize) -> Option<&LineInfo> {
        line_of(&self.lines, insn)
    }
}

impl Program {
    /// The headers that `fl_parse` knows.
    pub fn headers(&self) -> &Graph {
        self.headers.as_deref().unwrap_or_else(|| Graph::standard())
    }

    /// The source location of the instruction at `insn`.
    pub fn line_of(&self, insn: usize) -> Option<&LineInfo> {
        line_of(&self.lines, insn)
    }

    /// Whether a map holds this sibling from the start.
    pub fn holds_from_start(&self, sibling: usize) -> bool {
        let mut members = self.maps.iter().flat_map(|map| &map.members);
        members.any(|(_, member)| *member == Member::Program(sibling))
    }

    /// Whether it declares support for multi-buffer packets (`xdp.frags`).
    pub fn takes_frags(&self) -> bool {
        let name = self.section.strip_prefix('?').unwrap_or(&self.section);
        let head = name.split('/').next().unwrap_or(name);
        self.kind.is_xdp() && head.split('.').skip(1).any(|part| part == "frags")
    }

    /// The first instruction that refers to the map of this index.
    pub fn first_use(&self, map: usize) -> Option<usize> {
        let names = |insn: &Insn| {
            insn.is_wide() && matches!(insn.src, imm64::MAP | imm64::MAP_VALUE) && usize::try_from(insn.imm) == Ok(map)
        };
        self.insns.iter().position(names)
    }

    /// The index of the map called `name`.
    pub fn map_index(&self, name: &str) -> Option<usize> {
        self.maps.iter().position(|m| m.name == name)
    }
}
