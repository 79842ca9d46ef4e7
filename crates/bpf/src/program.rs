//! A program with its maps: what objects are read into, what the lowering makes, what every engine starts from.

use std::fmt;
use std::sync::Arc;

use crate::context::ContextLayout;
use crate::global::GlobalFunction;
use crate::insn::{Insn, imm64};
use crate::lack::Lack;
use crate::map_kind::MapKind;
use crate::program_kind::ProgramKind;

/// Flag of a hash map: entries are allocated one by one, so that a full map holds exactly its declared size.
pub const BPF_F_NO_PREALLOC: u32 = 1;
/// Flag: programs may only read the map (`.rodata`).
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// Flag: a data section that user space may map (`.data`, `.bss`, `.rodata`).
pub const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Flag of an LRU table: each CPU has a list of its own.
pub const BPF_F_NO_COMMON_LRU: u32 = 1 << 1;
/// Flag: the loader says where the map's memory is to be.
pub(crate) const BPF_F_NUMA_NODE: u32 = 1 << 2;
/// Flag: user space may only read the map.
pub(crate) const BPF_F_RDONLY: u32 = 1 << 3;
/// Flag: user space may only write the map.
pub(crate) const BPF_F_WRONLY: u32 = 1 << 4;
/// Flag of a hash table: its order is the same every time.
pub(crate) const BPF_F_ZERO_SEED: u32 = 1 << 6;
/// Flag: programs may only write the map.
pub(crate) const BPF_F_WRONLY_PROG: u32 = 1 << 8;
/// Flag of a perf event array: what is in it stays when the one who put it there goes.
pub(crate) const BPF_F_PRESERVE_ELEMS: u32 = 1 << 11;
/// Flag of an array in a map of maps: the arrays there may have other numbers of entries.
pub(crate) const BPF_F_INNER_MAP: u32 = 1 << 12;
/// The most entries that a map, and so a table of contexts, has on any engine.
pub const MAX_ENTRIES: u32 = u32::MAX / 2;

/// One map of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapDef {
    /// Its name: at most 15 bytes of letters, digits, `_` and `.` where the kernel is to see it whole.
    pub name: String,
    /// What it is.
    pub kind: MapKind,
    /// Length of a key.
    pub key_bytes: u32,
    /// Length of a value.
    pub value_bytes: u32,
    /// How many entries it holds.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// For a data section: the contents of its only entry when the program is loaded.
    pub initial: Option<Vec<u8>>,
    /// For a context table of ours: what its records mean.
    pub layout: Option<ContextLayout>,
    /// For a map of maps: what each map in it is.
    pub inner: Option<Box<MapDef>>,
    /// For a map of maps or of programs: what it holds from the start, by key.
    pub members: Vec<(u32, Member)>,
    /// Where in each value a `struct bpf_spin_lock` lies.
    pub spin_lock: Option<u32>,
}

impl MapDef {
    /// Whether it may be put into a map of maps that says that those inside are as `inner`: in all that programs are compiled
    /// for. Of arrays that is the number of entries too, unless they say otherwise [Linux kernel/bpf/map_in_map.c,
    /// arraymap.c].
    pub fn fits_inside(&self, inner: &MapDef) -> bool {
        let compiled = |map: &MapDef| (map.kind, map.key_bytes, map.value_bytes, map.flags, map.spin_lock);
        let any_number = self.kind != MapKind::Array || self.flags & BPF_F_INNER_MAP != 0;
        compiled(self) == compiled(inner) && (any_number || self.max_entries == inner.max_entries)
    }
}

/// What a map of maps or of programs holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Member {
    /// A map, by its index in [`Program::maps`].
    Map(usize),
    /// A program, by its index in [`Program::siblings`].
    Program(usize),
}

/// A program of the same object, which tail calls may lead to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sibling {
    /// Name of the function (the symbol).
    pub name: String,
    /// Section it stands in.
    pub section: String,
    /// The instructions; they name the maps of the program that it is a sibling of.
    pub insns: Vec<Insn>,
    /// Source lines, ascending by instruction.
    pub lines: Vec<LineInfo>,
}

/// Where an instruction comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineInfo {
    /// Index of the first slot that this line made.
    pub insn: usize,
    /// Source file, as the user named it.
    pub file: String,
    /// The text of the line.
    pub text: String,
    /// Line number, from 1.
    pub line: u32,
    /// Column, from 1; 0 if not known.
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
/// A 64-bit immediate load whose source is [`crate::insn::imm64::MAP`] or [`crate::insn::imm64::MAP_VALUE`] carries the
/// index into `maps` as its immediate; objects carry it as a relocation, the kernel as a file descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Name of the function (the symbol).
    pub name: String,
    /// Section it stands in, e.g. `xdp`.
    pub section: String,
    /// What it is for.
    pub kind: ProgramKind,
    /// The instructions.
    pub insns: Vec<Insn>,
    /// What some of them want and are not given; ascending by instruction. Such a program is refused by every engine.
    pub lacks: Vec<Lack>,
    /// How many of them were adapted to the types of a kernel (CO-RE).
    pub adapted: usize,
    /// The maps they use.
    pub maps: Vec<MapDef>,
    /// Source lines, ascending by instruction.
    pub lines: Vec<LineInfo>,
    /// The licence that the kernel is told.
    pub license: String,
    /// The programs of its object, itself among them, in their order; none where no map holds programs.
    pub siblings: Arc<[Sibling]>,
    /// The global functions that it calls, by their slots: the kernel verifies each by itself. None where an object has no types.
    pub globals: Vec<GlobalFunction>,
}

/// The line in force at `insn`, of lines ascending by instruction.
fn line_of(lines: &[LineInfo], insn: usize) -> Option<&LineInfo> {
    let after = lines.partition_point(|line| line.insn <= insn);
    after.checked_sub(1).map(|i| &lines[i])
}

impl Sibling {
    /// The source line that made the instruction at `insn`.
    pub fn line_of(&self, insn: usize) -> Option<&LineInfo> {
        line_of(&self.lines, insn)
    }
}

impl Program {
    /// The source line that made the instruction at `insn`.
    pub fn line_of(&self, insn: usize) -> Option<&LineInfo> {
        line_of(&self.lines, insn)
    }

    /// Whether some map holds the sibling of this number from the start.
    pub fn holds_from_start(&self, sibling: usize) -> bool {
        let mut members = self.maps.iter().flat_map(|map| &map.members);
        members.any(|(_, member)| *member == Member::Program(sibling))
    }

    /// Whether it says that it takes packets that lie in several pieces (`xdp.frags`).
    pub fn takes_frags(&self) -> bool {
        let name = self.section.strip_prefix('?').unwrap_or(&self.section);
        let head = name.split('/').next().unwrap_or(name);
        self.kind.is_xdp() && head.split('.').skip(1).any(|part| part == "frags")
    }

    /// The first instruction that names the map of this index.
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
