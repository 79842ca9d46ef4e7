//! A program with its maps: what objects are read into, what the lowering makes, what every engine starts from.

use crate::context::ContextLayout;
use crate::insn::Insn;

/// Kinds of maps, with the kernel's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// Hash table.
    Hash,
    /// Array of fixed size; all entries always exist.
    Array,
    /// Ports to redirect to, by number.
    Devmap,
}

impl MapKind {
    /// The number in the kernel's `enum bpf_map_type`.
    pub fn number(self) -> u32 {
        match self {
            MapKind::Hash => 1,
            MapKind::Array => 2,
            MapKind::Devmap => 14,
        }
    }

    /// The kind with this number, if it is one of ours.
    pub fn from_number(number: u32) -> Option<MapKind> {
        [MapKind::Hash, MapKind::Array, MapKind::Devmap].into_iter().find(|k| k.number() == number)
    }
}

/// Flag of a hash map: entries are allocated one by one, so that a full map holds exactly its declared size.
pub const BPF_F_NO_PREALLOC: u32 = 1;
/// Flag: programs may only read the map (`.rodata`).
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// Flag: a data section that user space may map (`.data`, `.bss`, `.rodata`).
pub const BPF_F_MMAPABLE: u32 = 1 << 10;

/// One map of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The instructions.
    pub insns: Vec<Insn>,
    /// The maps they use.
    pub maps: Vec<MapDef>,
    /// Source lines, ascending by instruction.
    pub lines: Vec<LineInfo>,
    /// The licence that the kernel is told.
    pub license: String,
}

impl Program {
    /// The source line that made the instruction at `insn`.
    pub fn line_of(&self, insn: usize) -> Option<&LineInfo> {
        let after = self.lines.partition_point(|line| line.insn <= insn);
        after.checked_sub(1).map(|i| &self.lines[i])
    }

    /// The index of the map called `name`.
    pub fn map_index(&self, name: &str) -> Option<usize> {
        self.maps.iter().position(|m| m.name == name)
    }
}
