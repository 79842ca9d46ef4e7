// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol of control sockets: one JSON value a line, in both directions.
//!
//! ```text
//!  ◄ {"flowloom":"control","version":1,"pid":17,"function":"f","source":"f.efsm","mode":"af_xdp","engine":"jit",..}
//!  ► {"do":"statistics"}                            ◄ {"ok":{..}}
//!  ► {"do":"dump","map":"flows"}                    ◄ {"entries":[["0a00..","01.."],..]}
//!                                                   ◄ {"entries":[..]}
//!                                                   ◄ {"ok":{"entries":4711}}
//!  ► {"do":"lookup","map":"flows","key":"0b00.."}   ◄ {"ok":{"value":null}}
//!  ► {"do":"delete","map":"none","key":""}          ◄ {"error":{"kind":"input","message":".."}}
//! ```
//!
//! The greeting comes first. Requests of a connection are answered in order; keys and values are hexadecimal digits. A
//! client closes a connection whose version it does not know.

use std::collections::BTreeMap;

use flowloom_exec::Description;
use serde::{Deserialize, Serialize};

/// The version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// The magic of a greeting.
pub(crate) const MAGIC: &str = "control";

/// The first line of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub(crate) flowloom: String,
    pub(crate) version: u32,
    /// The process.
    pub pid: u32,
    /// The name of the function.
    pub function: String,
    /// Its source or object, as given by the user.
    pub source: String,
    /// The way in which packets are received.
    pub mode: String,
    /// The engine.
    pub engine: String,
    /// Its ports and their interfaces.
    pub ports: BTreeMap<u32, String>,
    /// True if its maps are those of this process, not of the kernel.
    pub has_maps: bool,
}

impl Greeting {
    /// The greeting of this process.
    #[must_use]
    pub fn new(function: &str, source: &str, mode: &str, engine: &str, ports: BTreeMap<u32, String>) -> Greeting {
        let own = str::to_owned;
        let (function, source, mode, engine) = (own(function), own(source), own(mode), own(engine));
        let (flowloom, version, pid) = (own(MAGIC), PROTOCOL_VERSION, std::process::id());
        Greeting { flowloom, version, pid, function, source, mode, engine, ports, has_maps: true }
    }

    /// That of a run whose maps are in the kernel.
    #[must_use]
    pub fn in_kernel(self) -> Greeting {
        Greeting { has_maps: false, ..self }
    }
}

/// The condition of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateRule {
    /// Unconditionally.
    #[default]
    Any,
    /// Only if the key is new.
    NoExist,
    /// Only if the key exists.
    Exist,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A [`crate::Report`].
    Statistics,
    /// [`Maps`].
    Maps,
    /// All entries of a map.
    Dump {
        /// The map.
        map: String,
    },
    /// An [`Entry`].
    Lookup {
        /// The map.
        map: String,
        /// The key.
        key: String,
    },
    /// Writes an entry: [`Changed`].
    Update {
        /// The map.
        map: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The condition.
        #[serde(default)]
        rule: UpdateRule,
    },
    /// Deletes an entry: [`Changed`].
    Delete {
        /// The map.
        map: String,
        /// The key.
        key: String,
    },
    /// Runs another program from the next batch on: [`Reloaded`].
    Reload {
        /// Its source or object; the path of the run if it is missing.
        #[serde(default)]
        path: Option<String>,
        /// Parameters of the source; those of the run if the path is missing.
        #[serde(default)]
        params: Vec<(String, String)>,
        /// The program of an object with several.
        #[serde(default)]
        program: Option<String>,
    },
}

/// A map of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapFacts {
    /// The name.
    pub name: String,
    /// The kind, by its number in the kernel.
    pub kind: u32,
    /// The size of keys.
    pub key_bytes: u32,
    /// The size of values.
    pub value_bytes: u32,
    /// The capacity of one table.
    pub max_entries: u32,
    /// The number of tables: one for each worker.
    pub tables: u32,
    /// The entries of all tables.
    pub entries: u64,
    /// True if entries can be read.
    pub readable: bool,
}

/// The maps of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maps {
    /// What the names of keys and fields are.
    pub description: Description,
    /// The maps.
    pub maps: Vec<MapFacts>,
}

/// The entry of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The value; `None` if there is no entry.
    pub value: Option<String>,
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// True if the entry was written or deleted, false if the condition did not hold.
    pub changed: bool,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reloaded {
    /// The function that runs now.
    pub function: String,
    /// The engine that runs it.
    pub engine: String,
    /// The maps that kept their entries, with the number of entries.
    pub kept: Vec<(String, u64)>,
    /// The maps that begin with their initial contents, with the reasons.
    pub emptied: Vec<(String, String)>,
    /// The maps that no longer exist.
    pub removed: Vec<String>,
    /// The maps among those kept that could not take all entries.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The longest time in nanoseconds during which no packets ran.
    pub pause_ns: u64,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Entries of a map that a reload could not copy: the new table, or the share of a core, had no room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeftOut {
    /// The map.
    pub map: String,
    /// The number of these entries.
    pub entries: u64,
    /// The entries that the map had.
    pub of: u64,
    /// Why the first of them was left out.
    pub reason: String,
}

/// A line of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The result.
    Ok(serde_json::Value),
    /// No result.
    Error(crate::error::Refusal),
    /// Some entries of a dump.
    Entries(Vec<(String, String)>),
}
