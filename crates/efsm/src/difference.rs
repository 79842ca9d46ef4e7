// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differences between two states, decoded by the layouts of the function's contexts.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_context::ContextLayout;
use flowloom_engine::Snapshot;

use crate::layout::{NO_DEADLINE, is_instrument};

/// A map entry that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDifference {
    /// The map.
    pub map: String,
    /// The entry's key.
    pub key: Vec<u8>,
    /// The record in the reference, decoded; `None` where there is none.
    pub expected: Option<Record>,
    /// The record in the target, decoded; `None` where there is none.
    pub found: Option<Record>,
}

/// A record in the words of the function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// State, deadlines and registers with their values; empty where the layout is not known.
    pub fields: Vec<(String, String)>,
}

/// Whether a map takes part in comparisons: constants do not, nor instruments, where names are ours to give.
fn is_compared(map: &str, is_foreign: bool) -> bool {
    (is_foreign || !is_instrument(map)) && !map.starts_with(".rodata")
}

/// Every entry that differs. A map that is missing is one without entries.
pub fn state_differences(
    expected: &Snapshot,
    found: &Snapshot,
    layouts: &BTreeMap<String, ContextLayout>,
    is_foreign: bool,
) -> Vec<StateDifference> {
    let mut differences = Vec::new();
    let empty = BTreeMap::new();
    let names = expected.maps.keys().chain(found.maps.keys());
    let mut names: Vec<&String> = names.filter(|name| is_compared(name, is_foreign)).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (e, f) = (expected.maps.get(name).unwrap_or(&empty), found.maps.get(name).unwrap_or(&empty));
        if e == f {
            continue;
        }
        let mut keys: Vec<&Vec<u8>> = e.keys().chain(f.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys.into_iter().filter(|key| e.get(*key) != f.get(*key)) {
            let decode = |bytes: Option<&Vec<u8>>| bytes.map(|b| decode(b, layouts.get(name)));
            differences.push(StateDifference {
                map: name.clone(),
                key: key.clone(),
                expected: decode(e.get(key)),
                found: decode(f.get(key)),
            });
        }
    }
    differences
}

/// A record by its layout.
pub fn decode(bytes: &[u8], layout: Option<&ContextLayout>) -> Record {
    let mut fields = Vec::new();
    for field in layout.map_or(&[][..], |l| &l.fields) {
        let (at, size) = (field.offset_bytes as usize, field.size_bytes as usize);
        let Some(slice) = bytes.get(at..at.saturating_add(size)).filter(|s| s.len() <= 8 && !s.is_empty()) else {
            fields.push((field.name.clone(), "beyond the record".to_owned()));
            continue;
        };
        let mut le = [0; 8];
        le[..size].copy_from_slice(slice);
        let value = u64::from_le_bytes(le);
        let text = if field.name == "state" {
            let names = layout.map_or(&[][..], |l| &l.states);
            names.get(value as usize).map_or_else(|| format!("no state {value}"), |name| name.clone())
        } else if field.name.ends_with("_deadline") && value == NO_DEADLINE {
            "none".to_owned()
        } else if field.signed {
            let shift = 64 - 8 * size as u32;
            ((value << shift) as i64 >> shift).to_string()
        } else {
            value.to_string()
        };
        fields.push((field.name.clone(), text));
    }
    Record { bytes: bytes.to_vec(), fields }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl fmt::Display for StateDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: ", self.map, hex(&self.key))?;
        match (&self.expected, &self.found) {
            (Some(e), Some(g)) => {
                let mut separator = "";
                let before_fields = e.fields.iter().zip(&g.fields);
                for ((name, expected), (_, found)) in before_fields.filter(|(e, g)| e != g) {
                    write!(f, "{separator}{name} expected {expected}, found {found}")?;
                    separator = "; ";
                }
                if separator.is_empty() {
                    write!(f, "expected {}, found {}", hex(&e.bytes), hex(&g.bytes))?;
                }
                Ok(())
            }
            (Some(e), None) => write!(f, "expected {e}, found no entry"),
            (None, Some(g)) => write!(f, "expected no entry, found {g}"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fields.is_empty() {
            return f.write_str(&hex(&self.bytes));
        }
        let mut separator = "";
        for (name, value) in self.fields.iter().filter(|(name, _)| name != "flags") {
            write!(f, "{separator}{name} {value}")?;
            separator = ", ";
        }
        Ok(())
    }
}
