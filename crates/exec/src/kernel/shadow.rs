// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shadows of maps in which the programs of a test run find ports, programs and maps; and programs loaded on demand for
//! maps that hold them.

use std::collections::BTreeMap;
use std::io;

use flowloom_engine::{EngineError, MapState};
use flowloom_isa::{MapKind, Program};

use super::errors::{rewriting_failed, system};
use super::load::{Maps, sibling_program};
use super::state::{ContentResolver, KernelMap, index};
use crate::error::ExecError;
use crate::rewrite::plan::{Plan, Shadow, TABLE_ENTRY_BYTES, table_entry};
use crate::rewrite::rewrite_with;
use crate::sys::memory::Memory;
use crate::sys::program::RawProgram;

/// The state that the programs share.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) program: Program,
    pub(super) plan: Plan,
    pub(super) created: Maps,
    /// The record, if the program was rewritten.
    pub(super) record: Option<Memory>,
    /// Targets of tail calls, by index.
    pub(super) siblings: BTreeMap<usize, RawProgram>,
}

impl Inside {
    /// Loads the target of tail calls with this index, if it is not loaded yet.
    ///
    /// # Errors
    /// It cannot be rewritten, or the kernel refuses it; both name it.
    pub(super) fn sibling(&mut self, number: usize) -> Result<&RawProgram, ExecError> {
        use std::collections::btree_map::Entry;
        match self.siblings.entry(number) {
            Entry::Occupied(loaded) => Ok(loaded.into_mut()),
            Entry::Vacant(place) => {
                let sibling = self.program.siblings.get(number).ok_or_else(|| ExecError::Loaded {
                    program: self.program.name.clone(),
                    what: "a program that a map holds".to_owned(),
                    found: format!("number {number}"),
                    expected: format!("a number below {}", self.program.siblings.len()),
                })?;
                let sibling = sibling_program(&self.program, sibling);
                let rewritten =
                    rewrite_with(&sibling, &self.plan).map_err(|source| rewriting_failed(&sibling, source))?;
                self.created.verify_in_kernel(&sibling)?;
                let loaded = self.created.load_other(&rewritten).map_err(|error| match error {
                    ExecError::Refused(mut refused) => {
                        refused.insn = None;
                        ExecError::RefusedRewritten(refused)
                    }
                    other => other,
                })?;
                Ok(place.insert(loaded))
            }
        }
    }

    fn table(&mut self, map: &KernelMap, offset: u32, requested: Option<&MapState>) -> io::Result<()> {
        let Some(record) = &mut self.record else { return Ok(()) };
        for number in 0..map.def().max_entries {
            let entry = match requested {
                None => table_entry(Some(&number.to_ne_bytes())),
                Some(requested) => table_entry(requested.get(&number.to_le_bytes()[..]).map(|value| &value[..])),
            };
            record.write(offset as usize + number as usize * TABLE_ENTRY_BYTES as usize, &entry)?;
        }
        Ok(())
    }

    fn hash(&self, map: &KernelMap, shadow: usize, requested: &MapState) -> io::Result<()> {
        // If no program was rewritten, nothing uses the shadow.
        let Some(shadow) = self.created.raw.get(shadow) else { return Ok(()) };
        for key in map.held().into_iter().flat_map(MapState::keys) {
            shadow.delete(key)?;
        }
        requested.iter().try_for_each(|(key, value)| shadow.update(key, value))
    }
}

/// Replaces the contents of `map` by the descriptors that `find` returns for the numbers in `requested`.
pub(crate) fn hold_descriptors(
    map: &KernelMap,
    requested: &MapState,
    mut find: impl FnMut(usize) -> Result<i32, EngineError>,
) -> Result<(), EngineError> {
    let name = &map.def().name;
    let mut found = Vec::with_capacity(requested.len());
    for (key, value) in requested {
        found.push((key, find(index(value).unwrap_or(0) as usize)?));
    }
    for key in map.held().into_iter().flat_map(MapState::keys) {
        map.raw().delete(&map.swap_key(key)).map_err(|e| system(format!("clear map `{name}`"), e))?;
    }
    for (key, descriptor) in found {
        let held = map.raw().store_fd(&map.swap_key(key), descriptor);
        held.map_err(|e| system(format!("store the object of entry {key:02x?} in map `{name}`"), e))?;
    }
    Ok(())
}

/// The same for a map of maps, which are numbered as in `created`.
pub(crate) fn hold_maps(map: &KernelMap, requested: &MapState, created: &Maps) -> Result<(), EngineError> {
    hold_descriptors(map, requested, |number| {
        let found = created.raw.get(number).map(|map| map.number());
        found.ok_or_else(|| system(format!("fill map `{}`", map.def().name), io::ErrorKind::NotFound.into()))
    })
}

impl ContentResolver for Inside {
    fn programs(&self) -> usize {
        self.program.siblings.len()
    }

    fn maps(&self) -> usize {
        self.program.maps.len()
    }

    fn set_contents(&mut self, map: &KernelMap, requested: Option<&MapState>) -> Result<(), EngineError> {
        let name = &map.def().name;
        let empty = MapState::new();
        let entries = requested.unwrap_or(&empty);
        if let Some(shadow) = self.plan.shadows.get(&map.index()).copied() {
            let written = match shadow {
                Shadow::Table(offset) => self.table(map, offset, requested),
                Shadow::Hash(shadow) => self.hash(map, shadow, entries),
            };
            return written.map_err(|e| system(format!("fill the shadow of map `{name}`"), e));
        }
        if map.def().kind == MapKind::ProgArray {
            return hold_descriptors(map, entries, |number| {
                let loaded = self.sibling(number).map(RawProgram::number);
                loaded
                    .map_err(|e| system(format!("load the contents of map `{name}`"), io::Error::other(e.to_string())))
            });
        }
        hold_maps(map, entries, &self.created)
    }
}
