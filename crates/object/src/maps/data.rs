// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data sections: maps with one entry, whose contents are in the object.

use std::collections::{HashMap, HashSet};

use super::special::Finder;
use super::{Maps, ObjectMap, Variables, reference_of_field};
use crate::container::{Budget, Container, Place, SectionKind};
use crate::error::ReadFault;
use crate::{DataKind, names};
use flowloom_isa::btf::{Btf, Linkage, SecVar, Type};
use flowloom_isa::limits::MAX_MAPS;
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, MapDef, MapKind, Reference};

impl Maps {
    pub(super) fn read_data(
        &mut self,
        container: &Container<'_>,
        btf: Option<&Btf>,
        variables: &Variables<'_>,
        finder: &mut Finder,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        let mut places = Places { container, known: None };
        for (number, section) in container.sections.iter().enumerate() {
            let Some(kind) = DataKind::of(section.name) else { continue };
            let initial = match section.kind {
                _ if section.len == 0 => continue,
                SectionKind::Bytes => {
                    budget.charge("data sections", section.len)?;
                    section.bytes.to_vec()
                }
                SectionKind::Zero => {
                    budget.charge("data sections", section.len)?;
                    vec![0; usize::try_from(section.len).unwrap_or(0)]
                }
                SectionKind::Code | SectionKind::Other => continue,
            };
            if self.all.len() >= MAX_MAPS {
                return Err(ReadFault::TooMany { what: "maps", found: self.all.len() + 1, limit: MAX_MAPS });
            }
            let mut flags = if kind == DataKind::ReadOnly { BPF_F_RDONLY_PROG } else { 0 };
            let mut unresolved = Vec::new();
            if let (Some(btf), Some(vars)) = (btf, variables.get(section.name.as_bytes())) {
                if vars.iter().any(|var| is_shared(btf, var)) {
                    flags |= BPF_F_MMAPABLE;
                }
                unresolved = special_variables(&mut places, number, btf, vars, finder, budget)?;
            }
            self.notes.extend(addresses(container, number));
            self.sections.insert(number, self.all.len());
            // The budget is far below 4 GiB.
            let def = data(section.name.to_owned(), flags, initial);
            self.all.push(ObjectMap { def, unresolved, ..ObjectMap::default() });
        }
        self.read_settings(container, btf, variables, budget)
    }

    /// Allocates configuration settings of the kernel that may be missing: zeros, which stand for all of them.
    fn read_settings(
        &mut self,
        container: &Container<'_>,
        btf: Option<&Btf>,
        variables: &Variables<'_>,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        let (Some(btf), Some(vars)) = (btf, variables.get(names::KCONFIG.as_bytes())) else { return Ok(()) };
        let weak = container.symbols.iter().filter(|symbol| symbol.weak && symbol.place == Place::Extern);
        let weak: HashSet<&str> = weak.map(|symbol| symbol.name).collect();
        let mut bytes = 8;
        for var in *vars {
            bytes = bytes.max(btf.size_bytes(var.var)?);
            let Some(Type::Var { name, .. }) = btf.get(var.var) else { continue };
            let name = btf.name(*name)?;
            if weak.contains(name) {
                let note =
                    format!("`{name}`, a setting of the kernel, is taken to be 0: no engine asks the machine for it");
                budget.charge("settings", note.len() as u64)?;
                self.notes.push(note);
            }
        }
        if bytes > MAX_SETTING {
            let (map, what) = (names::KCONFIG.to_owned(), "size of a setting".to_owned());
            let why = format!("it is {bytes} bytes, at most {MAX_SETTING} are read");
            return Err(ReadFault::Definition { map, what, why });
        }
        self.settings = Some(self.all.len());
        let def = data(SETTINGS.to_owned(), BPF_F_RDONLY_PROG, vec![0; bytes as usize]);
        self.all.push(ObjectMap { def, ..ObjectMap::default() });
        Ok(())
    }
}

/// The map of the kernel's configuration settings: constants like others.
const SETTINGS: &str = ".rodata.kconfig";

/// The largest setting: a string of the kernel's build.
const MAX_SETTING: u32 = 4096;

fn data(name: String, flags: u32, initial: Vec<u8>) -> MapDef {
    MapDef {
        name,
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: initial.len() as u32,
        max_entries: 1,
        flags,
        initial: Some(initial),
        ..MapDef::default()
    }
}

/// Whether the variable has global linkage.
fn is_shared(btf: &Btf, var: &SecVar) -> bool {
    match btf.get(var.var) {
        Some(Type::Var { linkage, .. }) => *linkage != Linkage::Static,
        _ => false,
    }
}

/// The variables of the section that the kernel treats specially.
fn special_variables<'a>(
    places: &mut Places<'a>,
    number: usize,
    btf: &'a Btf,
    vars: &[SecVar],
    finder: &mut Finder,
    budget: &mut Budget,
) -> Result<Vec<Reference>, ReadFault> {
    let section = places.container.sections[number].name;
    let mut unresolved = Vec::new();
    for var in vars {
        let Some(Type::Var { name, of, .. }) = btf.get(var.var) else { continue };
        let found = finder.fields(btf, *of)?;
        if found.spin_lock.is_none() && found.others.is_empty() {
            continue;
        }
        // clang leaves the offset in the section to the linker.
        let place = places.of(number, btf.name_bytes(*name)?);
        let base = place.and_then(|place| u32::try_from(place).ok()).unwrap_or(var.offset_bytes);
        let lock = found.spin_lock.map(|offset| ("struct bpf_spin_lock".to_owned(), offset));
        for (field, offset) in lock.into_iter().chain(found.others.iter().cloned()) {
            unresolved.push(reference_of_field(section, field, base.saturating_add(offset), budget)?);
        }
    }
    Ok(unresolved)
}

/// A note on addresses in the initial data: loaders ignore them, since there is no address that they could put there.
fn addresses(container: &Container<'_>, number: usize) -> Option<String> {
    let mut all = container.relocations_in(number, 0, u64::MAX);
    let (offset, relocation) = all.next()?;
    let others = match all.count() {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    let symbol = container.symbols.get(relocation.symbol).map_or("", |symbol| symbol.name);
    Some(format!(
        "byte {offset} of data section `{}` is to hold the address of `{symbol}`{others}: loaders do not relocate data, \
         programs read the number in the object",
        container.sections[number].name
    ))
}

/// The offsets of symbols in their sections.
struct Places<'a> {
    container: &'a Container<'a>,
    /// By section and name; made on first use.
    known: Option<HashMap<(usize, &'a [u8]), u64>>,
}

impl<'a> Places<'a> {
    fn of(&mut self, section: usize, name: &'a [u8]) -> Option<u64> {
        let symbols = &self.container.symbols;
        let known = self.known.get_or_insert_with(|| {
            let mut known = HashMap::new();
            for symbol in symbols {
                if let Place::Section(section) = symbol.place {
                    // Of two symbols of one name the first counts.
                    known.entry((section, symbol.name.as_bytes())).or_insert(symbol.value);
                }
            }
            known
        });
        known.get(&(section, name)).copied()
    }
}
