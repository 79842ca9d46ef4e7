//! `.flowloom`: what BTF cannot say, as JSON that loaders skip.

use serde::{Deserialize, Serialize};

use crate::program::{ContextLayout, MapDef};

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
