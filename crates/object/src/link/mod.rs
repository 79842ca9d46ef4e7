// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The linker: appends the callees of a program to it, and resolves relocations to indices and distances.
//!
//! ```text
//!  xdp:   knock ── call R_BPF_64_32 ──┐          program `knock`: knock | check | hash
//!  .text: hash ◄── call +n ── check ◄─┘                             └ distances between them ┘
//! ```
//!
//! The functions are in the order of their places, so that the layout of [`super::write()`] is restored. Each program
//! is linked separately: one that cannot be is refused, and the others stay.

mod account;
mod dead;
mod functions;
mod globals;
mod iterators;
mod kind;
mod lines;
mod share;
mod target;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::adapt::{self, Adapter, Kernel};
use super::container::{Budget, Container};
use super::error::{ReadFault, Refused, Unread};
use super::externs::{Extern, externs};
use super::maps::Maps;
use super::{MAX_SLOTS, code, names};
use flowloom_isa::btf::{Btf, CoreRecord, Ext, FuncRecord, LineRecord, TypeId};
use flowloom_isa::insn::{Insn, call, class, imm64, jmp};
use flowloom_isa::{Program, ProgramKind, Unresolved};
use functions::{Broken, Function, functions, roots};
use target::Target;

const MAX_PROGRAMS: usize = 4096;

/// The indexed functions, types and lines of an object.
pub(super) struct Linker<'a> {
    container: &'a Container<'a>,
    btf: Option<&'a Btf>,
    maps: &'a Maps,
    externs: HashMap<&'a [u8], Extern>,
    functions: Vec<Function<'a>>,
    /// Symbols of functions that cannot be used.
    broken: Vec<Broken<'a>>,
    /// Functions by section and first slot.
    by_place: HashMap<(usize, u64), usize>,
    /// Line records by section name, ascending.
    lines: HashMap<&'a [u8], Vec<LineRecord>>,
    /// Types of functions by section name and byte offset.
    types: HashMap<(&'a [u8], u32), FuncRecord>,
    /// Types of functions by name.
    named_types: HashMap<&'a [u8], TypeId>,
    /// The functions that are programs, those included that cannot be linked.
    tried: HashSet<usize>,
    /// The kind of all programs, if the user gives one.
    forced: Option<ProgramKind>,
    /// CO-RE relocations by section name and byte offset.
    adaptations: BTreeMap<(&'a [u8], u32), CoreRecord>,
    adapter: RefCell<Adapter<'a>>,
}

/// A program before it gets its maps: loads refer to maps of the object.
struct Draft {
    root: usize,
    program: Program,
    /// The functions that it consists of.
    pieces: Vec<usize>,
    /// Calls of iterators over numbers were replaced.
    has_iterators: bool,
}

impl<'a> Linker<'a> {
    pub(super) fn new(
        container: &'a Container<'a>,
        btf: Option<&'a Btf>,
        ext: &Ext,
        maps: &'a Maps,
        kernel: &'a Kernel<'a>,
        forced: Option<ProgramKind>,
    ) -> Result<Linker<'a>, ReadFault> {
        let (functions, broken) = functions(container);
        let mut by_place = HashMap::new();
        for (number, function) in functions.iter().enumerate() {
            // Two names of one function: the first stands for both.
            by_place.entry((function.section, function.start)).or_insert(number);
        }
        let (mut lines, mut types, mut adaptations) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        if let Some(btf) = btf {
            lines = lines::by_section(btf, ext)?;
            for section in &ext.funcs {
                let name = btf.name_bytes(section.section)?;
                types.extend(section.records.iter().map(|record| ((name, record.offset_bytes), *record)));
            }
            for section in &ext.adaptations {
                let name = btf.name_bytes(section.section)?;
                adaptations.extend(section.records.iter().map(|record| ((name, record.offset_bytes), *record)));
            }
        }
        Ok(Linker {
            container,
            btf,
            maps,
            externs: externs(btf)?,
            functions,
            broken,
            by_place,
            lines,
            types,
            named_types: kind::types_by_name(btf)?,
            tried: HashSet::new(),
            forced,
            adaptations,
            adapter: RefCell::new(Adapter::new(kernel)),
        })
    }

    /// Links all programs of the object.
    pub(super) fn programs(mut self, license: &str, budget: &mut Budget) -> Result<Linked, ReadFault> {
        let broken = std::mem::take(&mut self.broken);
        let roots = roots(self.container, &self.functions, &self.called_statics());
        if roots.is_empty() && broken.is_empty() {
            return Err(ReadFault::NoProgram);
        }
        if roots.len() > MAX_PROGRAMS {
            return Err(ReadFault::TooMany { what: "programs", found: roots.len(), limit: MAX_PROGRAMS });
        }
        self.tried = roots.iter().copied().collect();
        let (mut drafts, mut failed): (Vec<Draft>, _) = (Vec::new(), Vec::new());
        for root in roots {
            match self.draft(root, license, budget) {
                Ok(draft) => drafts.push(draft),
                // An exceeded budget concerns the whole object.
                Err(fault @ ReadFault::TooLarge { .. }) => return Err(fault),
                Err(fault) => {
                    let function = &self.functions[root];
                    failed.push(Broken { name: function.name, place: (function.section, function.start * 8), fault });
                }
            }
        }
        let refused = broken.into_iter().chain(failed);
        let refused = refused.map(|Broken { name, place, fault }| {
            let place_of = |draft: &Draft| (self.functions[draft.root].section, self.functions[draft.root].start * 8);
            let before = drafts.partition_point(|draft| place_of(draft) < place);
            Refused { name: name.to_owned(), section: self.container.sections[place.0].name.to_owned(), before, fault }
        });
        let refused: Vec<Refused> = refused.collect();
        let mut account = self.account(&drafts, budget)?;
        let (programs, used) = self.share(drafts, budget)?;
        account.maps(self.maps, &used, budget)?;
        Ok(Linked { programs, refused, unread: account.unread, notes: account.notes })
    }

    fn draft(&self, root: usize, license: &str, budget: &mut Budget) -> Result<Draft, ReadFault> {
        budget.charge("licence", license.len() as u64)?;
        let pieces = self.reach(root, budget)?;
        // The slot of each function in the program.
        let mut starts = BTreeMap::new();
        let mut total = 0;
        for piece in &pieces {
            starts.insert(*piece, total);
            total += self.functions[*piece].slots as usize;
        }
        let function = &self.functions[root];
        let mut program = Program {
            name: function.name.to_owned(),
            section: self.container.sections[function.section].name.to_owned(),
            kind: self.kind(root).0,
            insns: Vec::with_capacity(total),
            license: license.to_owned(),
            ..Program::default()
        };
        for piece in &pieces {
            let base = program.insns.len();
            let insns = self.relocated(*piece, &starts, &mut program)?;
            program.insns.extend(insns);
            self.lines_of(*piece, base, &mut program.lines, budget)?;
            if *piece != root {
                program.globals.extend(self.global(*piece, base)?);
            }
        }
        code::split(&program.insns).map_err(|source| ReadFault::Code { program: program.name.clone(), source })?;
        let has_iterators = iterators::expand(&mut program);
        let mut firsts = vec![false; program.insns.len()];
        for (at, _) in code::instructions(&program.insns) {
            firsts[at] = true;
        }
        if let Some(line) = program.lines.iter().find(|line| !firsts[line.insn]) {
            let why = format!("slot {} of program `{}` is the second half of a load", line.insn, program.name);
            return Err(ReadFault::Header { what: "line information", why });
        }
        Ok(Draft { root, program, pieces, has_iterators })
    }

    /// The static functions outside of `.text` that another function calls or takes the address of: they are parts of
    /// programs. Other static functions are programs.
    fn called_statics(&self) -> HashSet<usize> {
        let mut called = HashSet::new();
        let is_text = |function: &Function<'_>| self.container.sections[function.section].name == names::TEXT;
        if !self.functions.iter().any(|function| function.local && !is_text(function)) {
            return called;
        }
        // Each slot once: overlapping functions would otherwise repeat the same instructions without end.
        let mut order: Vec<usize> = self.by_place.values().copied().collect();
        order.sort_by_key(|number| (self.functions[*number].section, self.functions[*number].start));
        let mut done = (usize::MAX, 0);
        for number in order {
            let function = &self.functions[number];
            let from = if done.0 == function.section { done.1.max(function.start) } else { function.start };
            if from >= function.end() {
                continue;
            }
            done = (function.section, function.end());
            let before = (from - function.start) as usize;
            for (at, insn) in code::instructions(&self.slots(function.section, from, function.end())) {
                if let Ok(Target::Function(callee)) = self.target(number, before + at, insn)
                    && callee != number
                {
                    called.insert(callee);
                }
            }
        }
        called
    }

    /// The function and all its callees, itself first and the others by their place.
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
        self.slots(function.section, function.start, function.end())
    }

    fn slots(&self, section: usize, from: u64, to: u64) -> Vec<Insn> {
        let (slots, _) = self.container.sections[section].bytes.as_chunks::<8>();
        // The places of functions were checked when they were found.
        let place = from as usize..to as usize;
        slots.get(place).unwrap_or_default().iter().map(|slot| Insn::from_bytes(*slot)).collect()
    }

    /// The function's instructions for a program in which functions begin at `starts`, and their unresolved references.
    fn relocated(
        &self,
        number: usize,
        starts: &BTreeMap<usize, usize>,
        program: &mut Program,
    ) -> Result<Vec<Insn>, ReadFault> {
        let function = &self.functions[number];
        let original = self.insns(number);
        let mut insns = original.clone();
        let base = starts.get(&number).copied().unwrap_or(0);
        let mut used = 0;
        for (at, insn) in code::instructions(&original) {
            used += usize::from(self.relocation(number, at).is_some());
            let target = self.target(number, at, insn)?;
            if insn.is_wide() {
                if insn.src != imm64::NUMBER && target == Target::None {
                    let why = format!("64-bit load with source field {} but without relocation", insn.src);
                    return Err(self.fault(number, at, why));
                }
                if target != Target::None {
                    self.check_second_half(number, at, &original, insn)?;
                }
            }
            match target {
                Target::None => {}
                Target::Map(index) => {
                    (insns[at].src, insns[at].imm, insns[at + 1].imm) = (imm64::MAP, index as i32, 0);
                }
                Target::Value(index, offset) if insn.is_wide() => {
                    (insns[at].src, insns[at].imm, insns[at + 1].imm) = (imm64::MAP_VALUE, index as i32, offset as i32);
                }
                Target::Zero if insn.is_wide() => {
                    (insns[at].src, insns[at].imm, insns[at + 1].imm) = (imm64::NUMBER, 0, 0);
                }
                Target::Function(callee) => {
                    // The search for callees followed the same targets, so each has a start.
                    let start = starts.get(&callee).copied().unwrap_or(0);
                    insns[at].imm = (start as i64 - (base + at) as i64 - 1) as i32;
                    if insn.is_wide() {
                        (insns[at].src, insns[at + 1].imm) = (imm64::FUNC, 0);
                    }
                }
                Target::Unresolved(reference) if insn.is_wide() => {
                    (insns[at].src, insns[at].imm, insns[at + 1].imm) = (imm64::VAR, 0, 0);
                    program.unresolved.push(Unresolved { insn: base + at, reference });
                }
                Target::Unresolved(reference) if insn.code == class::JMP | jmp::CALL => {
                    insns[at] = Insn { code: insn.code, src: call::KFUNC, ..Insn::default() };
                    program.unresolved.push(Unresolved { insn: base + at, reference });
                }
                Target::Value(..) | Target::Zero | Target::Unresolved(_) => {
                    let why = "relocation against an external symbol at an instruction that is neither a 64-bit load \
                               nor a call";
                    return Err(self.fault(number, at, why.to_owned()));
                }
            }
        }
        self.adapt(number, base, &mut insns, program)?;
        let here = self.container.relocations_in(function.section, function.start * 8, function.end() * 8);
        let here: Vec<usize> = here.map(|(offset, _)| (offset / 8 - function.start) as usize).collect();
        if used != here.len() {
            let firsts: HashSet<usize> = code::instructions(&original).map(|(at, _)| at).collect();
            let slot = here.into_iter().find(|slot| !firsts.contains(slot));
            let why = "relocation of the second half of a load".to_owned();
            return Err(self.fault(number, slot.unwrap_or(0), why));
        }
        Ok(insns)
    }

    /// Applies the CO-RE relocations of a function, which begins at slot `base` of the program.
    fn adapt(&self, number: usize, base: usize, insns: &mut [Insn], program: &mut Program) -> Result<(), ReadFault> {
        let function = &self.functions[number];
        let section = self.container.sections[function.section].name.as_bytes();
        let from = u32::try_from(function.start * 8).unwrap_or(u32::MAX);
        let to = u32::try_from(function.end() * 8).unwrap_or(u32::MAX);
        let mut wanted = self.adaptations.range((section, from)..(section, to)).peekable();
        if wanted.peek().is_none() {
            return Ok(());
        }
        let Some(btf) = self.btf else { return Ok(()) };
        let firsts: HashSet<usize> = code::instructions(insns).map(|(at, _)| at).collect();
        let mut adapter = self.adapter.borrow_mut();
        for ((_, offset), record) in wanted {
            let at = ((offset - from) / 8) as usize;
            if !offset.is_multiple_of(8) || !firsts.contains(&at) {
                return Err(self.fault(number, at, "CO-RE relocation of a slot that is not an instruction".to_owned()));
            }
            let replacement = adapter.replacement(btf, *record);
            let replacement =
                replacement.map_err(|fault| fault.of_object().unwrap_or_else(|why| self.fault(number, at, why)))?;
            let reference = match replacement {
                Ok(replacement) => match adapt::put(insns, at, &replacement) {
                    Ok(()) => None,
                    Err(Some(why)) => return Err(self.fault(number, at, why)),
                    Err(None) => Some(adapter.out_of_range(btf, *record)),
                },
                Err(reference) => Some(reference),
            };
            match reference {
                None => program.adapted += 1,
                Some(reference) => {
                    adapt::poison(insns, at);
                    program.unresolved.push(Unresolved { insn: base + at, reference });
                }
            }
        }
        Ok(())
    }

    /// Checks that the half that a relocation overwrites is empty.
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

    fn fault(&self, number: usize, at: usize, why: String) -> ReadFault {
        let function = &self.functions[number];
        let section = self.container.sections[function.section].name;
        let (offset, source) = ((function.start + at as u64) * 8, self.source(number, at));
        let place = format!("section `{section}`, byte {offset}, in function `{}`{source}", function.name);
        ReadFault::Instruction { place, why }
    }
}

pub(super) struct Linked {
    pub(super) programs: Vec<Program>,
    pub(super) refused: Vec<Refused>,
    pub(super) unread: Vec<Unread>,
    pub(super) notes: Vec<String>,
}
