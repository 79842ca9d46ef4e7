//! Functions to programs: what a program calls is put behind it, and relocations become numbers and distances.
//!
//! ```text
//!  xdp:   knock ── call R_BPF_64_32 ──┐          program `knock`: knock | check | hash
//!  .text: hash ◄── call +n ── check ◄─┘                             └ distances between them ┘
//! ```
//!
//! The functions stand in the order of their places, so that what [`super::write()`] laid out comes back as it was.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::code;
use super::container::{Budget, Container, Place, Relocation, SectionKind, SymbolKind};
use super::maps::{Found, Maps};
use super::read::ReadFault;
use super::{MAX_SLOTS, names};
use crate::btf::{Btf, Ext, LineRecord};
use crate::context::StateSuccessor;
use crate::insn::{Insn, call, class, imm64, jmp};
use crate::program::{LineInfo, MapDef, Program};

/// Largest number of programs in an object.
const MAX_PROGRAMS: usize = 4096;

/// A function of the object.
struct Function<'a> {
    name: &'a str,
    section: usize,
    /// First slot and number of slots, in the section.
    start: u64,
    slots: u64,
    /// Whether only the object itself sees it.
    local: bool,
}

impl Function<'_> {
    fn end(&self) -> u64 {
        self.start + self.slots
    }
}

/// What is known about code sections.
pub(super) struct Linker<'a> {
    container: &'a Container<'a>,
    btf: Option<&'a Btf>,
    maps: &'a Maps,
    functions: Vec<Function<'a>>,
    /// Functions by section and first slot.
    by_place: HashMap<(usize, u64), usize>,
    /// Line records by section name, ascending.
    lines: HashMap<&'a [u8], Vec<LineRecord>>,
    /// Slots that want adapting to a kernel, by section name, ascending.
    adaptations: HashMap<&'a [u8], Vec<u32>>,
}

impl<'a> Linker<'a> {
    pub(super) fn new(
        container: &'a Container<'a>,
        btf: Option<&'a Btf>,
        ext: &Ext,
        maps: &'a Maps,
    ) -> Result<Linker<'a>, ReadFault> {
        let functions = functions(container)?;
        let mut by_place = HashMap::new();
        for (number, function) in functions.iter().enumerate() {
            // Two names of one function: the first stands for both.
            by_place.entry((function.section, function.start)).or_insert(number);
        }
        let mut out =
            Linker { container, btf, maps, functions, by_place, lines: HashMap::new(), adaptations: HashMap::new() };
        if let Some(btf) = btf {
            for section in &ext.lines {
                let name = btf.name_bytes(section.section)?;
                let lines = out.lines.entry(name).or_default();
                for record in &section.records {
                    if lines.last().is_some_and(|last| record.offset_bytes <= last.offset_bytes) {
                        return Err(ReadFault::Header {
                            what: "line information",
                            why: format!("byte {} is not behind the record before it", record.offset_bytes),
                        });
                    }
                    lines.push(*record);
                }
            }
            for section in &ext.adaptations {
                out.adaptations.entry(btf.name_bytes(section.section)?).or_default().extend(&section.records);
            }
            for offsets in out.adaptations.values_mut() {
                offsets.sort_unstable();
            }
        }
        Ok(out)
    }

    /// All programs of the object.
    pub(super) fn programs(&self, license: &str, budget: &mut Budget) -> Result<Vec<Program>, ReadFault> {
        let is_text = |f: &Function<'_>| self.container.sections[f.section].name == names::TEXT;
        let mut roots: Vec<usize> =
            (0..self.functions.len()).filter(|i| !self.functions[*i].local && !is_text(&self.functions[*i])).collect();
        if roots.is_empty() && self.functions.len() == 1 {
            // A lone function is meant to be run, whatever its section; loaders see it so too.
            roots.push(0);
        }
        if roots.is_empty() {
            return Err(ReadFault::NoProgram);
        }
        if roots.len() > MAX_PROGRAMS {
            return Err(ReadFault::TooMany { what: "programs", found: roots.len(), limit: MAX_PROGRAMS });
        }
        roots.sort_by_key(|i| (self.functions[*i].section, self.functions[*i].start));
        roots.into_iter().map(|root| self.program(root, license, budget)).collect()
    }

    fn program(&self, root: usize, license: &str, budget: &mut Budget) -> Result<Program, ReadFault> {
        budget.charge("maps", self.maps.defs.iter().map(memory).sum())?;
        budget.charge("licence", license.len() as u64)?;
        let pieces = self.reach(root, budget)?;
        // Where each function begins in the program.
        let mut starts = BTreeMap::new();
        let mut total = 0;
        for piece in &pieces {
            starts.insert(*piece, total);
            total += self.functions[*piece].slots as usize;
        }
        let mut insns = Vec::with_capacity(total);
        let mut lines = Vec::new();
        for piece in &pieces {
            let base = insns.len();
            insns.extend(self.relocated(*piece, &starts)?);
            self.lines_of(*piece, base, &mut lines, budget)?;
        }
        let function = &self.functions[root];
        let program = Program {
            name: function.name.to_owned(),
            section: self.container.sections[function.section].name.to_owned(),
            insns,
            maps: self.maps.defs.clone(),
            lines,
            license: license.to_owned(),
            ..Program::default()
        };
        code::split(&program.insns).map_err(|source| ReadFault::Code { program: program.name.clone(), source })?;
        let mut firsts = vec![false; program.insns.len()];
        for (at, _) in code::instructions(&program.insns) {
            firsts[at] = true;
        }
        if let Some(line) = program.lines.iter().find(|line| !firsts[line.insn]) {
            let why = format!("slot {} of program `{}` is the second half of a load", line.insn, program.name);
            return Err(ReadFault::Header { what: "line information", why });
        }
        Ok(program)
    }

    /// The function and all that it calls, itself first and the others by their place.
    fn reach(&self, root: usize, budget: &mut Budget) -> Result<Vec<usize>, ReadFault> {
        let mut seen = HashSet::from([root]);
        let mut todo = vec![root];
        let mut slots = 0;
        while let Some(number) = todo.pop() {
            let function = &self.functions[number];
            slots += function.slots;
            if slots > MAX_SLOTS as u64 {
                let (found, limit) = (slots as usize, MAX_SLOTS);
                return Err(ReadFault::TooMany { what: "slots of a program", found, limit });
            }
            budget.charge("instructions", function.slots * 16 + 64)?;
            let insns = self.insns(number);
            for (at, insn) in code::instructions(&insns) {
                if let Target::Function(callee) = self.target(number, at, insn)?
                    && seen.insert(callee)
                {
                    todo.push(callee);
                }
            }
        }
        seen.remove(&root);
        let mut rest: Vec<usize> = seen.into_iter().collect();
        rest.sort_by_key(|i| (self.functions[*i].section, self.functions[*i].start));
        Ok([root].into_iter().chain(rest).collect())
    }

    fn insns(&self, number: usize) -> Vec<Insn> {
        let function = &self.functions[number];
        let bytes = self.container.sections[function.section].bytes;
        let (slots, _) = bytes.as_chunks::<8>();
        // The function's place was checked when it was found.
        let place = function.start as usize..function.end() as usize;
        slots.get(place).unwrap_or_default().iter().map(|slot| Insn::from_bytes(*slot)).collect()
    }

    /// The function's instructions for a program in which functions begin at `starts`.
    fn relocated(&self, number: usize, starts: &BTreeMap<usize, usize>) -> Result<Vec<Insn>, ReadFault> {
        let function = &self.functions[number];
        let original = self.insns(number);
        let mut insns = original.clone();
        let base = starts.get(&number).copied().unwrap_or(0);
        let mut used = 0;
        for (at, insn) in code::instructions(&original) {
            used += usize::from(self.relocation(number, at).is_some());
            let target = self.target(number, at, insn)?;
            if insn.is_wide() && insn.src != imm64::NUMBER && target == Target::None {
                let why = format!("64-bit load with source field {} but without relocation", insn.src);
                return Err(self.fault(number, at, why));
            }
            match target {
                Target::None => {}
                Target::Map(index) => {
                    self.check_second_half(number, at, &original, insn)?;
                    (insns[at].src, insns[at].imm, insns[at + 1].imm) = (imm64::MAP, index as i32, 0);
                }
                Target::Value(index, offset) => {
                    self.check_second_half(number, at, &original, insn)?;
                    (insns[at].src, insns[at].imm, insns[at + 1].imm) = (imm64::MAP_VALUE, index as i32, offset as i32);
                }
                Target::Function(callee) => {
                    // Reaching went over the same targets, so that each has its place.
                    let start = starts.get(&callee).copied().unwrap_or(0);
                    insns[at].imm = (start as i64 - (base + at) as i64 - 1) as i32;
                    if insn.is_wide() {
                        self.check_second_half(number, at, &original, insn)?;
                        (insns[at].src, insns[at + 1].imm) = (imm64::FUNC, 0);
                    }
                }
            }
        }
        let place = |slot| (function.section, slot * 8);
        let here = self.container.relocations.range(place(function.start)..place(function.end()));
        if used != here.clone().count() {
            let offset = here.map(|((_, offset), _)| *offset).find(|offset| {
                let slot = (offset / 8 - function.start) as usize;
                code::instructions(&original).all(|(at, _)| at != slot)
            });
            let slot = offset.map_or(0, |o| (o / 8 - function.start) as usize);
            return Err(self.fault(number, slot, "relocation of the second half of a load".to_owned()));
        }
        Ok(insns)
    }

    /// The half that relocations overwrite holds nothing else.
    fn check_second_half(&self, number: usize, at: usize, insns: &[Insn], first: Insn) -> Result<(), ReadFault> {
        let Some(second) = insns.get(at + 1) else {
            return Err(self.fault(number, at, "the second half of the 64-bit load is missing".to_owned()));
        };
        let sign = if first.imm < 0 { -1 } else { 0 };
        if *second == Insn::default() || *second == (Insn { imm: sign, ..Insn::default() }) {
            return Ok(());
        }
        Err(self.fault(number, at + 1, "the second half of the 64-bit load is not empty".to_owned()))
    }

    fn relocation(&self, number: usize, at: usize) -> Option<Relocation> {
        let function = &self.functions[number];
        self.container.relocations.get(&(function.section, (function.start + at as u64) * 8)).copied()
    }

    fn fault(&self, number: usize, at: usize, why: String) -> ReadFault {
        let function = &self.functions[number];
        ReadFault::Instruction {
            section: self.container.sections[function.section].name.to_owned(),
            offset: (function.start + at as u64) * 8,
            function: function.name.to_owned(),
            why,
        }
    }

    /// What the instruction at slot `at` of a function refers to.
    fn target(&self, number: usize, at: usize, insn: Insn) -> Result<Target, ReadFault> {
        let is_call = insn.code == class::JMP | jmp::CALL;
        let Some(relocation) = self.relocation(number, at) else {
            if is_call && insn.src == call::LOCAL {
                let function = &self.functions[number];
                let slot = function.start as i64 + at as i64 + 1 + i64::from(insn.imm);
                return self.function_at(number, at, function.section, slot.checked_mul(8));
            }
            return Ok(Target::None);
        };
        let Some(symbol) = self.container.symbols.get(relocation.symbol) else { return Ok(Target::None) };
        let fault = |why: String| Err(self.fault(number, at, why));
        let section = match symbol.place {
            Place::Section(section) => section,
            Place::Extern => {
                return fault(format!("`{}` is not defined in the object, externs are not supported", symbol.name));
            }
            Place::Absolute => return fault(format!("symbol `{}` has no place in the object", symbol.name)),
        };
        let (value, addend) = (symbol.value as i64, i64::from(insn.imm));
        match relocation.kind {
            R_BPF_64_32 if is_call && insn.src == call::LOCAL => {
                let offset = (addend + 1).checked_mul(8).and_then(|o| o.checked_add(value));
                self.function_at(number, at, section, offset)
            }
            R_BPF_64_64 if insn.is_wide() => {
                let Some(offset) = value.checked_add(addend) else {
                    return fault(format!("symbol `{}` lies at {value:#x}", symbol.name));
                };
                if self.container.sections[section].kind == SectionKind::Code {
                    return match insn.src {
                        imm64::NUMBER | imm64::FUNC => self.function_at(number, at, section, Some(offset)),
                        other => fault(format!("load of a function's address with source field {other}")),
                    };
                }
                let found = u64::try_from(offset).ok().and_then(|offset| self.maps.at(section, offset));
                let name = self.container.sections[section].name;
                match (found, insn.src) {
                    (Some(Found::Map(index)), imm64::NUMBER | imm64::MAP) => Ok(Target::Map(index)),
                    (Some(Found::Data(index, len)), imm64::NUMBER | imm64::MAP_VALUE) => {
                        match u32::try_from(offset).ok().filter(|offset| *offset < len) {
                            Some(offset) => Ok(Target::Value(index, offset)),
                            None => fault(format!("byte {offset} of section `{name}`, which has {len}")),
                        }
                    }
                    (Some(_), other) => fault(format!("load of `{}` with source field {other}", symbol.name)),
                    (None, _) => {
                        fault(format!("no map or data at byte {offset} of section `{name}` (symbol `{}`)", symbol.name))
                    }
                }
            }
            kind => fault(format!(
                "relocation of kind {kind} against `{}` at an instruction of code {:#04x}, source {}; supported are \
                 R_BPF_64_64 (1) at a 64-bit load and R_BPF_64_32 (10) at a call of a function",
                symbol.name, insn.code, insn.src
            )),
        }
    }

    fn function_at(&self, number: usize, at: usize, section: usize, offset: Option<i64>) -> Result<Target, ReadFault> {
        let found = offset
            .and_then(|o| u64::try_from(o).ok())
            .filter(|o| o.is_multiple_of(8))
            .and_then(|o| self.by_place.get(&(section, o / 8)));
        found.map(|callee| Target::Function(*callee)).ok_or_else(|| {
            let name = self.container.sections[section].name;
            let place = offset.map_or("nowhere".to_owned(), |o| format!("byte {o}"));
            self.fault(number, at, format!("no function begins at {place} of section `{name}`"))
        })
    }

    /// Appends the lines of a function that begins at slot `base` of the program.
    fn lines_of(
        &self,
        number: usize,
        base: usize,
        lines: &mut Vec<LineInfo>,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        let function = &self.functions[number];
        let section = self.container.sections[function.section].name;
        let (from, to) = (function.start * 8, function.end() * 8);
        if let Some(offsets) = self.adaptations.get(section.as_bytes()) {
            let next = offsets.partition_point(|offset| u64::from(*offset) < from);
            if let Some(offset) = offsets.get(next).filter(|offset| u64::from(**offset) < to) {
                return Err(ReadFault::Unsupported {
                    what: "adaptation to the kernel's types (CO-RE)".to_owned(),
                    place: format!("section `{section}`, byte {offset}, function `{}`", function.name),
                });
            }
        }
        let (Some(btf), Some(records)) = (self.btf, self.lines.get(section.as_bytes())) else { return Ok(()) };
        let first = records.partition_point(|r| u64::from(r.offset_bytes) < from);
        for record in records[first..].iter().take_while(|r| u64::from(r.offset_bytes) < to) {
            if !record.offset_bytes.is_multiple_of(8) {
                let (section, offset) = (section.to_owned(), record.offset_bytes.into());
                let len = self.container.sections[function.section].len;
                return Err(ReadFault::Offset { section, offset, len, unit: 8 });
            }
            let (file, text) = (btf.text_bytes(record.file)?, btf.text_bytes(record.text)?);
            budget.charge("lines", (file.len() + text.len()) as u64 * 3 + size_of::<LineInfo>() as u64)?;
            lines.push(LineInfo {
                insn: base + (u64::from(record.offset_bytes) / 8 - function.start) as usize,
                // Sources are not always UTF-8, and a comment in another encoding is no reason to refuse them.
                file: String::from_utf8_lossy(file).into_owned(),
                text: String::from_utf8_lossy(text).into_owned(),
                line: record.line,
                column: record.column,
            });
        }
        Ok(())
    }
}

/// [LLVM BPF ELF relocations]
const R_BPF_64_64: u32 = 1;
const R_BPF_64_32: u32 = 10;

/// What an instruction refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    None,
    Map(usize),
    Value(usize, u32),
    Function(usize),
}

/// What a copy of the map takes.
fn memory(map: &MapDef) -> u64 {
    let text = |s: &String| s.len() + size_of::<String>();
    let layout = map.layout.as_ref().map_or(0, |layout| {
        layout.states.iter().map(text).sum::<usize>()
            + layout.fields.iter().map(|f| text(&f.name) + 16).sum::<usize>()
            + layout.deadline_offsets.len() * 4
            + layout.element.len()
            + layout.succession.as_ref().map_or(0, |s| s.successors.len() * size_of::<Option<StateSuccessor>>())
            + layout
                .preloaded
                .iter()
                .map(|(key, value)| key.len() + value.len() + 2 * size_of::<Vec<u8>>())
                .sum::<usize>()
    });
    let data = map.initial.as_ref().map_or(0, Vec::len);
    (size_of::<MapDef>() + map.name.len() + data + layout) as u64
}

fn functions<'a>(container: &'a Container<'a>) -> Result<Vec<Function<'a>>, ReadFault> {
    let mut out: Vec<Function<'a>> = Vec::new();
    for symbol in container.symbols.iter().filter(|s| s.kind == SymbolKind::Function) {
        let Place::Section(number) = symbol.place else { continue };
        let section = &container.sections[number];
        let fail = |why: String| {
            let (function, section) = (symbol.name.to_owned(), section.name.to_owned());
            Err(ReadFault::Function { function, section, offset: symbol.value, why })
        };
        if section.kind != SectionKind::Code {
            return fail("the section is not executable".to_owned());
        }
        if !section.len.is_multiple_of(8) {
            return fail(format!("the section has {} bytes, not a multiple of 8", section.len));
        }
        if symbol.name.is_empty() {
            return fail("it has no name".to_owned());
        }
        let end = symbol.value.checked_add(symbol.len).filter(|end| *end <= section.len && symbol.value < section.len);
        let Some(end) = end else {
            return fail(format!("{} bytes of it, the section has {}", symbol.len, section.len));
        };
        if !symbol.value.is_multiple_of(8) || !end.is_multiple_of(8) {
            return fail(format!("{} bytes of it, place and length must be multiples of 8", symbol.len));
        }
        out.push(Function {
            name: symbol.name,
            section: number,
            start: symbol.value / 8,
            slots: symbol.len / 8,
            local: symbol.local,
        });
    }
    // Assemblers may leave the length out: such a function goes on until the next.
    let mut borders: Vec<(usize, u64)> = out.iter().map(|f| (f.section, f.start)).collect();
    borders.sort_unstable();
    for function in out.iter_mut().filter(|f| f.slots == 0) {
        let next = borders.partition_point(|b| *b <= (function.section, function.start));
        let end = match borders.get(next) {
            Some((section, start)) if *section == function.section => *start,
            _ => container.sections[function.section].len / 8,
        };
        function.slots = end - function.start;
    }
    Ok(out)
}
