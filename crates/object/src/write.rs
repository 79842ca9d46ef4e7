// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes programs to objects.
//!
//! Goal: what loaders expect from clang. Steps: check the program and split it into functions; make the types; emit
//! sections and symbols; turn map indices and call distances into relocations; attach the lines.

mod kernel;
mod types;

use std::collections::HashSet;
use std::ops::Range;

use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

use super::code::{self, CodeError};
use super::sidecar::Sidecar;
use super::{DataKind, MAX_COLUMN, MAX_LINE, names};
use flowloom_isa::btf::{BtfError, Ext, ExtSection, FuncRecord, LineRecord};
use flowloom_isa::insn::{Insn, imm64};
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, LineInfo, MapDef, MapKind, Program, ProgramKind};
pub use kernel::{KernelTypes, declared_types, kernel_types};
use types::{Definition, Types};

/// Why a program cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what each field is")]
pub enum WriteError {
    /// A name that an object or its type information cannot express.
    #[error("{what} `{name}` cannot be written: {why}")]
    Name { what: &'static str, name: String, why: &'static str },
    /// Two symbols with one name.
    #[error("{what} `{name}` has the name of another symbol of the object")]
    Duplicate { what: &'static str, name: String },
    /// The instructions do not form functions.
    #[error("program `{program}`: {source}")]
    Code { program: String, source: CodeError },
    /// A 64-bit load that no relocation can express.
    #[error("program `{program}`, instruction {at}: {why}")]
    Load { program: String, at: usize, why: String },
    /// A property of the program that objects cannot express.
    #[error("program `{program}`: {what} cannot be written")]
    Program { program: String, what: String },
    /// A map that its section cannot express.
    #[error("map `{map}`: {what} is {found}, expected {expected}")]
    Map { map: String, what: &'static str, found: String, expected: String },
    /// A layout that does not match the records of its table.
    #[error("map `{map}`: {why}")]
    Layout { map: String, why: String },
    /// Line information that cannot be written.
    #[error("program `{program}`, line information {index}: {what} is {found}, expected {expected}")]
    Line { program: String, index: usize, what: &'static str, found: usize, expected: String },
    /// Type information that exceeds its format.
    #[error("type information: {0}")]
    Btf(#[from] BtfError),
    /// The JSON of the maps cannot be written.
    #[error("section `{section}`: {why}")]
    Section { section: &'static str, why: String },
}

/// Writes an object for `bpftool prog load`, `ip link set … xdp obj`, `xdp-loader load` and `aya`.
///
/// # Layout
/// See the module. The program's callees become static functions `NAME_1`, `NAME_2`, … of `.text`. An XDP program from
/// a section of another kind, or from `.text`, is put into one of its own kind, so that loaders recognise it.
///
/// # Errors
/// Everything that [`super::read()`] would not restore as it was, see [`WriteError`].
///
/// # Source
/// [Linux Documentation/bpf/btf.rst], [LLVM BPF ELF relocations: R_BPF_64_64, R_BPF_64_32]
pub fn write(program: &Program) -> Result<Vec<u8>, WriteError> {
    let functions =
        code::split(&program.insns).map_err(|source| WriteError::Code { program: program.name.clone(), source })?;
    let moved;
    let program = match section_of_kind(program) {
        Some(section) => {
            moved = Program { section: section.to_owned(), ..program.clone() };
            &moved
        }
        None => program,
    };
    check_name(program)?;
    check_section(program)?;
    check_program(program)?;
    let mut types = Types::default();
    let mut out = Writer::new(program, functions, &mut types)?;
    out.maps(&mut types)?;
    out.code()?;
    out.license();
    out.lines(&mut types)?;
    out.finish(types)
}

/// The section for an XDP program whose own has another meaning.
fn section_of_kind(program: &Program) -> Option<&'static str> {
    let is_meant = ProgramKind::of_section(&program.section).unwrap_or_default() == program.kind;
    match program.kind {
        _ if is_meant && program.section != names::TEXT => None,
        ProgramKind::Xdp => Some("xdp"),
        ProgramKind::XdpDevmap => Some("xdp/devmap"),
        ProgramKind::XdpCpumap => Some("xdp/cpumap"),
        ProgramKind::Other(_) => None,
    }
}

/// Checks for properties that objects cannot express or that are not supported.
fn check_program(program: &Program) -> Result<(), WriteError> {
    let fail = |what: String| Err(WriteError::Program { program: program.name.clone(), what });
    if let Some(unresolved) = program.unresolved.first() {
        return fail(format!("instruction {}, {},", unresolved.insn, unresolved.reference));
    }
    if ProgramKind::of_section(&program.section).unwrap_or_default() != program.kind {
        return fail(format!("kind `{}` in section `{}`", program.kind, program.section));
    }
    if !program.siblings.is_empty() {
        return fail("its siblings, other programs of its object,".to_owned());
    }
    match program.maps.iter().find(|map| map.inner.is_some() || !map.members.is_empty() || map.spin_lock.is_some()) {
        Some(map) => fail(format!("map `{}`, which holds maps, programs or a lock,", map.name)),
        None => Ok(()),
    }
}

fn check_name(program: &Program) -> Result<(), WriteError> {
    if program.name.is_empty() || program.name.contains('\0') {
        let (name, why) = (program.name.clone(), "a symbol needs a name without zero bytes");
        return Err(WriteError::Name { what: "program", name, why });
    }
    Ok(())
}

fn check_section(program: &Program) -> Result<(), WriteError> {
    let bad = |what, name: &str, why| Err(WriteError::Name { what, name: name.to_owned(), why });
    let section = program.section.as_str();
    let taken = [
        names::TEXT,
        names::MAPS,
        names::LEGACY_MAPS,
        names::LICENSE,
        names::BTF,
        names::BTF_EXT,
        names::SIDECAR,
        "version",
        ".symtab",
        ".strtab",
        ".shstrtab",
    ];
    if section.is_empty() || section.contains('\0') {
        return bad("section", section, "a section needs a name without zero bytes");
    }
    if taken.contains(&section) || DataKind::of(section).is_some() || section.starts_with(".rel") {
        return bad("section", section, "the name has another meaning in objects");
    }
    if program.license.contains('\0') {
        return bad("licence", &program.license, "it holds a zero byte");
    }
    Ok(())
}

/// The symbol of a map, and whether it is a data section.
struct MapSymbol {
    symbol: SymbolId,
    is_data: bool,
}

struct Writer<'p> {
    program: &'p Program,
    functions: Vec<Range<usize>>,
    object: Object<'static>,
    /// The program's section, and `.text` if it has callees.
    main: SectionId,
    text: Option<SectionId>,
    function_symbols: Vec<SymbolId>,
    map_symbols: Vec<MapSymbol>,
    taken: HashSet<String>,
    ext: Ext,
}

impl<'p> Writer<'p> {
    fn new(program: &'p Program, functions: Vec<Range<usize>>, types: &mut Types) -> Result<Self, WriteError> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        let mut add = |name: &str| object.add_section(Vec::new(), name.as_bytes().to_vec(), SectionKind::Text);
        let main = add(&program.section);
        let text = (functions.len() > 1).then(|| add(names::TEXT));
        let mut out = Writer {
            program,
            functions,
            object,
            main,
            text,
            function_symbols: Vec::new(),
            map_symbols: Vec::new(),
            taken: HashSet::new(),
            ext: Ext::default(),
        };
        let mut records = [Vec::new(), Vec::new()];
        for number in 0..out.functions.len() {
            let slots = out.functions[number].len() as u64;
            let (section, start) = out.place(number);
            let called = number > 0;
            let name = if called { format!("{}_{number}", program.name) } else { program.name.clone() };
            out.claim("function", &name)?;
            let scope = if called { SymbolScope::Compilation } else { SymbolScope::Dynamic };
            let symbol = out.symbol(&name, start, slots * 8, SymbolKind::Text, scope, section);
            out.function_symbols.push(symbol);
            let func = types.function(&name, &program.section, called)?;
            records[usize::from(called)].push(FuncRecord { offset_bytes: start as u32, func });
        }
        for (section, records) in [program.section.as_str(), names::TEXT].into_iter().zip(records) {
            out.ext.funcs.push(ExtSection { section: types.string(section)?, records });
        }
        Ok(out)
    }

    /// The section and byte offset of a function.
    fn place(&self, number: usize) -> (SectionId, u64) {
        match self.text {
            Some(text) if number > 0 => (text, (self.functions[number].start - self.functions[1].start) as u64 * 8),
            _ => (self.main, 0),
        }
    }

    fn claim(&mut self, what: &'static str, name: &str) -> Result<(), WriteError> {
        if self.taken.insert(name.to_owned()) {
            Ok(())
        } else {
            Err(WriteError::Duplicate { what, name: name.to_owned() })
        }
    }

    fn symbol(
        &mut self,
        name: &str,
        value: u64,
        size: u64,
        kind: SymbolKind,
        scope: SymbolScope,
        section: SectionId,
    ) -> SymbolId {
        self.object.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value,
            size,
            kind,
            scope,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        })
    }

    fn section(&mut self, name: &str, kind: SectionKind, data: &[u8], align: u64) -> SectionId {
        let id = self.object.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        self.object.append_section_data(id, data, align);
        id
    }

    /// Emits `.maps`, data sections, and their symbols and types.
    fn maps(&mut self, types: &mut Types) -> Result<(), WriteError> {
        let program = self.program;
        let mut definitions = Vec::new();
        let mut maps_section = None;
        for map in &program.maps {
            let symbol = match &map.initial {
                Some(initial) => self.data_section(map, initial, types)?,
                None => {
                    check_map(map)?;
                    self.claim("map", &map.name)?;
                    let section = match maps_section {
                        Some(section) => section,
                        None => *maps_section.insert(self.section(names::MAPS, SectionKind::Data, &[], 8)),
                    };
                    let Definition { var, size_bytes } = types.map(map)?;
                    let offset = self.object.append_section_data(section, &vec![0; size_bytes as usize], 8);
                    definitions.push((var, offset as u32, size_bytes));
                    let scope = SymbolScope::Dynamic;
                    self.symbol(&map.name, offset, size_bytes.into(), SymbolKind::Data, scope, section)
                }
            };
            self.map_symbols.push(MapSymbol { symbol, is_data: map.initial.is_some() });
        }
        if !definitions.is_empty() {
            types.data_section(names::MAPS, &definitions)?;
        }
        Ok(())
    }

    fn data_section(&mut self, map: &MapDef, initial: &[u8], types: &mut Types) -> Result<SymbolId, WriteError> {
        let kind = check_data(map, initial)?;
        self.claim("section", &map.name)?;
        // Loaders let user space map the section if one of its variables is global.
        let shared = map.flags & BPF_F_MMAPABLE != 0;
        let variable = format!("fl_{}", types::identifier(map.name.trim_start_matches('.')));
        self.claim("variable", &variable)?;
        let size = map.value_bytes;
        let section = match kind {
            DataKind::Data => self.section(&map.name, SectionKind::Data, initial, 8),
            DataKind::ReadOnly => self.section(&map.name, SectionKind::ReadOnlyData, initial, 8),
            DataKind::Zero => {
                let name = map.name.as_bytes().to_vec();
                let id = self.object.add_section(Vec::new(), name, SectionKind::UninitializedData);
                self.object.append_section_bss(id, size.into(), 8);
                id
            }
        };
        let var = types.data_variable(&variable, size, shared)?;
        types.data_section(&map.name, &[(var, 0, size)])?;
        let scope = if shared { SymbolScope::Dynamic } else { SymbolScope::Compilation };
        Ok(self.symbol(&variable, 0, size.into(), SymbolKind::Data, scope, section))
    }

    /// Emits the instructions, with relocations for what only a loader knows.
    fn code(&mut self) -> Result<(), WriteError> {
        let program = self.program;
        for number in 0..self.functions.len() {
            let function = self.functions[number].clone();
            let (section, start) = self.place(number);
            let mut insns = program.insns[function.clone()].to_vec();
            let mut relocations = Vec::new();
            for (at, insn) in code::instructions(&program.insns[function.clone()]) {
                if let Some((symbol, r_type)) = self.relocate(&mut insns, at, insn, function.start)? {
                    relocations.push((start + at as u64 * 8, symbol, r_type));
                }
            }
            let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
            self.object.append_section_data(section, &bytes, 8);
            for (offset, symbol, r_type) in relocations {
                let flags = RelocationFlags::Elf { r_type };
                let relocation = Relocation { offset, symbol, addend: 0, flags };
                self.object
                    .add_relocation(section, relocation)
                    .map_err(|e| WriteError::Section { section: names::TEXT, why: e.to_string() })?;
            }
        }
        Ok(())
    }

    /// Turns the instruction at `at` (in `insns`, which begin at slot `base`) into what clang would have written.
    fn relocate(
        &mut self,
        insns: &mut [Insn],
        at: usize,
        insn: Insn,
        base: usize,
    ) -> Result<Option<(SymbolId, object::elf::RelocationType)>, WriteError> {
        let program = self.program;
        let fail = |why: String| WriteError::Load { program: program.name.clone(), at: base + at, why };
        if let Some(target) = code::callee(insn, base + at) {
            // Splitting has checked that a function begins there.
            let number = self.functions.partition_point(|f| (f.start as i64) < target);
            let symbol = *self.function_symbols.get(number).ok_or_else(|| fail(format!("no function at {target}")))?;
            if insn.is_wide() {
                if insns[at + 1] != Insn::default() {
                    return Err(fail("the second half of a function's address is not zero".to_owned()));
                }
                // libbpf finds the address of a static function by the symbol of `.text` alone.
                let (section, start) = self.place(number);
                insns[at].src = imm64::NUMBER;
                insns[at].imm = start as i32;
                return Ok(Some((self.object.section_symbol(section), object::elf::R_BPF_64_64)));
            }
            if base > 0 {
                // Within `.text` the distance is final.
                return Ok(None);
            }
            insns[at].imm = -1;
            return Ok(Some((symbol, object::elf::R_BPF_64_32)));
        }
        if !insn.is_wide() || insn.src == imm64::NUMBER {
            return Ok(None);
        }
        let is_value = match insn.src {
            imm64::MAP => false,
            imm64::MAP_VALUE => true,
            other => return Err(fail(format!("source field {other} of a 64-bit load is not known"))),
        };
        let map = usize::try_from(insn.imm).ok().and_then(|i| self.map_symbols.get(i));
        let map = map.ok_or_else(|| {
            fail(format!("the load names map {}, the program has {}", insn.imm, self.map_symbols.len()))
        })?;
        if map.is_data != is_value {
            let kind = if map.is_data { "a data section" } else { "not a data section" };
            return Err(fail(format!("map {} is {kind}, objects cannot express this load of it", insn.imm)));
        }
        let second = Insn { imm: insns[at + 1].imm, ..Insn::default() };
        if insns[at + 1] != second || (!is_value && second.imm != 0) {
            return Err(fail("the second half of the load has more than an offset".to_owned()));
        }
        insns[at].src = imm64::NUMBER;
        insns[at].imm = second.imm;
        insns[at + 1].imm = 0;
        Ok(Some((map.symbol, object::elf::R_BPF_64_64)))
    }

    fn license(&mut self) {
        if !self.program.license.is_empty() {
            let mut text = self.program.license.clone().into_bytes();
            text.push(0);
            self.section(names::LICENSE, SectionKind::Data, &text, 1);
        }
    }

    /// Emits the line records of both sections; each function begins with one.
    fn lines(&mut self, types: &mut Types) -> Result<(), WriteError> {
        let program = self.program;
        check_lines(program)?;
        if program.lines.is_empty() {
            return Ok(());
        }
        let mut records = [Vec::new(), Vec::new()];
        for (number, function) in self.functions.iter().enumerate() {
            let (_, start) = self.place(number);
            for (slot, line) in line_records(program, function) {
                records[usize::from(number > 0)].push(LineRecord {
                    offset_bytes: (start as usize + (slot - function.start) * 8) as u32,
                    file: types.string(&line.file)?,
                    text: types.string(&line.text)?,
                    line: line.line,
                    column: column(line),
                });
            }
        }
        for (section, records) in [program.section.as_str(), names::TEXT].into_iter().zip(records) {
            self.ext.lines.push(ExtSection { section: types.string(section)?, records });
        }
        Ok(())
    }

    fn finish(mut self, types: Types) -> Result<Vec<u8>, WriteError> {
        self.section(names::BTF, SectionKind::Other, &types.finish().emit()?, 4);
        let ext = self.ext.emit()?;
        self.section(names::BTF_EXT, SectionKind::Other, &ext, 4);
        let fail = |section, why: String| WriteError::Section { section, why };
        let sidecar = Sidecar::of(&self.program.maps).emit().map_err(|e| fail(names::SIDECAR, e.to_string()))?;
        self.section(names::SIDECAR, SectionKind::Other, &sidecar, 1);
        self.object.write().map_err(|e| fail(names::TEXT, e.to_string()))
    }
}

/// The lines of a function by slot. The first one is at its first slot, as the kernel requires.
fn line_records<'p>(program: &'p Program, function: &Range<usize>) -> impl Iterator<Item = (usize, &'p LineInfo)> {
    let from = program.lines.partition_point(|line| line.insn < function.start);
    let to = program.lines.partition_point(|line| line.insn < function.end);
    let lines = &program.lines[from..to];
    let begins = lines.first().is_some_and(|line| line.insn == function.start);
    let in_force = program.line_of(function.start).or(program.lines.first()).filter(|_| !begins);
    let start = function.start;
    in_force.map(|line| (start, line)).into_iter().chain(lines.iter().map(|line| (line.insn, line)))
}

/// The column as the format expresses it.
fn column(line: &LineInfo) -> u32 {
    if line.column > MAX_COLUMN { 0 } else { line.column }
}

fn check_map(map: &MapDef) -> Result<(), WriteError> {
    let fail = |what, found: u32, expected: &str| {
        Err(WriteError::Map { map: map.name.clone(), what, found: found.to_string(), expected: expected.to_owned() })
    };
    if !types::is_identifier(&map.name) {
        let why = "type information takes 1 to 127 letters, digits, `_` and `.`, no digit first";
        return Err(WriteError::Name { what: "map", name: map.name.clone(), why });
    }
    if DataKind::of(&map.name).is_some() {
        let why = "it is the name of a data section, and the map has no initial contents";
        return Err(WriteError::Name { what: "map", name: map.name.clone(), why });
    }
    if map.kind == MapKind::RingBuf {
        return Ok(());
    }
    if map.key_bytes == 0 {
        return fail("length of a key", 0, "at least 1 byte");
    }
    if map.value_bytes == 0 {
        return fail("length of a value", 0, "at least 1 byte");
    }
    Ok(())
}

/// The map of a data section is determined by the section; other properties cannot be restored.
fn check_data(map: &MapDef, initial: &[u8]) -> Result<DataKind, WriteError> {
    let fail =
        |what, found: String, expected: String| Err(WriteError::Map { map: map.name.clone(), what, found, expected });
    let Some(kind) = DataKind::of(&map.name).filter(|_| !map.name.contains('\0')) else {
        let why = "a map with initial contents is called `.data`, `.rodata` or `.bss`, or one of these and `.NAME`";
        return Err(WriteError::Name { what: "map", name: map.name.clone(), why });
    };
    if (map.kind, map.key_bytes, map.max_entries) != (MapKind::Array, 4, 1) {
        let found = format!("{:?} of {} keys of {} bytes", map.kind, map.max_entries, map.key_bytes);
        return fail("kind of a data section", found, "Array of 1 keys of 4 bytes".to_owned());
    }
    if initial.is_empty() || initial.len() != map.value_bytes as usize {
        let expected = format!("{} bytes, at least 1", map.value_bytes);
        return fail("length of the initial contents", format!("{} bytes", initial.len()), expected);
    }
    let read_only = if kind == DataKind::ReadOnly { BPF_F_RDONLY_PROG } else { 0 };
    if map.flags & !BPF_F_MMAPABLE != read_only {
        let expected = format!("{read_only:#x} with or without {BPF_F_MMAPABLE:#x}");
        return fail("flags of a data section", format!("{:#x}", map.flags), expected);
    }
    if kind == DataKind::Zero && initial.iter().any(|b| *b != 0) {
        return fail("initial contents", "not zero".to_owned(), "zeros".to_owned());
    }
    if map.layout.is_some() {
        return fail("layout", "present".to_owned(), "none for a data section".to_owned());
    }
    Ok(kind)
}

fn check_lines(program: &Program) -> Result<(), WriteError> {
    let mut starts = vec![false; program.insns.len()];
    for (at, _) in code::instructions(&program.insns) {
        starts[at] = true;
    }
    let mut next = 0;
    for (index, line) in program.lines.iter().enumerate() {
        let fail = |what, found, expected: String| {
            Err(WriteError::Line { program: program.name.clone(), index, what, found, expected })
        };
        if line.insn < next {
            return fail("instruction", line.insn, format!("at least {next}: ascending, one line each"));
        }
        if starts.get(line.insn) != Some(&true) {
            return fail("instruction", line.insn, format!("a first slot below {}", program.insns.len()));
        }
        if line.line > MAX_LINE {
            return fail("line number", line.line as usize, format!("at most {MAX_LINE}"));
        }
        for (what, text) in [("zero byte in the file name", &line.file), ("zero byte in the text", &line.text)] {
            if let Some(at) = text.find('\0') {
                return fail(what, at, "none".to_owned());
            }
        }
        next = line.insn + 1;
    }
    Ok(())
}
