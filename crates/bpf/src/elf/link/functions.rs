//! The functions of an object: symbols with a place and a length.

use crate::elf::container::{Container, Place, SectionKind, Symbol, SymbolKind};
use crate::elf::names;
use crate::elf::read::ReadFault;

/// A function of the object.
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) section: usize,
    /// First slot and number of slots, in the section.
    pub(super) start: u64,
    pub(super) slots: u64,
    /// Whether only the object itself sees it.
    pub(super) local: bool,
    /// Whether other objects do not see it all the same: its symbol is hidden.
    pub(super) hidden: bool,
}

impl Function<'_> {
    pub(super) fn end(&self) -> u64 {
        self.start + self.slots
    }
}

/// A function that cannot be used.
pub(super) struct Broken<'a> {
    pub(super) name: &'a str,
    /// Its section and its place there, in bytes.
    pub(super) place: (usize, u64),
    pub(super) fault: ReadFault,
}

/// The functions in the order of symbols, and those that cannot be used.
pub(super) fn functions<'a>(container: &'a Container<'a>) -> (Vec<Function<'a>>, Vec<Broken<'a>>) {
    let mut out: Vec<Function<'a>> = Vec::new();
    let mut broken = Vec::new();
    for symbol in container.symbols.iter().filter(|s| s.kind == SymbolKind::Function) {
        let Place::Section(section) = symbol.place else { continue };
        match function(container, symbol, section) {
            Ok(function) => out.push(function),
            Err(fault) => broken.push(Broken { name: symbol.name, place: (section, symbol.value), fault }),
        }
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
    Ok(Function {
        name: symbol.name,
        section: number,
        start: symbol.value / 8,
        slots: symbol.len / 8,
        local: symbol.local,
        hidden: symbol.hidden,
    })
}

/// The functions that are programs: those that others see, outside of `.text`; in their order.
pub(super) fn roots(container: &Container<'_>, functions: &[Function<'_>]) -> Vec<usize> {
    let is_text = |f: &Function<'_>| container.sections[f.section].name == names::TEXT;
    let mut roots: Vec<usize> =
        (0..functions.len()).filter(|i| !functions[*i].local && !is_text(&functions[*i])).collect();
    if roots.is_empty() && functions.len() == 1 {
        // A lone function is meant to be run, whatever its section; loaders see it so too.
        roots.push(0);
    }
    roots.sort_by_key(|i| (functions[*i].section, functions[*i].start));
    roots
}
