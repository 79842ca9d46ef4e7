// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The maps of a program in scenarios: their initial contents and checks of their final contents.
//!
//! A key or value is a list of values. Each fills the next part of the type: a number one part, an address all parts in
//! its bytes. `NAME = VALUE` fills the named part.

use std::collections::BTreeMap;

use flowloom_engine::{MapState, Snapshot};
use flowloom_isa::btf::{Form, Shape};
use flowloom_isa::{MapDef, Program};
use flowloom_object::MapShape;
use flowloom_wire::field::IPV4_MAPPED;

use super::cursor::Cursor;
use super::error::PendingError;
use super::lex::Form as ValueForm;

/// Maximum number of named parts of a key or value.
const MAX_PARTS: usize = 1 << 16;

/// The maps of a program, with the types of their keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    tables: BTreeMap<String, Table>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    key: Layout,
    value: Layout,
    /// True if the map has a value per CPU.
    is_per_cpu: bool,
}

/// The parts of a key or value, by offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Layout {
    size_bytes: usize,
    parts: Vec<Part>,
    /// Aggregates of several parts: name, offset and length.
    groups: Vec<(String, usize, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Empty if the whole type is one number.
    name: String,
    at: usize,
    size_bytes: usize,
    /// `None` for bytes of unknown type.
    number: Option<Number>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    signed: bool,
    network: bool,
}

impl Tables {
    /// The maps of `program`; `shapes` gives the types of some keys and values, the others are numbers or bytes.
    pub fn new(program: &Program, shapes: &BTreeMap<String, MapShape>) -> Tables {
        let table = |map: &MapDef| {
            let shape = shapes.get(&map.name);
            let layout = |shape: Option<&Shape>, size: u32| match shape {
                Some(shape) if shape.size_bytes == size as usize => Layout::of(shape),
                _ => Layout::of(&Shape::of_size(size as usize)),
            };
            let key = layout(shape.map(|shape| &shape.key), map.key_bytes);
            let value = layout(shape.map(|shape| &shape.value), map.value_bytes);
            (map.name.clone(), Table { key, value, is_per_cpu: map.kind.is_per_cpu() })
        };
        Tables { tables: program.maps.iter().map(table).collect() }
    }

    fn table(&self, cursor: &mut Cursor<'_>) -> Result<(String, &Table), PendingError> {
        let (name, span) = cursor.word("a map")?;
        let table = self.tables.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.tables.keys().map(String::as_str).collect();
            PendingError::new(span, format!("no map `{name}`")).help(match known.is_empty() {
                true => "the program has none".to_owned(),
                false => format!("it has {}", known.join(", ")),
            })
        })?;
        Ok((name.to_owned(), table))
    }

    /// Parses `set MAP KEY to VALUE` and inserts the entry into `state`; parts without a value are 0.
    pub(super) fn set(&self, cursor: &mut Cursor<'_>, state: &mut Snapshot) -> Result<(), PendingError> {
        cursor.skip();
        let (name, table) = self.table(cursor)?;
        let key = table.key.key(cursor)?;
        if !cursor.eat_word("to") {
            return Err(cursor.expected("`to` and the value"));
        }
        let mut value = vec![0; table.value.size_bytes];
        for part_value in table.value.part_values(cursor)? {
            value[part_value.at..part_value.at + part_value.bytes.len()].copy_from_slice(&part_value.bytes);
        }
        if table.is_per_cpu {
            state.per_cpu.insert(name.clone(), 1);
        }
        state.maps.entry(name).or_default().insert(key, value);
        Ok(())
    }
}

impl Layout {
    fn of(shape: &Shape) -> Layout {
        let mut layout = Layout { size_bytes: shape.size_bytes, ..Layout::default() };
        layout.add("", 0, shape);
        layout
    }

    /// True if no more parts are named: a small object can expand to very many parts.
    fn is_at_limit(&self) -> bool {
        self.parts.len() + self.groups.len() >= MAX_PARTS
    }

    fn add(&mut self, name: &str, at: usize, shape: &Shape) {
        if self.is_at_limit() || shape.size_bytes == 0 {
            return;
        }
        let number = match &shape.form {
            Form::Number { signed, network } => Some(Number { signed: *signed, network: *network }),
            Form::Opaque => None,
            Form::Members(members) => {
                self.groups.push((name.to_owned(), at, shape.size_bytes));
                for (member, offset, shape) in members {
                    let inner = match (name, member.as_str()) {
                        ("", member) => member.to_owned(),
                        (name, "") => name.to_owned(),
                        (name, member) => format!("{name}.{member}"),
                    };
                    self.add(&inner, at + offset, shape);
                }
                return;
            }
            Form::Array(element, count) => {
                self.groups.push((name.to_owned(), at, shape.size_bytes));
                for i in 0..*count {
                    if self.is_at_limit() || element.size_bytes == 0 {
                        return;
                    }
                    self.add(&format!("{name}[{i}]"), at + i * element.size_bytes, element);
                }
                return;
            }
        };
        self.parts.push(Part { name: name.to_owned(), at, size_bytes: shape.size_bytes, number });
    }

    fn names(&self) -> String {
        let names: Vec<&str> =
            self.parts.iter().map(|part| part.name.as_str()).filter(|name| !name.is_empty()).collect();
        match names.as_slice() {
            [] => format!("it has {} bytes without names", self.size_bytes),
            names if names.len() > 24 => format!("it begins with {}", names[..24].join(", ")),
            names => format!("it is {}", names.join(", ")),
        }
    }

    /// Parses a key: all of its parts.
    fn key(&self, cursor: &mut Cursor<'_>) -> Result<Vec<u8>, PendingError> {
        let mut key = vec![0; self.size_bytes];
        let mut at = 0;
        let mut is_first = true;
        while let Some(next) = self.part_from(at) {
            if !is_first && !cursor.eat_sign(",") {
                return Err(cursor.expected("`,` and the next value of the key").help(self.names()));
            }
            is_first = false;
            let part_value = self.part_value(cursor, next.at)?;
            key[part_value.at..part_value.at + part_value.bytes.len()].copy_from_slice(&part_value.bytes);
            at = part_value.at + part_value.bytes.len();
        }
        Ok(key)
    }

    /// Parses a value: parts in order or by name.
    fn part_values(&self, cursor: &mut Cursor<'_>) -> Result<Vec<PartValue>, PendingError> {
        let mut at = 0;
        cursor.list(|cursor| {
            let part_value = match self.named(cursor)? {
                Some((place, len)) => self.piece_of(cursor, place, len)?,
                None => match self.part_from(at) {
                    Some(part) => self.part_value(cursor, part.at)?,
                    None => return Err(cursor.expected("the end of the value").help(self.names())),
                },
            };
            at = part_value.at + part_value.bytes.len();
            Ok(part_value)
        })
    }

    fn part_from(&self, at: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.at >= at)
    }

    /// Parses `NAME =`. Returns the offset and length of the part.
    fn named(&self, cursor: &mut Cursor<'_>) -> Result<Option<(usize, usize)>, PendingError> {
        let mut ahead = cursor.clone();
        let Some(word) = ahead.peek_word() else { return Ok(None) };
        let span = ahead.span();
        ahead.skip();
        let mut name = word.to_owned();
        while ahead.eat_sign("[") {
            name.push_str(&format!("[{}]", ahead.number("an index")?));
            ahead.sign("]")?;
        }
        if !ahead.eat_sign("=") {
            return Ok(None);
        }
        *cursor = ahead;
        let part = self.parts.iter().find(|part| part.name == name).map(|part| (part.at, part.size_bytes));
        let group = || self.groups.iter().find(|(group, ..)| *group == name).map(|(_, at, len)| (*at, *len));
        match part.or_else(group) {
            Some(found) => Ok(Some(found)),
            None => Err(PendingError::new(span, format!("no part `{name}`")).help(self.names())),
        }
    }

    /// Parses a value at offset `at`; its form determines its length.
    fn part_value(&self, cursor: &mut Cursor<'_>, at: usize) -> Result<PartValue, PendingError> {
        let Some(part) = self.part_from(at) else { return Err(cursor.expected("the end of the value")) };
        if cursor.is_word("bytes") {
            return self.piece_of(cursor, at, part.size_bytes);
        }
        let mut ahead = cursor.clone();
        let form = if ahead.eat_sign("-") { ValueForm::Number } else { ahead.value("a value")?.form };
        let is_expected = |len: usize| {
            part.size_bytes == len || self.groups.iter().any(|(_, place, size)| *place == at && *size == len)
        };
        let len = match form {
            ValueForm::V4 if !is_expected(4) => 16,
            ValueForm::V4 => 4,
            ValueForm::V6 => 16,
            ValueForm::Mac => 6,
            ValueForm::Number | ValueForm::Time => part.size_bytes,
        };
        self.piece_of(cursor, at, len)
    }

    /// Parses a value for the `len` bytes at `at`.
    fn piece_of(&self, cursor: &mut Cursor<'_>, at: usize, len: usize) -> Result<PartValue, PendingError> {
        let part = self.parts.iter().find(|part| part.at == at && part.size_bytes == len);
        let group = self.groups.iter().find(|(_, place, size)| *place == at && *size == len);
        let start = cursor.span();
        let error =
            |cursor: &Cursor<'_>, message: String| PendingError::new(cursor.since(start), message).help(self.names());
        let name = match (part, group) {
            (Some(part), _) => part.name.clone(),
            (None, Some((name, ..))) => name.clone(),
            (None, None) => {
                let found = cursor.value("a value")?.form.name();
                return Err(error(cursor, format!("{found} has {len} bytes; no part here has that size")));
            }
        };
        if cursor.eat_word("bytes") {
            let bytes = hex_bytes(cursor)?;
            if bytes.len() != len {
                return Err(error(cursor, format!("{} bytes, expected {len}", bytes.len())));
            }
            return Ok(PartValue { name, at, bytes });
        }
        let is_negative = cursor.eat_sign("-");
        let value = cursor.value("a value")?;
        let big_endian = |bits: u128| bits.to_be_bytes()[16 - len.min(16)..].to_vec();
        let bytes = match (value.form, len, part.and_then(|part| part.number)) {
            (ValueForm::V4, 4, _) | (ValueForm::V6, 16, _) | (ValueForm::Mac, 6, _) => big_endian(value.bits),
            (ValueForm::V4, 16, _) => big_endian(IPV4_MAPPED | value.bits),
            (ValueForm::Number | ValueForm::Time, _, Some(number)) => {
                let width = 8 * len as u32;
                let largest = u128::MAX >> (128 - width);
                let most = if is_negative { largest / 2 + 1 } else { largest };
                if value.bits > most || is_negative && !number.signed {
                    let sign = if is_negative { "-" } else { "" };
                    return Err(error(cursor, format!("{sign}{} does not fit {width} bits", value.bits)));
                }
                let bits = if is_negative { value.bits.wrapping_neg() & largest } else { value.bits };
                let mut bytes = big_endian(bits);
                if !number.network {
                    bytes.reverse();
                }
                bytes
            }
            (form, ..) => return Err(error(cursor, format!("found {}, which does not fit {len} bytes", form.name()))),
        };
        Ok(PartValue { name, at, bytes })
    }

    /// Formats `bytes` at offset `at` by their type.
    fn text(&self, at: usize, bytes: &[u8]) -> String {
        let number = self.parts.iter().find(|part| part.at == at && part.size_bytes == bytes.len());
        let number = number.and_then(|part| part.number).filter(|_| (1..=8).contains(&bytes.len()));
        let Some(Number { signed, network }) = number else {
            return format!("0x{}", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>());
        };
        let mut bytes = bytes.to_vec();
        if network {
            bytes.reverse();
        }
        let bits = bytes.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        if let (true, Ok(address)) = (network, u32::try_from(bits))
            && bytes.len() == 4
        {
            return std::net::Ipv4Addr::from_bits(address).to_string();
        }
        let shift = 64 - 8 * bytes.len() as u32;
        if signed { ((bits << shift) as i64 >> shift).to_string() } else { bits.to_string() }
    }

    /// The sum over all CPUs, part by part, if `value` is a concatenation of per-CPU values.
    fn sum_per_cpu(&self, value: &[u8]) -> Vec<u8> {
        if value.len() <= self.size_bytes || self.size_bytes == 0 {
            return value.to_vec();
        }
        let mut sum = vec![0; self.size_bytes];
        for one in value.chunks_exact(self.size_bytes) {
            for part in &self.parts {
                let range = part.at..part.at + part.size_bytes;
                let is_network = part.number.is_some_and(|number| number.network);
                let order: Vec<usize> = if is_network { range.rev().collect() } else { range.collect() };
                let mut carry = 0;
                for at in order {
                    let digit = u16::from(sum[at]) + u16::from(one[at]) + carry;
                    sum[at] = digit as u8;
                    carry = digit >> 8;
                }
            }
        }
        sum
    }
}

/// Bytes in hexadecimal, or a string.
fn hex_bytes(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, PendingError> {
    match cursor.hex_bytes() {
        Some(bytes) => Ok(bytes),
        None => cursor.text("bytes such as `0x0a0b`").map(<[u8]>::to_vec),
    }
}

/// Expected bytes of a part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PartValue {
    name: String,
    at: usize,
    bytes: Vec<u8>,
}

/// A check of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MapCheck {
    map: String,
    kind: CheckKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CheckKind {
    /// The entry has these parts.
    Value { key: Vec<u8>, layout: Layout, part_values: Vec<PartValue> },
    /// No entry has this key.
    NoEntry { key: Vec<u8>, layout: Layout },
    /// The number of entries.
    Count(u128),
}

impl MapCheck {
    /// Parses `map …`, `no map …` or `entries …`.
    pub(super) fn read(cursor: &mut Cursor<'_>, tables: &Tables) -> Result<MapCheck, PendingError> {
        if cursor.eat_word("entries") {
            let (map, _) = tables.table(cursor)?;
            cursor.keyword("is")?;
            return Ok(MapCheck { map, kind: CheckKind::Count(cursor.number("a number of entries")?) });
        }
        let is_expected = !cursor.eat_word("no");
        if !cursor.eat_word("map") {
            return Err(cursor
                .expected("`map`")
                .help("checks of a program are `map MAP KEY is VALUE` and `entries MAP is 3`"));
        }
        let (map, table) = tables.table(cursor)?;
        let key = table.key.key(cursor)?;
        let layout = table.value.clone();
        if !is_expected {
            return Ok(MapCheck { map, kind: CheckKind::NoEntry { key, layout } });
        }
        cursor.keyword("is")?;
        let part_values = table.value.part_values(cursor)?;
        Ok(MapCheck { map, kind: CheckKind::Value { key, layout, part_values } })
    }

    /// Returns the failures of the check on `snapshot`.
    pub(super) fn failures(&self, snapshot: &Snapshot) -> Vec<String> {
        let map = &self.map;
        let none = MapState::new();
        let entries = snapshot.maps.get(map).unwrap_or(&none);
        match &self.kind {
            CheckKind::Count(expected) if entries.len() as u128 == *expected => Vec::new(),
            CheckKind::Count(expected) => {
                vec![format!("entries of `{map}`: expected {expected}, found {}", entries.len())]
            }
            CheckKind::NoEntry { key, layout } => match entries.get(key) {
                None => Vec::new(),
                Some(value) => {
                    let value = layout.sum_per_cpu(value);
                    let part = |part: &Part| {
                        let text = layout.text(part.at, &value[part.at..part.at + part.size_bytes]);
                        if part.name.is_empty() { text } else { format!("{} = {text}", part.name) }
                    };
                    let parts: Vec<String> = layout.parts.iter().take(24).map(part).collect();
                    vec![format!("map `{map}`: expected no entry, found {}", parts.join(", "))]
                }
            },
            CheckKind::Value { key, layout, part_values } => {
                let Some(value) = entries.get(key) else {
                    return vec![format!("map `{map}`: expected an entry, found none")];
                };
                let value = layout.sum_per_cpu(value);
                let mut wrong = Vec::new();
                for PartValue { name, at, bytes } in part_values {
                    let found = value.get(*at..at + bytes.len()).unwrap_or(&[]);
                    if found != bytes {
                        let name = if name.is_empty() { String::new() } else { format!(", {name}") };
                        let (expected, found) = (layout.text(*at, bytes), layout.text(*at, found));
                        wrong.push(format!("map `{map}`{name}: expected {expected}, found {found}"));
                    }
                }
                wrong
            }
        }
    }
}
