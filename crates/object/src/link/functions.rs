// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of an object: symbols with a place and a size.
//!
//! Compilers before LLVM 8 give functions neither a type nor a size, and emit each basic block as a local symbol
//! (`LBB0_3`). Symbols without a type are therefore classified by their place: a function is global, or has a size, or
//! begins where no instruction falls through and no jump leads.

use std::collections::{HashMap, HashSet};

use crate::container::{Container, Place, Section, SectionKind, Symbol, SymbolKind};
use crate::error::ReadFault;
use crate::{bytes_of, code, names};
use flowloom_isa::insn::{Insn, call, class, jmp};

pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) section: usize,
    /// The first slot and the number of slots, within the section.
    pub(super) start: u64,
    pub(super) slots: u64,
    pub(super) local: bool,
    pub(super) hidden: bool,
}

impl Function<'_> {
    pub(super) fn end(&self) -> u64 {
        self.start + self.slots
    }
}

pub(super) struct Broken<'a> {
    pub(super) name: &'a str,
    /// Its section and byte offset.
    pub(super) place: (usize, u64),
    pub(super) fault: ReadFault,
}

/// The functions in the order of symbols, and those that cannot be used.
pub(super) fn functions<'a>(container: &'a Container<'a>) -> (Vec<Function<'a>>, Vec<Broken<'a>>) {
    let mut out: Vec<Function<'a>> = Vec::new();
    let mut broken = Vec::new();
    let untyped = Untyped::new(container);
    let mut outlines = HashMap::new();
    for symbol in &container.symbols {
        let Place::Section(section) = symbol.place else { continue };
        match symbol.kind {
            SymbolKind::Function => {}
            SymbolKind::Untyped if untyped.is_function(symbol, section, &mut outlines) => {}
            _ => continue,
        }
        match function(container, symbol, section) {
            Ok(function) => out.push(function),
            Err(fault) => broken.push(Broken { name: symbol.name, place: (section, symbol.value), fault }),
        }
    }
    // Assemblers may omit the size: such a function extends to the next one.
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
    (out, broken)
}

fn function<'a>(container: &'a Container<'a>, symbol: &Symbol<'a>, number: usize) -> Result<Function<'a>, ReadFault> {
    let section = &container.sections[number];
    let fail = |why: String| {
        let (function, section) = (symbol.name.to_owned(), section.name.to_owned());
        Err(ReadFault::Function { function, section, offset: symbol.value, why })
    };
    if section.kind != SectionKind::Code {
        return fail("the section is not executable".to_owned());
    }
    if !section.len.is_multiple_of(8) {
        return fail(format!("the section has {}, not a multiple of 8", bytes_of(section.len)));
    }
    if symbol.name.is_empty() {
        return fail("it has no name".to_owned());
    }
    let end = symbol.value.checked_add(symbol.len).filter(|end| *end <= section.len && symbol.value < section.len);
    let Some(end) = end else {
        return fail(format!(
            "it ends {} after its place, the section has {}",
            bytes_of(symbol.len),
            bytes_of(section.len)
        ));
    };
    if !symbol.value.is_multiple_of(8) || !end.is_multiple_of(8) {
        return fail(format!("place and length ({}) are not both multiples of 8", symbol.len));
    }
    Ok(Function {
        name: symbol.name,
        section: number,
        start: symbol.value / 8,
        slots: symbol.len / 8,
        local: symbol.local,
        hidden: symbol.hidden,
    })
}

/// Finds functions among the symbols without a type.
struct Untyped<'a> {
    container: &'a Container<'a>,
    /// The ranges of functions with a type, by section, ascending.
    typed: Vec<(usize, u64, u64)>,
}

/// The facts about the places of a section, in slots.
#[derive(Default)]
struct Outline {
    jumped_to: HashSet<u64>,
    called: HashSet<u64>,
    /// Slots into which the previous one falls through.
    run_on_to: HashSet<u64>,
}

impl<'a> Untyped<'a> {
    fn new(container: &'a Container<'a>) -> Untyped<'a> {
        let typed = container.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function);
        let mut typed: Vec<(usize, u64, u64)> = typed
            .filter_map(|symbol| match symbol.place {
                Place::Section(section) => Some((section, symbol.value, symbol.value.saturating_add(symbol.len))),
                _ => None,
            })
            .collect();
        typed.sort_unstable();
        Untyped { container, typed }
    }

    fn is_function(&self, symbol: &Symbol<'_>, number: usize, outlines: &mut HashMap<usize, Outline>) -> bool {
        let section = &self.container.sections[number];
        let is_label = symbol.name.is_empty() || symbol.name.starts_with("LBB") || symbol.name.starts_with(".L");
        if is_label || section.kind != SectionKind::Code || symbol.value >= section.len {
            return false;
        }
        let before = self.typed.partition_point(|typed| *typed <= (number, symbol.value, u64::MAX));
        let is_inside = self.typed[..before]
            .last()
            .is_some_and(|(of, start, end)| *of == number && (symbol.value < *end || symbol.value == *start));
        if is_inside {
            return false;
        }
        if !symbol.local || symbol.len > 0 {
            return true;
        }
        let outline = outlines.entry(number).or_insert_with(|| outline(section));
        let slot = symbol.value / 8;
        symbol.value.is_multiple_of(8)
            && (outline.called.contains(&slot)
                || !outline.jumped_to.contains(&slot) && !outline.run_on_to.contains(&slot))
    }
}

fn outline(section: &Section<'_>) -> Outline {
    let mut outline = Outline::default();
    let (slots, _) = section.bytes.as_chunks::<8>();
    let insns: Vec<Insn> = slots.iter().map(|slot| Insn::from_bytes(*slot)).collect();
    for (at, insn) in code::instructions(&insns) {
        let is_call = insn.code == class::JMP | jmp::CALL && insn.src == call::LOCAL;
        let place = |slot: Option<i64>| slot.and_then(|slot| u64::try_from(slot).ok());
        outline.called.extend(place(code::callee(insn, at)).filter(|_| is_call));
        outline.jumped_to.extend(place(code::jump_target(insn, at)));
        let ends = matches!((insn.class(), insn.op()), (class::JMP, jmp::EXIT) | (class::JMP | class::JMP32, jmp::JA));
        if !ends {
            // The second half of a load is not a valid place either.
            outline.run_on_to.extend((at + 1..=at + insn.slots()).map(|slot| slot as u64));
        }
    }
    outline
}

/// The functions that are programs, in their order: those outside of `.text`, except static ones in `called`.
pub(super) fn roots(container: &Container<'_>, functions: &[Function<'_>], called: &HashSet<usize>) -> Vec<usize> {
    let is_text = |f: &Function<'_>| container.sections[f.section].name == names::TEXT;
    let is_part = |i: &usize| is_text(&functions[*i]) || functions[*i].local && called.contains(i);
    let mut roots: Vec<usize> = (0..functions.len()).filter(|i| !is_part(i)).collect();
    if roots.is_empty() && functions.len() == 1 {
        // A lone function is a program, whatever its section; loaders agree.
        roots.push(0);
    }
    roots.sort_by_key(|i| (functions[*i].section, functions[*i].start));
    roots
}
