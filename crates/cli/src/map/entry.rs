// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Map entries as bytes, text and JSON.

use std::net::{Ipv4Addr, Ipv6Addr};

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_efsm::layout::{NO_DEADLINE, PORTS_MAP};
use flowloom_exec::{Description, KeyField, KeyForm};
use flowloom_isa::MapKind;
use serde_json::{Map, Value, json};

/// Bytes as a JSON list, as `bpftool` prints them.
fn hex_list(bytes: &[u8]) -> Value {
    bytes.iter().map(|b| Value::from(format!("0x{b:02x}"))).collect()
}

fn hex_words(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

/// An entry as `bpftool -j map dump` prints it without type information.
pub(super) fn raw_json(key: &[u8], value: &[u8]) -> Value {
    json!({"key": hex_list(key), "value": hex_list(value)})
}

/// An entry as `bpftool map dump` prints it without type information.
pub(super) fn raw_text(key: &[u8], value: &[u8]) -> String {
    let (key, value) = (hex_words(key), hex_words(value));
    // `bpftool` breaks the line of a long entry.
    if key.len() + value.len() <= 70 {
        format!("key: {key}  value: {value}\n")
    } else {
        format!("key:\n{key}\nvalue:\n{value}\n")
    }
}

/// Interpretation of a field of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Number,
    /// Index of a state.
    State,
    /// Time of expiry, or never.
    Deadline,
    /// A point in time.
    Time,
    Duration,
    /// 128-bit address, big-endian as in keys.
    Ip,
}

/// A map, as far as its entries concern.
pub(crate) struct TableFacts<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Option<MapKind>,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    /// The fields of its values, if types tell them.
    pub(crate) fields: Vec<LayoutField>,
}

/// Layout of a map's keys and values, as far as it is known.
pub(crate) struct EntryLayout {
    pub(super) key: Vec<KeyField>,
    pub(super) pairs: Vec<(usize, usize)>,
    pub(super) fields: Vec<LayoutField>,
    pub(super) states: Vec<String>,
    pub(super) initial: Vec<u8>,
    /// Current time of the function's clock, in nanoseconds.
    pub(super) now_ns: u64,
    deadlines: Vec<u32>,
    /// Keys are 32-bit indices in host byte order.
    pub(super) is_indexed: bool,
    /// The table has a single context, whose key does not depend on packet fields.
    pub(super) is_keyless: bool,
    is_ports: bool,
    interfaces: Vec<(u32, String)>,
}

impl EntryLayout {
    /// Layout of a table from `description`, else from the table's BTF types.
    pub(crate) fn of(
        table: &TableFacts<'_>,
        description: Option<&Description>,
        now_ns: u64,
    ) -> Result<EntryLayout, String> {
        let map_description = description.and_then(|description| description.map(table.name));
        let layout: Option<&ContextLayout> = map_description.and_then(|map| map.layout.as_ref());
        let fields = layout.map_or_else(|| table.fields.clone(), |layout| layout.fields.clone());
        let outside = fields.iter().find(|f| (f.offset_bytes + f.size_bytes) as usize > table.value_bytes);
        if let Some(field) = outside {
            return Err(format!(
                "field `{}` ends at byte {}, and a value of map `{}` has {}: the description is of another function",
                field.name,
                field.offset_bytes + field.size_bytes,
                table.name,
                table.value_bytes
            ));
        }
        let key: Vec<KeyField> = map_description.map_or_else(Vec::new, |map| map.key.clone());
        if let Some(part) = key.iter().find(|part| (part.offset_bytes + part.size_bytes) as usize > table.key_bytes) {
            return Err(format!(
                "`{}` ends at byte {}, and a key of map `{}` has {}: the description is of another function",
                part.name,
                part.offset_bytes + part.size_bytes,
                table.name,
                table.key_bytes
            ));
        }
        let initial = map_description.map_or_else(Vec::new, |map| map.initial.clone());
        let is_ports = table.name == PORTS_MAP && table.kind == Some(MapKind::Devmap);
        let ports = description.map_or_else(Vec::new, |description| description.ports.clone().into_iter().collect());
        Ok(EntryLayout {
            key,
            pairs: map_description.map_or_else(Vec::new, |map| map.pairs.clone()),
            states: layout.map_or_else(Vec::new, |layout| layout.states.clone()),
            deadlines: layout.map_or_else(Vec::new, |layout| layout.deadline_offsets.clone()),
            initial: if initial.len() == table.value_bytes { initial } else { Vec::new() },
            fields,
            now_ns,
            is_indexed: matches!(table.kind, Some(MapKind::Array | MapKind::Devmap)) && table.key_bytes == 4,
            // Only sources provide initial values. Their tables name the key parts, if there are any.
            is_keyless: map_description.is_some_and(|map| map.key.is_empty() && !map.initial.is_empty()),
            is_ports,
            interfaces: ports,
        })
    }

    pub(super) fn meaning(&self, field: &LayoutField) -> Meaning {
        let is_context = !self.states.is_empty();
        match field.name.as_str() {
            _ if field.size_bytes == 16 => Meaning::Ip,
            "state" if is_context => Meaning::State,
            _ if self.deadlines.contains(&field.offset_bytes) => Meaning::Deadline,
            "touched" if is_context && field.size_bytes == 8 => Meaning::Time,
            "idle_ns" if is_context => Meaning::Duration,
            _ => Meaning::Number,
        }
    }

    /// True if a field is internal or unset, and not printed.
    fn is_hidden(&self, field: &LayoutField, bytes: &[u8]) -> bool {
        let is_unset = match self.meaning(field) {
            Meaning::Deadline => number(field, bytes) == u128::from(NO_DEADLINE),
            Meaning::Duration => number(field, bytes) == 0,
            Meaning::Number => !self.states.is_empty() && field.name == "flags" && number(field, bytes) == 0,
            _ => false,
        };
        is_unset || field.name.starts_with("pad_")
    }

    /// Text of a key, with the names of its parts.
    pub(crate) fn key_words(&self, key: &[u8]) -> String {
        if self.is_indexed {
            return index(key).to_string();
        }
        if self.is_keyless {
            return "none".to_owned();
        }
        if self.key.is_empty() {
            return format!("[{}]", hex_words(key));
        }
        let parts = self.key.iter().map(|part| format!("{}={}", part.name, part_text(part, part_bytes(part, key))));
        parts.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn text(&self, key: &[u8], value: &[u8]) -> String {
        if self.is_ports {
            let interface = u32::from_ne_bytes(*value.first_chunk().unwrap_or(&[0; 4]));
            let name = self.interfaces.iter().find(|(port, _)| *port == index(key)).map(|(_, name)| name.as_str());
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            return format!("port {}: interface {interface}{name}", index(key));
        }
        if self.fields.is_empty() {
            return format!("{}: [{}]", self.key_words(key), hex_words(value));
        }
        let shown = self.fields.iter().filter(|field| !self.is_hidden(field, value));
        let words: Vec<String> =
            shown.map(|field| format!("{}={}", field.name, self.field_text(field, value))).collect();
        format!("{}: {}", self.key_words(key), words.join(" "))
    }

    fn field_text(&self, field: &LayoutField, value: &[u8]) -> String {
        let number = number(field, value);
        match self.meaning(field) {
            Meaning::State => usize::try_from(number)
                .ok()
                .and_then(|state| self.states.get(state).cloned())
                .unwrap_or_else(|| number.to_string()),
            Meaning::Deadline | Meaning::Time => {
                let (at, now) = (number as u64, self.now_ns);
                if at > now { format!("in {}", seconds(at - now)) } else { format!("{} ago", seconds(now - at)) }
            }
            Meaning::Duration => seconds(number as u64),
            Meaning::Ip => ip_text(number),
            Meaning::Number if field.signed => signed(field, number).to_string(),
            Meaning::Number => number.to_string(),
        }
    }

    /// JSON of an entry. Times are in nanoseconds of the function's clock.
    pub(crate) fn json(&self, key: &[u8], value: &[u8]) -> Value {
        let key = if self.is_indexed {
            json!(index(key))
        } else if self.is_keyless {
            Value::Null
        } else if self.key.is_empty() {
            hex_list(key)
        } else {
            let parts = self.key.iter().map(|part| {
                let bytes = part_bytes(part, key);
                let value = match part.form {
                    KeyForm::Number if bytes.len() <= 8 => json!(big_endian(bytes) as u64),
                    _ => json!(part_text(part, bytes)),
                };
                (part.name.clone(), value)
            });
            Value::Object(parts.collect::<Map<_, _>>())
        };
        let value = if self.fields.is_empty() {
            hex_list(value)
        } else {
            let fields = self.fields.iter().filter(|field| !field.name.starts_with("pad_")).map(|field| {
                let number = number(field, value);
                let shown = match self.meaning(field) {
                    Meaning::State | Meaning::Ip => json!(self.field_text(field, value)),
                    Meaning::Deadline if number == u128::from(NO_DEADLINE) => Value::Null,
                    Meaning::Number if field.signed => json!(signed(field, number)),
                    _ => json!(number as u64),
                };
                (field.name.clone(), shown)
            });
            Value::Object(fields.collect::<Map<_, _>>())
        };
        json!({"key": key, "value": value})
    }
}

pub(super) fn index(key: &[u8]) -> u32 {
    u32::from_ne_bytes(*key.first_chunk().unwrap_or(&[0; 4]))
}

fn part_bytes<'a>(part: &KeyField, key: &'a [u8]) -> &'a [u8] {
    key.get(part.offset_bytes as usize..(part.offset_bytes + part.size_bytes) as usize).unwrap_or_default()
}

fn big_endian(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn part_text(part: &KeyField, bytes: &[u8]) -> String {
    match part.form {
        KeyForm::Number => big_endian(bytes).to_string(),
        KeyForm::Ipv4 => Ipv4Addr::from_bits(big_endian(bytes) as u32).to_string(),
        KeyForm::Ip => ip_text(big_endian(bytes)),
        KeyForm::Mac => bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"),
    }
}

/// Text of an address; IPv4-mapped addresses are printed as IPv4.
fn ip_text(bits: u128) -> String {
    let address = Ipv6Addr::from_bits(bits);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
}

/// Little-endian number in a field.
fn number(field: &LayoutField, value: &[u8]) -> u128 {
    let bytes = value.get(field.offset_bytes as usize..(field.offset_bytes + field.size_bytes) as usize);
    bytes.unwrap_or_default().iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn signed(field: &LayoutField, number: u128) -> i64 {
    let unused = 64 - (8 * field.size_bytes).min(64);
    ((number as u64) << unused).cast_signed() >> unused
}

fn seconds(ns: u64) -> String {
    format!("{:.3}s", ns as f64 / 1e9)
}
