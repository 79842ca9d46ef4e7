// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parser of the arguments of `map` verbs, in `bpftool`'s syntax and ours: `key hex 0a 00`, `key 10 0 0 1`, `key
//! ip.src=10.0.0.1`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowloom_context::LayoutField;
use flowloom_efsm::layout::NO_DEADLINE;
use flowloom_exec::{KeyField, KeyForm, UpdateMode};

use super::Target;
use super::entry::{EntryLayout, Meaning};
use crate::failure::Failure;
use crate::output::counted;

/// Keywords that end a list of bytes.
const KEYWORDS: [&str; 4] = ["value", "any", "exist", "noexist"];

/// Cursor over the arguments.
pub(super) struct Words<'a> {
    words: &'a [String],
    at: usize,
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::Input(what.into())
}

impl<'a> Words<'a> {
    pub(super) fn new(words: &'a [String]) -> Words<'a> {
        Words { words, at: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// True if the next word is `word`.
    pub(super) fn is_at(&self, word: &str) -> bool {
        self.peek() == Some(word)
    }

    /// Consumes the keyword `word`.
    pub(super) fn expect(&mut self, word: &str) -> Result<(), Failure> {
        match self.next() {
            Some(found) if found == word => Ok(()),
            Some(found) => Err(wrong(format!("expected `{word}`, found `{found}`"))),
            None => Err(wrong(format!("expected `{word}` and its bytes"))),
        }
    }

    /// Rejects remaining words.
    pub(super) fn end(&mut self, verb: &str) -> Result<(), Failure> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(wrong(format!("unexpected argument `{word}` of `map {verb}`"))),
        }
    }

    /// Consumes the words up to the next keyword.
    fn list(&mut self) -> &'a [String] {
        let start = self.at;
        while self.peek().is_some_and(|word| !KEYWORDS.contains(&word)) {
            self.at += 1;
        }
        &self.words[start..self.at]
    }

    /// Parses a key: bytes, or the named parts.
    pub(super) fn key(&mut self, shape: &EntryLayout, map: &str, len_bytes: usize) -> Result<Vec<u8>, Failure> {
        let list = self.list();
        // The single context of a table with `key none`.
        if shape.is_keyless && (list.is_empty() || list == ["none"]) {
            return Ok(vec![0; len_bytes]);
        }
        if !list.iter().any(|word| word.contains('=')) {
            // An index is a number, not a list of bytes.
            if let ([word], true) = (list, shape.is_indexed)
                && let Ok(index) = word.parse::<u32>()
            {
                return Ok(index.to_ne_bytes().to_vec());
            }
            return bytes(list, "key", map, len_bytes);
        }
        let names = || shape.key.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ");
        if shape.is_keyless {
            return Err(wrong(format!("`{map}` has one context and no key: omit the key, or write `key none`")));
        }
        if shape.key.is_empty() {
            return Err(wrong(format!(
                "the parts of the keys of `{map}` have no known names: give bytes, or -f FUNCTION"
            )));
        }
        let mut key = vec![0; len_bytes];
        let mut missing: Vec<&KeyField> = shape.key.iter().collect();
        for (name, text) in assignments(list)? {
            let Some(at) = missing.iter().position(|part| part.name == name) else {
                let twice = shape.key.iter().any(|part| part.name == name);
                let what = if twice { "is given twice" } else { "is not a key part" };
                return Err(wrong(format!("`{name}` {what}; those of `{map}` have {}", names())));
            };
            let part = missing.remove(at);
            let value = part_value(part, text)?;
            let (start, end) = (part.offset_bytes as usize, (part.offset_bytes + part.size_bytes) as usize);
            key[start..end].copy_from_slice(&value);
        }
        if let Some(part) = missing.first() {
            return Err(wrong(format!("a key of `{map}` also has `{}`: give {}", part.name, names())));
        }
        put_smaller_first(shape, &mut key);
        Ok(key)
    }

    /// Parses a value: bytes, or named fields. Fields that are not named keep their value from `old`, else that of a
    /// new context.
    pub(super) fn value(
        &mut self,
        shape: &EntryLayout,
        map: &str,
        len_bytes: usize,
        old: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Failure> {
        let list = self.list();
        if !list.iter().any(|word| word.contains('=')) {
            return bytes(list, "value", map, len_bytes);
        }
        let mut value = match old {
            Some(old) => old,
            None if !shape.initial.is_empty() => shape.initial.clone(),
            None => vec![0; len_bytes],
        };
        let mut given: Vec<&str> = Vec::new();
        for (name, text) in assignments(list)? {
            let Some(field) = shape.fields.iter().find(|field| field.name == name) else {
                let names: Vec<&str> = shape.fields.iter().map(|field| field.name.as_str()).collect();
                let names = if names.is_empty() {
                    "no known names: give bytes, or -f FUNCTION".to_owned()
                } else {
                    names.join(", ")
                };
                return Err(wrong(format!("`{name}` is not a field of `{map}`, expected one of {names}")));
            };
            if given.contains(&name) {
                return Err(wrong(format!("`{name}` is given twice")));
            }
            given.push(name);
            let number = field_value(shape, field, text)?;
            let (start, size) = (field.offset_bytes as usize, field.size_bytes as usize);
            value[start..start + size].copy_from_slice(&number.to_le_bytes()[..size]);
        }
        Ok(value)
    }
}

/// Parses the name of the map.
pub(super) fn target(words: &mut Words<'_>) -> Result<Target, Failure> {
    let Some(word) = words.next() else {
        return Err(wrong("name a map: FUNCTION/MAP, `id N`, `name NAME` or `pinned PATH`"));
    };
    let mut argument = |what: &str| words.next().ok_or_else(|| wrong(format!("expected {what} after `{word}`")));
    match word {
        "id" => {
            let number = argument("a number")?;
            number.parse().map(Target::Id).map_err(|_| wrong(format!("expected the id of a map, found `{number}`")))
        }
        "name" => argument("a name").map(|name| Target::Name(name.to_owned())),
        "pinned" => argument("a path").map(|path| Target::Pinned(path.into())),
        _ => Ok(match word.split_once('/') {
            Some((function, map)) => Target::Function(function.to_owned(), Some(map.to_owned())),
            None => Target::Function(word.to_owned(), None),
        }),
    }
}

/// Parses the update mode of an entry.
pub(super) fn flags(words: &mut Words<'_>) -> Result<UpdateMode, Failure> {
    match words.next() {
        None | Some("any") => Ok(UpdateMode::Any),
        Some("exist") => Ok(UpdateMode::Exist),
        Some("noexist") => Ok(UpdateMode::NoExist),
        Some(word) => Err(wrong(format!("expected `any`, `exist` or `noexist`, found `{word}`"))),
    }
}

/// Parses bytes in `bpftool`'s syntax: decimal, `0x..`, or two hexadecimal digits each after `hex`.
fn bytes(list: &[String], part: &str, map: &str, len_bytes: usize) -> Result<Vec<u8>, Failure> {
    let (base, list) = match list {
        [first, rest @ ..] if first == "hex" => (16, rest),
        _ => (10, list),
    };
    let one = |word: &String| {
        let (base, digits) = match word.strip_prefix("0x") {
            Some(digits) => (16, digits),
            None => (base, word.as_str()),
        };
        u8::from_str_radix(digits, base).map_err(|_| {
            let expected = if base == 16 { "a byte in hexadecimal digits" } else { "a byte from 0 to 255" };
            wrong(format!("{part} of `{map}`: expected {expected}, found `{word}`"))
        })
    };
    let found: Vec<u8> = list.iter().map(one).collect::<Result<_, _>>()?;
    if found.len() == len_bytes {
        Ok(found)
    } else {
        Err(wrong(format!("{part} is {}, map `{map}` expects {len_bytes}", counted(found.len(), "byte"))))
    }
}

fn assignments(list: &[String]) -> Result<Vec<(&str, &str)>, Failure> {
    let one = |word: &'_ String| word.split_once('=').map(|(name, text)| (name.len(), text.len()));
    list.iter()
        .map(|word| match one(word) {
            Some((name, text)) => Ok((&word[..name], &word[word.len() - text..])),
            None => Err(wrong(format!("expected NAME=VALUE, found `{word}`"))),
        })
        .collect()
}

fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses an address as `ip.src` stores it: IPv4 is mapped into IPv6.
fn ip(text: &str) -> Option<u128> {
    match text.parse().ok()? {
        IpAddr::V4(v4) => Some(v4.to_ipv6_mapped().to_bits()),
        IpAddr::V6(v6) => Some(Ipv6Addr::to_bits(v6)),
    }
}

fn part_value(part: &KeyField, text: &str) -> Result<Vec<u8>, Failure> {
    let size = part.size_bytes as usize;
    let fails = |expected: &str| wrong(format!("`{}`: expected {expected}, found `{text}`", part.name));
    let bits = match part.form {
        KeyForm::Number => number(text).ok_or_else(|| fails("a number"))?,
        KeyForm::Ipv4 => text.parse::<Ipv4Addr>().map(|a| a.to_bits().into()).map_err(|_| fails("an IPv4 address"))?,
        KeyForm::Ip => ip(text).ok_or_else(|| fails("an IP address"))?,
        KeyForm::Mac => {
            let bytes: Option<Vec<u8>> = text
                .split(':')
                .map(|byte| if byte.len() == 2 { u8::from_str_radix(byte, 16).ok() } else { None })
                .collect();
            return bytes.filter(|bytes| bytes.len() == size).ok_or_else(|| fails("a MAC address"));
        }
    };
    if size < 16 && bits >> (8 * size) != 0 {
        return Err(fails(&format!("at most {}", counted(size, "byte"))));
    }
    Ok(bits.to_be_bytes()[16 - size.min(16)..].to_vec())
}

fn field_value(shape: &EntryLayout, field: &LayoutField, text: &str) -> Result<u128, Failure> {
    let fails = |expected: &str| wrong(format!("`{}`: expected {expected}, found `{text}`", field.name));
    let value = match shape.meaning(field) {
        Meaning::State => match shape.states.iter().position(|state| state == text) {
            Some(state) => Some(state as u128),
            None => number(text).filter(|n| *n < shape.states.len() as u128),
        }
        .ok_or_else(|| fails(&format!("one of the states {}", shape.states.join(", "))))?,
        Meaning::Deadline | Meaning::Time if text == "none" => NO_DEADLINE.into(),
        Meaning::Deadline | Meaning::Time => match text.strip_prefix('+') {
            Some(time) => flowloom_session::parse_time(time)
                .ok()
                .map(|time| u128::from(shape.now_ns) + time.as_nanos())
                .ok_or_else(|| fails("a time such as `+10s`"))?,
            None => number(text).ok_or_else(|| fails("`none`, a time from now such as `+10s`, or nanoseconds"))?,
        },
        Meaning::Duration => match flowloom_session::parse_time(text) {
            Ok(time) => time.as_nanos(),
            Err(_) => number(text).ok_or_else(|| fails("a time such as `10s`, or nanoseconds"))?,
        },
        Meaning::Ip => ip(text).ok_or_else(|| fails("an IP address"))?,
        Meaning::Number => match text.strip_prefix('-') {
            Some(digits) if field.signed => {
                let magnitude = number(digits).filter(|n| *n <= 1 << (8 * field.size_bytes - 1));
                let magnitude = magnitude.ok_or_else(|| fails("a number that fits"))?;
                return Ok(magnitude.wrapping_neg());
            }
            _ => number(text).ok_or_else(|| fails("a number"))?,
        },
    };
    let bits = 8 * field.size_bytes - u32::from(field.signed);
    if bits < 128 && value >> bits != 0 {
        return Err(fails(&format!("a number of at most {bits} bits")));
    }
    Ok(value)
}

/// Puts the smaller endpoint of a connection first, as the function does.
fn put_smaller_first(shape: &EntryLayout, key: &mut [u8]) {
    let range = |part: usize| {
        let part = &shape.key[part];
        part.offset_bytes as usize..(part.offset_bytes + part.size_bytes) as usize
    };
    let count = shape.key.len();
    let pairs: Vec<_> = shape.pairs.iter().filter(|(a, b)| *a < count && *b < count).collect();
    let side = |key: &[u8], first: bool| -> Vec<u8> {
        pairs.iter().flat_map(|(a, b)| key[range(if first { *a } else { *b })].to_vec()).collect()
    };
    if side(key, true) > side(key, false) {
        for (a, b) in pairs {
            let (left, right) = (key[range(*a)].to_vec(), key[range(*b)].to_vec());
            key[range(*a)].copy_from_slice(&right);
            key[range(*b)].copy_from_slice(&left);
        }
    }
}
