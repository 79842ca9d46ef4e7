//! Functions that run in the kernel, found from outside: by whoever looks into their tables.
//!
//! ```text
//!  ids of programs ──► their maps ──► one function for each set of maps
//!                          └── fl_info: the description that the runner left
//! ```
//!
//! Everything is found by ids, which need no BPF file system. A runner binds a map with a [`Description`] to its programs; a
//! program that somebody loaded with other tools has none, and its tables are shown as their types have them.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use flowloom_bpf::{ContextLayout, MapDef, MapKind};
use serde::{Deserialize, Serialize};

pub use table::{Table, UpdateMode};

use crate::sys::object::{self, Kind, ProgramInfo};

/// Name of the map that holds the description.
pub(crate) const INFO_MAP: &str = "fl_info";
/// The version that is written and read.
const VERSION: u32 = 1;

/// A look at running functions that failed.
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    /// The process may not look.
    #[error("could not {action}: {source} (maps are found by their ids, which needs root or CAP_SYS_ADMIN)")]
    NotPermitted {
        /// What was to be done.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The system failed.
    #[error("could not {action}: {source}")]
    System {
        /// What was to be done.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A map of another kind.
    #[error("map `{map}` is of kind {kind}, which `bpftool map` can show")]
    Kind {
        /// The map.
        map: String,
        /// The kernel's number of its kind.
        kind: u32,
    },
    /// No map has this id.
    #[error("there is no map {id}; `flowloom map list` and `bpftool map` list them")]
    NoMap {
        /// The id.
        id: u32,
    },
}

impl RunningError {
    fn new(action: impl Into<String>, source: io::Error) -> RunningError {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => RunningError::NotPermitted { action, source },
            _ => RunningError::System { action, source },
        }
    }

    /// Whether the environment is to blame.
    pub fn is_environment(&self) -> bool {
        matches!(self, RunningError::NotPermitted { .. } | RunningError::System { .. })
    }
}

/// How the bytes of a part of a key are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyForm {
    /// A big-endian number.
    Number,
    /// 4 bytes of an IPv4 address.
    Ipv4,
    /// 16 bytes of an IPv6 address, or of an IPv4 address mapped into one.
    Ip,
    /// 6 bytes of a MAC address.
    Mac,
}

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyField {
    /// The field's name.
    pub name: String,
    /// Where it begins.
    pub offset_bytes: u32,
    /// Its length.
    pub size_bytes: u32,
    /// What it is.
    pub form: KeyForm,
}

/// What the entries of a map mean.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MapDescription {
    /// The map's name.
    pub name: String,
    /// The parts of its keys; empty where they are not known, or for the one context of an element without a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<KeyField>,
    /// Pairs of parts, by their numbers, that are swapped where the first of them would be larger: both directions of a
    /// connection have one key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<(usize, usize)>,
    /// The fields of its values, and for a table of contexts the names of their states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<ContextLayout>,
    /// The value of a context that nothing has happened to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initial: Vec<u8>,
}

/// What the runner of a function says about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Description {
    pub(crate) version: u32,
    /// The function.
    pub function: String,
    /// Its source or object, as the user named it.
    pub source: String,
    /// The process that runs it.
    pub pid: u32,
    /// What its clock is ahead of the system's, wrapping.
    pub clock_ahead_ns: u64,
    /// Ports and their interfaces.
    pub ports: BTreeMap<u32, String>,
    /// Its maps.
    pub maps: Vec<MapDescription>,
}

impl Description {
    /// A description of `function`, still without ports.
    pub fn new(function: &str, source: &str, maps: Vec<MapDescription>) -> Description {
        let (function, source) = (function.to_owned(), source.to_owned());
        Description { version: VERSION, function, source, pid: std::process::id(), maps, ..Description::default() }
    }

    /// What is said about a map.
    pub fn map(&self, name: &str) -> Option<&MapDescription> {
        self.maps.iter().find(|map| map.name == name)
    }

    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(io::Error::other)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Description> {
        serde_json::from_slice(bytes).ok().filter(|description: &Description| description.version == VERSION)
    }

    /// The map that holds a description of this length.
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
    /// Its name; that of its program, of which the kernel knows 15 bytes, where nothing else is known.
    pub name: String,
    /// Its programs, by their ids.
    pub programs: Vec<u32>,
    /// What its runner said.
    pub description: Option<Description>,
    /// Its maps, by id and name, without the description's.
    pub maps: Vec<(u32, String)>,
}

fn program(id: u32) -> io::Result<Option<ProgramInfo>> {
    let Some(fd) = object::open(Kind::Program, id)? else { return Ok(None) };
    object::program(fd.as_fd()).map(Some)
}

/// All XDP programs with maps, those on the same maps together.
///
/// # Errors
/// The process may not look.
pub fn running() -> Result<Vec<Running>, RunningError> {
    let look = |source| RunningError::new("look for running programs", source);
    let mut by_maps: BTreeMap<BTreeSet<u32>, (String, Vec<u32>)> = BTreeMap::new();
    for id in object::ids(Kind::Program).map_err(look)? {
        // It may have gone since.
        let Some(info) = program(id).map_err(look)? else { continue };
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
    fn descriptions_come_back() {
        let map = MapDescription { name: "knock".to_owned(), initial: vec![1, 255], ..MapDescription::default() };
        let description = Description::new("f", "f.efsm", vec![map]);
        let bytes = description.to_bytes().expect("plain data");
        assert_eq!(Description::from_bytes(&bytes), Some(description.clone()));
        let later = Description { version: VERSION + 1, ..description };
        assert_eq!(Description::from_bytes(&later.to_bytes().expect("plain data")), None);
        assert_eq!(Description::from_bytes(b"\0\0"), None);
    }
}
