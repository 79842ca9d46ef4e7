//! `.flowloom`: what BTF cannot say, as JSON that loaders skip.

use serde::{Deserialize, Serialize};

use crate::program::{ContextLayout, LayoutField, MapDef};

/// The version that is written and read.
pub(super) const VERSION: u32 = 1;

/// The section's contents.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sidecar {
    /// [`VERSION`]; read first, alone.
    pub(super) version: u32,
    /// All maps, in the order in which the program numbers them: data sections stand between others.
    pub(super) maps: Vec<SidecarMap>,
}

/// One map.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SidecarMap {
    /// Its name.
    pub(super) name: String,
    /// What its records mean, for a context table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) layout: Option<ContextLayout>,
}

/// The version alone, so that a later one is named and not taken for damage.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

/// Why the section cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SidecarError {
    #[error("version is {found}, expected {VERSION}")]
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
        if version != VERSION {
            return Err(SidecarError::Version { found: version });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// What is wrong with a layout.
#[derive(Debug, thiserror::Error)]
#[error("{what} `{name}` of {size_bytes} bytes at byte {offset_bytes}: {why}")]
pub(super) struct LayoutFault {
    pub(super) what: &'static str,
    pub(super) name: String,
    pub(super) offset_bytes: u32,
    pub(super) size_bytes: u32,
    pub(super) why: &'static str,
}

/// Checks that a layout describes a record of `value_bytes`; gives back its fields by their place.
pub(super) fn check_layout(layout: &ContextLayout, value_bytes: u32) -> Result<Vec<&LayoutField>, LayoutFault> {
    let fits = |offset: u32, size: u32| offset.checked_add(size).is_some_and(|end| end <= value_bytes);
    let mut fields: Vec<&LayoutField> = layout.fields.iter().collect();
    fields.sort_by_key(|field| field.offset_bytes);
    let mut end = 0;
    for field in &fields {
        let fail = |why| LayoutFault {
            what: "field",
            name: field.name.clone(),
            offset_bytes: field.offset_bytes,
            size_bytes: field.size_bytes,
            why,
        };
        if !matches!(field.size_bytes, 1 | 2 | 4 | 8) {
            return Err(fail("a field takes 1, 2, 4 or 8 bytes"));
        }
        if field.offset_bytes < end {
            return Err(fail("it lies over the field before it"));
        }
        if !fits(field.offset_bytes, field.size_bytes) {
            return Err(fail("it reaches beyond the end of the record"));
        }
        end = field.offset_bytes + field.size_bytes;
    }
    for offset in &layout.deadline_offsets {
        if !fits(*offset, 8) {
            let (what, name) = ("deadline", layout.element.clone());
            let why = "it reaches beyond the end of the record";
            return Err(LayoutFault { what, name, offset_bytes: *offset, size_bytes: 8, why });
        }
    }
    Ok(fields)
}
