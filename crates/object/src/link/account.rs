// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The account of an object: parts that are in no program, each with the reason: functions without a caller, code
//! without a symbol, maps without a user, unknown sections.

use std::collections::{BTreeMap, HashSet};

use super::{Draft, Linker};
use crate::container::{Budget, Place, Section, SectionKind, SymbolKind};
use crate::error::{ReadFault, Unread};
use crate::maps::Maps;
use crate::{DataKind, bytes_of, names};
use flowloom_isa::Reference;

/// The rest after linking, and notes.
#[derive(Default)]
pub(super) struct Account {
    pub(super) unread: Vec<Unread>,
    pub(super) notes: Vec<String>,
}

/// Sections without an effect on programs: tables, debug information, compiler remarks.
const SILENT: [&str; 14] = [
    ".debug_",
    ".zdebug_",
    ".rel",
    ".comment",
    ".note",
    ".eh_frame",
    ".llvm",
    ".gnu",
    ".BTF",
    ".strtab",
    ".shstrtab",
    ".symtab",
    ".stab",
    ".discard",
];

impl Account {
    fn unread(&mut self, what: &'static str, name: &str, why: String, budget: &mut Budget) -> Result<(), ReadFault> {
        budget.charge("parts without a use", (name.len() + why.len() + size_of::<Unread>()) as u64)?;
        self.unread.push(Unread { what, name: name.to_owned(), why });
        Ok(())
    }

    fn note(&mut self, note: String, budget: &mut Budget) -> Result<(), ReadFault> {
        budget.charge("notes", (note.len() + size_of::<String>()) as u64)?;
        self.notes.push(note);
        Ok(())
    }

    /// Lists the maps that are in no program.
    pub(super) fn maps(&mut self, maps: &Maps, used: &[bool], budget: &mut Budget) -> Result<(), ReadFault> {
        for (index, map) in maps.all.iter().enumerate() {
            if used.get(index) == Some(&true) || maps.settings == Some(index) {
                continue;
            }
            let why = match map.unresolved.first() {
                _ if !map.def.kind.is_known() => format!("no program uses it, and its kind is {}", map.def.kind),
                Some(Reference::Field { field, offset, .. }) => {
                    format!("no program uses it, and its values hold `{field}` at byte {offset}")
                }
                Some(reference) => format!("no program uses it, and {reference}"),
                None if map.def.kind.is_of_maps() && map.def.inner.is_none() => {
                    "no program uses it, and its inner maps have no definition".to_owned()
                }
                None => "there is no program that could use it".to_owned(),
            };
            self.unread("map", &map.def.name, why, budget)?;
        }
        Ok(())
    }
}

impl Linker<'_> {
    /// Lists the parts that are in no draft.
    pub(super) fn account(&self, drafts: &[Draft], budget: &mut Budget) -> Result<Account, ReadFault> {
        let mut account = Account::default();
        for draft in drafts {
            if let Some(note) = self.kind(draft.root).1 {
                account.note(note, budget)?;
            }
            if draft.program.section.starts_with('?') {
                let note = format!(
                    "program `{}`: section `{}` asks loaders to leave it out by default; it is read",
                    draft.program.name, draft.program.section
                );
                account.note(note, budget)?;
            }
            if draft.has_iterators {
                let note = format!(
                    "program `{}`: calls of `bpf_iter_num_*` become instructions; that each iterator is created, \
                     advanced and destroyed in this order is not verified",
                    draft.program.name
                );
                account.note(note, budget)?;
            }
        }
        self.functions_left(drafts, &mut account, budget)?;
        self.code_left(&mut account, budget)?;
        self.sections_left(&mut account, budget)?;
        Ok(account)
    }

    fn functions_left(&self, drafts: &[Draft], account: &mut Account, budget: &mut Budget) -> Result<(), ReadFault> {
        let used: HashSet<usize> = drafts.iter().flat_map(|draft| draft.pieces.iter().copied()).collect();
        for (number, function) in self.functions.iter().enumerate() {
            if used.contains(&number) || self.tried.contains(&number) {
                continue;
            }
            let section = self.container.sections[function.section].name;
            let first = self.by_place.get(&(function.section, function.start)).copied().unwrap_or(number);
            let why = if first == number {
                format!("in section `{section}`, and no program that is read calls it")
            } else {
                format!("another name of `{}` in section `{section}`", self.functions[first].name)
            };
            account.unread("function", function.name, why, budget)?;
        }
        for symbol in self.container.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function) {
            let why = match symbol.place {
                Place::Absolute => "its symbol is a number, not a place in the object",
                Place::Common => "its symbol is left to a linker",
                Place::Section(_) | Place::Extern => continue,
            };
            account.unread("function", symbol.name, why.to_owned(), budget)?;
        }
        Ok(())
    }

    /// Lists code that belongs to no function or to several.
    fn code_left(&self, account: &mut Account, budget: &mut Budget) -> Result<(), ReadFault> {
        let mut by_section: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for number in self.by_place.values() {
            by_section.entry(self.functions[*number].section).or_default().push(*number);
        }
        for (number, section) in self.container.sections.iter().enumerate() {
            if section.kind != SectionKind::Code || section.len == 0 {
                continue;
            }
            let Some(functions) = by_section.get_mut(&number) else {
                let why = format!("{} without the symbol of a function", bytes_of(section.len));
                account.unread("code", section.name, why, budget)?;
                continue;
            };
            functions.sort_by_key(|function| self.functions[*function].start);
            let (mut end, mut gaps, mut first_gap, mut last) = (0, 0, None, None);
            for function in functions.iter().map(|number| &self.functions[*number]) {
                if function.start > end {
                    gaps += function.start - end;
                    first_gap.get_or_insert(end);
                }
                if let Some(before) = last.filter(|_| function.start < end) {
                    let note = format!(
                        "function `{}` begins inside of function `{before}` of section `{}`",
                        function.name, section.name
                    );
                    account.note(note, budget)?;
                }
                if function.end() > end {
                    (end, last) = (function.end(), Some(function.name));
                }
            }
            if section.len / 8 > end {
                gaps += section.len / 8 - end;
                first_gap.get_or_insert(end);
            }
            if let Some(first) = first_gap {
                let why = format!("{} from byte {} on belong to no function", bytes_of(gaps * 8), first * 8);
                account.unread("code", section.name, why, budget)?;
            }
        }
        Ok(())
    }

    fn sections_left(&self, account: &mut Account, budget: &mut Budget) -> Result<(), ReadFault> {
        for section in self.container.sections.iter().filter(|section| section.len > 0) {
            if let Some(why) = meaningless(section) {
                account.unread("section", section.name, why, budget)?;
            }
        }
        Ok(())
    }
}

/// Why a section with contents is in no program; `None` for those that are read or irrelevant.
fn meaningless(section: &Section<'_>) -> Option<String> {
    let name = section.name;
    if !matches!(section.kind, SectionKind::Bytes | SectionKind::Zero) {
        return None;
    }
    let is_read = DataKind::of(name).is_some()
        || matches!(name, names::MAPS | names::LICENSE | names::SIDECAR | names::LEGACY_MAPS | "version")
        || name.starts_with("maps/");
    if is_read || SILENT.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let why = if name.starts_with(".struct_ops") || name.starts_with("?.struct_ops") {
        "tables of functions that the kernel is to call (struct_ops) are not read"
    } else if name.starts_with(".addr_space") || name.starts_with(".arena") {
        "variables in an arena are not read"
    } else {
        "loaders give a section of this name no meaning; data stands in `.data`, `.rodata` or `.bss`"
    };
    Some(format!("{}: {why}", bytes_of(section.len)))
}
