// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions that run in the kernel, as found by other processes that inspect their tables.
//!
//! ```text
//!  ids of programs ──► their maps ──► one function for each set of maps
//!                          └── fl_info: the description from the runner
//! ```
//!
//! Everything is found by ids, which need no BPF file system. A runner binds a map with a [`Description`] to its
//! programs; a program loaded by other tools has none, and its tables are shown according to their types.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use flowloom_context::ContextLayout;
use flowloom_isa::{MapDef, MapKind};
use serde::{Deserialize, Serialize};

pub use table::{Table, UpdateMode};

use crate::sys::object::{self, Kind, ProgramInfo};

/// The name of the map with the description.
pub(crate) const INFO_MAP: &str = "fl_info";
/// The version of the format.
const VERSION: u32 = 1;

/// An error of inspection.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    /// Missing privileges.
    #[error("could not {action}: {source} (maps are found by their ids, which needs root or CAP_SYS_ADMIN)")]
    NotPermitted { action: String, source: io::Error },
    /// A system call failed.
    #[error("could not {action}: {source}")]
    System { action: String, source: io::Error },
    /// A map of an unsupported kind.
    #[error("map `{map}` is of kind {kind}, which `bpftool map` can show")]
    Kind {
        map: String,
        /// The number of its kind in the kernel.
        kind: u32,
    },
    /// No map has this id.
    #[error("no map {id}; `flowloom map list` and `bpftool map` list them")]
    NoMap { id: u32 },
}

impl RunningError {
    fn new(action: impl Into<String>, source: io::Error) -> RunningError {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => RunningError::NotPermitted { action, source },
            _ => RunningError::System { action, source },
        }
    }

    /// True if the environment is the cause.
    pub fn is_environment(&self) -> bool {
        matches!(self, RunningError::NotPermitted { .. } | RunningError::System { .. })
    }
}

/// The format of a part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyForm {
    /// A big-endian number.
    Number,
    /// An IPv4 address of 4 bytes.
    Ipv4,
    /// An IPv6 or IPv4-mapped address of 16 bytes.
    Ip,
    /// A MAC address of 6 bytes.
    Mac,
}

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyField {
    /// The name of the field.
    pub name: String,
    /// The offset.
    pub offset_bytes: u32,
    /// The size.
    pub size_bytes: u32,
    /// The format.
    pub form: KeyForm,
}

/// The format of the entries of a map.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MapDescription {
    /// The name of the map.
    pub name: String,
    /// The parts of its keys; empty if unknown, or for the only context of an element without a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<KeyField>,
    /// Pairs of parts, by index, that are swapped if the first one would be greater: both directions of a connection
    /// have one key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<(usize, usize)>,
    /// The fields of its values, and for a context table the names of its states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<ContextLayout>,
    /// The initial value of a context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initial: Vec<u8>,
}

/// The description of a function by its runner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Description {
    pub(crate) version: u32,
    /// The name of the function.
    pub function: String,
    /// Its source or object, as given by the user.
    pub source: String,
    /// The process that runs it.
    pub pid: u32,
    /// The offset of its clock from the system's, wrapping.
    pub clock_ahead_ns: u64,
    /// Its ports and their interfaces.
    pub ports: BTreeMap<u32, String>,
    /// Its maps.
    pub maps: Vec<MapDescription>,
}

impl Description {
    /// A description of `function` without ports.
    pub fn new(function: &str, source: &str, maps: Vec<MapDescription>) -> Description {
        let (function, source) = (function.to_owned(), source.to_owned());
        Description { version: VERSION, function, source, pid: std::process::id(), maps, ..Description::default() }
    }

    /// The description of a map.
    pub fn map(&self, name: &str) -> Option<&MapDescription> {
        self.maps.iter().find(|map| map.name == name)
    }

    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(io::Error::other)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Description> {
        serde_json::from_slice(bytes).ok().filter(|description: &Description| description.version == VERSION)
    }

    pub(crate) fn map_def(len_bytes: usize) -> MapDef {
        MapDef {
            name: INFO_MAP.to_owned(),
            kind: MapKind::Array,
            key_bytes: 4,
            value_bytes: len_bytes as u32,
            max_entries: 1,
            flags: 0,
            ..MapDef::default()
        }
    }
}

/// A function that runs in the kernel.
#[derive(Debug)]
pub struct Running {
    /// Its name; without a description that of its program, truncated by the kernel to 15 bytes.
    pub name: String,
    /// The ids of its programs.
    pub programs: Vec<u32>,
    /// The description of its runner.
    pub description: Option<Description>,
    /// Its maps by id and name, except the description's.
    pub maps: Vec<(u32, String)>,
}

fn program(id: u32) -> io::Result<Option<ProgramInfo>> {
    let Some(fd) = object::open(Kind::Program, id)? else { return Ok(None) };
    object::program(fd.as_fd()).map(Some)
}

/// All XDP programs with maps, grouped by their maps.
///
/// # Errors
/// Missing privileges.
pub fn running() -> Result<Vec<Running>, RunningError> {
    let inspect = |source| RunningError::new("list running programs", source);
    let mut by_maps: BTreeMap<BTreeSet<u32>, (String, Vec<u32>)> = BTreeMap::new();
    for id in object::ids(Kind::Program).map_err(inspect)? {
        // It may have been unloaded since.
        let Some(info) = program(id).map_err(inspect)? else { continue };
        if info.is_xdp && !info.maps.is_empty() {
            let maps = info.maps.into_iter().collect();
            by_maps.entry(maps).or_insert_with(|| (info.name, Vec::new())).1.push(id);
        }
    }
    let mut found = Vec::new();
    for (ids, (name, programs)) in by_maps {
        let mut function = Running { name, programs, description: None, maps: Vec::new() };
        for id in ids {
            let Some(table) = Table::open(id)? else { continue };
            if table.name() == INFO_MAP {
                let bytes = table.lookup(&[0; 4])?.unwrap_or_default();
                function.description = Description::from_bytes(&bytes);
            } else {
                function.maps.push((id, table.name().to_owned()));
            }
        }
        if let Some(description) = &function.description {
            function.name.clone_from(&description.function);
        }
        found.push(function);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_round_trip() {
        let map = MapDescription { name: "knock".to_owned(), initial: vec![1, 255], ..MapDescription::default() };
        let description = Description::new("f", "f.efsm", vec![map]);
        let bytes = description.to_bytes().expect("plain data");
        assert_eq!(Description::from_bytes(&bytes), Some(description.clone()));
        let later = Description { version: VERSION + 1, ..description };
        assert_eq!(Description::from_bytes(&later.to_bytes().expect("plain data")), None);
        assert_eq!(Description::from_bytes(b"\0\0"), None);
    }
}
