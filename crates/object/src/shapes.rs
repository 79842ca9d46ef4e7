// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layouts of keys and values of an object's maps, for text and JSON.

use std::collections::{BTreeMap, HashMap};

use super::container::{Budget, Container, Place};
use super::error::{ReadError, ReadFault};
use super::{DataKind, names};
use flowloom_isa::btf::{Btf, Form, SecVar, Shape, Type, TypeId};

/// The layouts of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapShape {
    /// The key.
    pub key: Shape,
    /// The value.
    pub value: Shape,
}

/// The layouts of the maps of an object by name, as far as its types tell: maps that only have sizes, and objects
/// without types, have none. Data sections are structures of their variables.
///
/// # Errors
/// The container is malformed, as for [`super::read()`]; or a type exceeds its limits.
pub fn map_shapes(bytes: &[u8], name: &str) -> Result<BTreeMap<String, MapShape>, ReadError> {
    shapes(bytes).map_err(|fault| ReadError { object: name.to_owned(), fault })
}

fn shapes(bytes: &[u8]) -> Result<BTreeMap<String, MapShape>, ReadFault> {
    let mut budget = Budget::new();
    let container = Container::parse(bytes, &mut budget)?;
    let mut found = BTreeMap::new();
    let Some((number, section)) = container.named(names::BTF)? else { return Ok(found) };
    budget.charge("types", section.bytes.len() as u64 * 8)?;
    // Errors in types are reported by reading the programs.
    let Ok(btf) = Btf::parse(container.types(number)) else { return Ok(found) };
    for (_, ty) in btf.types() {
        let Type::DataSec { name, size_bytes, vars } = ty else { continue };
        let section = btf.name(*name)?;
        if section == names::MAPS {
            for var in vars {
                let Some(Type::Var { name, of, .. }) = btf.get(var.var) else { continue };
                let map = btf.name(*name)?;
                budget.charge("types of maps", 4096)?;
                if let Some(shape) = definition(&btf, *of)? {
                    found.insert(map.to_owned(), shape);
                }
            }
        } else if DataKind::of(section).is_some() {
            let value = Shape { size_bytes: *size_bytes as usize, form: variables(&container, &btf, section, vars)? };
            found.insert(section.to_owned(), MapShape { key: Shape::of_size(4), value });
        }
    }
    Ok(found)
}

/// The pointees of the `key` and `value` of a definition; `None` if one of them only has a size.
fn definition(btf: &Btf, of: TypeId) -> Result<Option<MapShape>, ReadFault> {
    let Some(Type::Struct(fields)) = btf.get(btf.resolve(of)?) else { return Ok(None) };
    let (mut key, mut value) = (None, None);
    for member in &fields.members {
        let place = match btf.name(member.name)? {
            "key" => &mut key,
            "value" => &mut value,
            _ => continue,
        };
        if let Some(Type::Ptr(target)) = btf.get(btf.resolve(member.of)?) {
            *place = Some(Shape::of(btf, *target)?);
        }
    }
    Ok(key.zip(value).map(|(key, value)| MapShape { key, value }))
}

/// The variables of a data section; their offsets come from symbols.
fn variables(container: &Container<'_>, btf: &Btf, section: &str, vars: &[SecVar]) -> Result<Form, ReadFault> {
    let Some((number, place)) = container.named(section)? else { return Ok(Form::Opaque) };
    let symbols = container.symbols.iter().filter(|symbol| symbol.place == Place::Section(number));
    let places: HashMap<&str, u64> = symbols.map(|symbol| (symbol.name, symbol.value)).collect();
    let mut members = Vec::with_capacity(vars.len());
    for var in vars {
        let Some(Type::Var { name, of, .. }) = btf.get(var.var) else { continue };
        let name = btf.name(*name)?;
        let Some(&at) = places.get(name) else { continue };
        let shape = Shape::of(btf, *of)?;
        if at.checked_add(shape.size_bytes as u64).is_some_and(|end| end <= place.len) {
            members.push((name.to_owned(), at as usize, shape));
        }
    }
    members.sort_by_key(|(_, at, _)| *at);
    Ok(Form::Members(members))
}
