// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values as text.

use super::value::{Address, Cause, Invalid, MapId, Region, Value};
use flowloom_isa::{MapDef, Program};

/// The definition of a map; for one from a map of maps, the template.
pub(super) fn def(program: &Program, map: MapId) -> Option<&MapDef> {
    match map {
        MapId::Of(index) => program.maps.get(index as usize),
        MapId::In(outer) => program.maps.get(outer as usize)?.inner.as_deref(),
    }
}

pub(super) fn map_name(program: &Program, map: MapId) -> String {
    let name = |index: u32| program.maps.get(index as usize).map_or("?", |map| map.name.as_str());
    match map {
        MapId::Of(index) => format!("map `{}`", name(index)),
        MapId::In(outer) => format!("a map in `{}`", name(outer)),
    }
}

/// The stack of a frame, by the number of calls up.
pub(super) fn stack(up: usize) -> String {
    match up {
        0 => "the stack".to_owned(),
        1 => "the caller's stack".to_owned(),
        up => format!("the stack of the function {up} calls up"),
    }
}

/// A region as text, as seen from a frame.
pub(super) fn region(program: &Program, depth: usize, region: Region) -> String {
    match region {
        Region::Context => "the context".to_owned(),
        Region::Stack { frame } => stack(depth.saturating_sub(frame.into())),
        Region::Packet => "the packet".to_owned(),
        Region::Metadata => "the metadata".to_owned(),
        Region::PacketEnd => "the end of the packet".to_owned(),
        Region::Map(map) => map_name(program, map),
        Region::Value(map) => format!("a value of {}", map_name(program, map)),
        Region::Key { map, .. } => format!("a key of {}", map_name(program, map)),
        Region::Record { bytes, .. } => format!("a reserved record of {}", counted(bytes.into())),
        Region::Argument { function, number, bytes } => {
            let function = program.globals.get(usize::from(function));
            let argument = function.and_then(|f| f.arguments.get(usize::from(number).checked_sub(1)?));
            let name = argument.map_or("?", |argument| argument.name.as_str());
            let function = function.map_or("?", |function| function.name.as_str());
            format!("the {} of argument `{name}` of the global function `{function}`", counted(bytes.into()))
        }
        Region::Function { slot } => format!("the function at {slot}"),
    }
}

/// `1 byte`, `2 bytes`.
pub(super) fn counted(bytes: i64) -> String {
    format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" })
}

/// An address as text, as seen from a frame.
pub(super) fn address(program: &Program, depth: usize, address: &Address) -> String {
    let mut text = region(program, depth, address.to);
    let is_fixed = address.var.as_constant() == Some(0);
    if matches!(address.to, Region::Stack { .. }) && address.fixed == 0 && is_fixed {
        text = format!("the end of {text}");
    }
    if address.fixed != 0 {
        let sign = if address.fixed < 0 { '-' } else { '+' };
        text += &format!(" {sign} {}", address.fixed.unsigned_abs());
    }
    if !is_fixed {
        text += &format!(" + {}", address.var);
    }
    if matches!(address.to, Region::Packet | Region::Metadata) {
        let after = if is_fixed { "" } else { " after that number" };
        let are = if address.checked == 1 { "is" } else { "are" };
        text += &format!(" (of which {}{after} {are} known to be there)", counted(address.checked.into()));
    }
    if address.nullable {
        text += ", which may be null";
    }
    text
}

/// A value as text, as seen from a frame.
pub(super) fn value(program: &Program, depth: usize, value: &Value) -> String {
    match value {
        Value::Unwritten => "nothing".to_owned(),
        Value::Number(number) => match number.invalid {
            Some(Invalid { cause: Cause::PacketMoved, insn }) => {
                format!("a number, once an address in the packet: the call at {insn} moved the packet")
            }
            Some(Invalid { cause: Cause::RecordReleased, insn }) => {
                format!("a number, once an address in a record: the call at {insn} released it")
            }
            Some(Invalid { cause: Cause::CallbackEnded, insn }) => {
                format!("a number, once an address in a key: its callback ended at {insn}")
            }
            None => format!("a number, {}", number.range),
        },
        Value::Address(known) => address(program, depth, known),
    }
}
