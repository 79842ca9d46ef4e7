// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions of a function's maps, which `flowloom map` uses while the function runs.

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_efsm::layout::{self, NO_DEADLINE, RecordLayout};
use flowloom_efsm::model::{Element, Function, KeyPart, Stateful};
use flowloom_exec::{Description, KeyField, KeyForm, MapDescription};
use flowloom_isa::Program;

use flowloom_session::Loaded;

pub(crate) fn describe(loaded: &Loaded, path: &str, program: &Program) -> Description {
    Description::new(loaded.name(), path, map_descriptions(loaded, program))
}

/// The maps with a layout that the function or object tells.
pub(crate) fn map_descriptions(loaded: &Loaded, program: &Program) -> Vec<MapDescription> {
    match loaded.function() {
        Some(function) => of_function(function, program),
        None => of_object(program),
    }
}

fn of_object(program: &Program) -> Vec<MapDescription> {
    let described = program.maps.iter().filter(|map| map.layout.is_some());
    let describe = |map: &flowloom_isa::MapDef| MapDescription {
        name: map.name.clone(),
        layout: map.layout.clone(),
        ..MapDescription::default()
    };
    described.map(describe).collect()
}

fn of_function(function: &Function, program: &Program) -> Vec<MapDescription> {
    let layout_of = |name: &str| program.maps.iter().find(|map| map.name == name).and_then(|map| map.layout.clone());
    let mut maps = Vec::new();
    for element in &function.elements {
        let Some(stateful) = &element.stateful else { continue };
        let (key, pairs) = key_of(function, stateful);
        let initial = initial(element, stateful);
        maps.push(MapDescription { layout: layout_of(&element.name), name: element.name.clone(), key, pairs, initial });
    }
    maps.extend(globals_of(function));
    maps
}

/// Parts of a key, and the pairs of parts that are swapped for the reverse direction.
fn key_of(function: &Function, stateful: &Stateful) -> (Vec<KeyField>, Vec<(usize, usize)>) {
    let (Some(key), Some(spec)) = (&stateful.key, layout::key_spec(function, stateful)) else {
        return (Vec::new(), Vec::new());
    };
    let parts = key.parts.iter().zip(spec.parts()).zip(spec.offsets_bytes());
    let fields = parts.map(|((part, in_spec), &offset)| {
        let (name, form) = match part {
            KeyPart::Field(field) => {
                let name = function.graph.field_name(*field).into_owned();
                let form = match field.width_bits() {
                    128 => KeyForm::Ip,
                    48 if name.contains("eth.") => KeyForm::Mac,
                    32 if name.contains("ipv4.src") || name.contains("ipv4.dst") => KeyForm::Ipv4,
                    _ => KeyForm::Number,
                };
                (name, form)
            }
            KeyPart::Metadata(i) => {
                let variable = &function.metadata[usize::from(*i)];
                (variable.name.clone(), if variable.ty.is_wide() { KeyForm::Ip } else { KeyForm::Number })
            }
        };
        KeyField { name, offset_bytes: offset as u32, size_bytes: in_spec.key_bytes() as u32, form }
    });
    (fields.collect(), spec.pairs().to_vec())
}

/// Initial record of a context.
fn initial(element: &Element, stateful: &Stateful) -> Vec<u8> {
    let record = RecordLayout::of(element, stateful);
    let mut bytes = vec![0; record.len_bytes as usize];
    let mut put = |offset: u32, value: &[u8]| {
        if let Some(place) = bytes.get_mut(offset as usize..offset as usize + value.len()) {
            place.copy_from_slice(value);
        }
    };
    for deadline in record.idle.map(|idle| idle.deadline).into_iter().chain(record.hard_deadline) {
        put(deadline, &NO_DEADLINE.to_le_bytes());
    }
    for (register, &offset) in stateful.registers.iter().zip(&record.registers) {
        put(offset, &register.initial.to_le_bytes()[..layout::size_bytes(register) as usize]);
    }
    bytes
}

/// Global registers, named by element and register.
fn globals_of(function: &Function) -> Option<MapDescription> {
    let (offsets, data) = layout::globals(function);
    let mut fields = Vec::new();
    for (element, offsets) in function.elements.iter().zip(&offsets) {
        let globals = element.stateful.as_ref().map_or(&[][..], |stateful| &stateful.globals);
        for (global, &offset_bytes) in globals.iter().zip(offsets) {
            let name = format!("{}.{}", element.name, global.name);
            let (size_bytes, signed) = (layout::size_bytes(global), global.ty.signed);
            fields.push(LayoutField { name, offset_bytes, size_bytes, signed });
        }
    }
    fields.sort_by_key(|field| field.offset_bytes);
    (!data.is_empty()).then(|| MapDescription {
        name: layout::GLOBALS_MAP.to_owned(),
        layout: Some(ContextLayout { fields, ..ContextLayout::default() }),
        initial: data,
        ..MapDescription::default()
    })
}
