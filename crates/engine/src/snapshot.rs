// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of an engine, in the format of `bpftool map dump -j`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Arrays with more entries than this are listed without entries that are all zeros: restoring resets entries that are
/// not listed to their initial values, so nothing is lost.
pub const FULL_ARRAY_ENTRIES: u32 = 1 << 16;

/// The contents of a map: key bytes to value bytes.
pub type MapState = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents of all maps of a function, by map name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Map name to contents.
    pub maps: BTreeMap<String, MapState>,
    /// The per-CPU maps, with their number of CPUs: their values are concatenated by CPU.
    pub per_cpu: BTreeMap<String, u32>,
}

/// A snapshot that cannot be parsed, or does not fit its maps.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The text is not JSON.
    #[error("state is not JSON: {0}")]
    Json(String),
    /// The JSON has an unexpected structure, in a map or, without a name, as a whole.
    #[error("state of map `{map}`: expected {expected}, found `{found}`")]
    Form { map: String, expected: &'static str, found: String },
    /// An unknown map.
    #[error("state has unknown map `{map}`; the function has {known}")]
    UnknownMap { map: String, known: String },
    /// A data section does not have exactly one entry.
    #[error("map `{map}` is a data section: expected one entry, under the key 0")]
    Entries { map: String },
    /// A part (`key` or `value`) of the wrong size.
    #[error("{part} is {found} byte{}, map `{map}` expects {expected}", if *found == 1 { "" } else { "s" })]
    Size { map: String, part: &'static str, found: usize, expected: usize },
    /// More entries than the map holds.
    #[error("state has {found} entries, map `{map}` holds {expected}")]
    TooMany { map: String, found: usize, expected: usize },
    /// There is no memory for a map.
    #[error("map `{map}` needs {bytes} bytes, which the system does not give: {why}")]
    Memory { map: String, bytes: u64, why: String },
}

impl From<std::convert::Infallible> for SnapshotError {
    fn from(never: std::convert::Infallible) -> SnapshotError {
        match never {}
    }
}

fn write_hex_list(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.write_all(b"[")?;
    for (number, byte) in bytes.iter().enumerate() {
        let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        let text = [b',', b'"', b'0', b'x', high, low, b'"'];
        out.write_all(if number > 0 { &text } else { &text[1..] })?;
    }
    out.write_all(b"]")
}

/// Writes the values of a per-CPU entry in bpftool's format.
fn write_values_by_cpu(out: &mut dyn Write, values: &[u8], cpus: u32) -> io::Result<()> {
    let value_bytes = (values.len() / cpus.max(1) as usize).max(1);
    out.write_all(b",\"values\":[")?;
    for (cpu, value) in (0..cpus).zip(values.chunks(value_bytes)) {
        write!(out, "{}{{\"cpu\":{cpu},\"value\":", if cpu > 0 { "," } else { "" })?;
        write_hex_list(out, value)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]")
}

/// Parses the output of [`write_values_by_cpu`]: the concatenated values, and the number of CPUs.
fn parse_values_by_cpu(map: &str, found: &Value) -> Result<(Vec<u8>, u32), SnapshotError> {
    let form = |found: &Value| SnapshotError::Form {
        map: map.to_owned(),
        expected: "a list of {\"cpu\", \"value\"}, ascending from CPU 0, with values of equal length",
        found: found.to_string(),
    };
    let list = found.as_array().filter(|list| !list.is_empty()).ok_or_else(|| form(found))?;
    let mut values = Vec::new();
    let mut value_bytes = None;
    for (cpu, item) in list.iter().enumerate() {
        let value = parse_hex_list(map, &item["value"])?;
        if item["cpu"].as_u64() != Some(cpu as u64) || *value_bytes.get_or_insert(value.len()) != value.len() {
            return Err(form(item));
        }
        values.extend(value);
    }
    Ok((values, list.len() as u32))
}

fn parse_hex_list(map: &str, value: &Value) -> Result<Vec<u8>, SnapshotError> {
    let form = |found: &Value| SnapshotError::Form {
        map: map.to_owned(),
        expected: "a list of bytes such as [\"0x0a\",\"0xff\"]",
        found: found.to_string(),
    };
    value
        .as_array()
        .ok_or_else(|| form(value))?
        .iter()
        .map(|item| {
            let text = item.as_str().ok_or_else(|| form(item))?;
            let digits = text.strip_prefix("0x").ok_or_else(|| form(item))?;
            u8::from_str_radix(digits, 16).map_err(|_| form(item))
        })
        .collect()
}

impl Snapshot {
    /// The number of entries of all maps.
    pub fn entries(&self) -> usize {
        self.maps.values().map(BTreeMap::len).sum()
    }

    /// Renders as JSON: an object with the list of `bpftool map dump -j` for each map.
    pub fn to_json(&self) -> String {
        let mut text = Vec::new();
        // Writing to a vector does not fail.
        _ = self.write_json(&mut text, |_| true);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Writes the output of [`Snapshot::to_json`] entry by entry, for the maps whose names satisfy `is_wanted`.
    ///
    /// # Errors
    /// The writer's.
    ///
    /// # Cost
    /// One write of a few bytes for each byte of the state: the writer should be buffered.
    pub fn write_json(&self, out: &mut dyn Write, is_wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        out.write_all(b"{")?;
        for (number, (name, entries)) in self.maps.iter().filter(|(name, _)| is_wanted(name)).enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(out, "{comma}{}:[", Value::from(name.as_str()))?;
            for (number, (key, value)) in entries.iter().enumerate() {
                out.write_all(if number > 0 { b",{\"key\":" } else { b"{\"key\":" })?;
                write_hex_list(out, key)?;
                match self.per_cpu.get(name) {
                    None => {
                        out.write_all(b",\"value\":")?;
                        write_hex_list(out, value)?;
                    }
                    Some(cpus) => write_values_by_cpu(out, value, *cpus)?,
                }
                out.write_all(b"}")?;
            }
            out.write_all(b"]")?;
        }
        out.write_all(b"}")
    }

    /// Parses the output of [`Snapshot::to_json`].
    ///
    /// # Errors
    /// The text is not JSON or has an unexpected structure; the error says where and what was expected.
    pub fn from_json(text: &str) -> Result<Snapshot, SnapshotError> {
        let (mut snapshot, mut wrong) = (Snapshot::default(), None);
        let mut reader = serde_json::Deserializer::from_str(text);
        let maps = Maps { snapshot: &mut snapshot, wrong: &mut wrong };
        let read = maps.deserialize(&mut reader).and_then(|()| reader.end());
        match (read, wrong) {
            (Ok(()), _) => Ok(snapshot),
            (Err(_), Some(wrong)) => Err(wrong),
            (Err(_), None) => Err(other_form(text)),
        }
    }

    /// Adds an entry in the format of [`Snapshot::write_json`].
    fn add(&mut self, name: &str, entries: &mut MapState, item: &Value) -> Result<(), SnapshotError> {
        let form =
            |expected, found: &Value| SnapshotError::Form { map: name.to_owned(), expected, found: found.to_string() };
        let key = parse_hex_list(name, &item["key"])?;
        let value = match item.get("values") {
            None => parse_hex_list(name, &item["value"])?,
            Some(values) => {
                let (values, cpus) = parse_values_by_cpu(name, values)?;
                if *self.per_cpu.entry(name.to_owned()).or_insert(cpus) != cpus {
                    return Err(form("values for the same CPUs in every entry", item));
                }
                values
            }
        };
        match entries.insert(key, value) {
            Some(_) => Err(form("distinct keys", &item["key"])),
            None => Ok(()),
        }
    }
}

/// The error for a text that is not an object of lists.
fn other_form(text: &str) -> SnapshotError {
    let root = match serde_json::from_str::<Value>(text) {
        Ok(root) => root,
        Err(error) => return SnapshotError::Json(error.to_string()),
    };
    let lists = root.as_object().and_then(|maps| maps.iter().find(|(_, list)| !list.is_array()));
    let (map, expected, found) = match lists {
        Some((name, found)) => (name.clone(), "a list of {\"key\", \"value\"}", found),
        None => (String::new(), "an object of maps", &root),
    };
    SnapshotError::Form { map, expected, found: found.to_string() }
}

/// Parses the object of maps entry by entry: only one entry is a [`Value`] at a time.
struct Maps<'a> {
    snapshot: &'a mut Snapshot,
    /// The error, in our terms.
    wrong: &'a mut Option<SnapshotError>,
}

impl<'de> DeserializeSeed<'de> for Maps<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Maps<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of maps")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(name) = access.next_key::<String>()? {
            let mut entries = MapState::new();
            let list = Entries { name: &name, entries: &mut entries, snapshot: self.snapshot, wrong: self.wrong };
            access.next_value_seed(list)?;
            self.snapshot.maps.insert(name, entries);
        }
        Ok(())
    }
}

/// Parses the list of one map's entries.
struct Entries<'a> {
    name: &'a str,
    entries: &'a mut MapState,
    snapshot: &'a mut Snapshot,
    wrong: &'a mut Option<SnapshotError>,
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {{\"key\", \"value\"}} for map `{}`", self.name)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(item) = access.next_element::<Value>()? {
            if let Err(wrong) = self.snapshot.add(self.name, self.entries, &item) {
                *self.wrong = Some(wrong);
                return Err(A::Error::custom("the entry has a different form"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trip() {
        let mut snapshot = Snapshot::default();
        snapshot.maps.entry("conn".into()).or_default().insert(vec![1, 255], vec![0, 16]);
        snapshot.maps.entry("empty".into()).or_default();
        let text = snapshot.to_json();
        assert_eq!(text, r#"{"conn":[{"key":["0x01","0xff"],"value":["0x00","0x10"]}],"empty":[]}"#);
        assert_eq!(Snapshot::from_json(&text), Ok(snapshot));
    }

    #[test]
    fn values_by_cpu_round_trip() {
        let mut snapshot = Snapshot::default();
        snapshot.maps.entry("hits".into()).or_default().insert(vec![7], vec![1, 2, 3, 4]);
        snapshot.per_cpu.insert("hits".into(), 2);
        let text = snapshot.to_json();
        assert_eq!(
            text,
            r#"{"hits":[{"key":["0x07"],"values":[{"cpu":0,"value":["0x01","0x02"]},{"cpu":1,"value":["0x03","0x04"]}]}]}"#
        );
        assert_eq!(Snapshot::from_json(&text), Ok(snapshot));
        for wrong in [
            r#"{"m":[{"key":[],"values":[{"cpu":1,"value":["0x01"]}]}]}"#,
            r#"{"m":[{"key":[],"values":[]}]}"#,
            r#"{"m":[{"key":[],"values":[{"cpu":0,"value":["0x01"]},{"cpu":1,"value":[]}]}]}"#,
        ] {
            let error = Snapshot::from_json(wrong).expect_err(wrong).to_string();
            assert!(error.starts_with("state of map `m`: expected a list of {\"cpu\""), "{error}");
        }
    }

    #[test]
    fn json_errors_have_a_position() {
        let error = Snapshot::from_json(r#"{"conn":[{"key":["7"],"value":[]}]}"#).expect_err("7 is not 0x07");
        assert_eq!(
            error.to_string(),
            "state of map `conn`: expected a list of bytes such as [\"0x0a\",\"0xff\"], found `\"7\"`"
        );
    }
}
