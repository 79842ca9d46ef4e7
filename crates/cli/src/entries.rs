// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layouts of the entries of a pipeline's maps, for its driver: those of a function's contexts, and of an object's
//! types.

use std::collections::BTreeMap;

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_efsm::layout::NO_DEADLINE;
use flowloom_exec::{KeyField, KeyForm, MapDescription};
use flowloom_isa::btf::{Form, Shape};
use flowloom_object::MapShape;
use flowloom_rtl::{Entry, EntryField, Order};
use flowloom_session::{ELF_MAGIC, FunctionFile, Loaded, compiled, is_program};

use crate::describe::map_descriptions;
use crate::failure::{Failure, with_causes};
use crate::output::print_note;

/// The most elements of an array of structures that are fields of their own.
const MAX_ELEMENTS: usize = 16;
/// The most fields of a key or value.
const MAX_FIELDS: usize = 256;

/// The layouts of entries by the names of maps, as far as the function tells. `file` is what `loaded` was read from.
pub(crate) fn entries(loaded: &Loaded, file: &FunctionFile) -> Result<BTreeMap<String, Entry>, Failure> {
    let program = loaded.program()?;
    let mut found: BTreeMap<String, Entry> = BTreeMap::new();
    if loaded.function().is_none() {
        let bytes = file.bytes()?;
        if bytes.starts_with(ELF_MAGIC) || is_program(&file.path) {
            match compiled(&file.path, &bytes, &file.params, file.kind) {
                Ok(compiled) => {
                    found.extend(compiled.shapes.iter().map(|(name, shape)| (name.clone(), of_types(shape))))
                }
                // The program itself has been read; it runs without the types of its maps.
                Err(error) => print_note(&format!(
                    "`registers.md` has no layouts of entries: the types of the maps are not readable: {}",
                    with_causes(&error)
                )),
            }
        }
    }
    for map in map_descriptions(loaded, &program) {
        let known = found.remove(&map.name).unwrap_or_default();
        let own = of_contexts(&map);
        let entry = Entry { key: if own.key.is_empty() { known.key } else { own.key }, ..own };
        found.insert(map.name, entry);
    }
    Ok(found)
}

/// The layout of a context table, or of the registers that all flows share.
fn of_contexts(map: &MapDescription) -> Entry {
    let key = map.key.iter().map(key_field).collect();
    let Some(layout) = &map.layout else { return Entry { key, ..Entry::default() } };
    let value = layout.fields.iter().map(|field| context_field(layout, field)).collect();
    let mut notes = Vec::new();
    if !map.pairs.is_empty() {
        let name = |at: usize| map.key.get(at).map_or("", |part| part.name.as_str());
        let pairs: Vec<String> = map.pairs.iter().map(|(a, b)| format!("`{}` and `{}`", name(*a), name(*b))).collect();
        notes.push(format!(
            "Both directions of a connection have one key: {} change places if the first one would be greater.",
            pairs.join(", ")
        ));
    }
    if !layout.deadline_offsets.is_empty() {
        let after = match layout.succession {
            Some(_) => "those whose state has a successor enter it, and the others are deleted",
            None => "they are deleted",
        };
        notes.push(format!(
            "Software ages contexts: every {} ns it lists them, and those with a deadline at or before the time of \
             `s_axis_tuser` have expired: {after}.",
            layout.sweep_ns
        ));
    }
    if !layout.preloaded.is_empty() {
        let entries: Vec<String> =
            layout.preloaded.iter().map(|(key, value)| format!("`{}` = `{}`", hex(key), hex(value))).collect();
        notes.push(format!(
            "Software inserts before the first packet (key = value, bytes in hex): {}.",
            entries.join(", ")
        ));
    }
    Entry { key, value, notes }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key_field(field: &KeyField) -> EntryField {
    let (order, meaning) = match field.form {
        KeyForm::Number => (Order::Big, ""),
        KeyForm::Ipv4 => (Order::Big, "IPv4 address"),
        KeyForm::Ip => (Order::Bytes, "IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`"),
        KeyForm::Mac => (Order::Bytes, "MAC address"),
    };
    EntryField {
        name: field.name.clone(),
        offset_bytes: field.offset_bytes,
        size_bytes: field.size_bytes,
        order,
        meaning: meaning.to_owned(),
    }
}

fn context_field(layout: &ContextLayout, field: &LayoutField) -> EntryField {
    let LayoutField { name, offset_bytes, size_bytes, signed } = field;
    let is_at = |found: Option<u32>| found == Some(*offset_bytes);
    let state = state_offset(layout);
    // The period of the idle timer comes after its deadline.
    let idle = layout.fields.iter().find(|field| field.name == "idle_deadline").map(|field| field.offset_bytes);
    let idle = idle.filter(|offset| layout.deadline_offsets.contains(offset));
    let meaning = match name.as_str() {
        _ if layout.deadline_offsets.contains(offset_bytes) => {
            format!("time in ns at which the context expires, 0x{NO_DEADLINE:x} while no timer runs")
        }
        _ if is_at(state) => {
            let states = layout.states.iter().enumerate();
            let states: Vec<String> = states.map(|(number, name)| format!("{number} `{name}`")).collect();
            format!("number of the state: {}", states.join(", "))
        }
        // 16 bits after the state.
        _ if is_at(state.map(|offset| offset + 2)) => "reserved, 0".to_owned(),
        _ if is_at(idle.map(|offset| offset + 8)) => {
            "period of the idle timer in ns, 0 while it does not run".to_owned()
        }
        "touched" if !layout.states.is_empty() => "time of the last packet that found the context, in ns".to_owned(),
        _ => "register".to_owned(),
    };
    let order = if *signed { Order::LittleSigned } else { Order::Little };
    EntryField { name: name.clone(), offset_bytes: *offset_bytes, size_bytes: *size_bytes, order, meaning }
}

/// The offset of the state: the only field of two bytes with its name, if there are states.
fn state_offset(layout: &ContextLayout) -> Option<u32> {
    if let Some(succession) = &layout.succession {
        return Some(succession.state_offset);
    }
    let is_state = |field: &&LayoutField| field.name == "state" && field.size_bytes == 2;
    layout.fields.iter().find(is_state).filter(|_| !layout.states.is_empty()).map(|field| field.offset_bytes)
}

/// The layout that the types of an object tell.
fn of_types(shape: &MapShape) -> Entry {
    let fields = |shape: &Shape, name: &str| {
        let mut found = Vec::new();
        flatten(shape, name, 0, &mut found);
        found.sort_by_key(|field: &EntryField| field.offset_bytes);
        // Fields that nothing names, or too many of them, are one.
        if found.len() <= MAX_FIELDS { found } else { vec![opaque(shape, name, 0)] }
    };
    Entry { key: fields(&shape.key, "key"), value: fields(&shape.value, "value"), notes: Vec::new() }
}

/// The fields of a type, whose own name is `name`.
fn flatten(shape: &Shape, name: &str, offset: usize, found: &mut Vec<EntryField>) {
    if found.len() > MAX_FIELDS {
        return;
    }
    let field = |order, meaning: &str| EntryField {
        name: name.to_owned(),
        offset_bytes: offset as u32,
        size_bytes: shape.size_bytes as u32,
        order,
        meaning: meaning.to_owned(),
    };
    match &shape.form {
        Form::Number { network: true, .. } => found.push(field(Order::Big, "")),
        Form::Number { signed: true, .. } => found.push(field(Order::LittleSigned, "")),
        Form::Number { .. } => found.push(field(Order::Little, "")),
        Form::Members(members) => {
            let inside = |own: &str| match (name, own) {
                // The whole key or value, or a structure without a name.
                ("key" | "value", own) if offset == 0 && !own.is_empty() => own.to_owned(),
                (name, "") => name.to_owned(),
                (name, own) => format!("{name}.{own}"),
            };
            for (own, at, shape) in members {
                flatten(shape, &inside(own), offset + at, found);
            }
        }
        Form::Array(element, count) if *count <= MAX_ELEMENTS && element.size_bytes > 1 => {
            for number in 0..*count {
                flatten(element, &format!("{name}[{number}]"), offset + number * element.size_bytes, found);
            }
        }
        Form::Array(element, count) if element.size_bytes > 1 => {
            found.push(field(Order::Bytes, &format!("{count} elements of {} bytes", element.size_bytes)));
        }
        Form::Array(..) | Form::Opaque => found.push(field(Order::Bytes, "")),
    }
}

fn opaque(shape: &Shape, name: &str, offset: usize) -> EntryField {
    let form = Form::Opaque;
    let mut found = Vec::new();
    flatten(&Shape { size_bytes: shape.size_bytes, form }, name, offset, &mut found);
    found.remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(size_bytes: usize, network: bool) -> Shape {
        Shape { size_bytes, form: Form::Number { signed: false, network } }
    }

    #[test]
    fn fields_of_types_have_their_paths() {
        let inner = Shape { size_bytes: 4, form: Form::Members(vec![("x".to_owned(), 2, number(2, true))]) };
        let two = Shape { size_bytes: 8, form: Form::Array(Box::new(inner), 2) };
        let bytes = Shape { size_bytes: 6, form: Form::Array(Box::new(number(1, false)), 6) };
        let many = Shape { size_bytes: 400, form: Form::Array(Box::new(number(4, false)), 100) };
        let members = vec![
            ("port".to_owned(), 0, number(4, false)),
            ("two".to_owned(), 4, two),
            ("mac".to_owned(), 12, bytes),
            (String::new(), 18, number(2, false)),
            ("many".to_owned(), 20, many),
        ];
        let value = Shape { size_bytes: 420, form: Form::Members(members) };
        let entry = of_types(&MapShape { key: number(4, true), value });
        let text = |fields: &[EntryField]| -> Vec<String> {
            let row = |field: &EntryField| {
                format!("{} {} {} {:?}", field.name, field.offset_bytes, field.size_bytes, field.order)
            };
            fields.iter().map(row).collect()
        };
        assert_eq!(text(&entry.key), ["key 0 4 Big"]);
        let expected = [
            "port 0 4 Little",
            "two[0].x 6 2 Big",
            "two[1].x 10 2 Big",
            "mac 12 6 Bytes",
            "value 18 2 Little",
            "many 20 400 Bytes",
        ];
        assert_eq!(text(&entry.value), expected);
    }

    #[test]
    fn very_many_fields_are_one() {
        let element = Shape { size_bytes: 64, form: Form::Array(Box::new(number(4, false)), 16) };
        let member = |at: usize| (format!("m{at}"), 64 * at, element.clone());
        let value = Shape { size_bytes: 64 * 40, form: Form::Members((0..40).map(member).collect()) };
        let entry = of_types(&MapShape { key: number(4, false), value });
        assert_eq!(entry.value.len(), 1);
        assert_eq!((entry.value[0].size_bytes, entry.value[0].order), (64 * 40, Order::Bytes));
    }
}
