//! The maps of an object: from `.maps` and its types, and from data sections.

use std::collections::{HashMap, HashSet};

use super::container::{Budget, Container, Place, SectionKind, SymbolKind};
use super::read::ReadFault;
use super::sidecar::{self, Sidecar};
use super::{DataKind, names};
use crate::btf::{Btf, Linkage, SecVar, Type, TypeId};
use crate::map_kind::MapKind;
use crate::program::{BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, MapDef};

/// Largest number of maps in an object. One program of the kernel uses at most 64.
const MAX_MAPS: usize = 4096;

/// Largest number of fields in the definition of a map; the conventions know eleven.
const MAX_FIELDS: usize = 64;

/// What a relocation finds at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A map by its definition.
    Map(usize),
    /// A data section; its length.
    Data(usize, u32),
}

/// All maps of an object.
#[derive(Default)]
pub(super) struct Maps {
    pub(super) defs: Vec<MapDef>,
    /// By section and offset for definitions.
    definitions: HashMap<(usize, u64), usize>,
    /// By section for data.
    sections: HashMap<usize, usize>,
}

impl Maps {
    /// Order: that of `.flowloom` where it is, else definitions by their place and then data sections by theirs.
    ///
    /// # Errors
    /// Definitions that cannot be understood or not be honoured.
    pub(super) fn read(container: &Container<'_>, btf: Option<&Btf>, budget: &mut Budget) -> Result<Maps, ReadFault> {
        let legacy = |s: &&super::container::Section<'_>| {
            s.kind != SectionKind::Other && (s.name == names::LEGACY_MAPS || s.name.starts_with("maps/"))
        };
        if let Some(section) = container.sections.iter().find(legacy) {
            return Err(ReadFault::Unsupported {
                what: "map definitions of the old kind (`struct bpf_map_def`), without types,".to_owned(),
                place: format!("section `{}`", section.name),
            });
        }
        let variables = variables(btf)?;
        let mut maps = Maps::default();
        maps.read_definitions(container, btf, &variables)?;
        maps.read_data(container, btf, &variables, budget)?;
        let mut seen = HashSet::new();
        if let Some(twice) = maps.defs.iter().find(|m| !seen.insert(m.name.as_str())) {
            return Err(ReadFault::Twice { what: "map", name: twice.name.clone() });
        }
        maps.apply_sidecar(container)?;
        Ok(maps)
    }

    /// What lies at byte `offset` of a section; `None` if that section holds no maps.
    pub(super) fn at(&self, section: usize, offset: u64) -> Option<Found> {
        if let Some(index) = self.sections.get(&section) {
            return Some(Found::Data(*index, self.defs[*index].value_bytes));
        }
        self.definitions.get(&(section, offset)).map(|index| Found::Map(*index))
    }

    fn read_definitions(
        &mut self,
        container: &Container<'_>,
        btf: Option<&Btf>,
        variables: &Variables<'_>,
    ) -> Result<(), ReadFault> {
        let Some((number, section)) = container.named(names::MAPS)? else { return Ok(()) };
        if section.len == 0 {
            return Ok(());
        }
        let missing = || ReadFault::Missing {
            what: "type information (`.BTF`) with the variables of section",
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
            if *linkage != Linkage::Global {
                let place = format!("section `{}`", names::MAPS);
                return Err(ReadFault::Unsupported { what: format!("map `{name}`, which is not global,"), place });
            }
            let Some(offset) = places.get(name) else {
                return Err(ReadFault::NoSymbol { name: name.to_owned(), section: names::MAPS });
            };
            found.push((*offset, definition(btf, name, *of)?));
        }
        found.sort_by_key(|(offset, _)| *offset);
        for (offset, def) in found {
            if self.definitions.insert((number, offset), self.defs.len()).is_some() {
                return Err(ReadFault::Twice { what: "definition at the place of map", name: def.name });
            }
            self.defs.push(def);
        }
        Ok(())
    }

    fn read_data(
        &mut self,
        container: &Container<'_>,
        btf: Option<&Btf>,
        variables: &Variables<'_>,
        budget: &mut Budget,
    ) -> Result<(), ReadFault> {
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
            if self.defs.len() >= MAX_MAPS {
                return Err(ReadFault::TooMany { what: "maps", found: self.defs.len() + 1, limit: MAX_MAPS });
            }
            let mut flags = if kind == DataKind::ReadOnly { BPF_F_RDONLY_PROG } else { 0 };
            if let Some(btf) = btf
                && let Some(vars) = variables.get(section.name.as_bytes())
            {
                let shared = |v: &SecVar| match btf.get(v.var) {
                    Some(Type::Var { linkage, .. }) => *linkage != Linkage::Static,
                    _ => false,
                };
                if vars.iter().any(shared) {
                    flags |= BPF_F_MMAPABLE;
                }
            }
            self.sections.insert(number, self.defs.len());
            self.defs.push(MapDef {
                name: section.name.to_owned(),
                kind: MapKind::Array,
                key_bytes: 4,
                // The budget is far below 4 GiB.
                value_bytes: initial.len() as u32,
                max_entries: 1,
                flags,
                initial: Some(initial),
                ..MapDef::default()
            });
        }
        Ok(())
    }

    /// Brings the maps into the order of `.flowloom` and gives context tables their layouts.
    fn apply_sidecar(&mut self, container: &Container<'_>) -> Result<(), ReadFault> {
        let Some((_, section)) = container.named(names::SIDECAR)? else { return Ok(()) };
        let fail = |why: String| ReadFault::Sidecar { why };
        let sidecar = Sidecar::parse(section.bytes).map_err(|e| fail(e.to_string()))?;
        let by_name: HashMap<&str, usize> =
            sidecar.maps.iter().enumerate().map(|(i, m)| (m.name.as_str(), i)).collect();
        if by_name.len() != self.defs.len() || sidecar.maps.len() != self.defs.len() {
            return Err(fail(format!("it lists {} maps, the object has {}", sidecar.maps.len(), self.defs.len())));
        }
        // From the old number of a map to its new one.
        let mut order = Vec::with_capacity(self.defs.len());
        for def in &mut self.defs {
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
        let mut ordered: Vec<(usize, MapDef)> = order.iter().copied().zip(std::mem::take(&mut self.defs)).collect();
        ordered.sort_by_key(|(number, _)| *number);
        self.defs = ordered.into_iter().map(|(_, def)| def).collect();
        for index in self.definitions.values_mut().chain(self.sections.values_mut()) {
            *index = order[*index];
        }
        Ok(())
    }
}

/// Variables by the name of their section.
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

/// Reads `struct { __uint(type, …); __type(key, …); … } NAME SEC(".maps")`.
fn definition(btf: &Btf, map: &str, of: TypeId) -> Result<MapDef, ReadFault> {
    let fail = |what: &str, why: &str| ReadFault::Definition {
        map: map.to_owned(),
        what: what.to_owned(),
        why: why.to_owned(),
    };
    let Some(Type::Struct(fields)) = btf.get(btf.resolve(of)?) else {
        return Err(fail("its type", "it is not a struct"));
    };
    if fields.members.len() > MAX_FIELDS {
        return Err(fail("its type", "it has more than 64 fields"));
    }
    let (mut kind, mut max_entries, mut flags) = (None, 0, 0);
    let (mut key, mut value) = (Size::default(), Size::default());
    for member in &fields.members {
        let name = btf.name(member.name)?;
        let Some(Type::Ptr(target)) = btf.get(btf.resolve(member.of)?) else {
            return Err(fail(name, "it is not a pointer, as `__uint` and `__type` make"));
        };
        let number = || match btf.get(btf.resolve(*target)?) {
            Some(Type::Array { count, .. }) => Ok(*count),
            _ => Err(fail(name, "it is not a pointer to an array, as `__uint` makes")),
        };
        match name {
            "type" => {
                let number = number()?;
                kind = Some(MapKind::from_number(number));
            }
            "max_entries" => max_entries = number()?,
            "map_flags" => flags = number()?,
            "key_size" => key.set(map, name, number()?)?,
            "value_size" => value.set(map, name, number()?)?,
            "key" => key.set(map, name, btf.size_bytes(*target)?)?,
            "value" => value.set(map, name, btf.size_bytes(*target)?)?,
            // Explicitly none; anything else asks the loader for something that we do not do.
            "pinning" | "numa_node" | "map_extra" if number()? == 0 => {}
            _ => {
                let place = format!("the definition of map `{map}`");
                return Err(ReadFault::Unsupported { what: format!("field `{name}`"), place });
            }
        }
    }
    let Some(kind) = kind else { return Err(fail("type", "it is missing")) };
    let (Some(key_bytes), Some(value_bytes)) = (key.bytes, value.bytes) else {
        let what = if key.bytes.is_none() { "key" } else { "value" };
        return Err(fail(what, "neither its type nor its size is given"));
    };
    if key_bytes == 0 || value_bytes == 0 {
        return Err(fail(if key_bytes == 0 { "key" } else { "value" }, "its size is 0 bytes"));
    }
    let name = map.to_owned();
    Ok(MapDef { name, kind, key_bytes, value_bytes, max_entries, flags, ..MapDef::default() })
}

/// A size that may be given twice, if both agree.
#[derive(Default)]
struct Size {
    bytes: Option<u32>,
}

impl Size {
    fn set(&mut self, map: &str, what: &str, bytes: u32) -> Result<(), ReadFault> {
        match self.bytes.replace(bytes) {
            Some(before) if before != bytes => Err(ReadFault::Definition {
                map: map.to_owned(),
                what: what.to_owned(),
                why: format!("its size is {bytes} bytes here and {before} bytes before"),
            }),
            _ => Ok(()),
        }
    }
}
