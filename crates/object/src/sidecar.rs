// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `.flowloom`: what BTF cannot express, as JSON that loaders ignore.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use flowloom_context::locks::{CELL_BYTES, CELLS};
use flowloom_context::{ContextLayout, LayoutField};
use flowloom_isa::{MapDef, MapKind};

/// The version that is written. Version 1, without successors and initial contexts, is read as well.
pub(super) const VERSION: u32 = 2;

/// The contents of the section.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sidecar {
    /// [`VERSION`]; parsed first, separately.
    pub(super) version: u32,
    /// All maps in the order of their indices in the program: data sections are among the others.
    pub(super) maps: Vec<SidecarMap>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SidecarMap {
    pub(super) name: String,
    /// The layout of its records, for a context table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) layout: Option<ContextLayout>,
}

/// The version alone, so that an unsupported one is reported as such.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SidecarError {
    #[error("version is {found}, expected 1 to {VERSION}")]
    Version { found: u32 },
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

impl Sidecar {
    pub(super) fn of(maps: &[MapDef]) -> Sidecar {
        let maps = maps.iter().map(|m| SidecarMap { name: m.name.clone(), layout: m.layout.clone() }).collect();
        Sidecar { version: VERSION, maps }
    }

    pub(super) fn emit(&self) -> Result<Vec<u8>, SidecarError> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Sidecar, SidecarError> {
        let Version { version } = serde_json::from_slice(bytes)?;
        if !(1..=VERSION).contains(&version) {
            return Err(SidecarError::Version { found: version });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutFault {
    #[error("{what} `{name}` of {size_bytes} bytes at byte {offset_bytes}: {why}")]
    Place { what: &'static str, name: String, offset_bytes: u32, size_bytes: u32, why: &'static str },
    #[error("context {index} that is there from the start: {what} is {found}, expected {expected}")]
    Preloaded { index: usize, what: &'static str, found: String, expected: String },
    #[error(
        "{cells} locks at byte {offset_bytes}, expected a power of two up to {CELLS} at a multiple of {CELL_BYTES}, and \
         keys and records of whole words"
    )]
    Locks { cells: u32, offset_bytes: u32 },
}

/// Checks that a layout describes the records of `map`; returns its fields by offset.
pub(super) fn check_layout<'a>(layout: &'a ContextLayout, map: &MapDef) -> Result<Vec<&'a LayoutField>, LayoutFault> {
    let value_bytes = map.value_bytes;
    let fits = |offset: u32, size: u32| offset.checked_add(size).is_some_and(|end| end <= value_bytes);
    let beyond = |what, name: &str, offset_bytes, size_bytes| LayoutFault::Place {
        what,
        name: name.to_owned(),
        offset_bytes,
        size_bytes,
        why: "it reaches beyond the end of the record",
    };
    let mut fields: Vec<&LayoutField> = layout.fields.iter().collect();
    fields.sort_by_key(|field| field.offset_bytes);
    let mut end = 0;
    for field in &fields {
        let fail = |why| LayoutFault::Place {
            what: "field",
            name: field.name.clone(),
            offset_bytes: field.offset_bytes,
            size_bytes: field.size_bytes,
            why,
        };
        if !matches!(field.size_bytes, 1 | 2 | 4 | 8 | 16) {
            return Err(fail("a field takes 1, 2, 4, 8 or 16 bytes"));
        }
        if field.offset_bytes < end {
            return Err(fail("it lies over the field before it"));
        }
        if !fits(field.offset_bytes, field.size_bytes) {
            return Err(beyond("field", &field.name, field.offset_bytes, field.size_bytes));
        }
        end = field.offset_bytes + field.size_bytes;
    }
    let succession = layout.succession.iter();
    let timers =
        succession.clone().flat_map(|s| s.idle_offsets.into_iter().flat_map(|(a, b)| [a, b]).chain(s.hard_offset));
    for offset in layout.deadline_offsets.iter().copied().chain(timers) {
        if !fits(offset, 8) {
            return Err(beyond("deadline", &layout.element, offset, 8));
        }
    }
    for succession in succession {
        if !fits(succession.state_offset, 2) {
            return Err(beyond("state", &layout.element, succession.state_offset, 2));
        }
    }
    if let Some(locks) = &layout.locks {
        let is_whole = locks.cells.is_power_of_two() && locks.offset_bytes.is_multiple_of(CELL_BYTES);
        let has_words = map.key_bytes.is_multiple_of(4) && map.value_bytes.is_multiple_of(8);
        if !is_whole || !has_words || locks.cells > CELLS {
            return Err(LayoutFault::Locks { cells: locks.cells, offset_bytes: locks.offset_bytes });
        }
    }
    preloaded(layout, map)?;
    Ok(fields)
}

fn preloaded(layout: &ContextLayout, map: &MapDef) -> Result<(), LayoutFault> {
    let fault = |index, what, found: String, expected: String| LayoutFault::Preloaded { index, what, found, expected };
    let mut keys = BTreeSet::new();
    for (index, (key, value)) in layout.preloaded.iter().enumerate() {
        let lengths = [
            ("key length in bytes", key.len(), map.key_bytes),
            ("value length in bytes", value.len(), map.value_bytes),
        ];
        for (what, found, expected) in lengths {
            if found != expected as usize {
                return Err(fault(index, what, found.to_string(), expected.to_string()));
            }
        }
        if !keys.insert(key) {
            return Err(fault(index, "its key", "that of another".to_owned(), "a key of its own".to_owned()));
        }
        if index >= map.max_entries as usize {
            return Err(fault(index, "its number", index.to_string(), format!("below {}", map.max_entries)));
        }
        if map.kind != MapKind::Hash {
            return Err(fault(index, "its table", format!("{:?}", map.kind), format!("{:?}", MapKind::Hash)));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::tests::samples;
    use flowloom_context::Succession;
    use flowloom_context::locks::Locks;

    #[test]
    fn other_versions() {
        let first = r#"{"version":1,"maps":[{"name":"a","layout":{"element":"a","states":["s"],"fields":[],
            "deadline_offsets":[8],"sweep_ns":5}},{"name":"b"}]}"#;
        let maps = Sidecar::parse(first.as_bytes()).expect("the first version is read").maps;
        let layout = maps[0].layout.as_ref().expect("a layout");
        assert_eq!((&layout.succession, &layout.preloaded, layout.sweep_ns), (&None, &Vec::new(), 5));
        for version in [0, 3] {
            let error = Sidecar::parse(format!(r#"{{"version":{version},"maps":1}}"#).as_bytes()).expect_err("unknown");
            assert_eq!(error.to_string(), format!("version is {version}, expected 1 to 2"));
        }
    }

    #[test]
    fn layouts_that_do_not_fit_their_map() {
        let map = samples::everything().maps.into_iter().find(|map| map.layout.is_some()).expect("a context table");
        let good = samples::layout();
        assert!(check_layout(&good, &map).is_ok());
        let field =
            |offset_bytes, size_bytes| LayoutField { name: "r".into(), offset_bytes, size_bytes, signed: false };
        let succession =
            |state_offset, hard| Some(Succession { state_offset, hard_offset: Some(hard), ..Succession::default() });
        let preloaded = |key: usize, value: usize, times: usize| vec![(vec![7; key], vec![1; value]); times];
        for (layout, expected) in [
            (ContextLayout { fields: vec![field(0, 3)], ..good.clone() }, "a field takes 1, 2, 4, 8 or 16 bytes"),
            (ContextLayout { fields: vec![field(9, 16)], ..good.clone() }, "beyond the end"),
            (
                ContextLayout { locks: Some(Locks { offset_bytes: 0, cells: 0 }), ..good.clone() },
                "0 locks at byte 0, expected a power of two",
            ),
            (ContextLayout { deadline_offsets: vec![17], ..good.clone() }, "deadline `knock` of 8 bytes at byte 17"),
            (ContextLayout { succession: succession(23, 0), ..good.clone() }, "state `knock` of 2 bytes at byte 23"),
            (ContextLayout { succession: succession(0, 17), ..good.clone() }, "deadline `knock` of 8 bytes at byte 17"),
            (
                ContextLayout { preloaded: preloaded(12, 24, 1), ..good.clone() },
                "key length in bytes is 12, expected 13",
            ),
            (
                ContextLayout { preloaded: preloaded(13, 8, 1), ..good.clone() },
                "value length in bytes is 8, expected 24",
            ),
            (ContextLayout { preloaded: preloaded(13, 24, 2), ..good.clone() }, "its key is that of another"),
        ] {
            let error = check_layout(&layout, &map).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let small = MapDef { max_entries: 0, ..map.clone() };
        assert!(
            check_layout(&good, &small)
                .expect_err("too many")
                .to_string()
                .contains("its number is 0, expected below 0")
        );
        let array = MapDef { kind: MapKind::Array, ..map };
        assert!(check_layout(&good, &array).expect_err("no hash").to_string().contains("its table is Array"));
    }
}
