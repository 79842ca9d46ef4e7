// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A map of a run: in the kernel, or in the process that runs the function.

use std::cell::RefCell;

use flowloom_context::LayoutField;
use flowloom_control::{Client, Found, MapFacts, Maps, UpdateRule};
use flowloom_engine::MapState;
use flowloom_exec::{Description, Table, UpdateMode};
use flowloom_isa::MapKind;

use super::entry::TableFacts;
use crate::failure::Failure;
use crate::observe;

/// A map of either place.
pub(super) enum AnyTable {
    Kernel(Table),
    User(UserTable),
}

/// A map of a run in user space.
pub(super) struct UserTable {
    client: RefCell<Client>,
    facts: MapFacts,
    pub(super) pid: u32,
}

/// The maps of a run in user space.
pub(super) struct UserRun {
    pub(super) found: Found,
    pub(super) maps: Vec<MapFacts>,
    pub(super) description: Description,
    client: Client,
}

impl UserRun {
    /// The runs in user space that listen.
    pub(super) fn all() -> Result<Vec<UserRun>, Failure> {
        let mut all = Vec::new();
        for found in observe::listening()?.into_iter().filter(|found| found.greeting.has_maps) {
            let mut client = observe::connect(&found)?;
            let Maps { description, maps } = client.maps().map_err(|e| observe::failure(&e))?;
            all.push(UserRun { found, maps, description, client });
        }
        Ok(all)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.found.greeting.function == name || self.found.greeting.pid.to_string() == name
    }

    /// One of its maps, and the description.
    pub(super) fn table(self, map: &str) -> Option<(UserTable, Description)> {
        let facts = self.maps.into_iter().find(|facts| facts.name == map)?;
        let pid = self.found.greeting.pid;
        Some((UserTable { client: RefCell::new(self.client), facts, pid }, self.description))
    }
}

impl AnyTable {
    /// The id in the kernel.
    pub(super) fn id(&self) -> Option<u32> {
        match self {
            AnyTable::Kernel(table) => Some(table.id()),
            AnyTable::User(_) => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            AnyTable::Kernel(table) => table.name(),
            AnyTable::User(table) => &table.facts.name,
        }
    }

    pub(super) fn kind(&self) -> Option<MapKind> {
        match self {
            AnyTable::Kernel(table) => table.kind(),
            AnyTable::User(table) => Some(MapKind::from_number(table.facts.kind)),
        }
    }

    pub(super) fn key_bytes(&self) -> usize {
        match self {
            AnyTable::Kernel(table) => table.key_bytes(),
            AnyTable::User(table) => table.facts.key_bytes as usize,
        }
    }

    pub(super) fn value_bytes(&self) -> usize {
        match self {
            AnyTable::Kernel(table) => table.value_bytes(),
            AnyTable::User(table) => table.facts.value_bytes as usize,
        }
    }

    /// The capacity in entries, of all tables of the map.
    pub(super) fn max_entries(&self) -> u64 {
        match self {
            AnyTable::Kernel(table) => table.max_entries().into(),
            AnyTable::User(table) => u64::from(table.facts.max_entries) * u64::from(table.facts.tables),
        }
    }

    /// What concerns its entries.
    pub(super) fn facts(&self) -> TableFacts<'_> {
        TableFacts {
            name: self.name(),
            kind: self.kind(),
            key_bytes: self.key_bytes(),
            value_bytes: self.value_bytes(),
            fields: self.fields(),
        }
    }

    /// The fields of its values, if types tell them.
    fn fields(&self) -> Vec<LayoutField> {
        match self {
            AnyTable::Kernel(table) => table.fields(),
            AnyTable::User(_) => Vec::new(),
        }
    }

    pub(super) fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            AnyTable::Kernel(table) => table.lookup(key).map_err(|e| super::failure(&e)),
            AnyTable::User(table) => {
                table.client.borrow_mut().lookup(&table.facts.name, key).map_err(|e| observe::failure(&e))
            }
        }
    }

    pub(super) fn update(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<bool, Failure> {
        match self {
            AnyTable::Kernel(table) => table.update(key, value, mode).map_err(|e| super::failure(&e)),
            AnyTable::User(table) => {
                let rule = match mode {
                    UpdateMode::Any => UpdateRule::Any,
                    UpdateMode::NoExist => UpdateRule::NoExist,
                    UpdateMode::Exist => UpdateRule::Exist,
                };
                let mut client = table.client.borrow_mut();
                client.update(&table.facts.name, key, value, rule).map_err(|e| observe::failure(&e))
            }
        }
    }

    pub(super) fn delete(&self, key: &[u8]) -> Result<bool, Failure> {
        match self {
            AnyTable::Kernel(table) => table.delete(key).map_err(|e| super::failure(&e)),
            AnyTable::User(table) => {
                table.client.borrow_mut().delete(&table.facts.name, key).map_err(|e| observe::failure(&e))
            }
        }
    }

    pub(super) fn entries(&self) -> Result<MapState, Failure> {
        match self {
            AnyTable::Kernel(table) => table.entries().map_err(|e| super::failure(&e)),
            AnyTable::User(table) => {
                let mut entries = MapState::new();
                let mut take = |key, value| drop(entries.insert(key, value));
                let dumped = table.client.borrow_mut().dump(&table.facts.name, &mut take);
                dumped.map(|()| entries).map_err(|e| observe::failure(&e))
            }
        }
    }
}
