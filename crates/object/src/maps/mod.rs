// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps of an object: typed definitions (`.maps`), legacy definitions, and data sections.

mod data;
mod definition;
mod entries;
mod legacy;
mod special;

use flowloom_isa::limits::MAX_MAPS;
use std::collections::{HashMap, HashSet};

use super::container::{Budget, Container, Place, SectionKind, SymbolKind};
use super::error::ReadFault;
use super::names;
use super::sidecar::{self, Sidecar};
use flowloom_isa::btf::{Btf, Linkage, SecVar, Type};
use flowloom_isa::{MapDef, Member, Reference};
use special::Finder;

/// The target of a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A map, by its definition.
    Map(usize),
    /// A data section; its size.
    Data(usize, u32),
}

#[derive(Debug, Clone, Default)]
pub(super) struct ObjectMap {
    pub(super) def: MapDef,
    /// Unresolved references of the map, which apply to the programs that use it.
    pub(super) unresolved: Vec<Reference>,
    /// Its initial programs: entry, section and byte offset of the function, and its symbol.
    pub(super) programs: Vec<(u32, (usize, u64), usize)>,
    /// The id under which sections such as `3/0` put programs into it, for iproute2's definitions.
    pub(super) id: Option<u32>,
}

#[derive(Default)]
pub(super) struct Maps {
    pub(super) all: Vec<ObjectMap>,
    /// Requests to the loader, and substitutes for properties of the machine.
    pub(super) notes: Vec<String>,
    /// By section and offset, for definitions.
    definitions: HashMap<(usize, u64), usize>,
    /// By section, for data.
    sections: HashMap<usize, usize>,
    /// The map of the kernel's configuration settings.
    pub(super) settings: Option<usize>,
}

impl Maps {
    /// Order: that of `.flowloom` if present, else definitions by their place, then data sections by theirs.
    ///
    /// # Errors
    /// Invalid definitions.
    pub(super) fn read(container: &Container<'_>, btf: Option<&Btf>, budget: &mut Budget) -> Result<Maps, ReadFault> {
        let variables = variables(btf)?;
        let mut maps = Maps::default();
        let mut finder = Finder::default();
        maps.read_definitions(container, btf, &variables, &mut finder, budget)?;
        maps.read_legacy(container)?;
        maps.read_data(container, btf, &variables, &mut finder, budget)?;
        if maps.all.len() > MAX_MAPS {
            return Err(ReadFault::TooMany { what: "maps", found: maps.all.len(), limit: MAX_MAPS });
        }
        let mut seen = HashSet::new();
        if let Some(twice) = maps.all.iter().find(|m| !seen.insert(m.def.name.as_str())) {
            return Err(ReadFault::Twice { what: "map", name: twice.def.name.clone() });
        }
        maps.apply_sidecar(container)?;
        Ok(maps)
    }

    /// The map at byte `offset` of a section; `None` if that section holds no maps.
    pub(super) fn at(&self, section: usize, offset: u64) -> Option<Found> {
        if let Some(index) = self.sections.get(&section) {
            return Some(Found::Data(*index, self.all[*index].def.value_bytes));
        }
        self.definitions.get(&(section, offset)).map(|index| Found::Map(*index))
    }

    fn read_definitions(
        &mut self,
        container: &Container<'_>,
        btf: Option<&Btf>,
        variables: &Variables<'_>,
        finder: &mut Finder,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
        let Some((number, section)) = container.named(names::MAPS)? else { return Ok(()) };
        if section.len == 0 {
            return Ok(());
        }
        let missing = || ReadFault::Missing {
            what: "type information (`.BTF`; compile with -g) with the variables of section",
            name: names::MAPS,
        };
        let btf = btf.ok_or_else(missing)?;
        let vars = *variables.get(names::MAPS.as_bytes()).ok_or_else(missing)?;
        if vars.len() > MAX_MAPS {
            return Err(ReadFault::TooMany { what: "maps", found: vars.len(), limit: MAX_MAPS });
        }
        let places: HashMap<&str, u64> = container
            .symbols
            .iter()
            .filter(|s| s.place == Place::Section(number) && s.kind != SymbolKind::Section)
            .map(|s| (s.name, s.value))
            .collect();
        let mut found = Vec::with_capacity(vars.len());
        for var in vars {
            let Some(Type::Var { name, of, linkage }) = btf.get(var.var) else {
                return Err(ReadFault::NoVariable { section: names::MAPS.to_owned(), id: var.var.0 });
            };
            let name = btf.name(*name)?;
            if *linkage == Linkage::Extern {
                let place = format!("section `{}`", names::MAPS);
                return Err(ReadFault::Unsupported { what: format!("map `{name}` of another object"), place });
            }
            let Some(offset) = places.get(name) else {
                return Err(ReadFault::NoSymbol { name: name.to_owned(), section: names::MAPS });
            };
            found.push((*offset, var.size_bytes, definition::read(btf, name, *of, finder)?));
        }
        found.sort_by_key(|(offset, ..)| *offset);
        // The start and size of each definition, and the offset of its initial entries.
        let mut holders = Vec::new();
        for (offset, size_bytes, found) in found {
            let index = self.all.len();
            if self.definitions.insert((number, offset), index).is_some() {
                return Err(ReadFault::Twice { what: "definition at the place of map", name: found.def.name });
            }
            if let Some(values) = found.values_offset {
                holders.push((index, offset.saturating_add(values), offset.saturating_add(size_bytes.into())));
            }
            let map = found.def.name.clone();
            let mut unresolved = Vec::with_capacity(found.fields.len());
            for (field, offset) in found.fields {
                unresolved.push(reference_of_field(&map, field, offset, budget)?);
            }
            self.notes.extend(found.notes);
            self.all.push(ObjectMap { def: found.def, unresolved, ..ObjectMap::default() });
        }
        let mut taken = 0;
        for (index, from, to) in holders {
            taken += self.read_members(container, number, index, from..to)?;
        }
        let all = container.relocations_in(number, 0, u64::MAX).count();
        if taken != all {
            let what = "an address that is no initial member of a map".to_owned();
            return Err(ReadFault::Unsupported { what, place: format!("section `{}`", names::MAPS) });
        }
        Ok(())
    }

    /// Reads the initial entries of a map, which are addresses in bytes `place` of the section; returns their number.
    fn read_members(
        &mut self,
        container: &Container<'_>,
        section: usize,
        index: usize,
        place: std::ops::Range<u64>,
    ) -> Result<usize, ReadFault> {
        let map = self.all[index].def.name.clone();
        let fail = |why: String| ReadFault::Definition { map: map.clone(), what: "values".to_owned(), why };
        let mut taken = 0;
        for (offset, relocation) in container.relocations_in(section, place.start, place.end) {
            taken += 1;
            let distance = offset - place.start;
            let entry = u32::try_from(distance / 8).ok().filter(|_| distance.is_multiple_of(8));
            let entry =
                entry.ok_or_else(|| fail(format!("an address at byte {distance} of it, expected a multiple of 8")))?;
            let Some(symbol) = container.symbols.get(relocation.symbol) else { continue };
            // Static symbols are referred to by their section, with the offset in the field.
            let addend =
                usize::try_from(offset).ok().and_then(|at| container.sections[section].bytes.get(at..)?.first_chunk());
            let addend = relocation.addend.unwrap_or(i64::from_le_bytes(*addend.unwrap_or(&[0; 8])));
            let value = symbol.value.wrapping_add_signed(addend);
            match symbol.place {
                Place::Section(number) if container.sections[number].kind == SectionKind::Code => {
                    self.all[index].programs.push((entry, (number, value), relocation.symbol));
                }
                Place::Section(number) => {
                    let member = self.definitions.get(&(number, value));
                    let member = *member.ok_or_else(|| fail(format!("entry {entry}, `{}`, is no map", symbol.name)))?;
                    self.all[index].def.members.push((entry, Member::Map(member)));
                }
                _ => {
                    let why = "which is not in the object".to_owned();
                    let (map, member) = (map.clone(), symbol.name.to_owned());
                    self.all[index].unresolved.push(Reference::Member { map, index: entry, member, why });
                }
            }
        }
        Ok(taken)
    }

    fn read_legacy(&mut self, container: &Container<'_>) -> Result<(), ReadFault> {
        for found in legacy::read(container, self.all.len())? {
            let index = self.all.len();
            if self.definitions.insert((found.section, found.offset), index).is_some() {
                return Err(ReadFault::Twice { what: "definition at the place of map", name: found.def.name });
            }
            self.notes.extend(found.notes);
            self.all.push(ObjectMap { def: found.def, id: found.id, ..ObjectMap::default() });
        }
        Ok(())
    }

    /// Sorts the maps as in `.flowloom` and gives context tables their layouts.
    fn apply_sidecar(&mut self, container: &Container<'_>) -> Result<(), ReadFault> {
        let Some((_, section)) = container.named(names::SIDECAR)? else { return Ok(()) };
        let fail = |why: String| ReadFault::Sidecar { why };
        let sidecar = Sidecar::parse(section.bytes).map_err(|e| fail(e.to_string()))?;
        let by_name: HashMap<&str, usize> =
            sidecar.maps.iter().enumerate().map(|(i, m)| (m.name.as_str(), i)).collect();
        if by_name.len() != self.all.len() || sidecar.maps.len() != self.all.len() {
            return Err(fail(format!("it lists {} maps, the object has {}", sidecar.maps.len(), self.all.len())));
        }
        // From the old index of a map to its new one.
        let mut order = Vec::with_capacity(self.all.len());
        for ObjectMap { def, .. } in &mut self.all {
            let number = by_name.get(def.name.as_str());
            let number = *number.ok_or_else(|| fail(format!("it does not list map `{}`", def.name)))?;
            if let Some(layout) = &sidecar.maps[number].layout {
                if def.initial.is_some() {
                    return Err(fail(format!("it gives data section `{}` a layout", def.name)));
                }
                sidecar::check_layout(layout, def).map_err(|fault| fail(format!("map `{}`: {fault}", def.name)))?;
                def.layout = Some(layout.clone());
            }
            order.push(number);
        }
        let mut ordered: Vec<(usize, ObjectMap)> = order.iter().copied().zip(std::mem::take(&mut self.all)).collect();
        ordered.sort_by_key(|(number, _)| *number);
        self.all = ordered.into_iter().map(|(_, map)| map).collect();
        let members = self.all.iter_mut().flat_map(|map| &mut map.def.members);
        let members = members.filter_map(|(_, member)| match member {
            Member::Map(index) => Some(index),
            Member::Program(_) => None,
        });
        let places = self.definitions.values_mut().chain(self.sections.values_mut());
        for index in places.chain(members).chain(&mut self.settings) {
            *index = order[*index];
        }
        Ok(())
    }
}

/// The unresolved reference for a field in the values of `map`.
fn reference_of_field(map: &str, field: String, offset: u32, budget: &mut Budget) -> Result<Reference, ReadFault> {
    budget.charge("fields of values", (size_of::<Reference>() + map.len() + field.len()) as u64)?;
    Ok(Reference::Field { map: map.to_owned(), field, offset })
}

/// Variables by section name.
type Variables<'b> = HashMap<&'b [u8], &'b [SecVar]>;

fn variables(btf: Option<&Btf>) -> Result<Variables<'_>, ReadFault> {
    let mut out = Variables::new();
    let Some(btf) = btf else { return Ok(out) };
    for (_, ty) in btf.types() {
        let Type::DataSec { name, vars, .. } = ty else { continue };
        let section = btf.name_bytes(*name)?;
        if out.insert(section, vars).is_some() {
            let name = String::from_utf8_lossy(section).into_owned();
            return Err(ReadFault::Twice { what: "type of section", name });
        }
    }
    Ok(out)
}
