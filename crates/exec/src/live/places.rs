// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resolves the contents of maps of ports, programs and maps to the kernel's ids, on interfaces.

use std::collections::BTreeMap;
use std::io;

use flowloom_engine::{EngineError, MapState};
use flowloom_isa::{MapKind, Program};

use super::interface::Interface;
use crate::kernel::errors::system;
use crate::kernel::load::{Maps, sibling_program};
use crate::kernel::shadow::{hold_descriptors, hold_maps};
use crate::kernel::state::{ContentResolver, KernelMap, index};
use crate::rewrite::{Binding, bind};
use crate::sys::program::RawProgram;

/// Fills the maps of a function on interfaces.
pub(super) struct Resolver<'a> {
    pub(super) program: &'a Program,
    pub(super) binding: Binding,
    pub(super) created: &'a Maps,
    pub(super) interfaces: &'a [Interface],
    /// Targets of tail calls, by index.
    pub(super) siblings: BTreeMap<usize, RawProgram>,
}

impl Resolver<'_> {
    fn sibling(&mut self, number: usize) -> Result<i32, EngineError> {
        if let Some(loaded) = self.siblings.get(&number) {
            return Ok(loaded.number());
        }
        let fails = |why: String| system("load a program that a map holds", io::Error::other(why));
        let known = self.program.siblings.len();
        let sibling = self
            .program
            .siblings
            .get(number)
            .ok_or_else(|| fails(format!("number {number}, expected below {known}")))?;
        let sibling = sibling_program(self.program, sibling);
        let bound = bind(&sibling, self.binding).map_err(|e| fails(format!("program `{}`: {e}", sibling.name)))?;
        // Interfaces share the map, so a program in it can be bound to one port only.
        if bound.reads_port && self.interfaces.len() > 1 {
            let why = "is a tail call target and reads its port, which is possible on one interface only";
            return Err(fails(format!("program `{}` {why}", sibling.name)));
        }
        let loaded = self.created.load_other(&bound.program).map_err(|e| fails(e.to_string()))?;
        let descriptor = loaded.number();
        self.siblings.insert(number, loaded);
        Ok(descriptor)
    }

    /// The entries of a redirect map, with interfaces for ports. Ports without an interface are omitted: packets to
    /// them are lost.
    fn devices(&self, map: &KernelMap, requested: Option<&MapState>) -> MapState {
        let def = map.def();
        let of_port = |port: u32| self.interfaces.iter().find(|interface| interface.port == port);
        // The longer form ends with the program to run on the entry: none.
        let value = |device: u32| {
            let mut value = device.to_ne_bytes().to_vec();
            value.resize((def.value_bytes as usize).max(4), 0);
            value
        };
        match requested {
            // Only the owner of a socket can put it into the map.
            _ if def.kind == MapKind::Xskmap => MapState::new(),
            None => {
                let inside = self.interfaces.iter().filter(|interface| interface.port < def.max_entries);
                inside.map(|i| (i.port.to_ne_bytes().to_vec(), value(i.index()))).collect()
            }
            Some(requested) if def.kind == MapKind::Cpumap => {
                requested.iter().map(|(key, value)| (map.swap_key(key), value.clone())).collect()
            }
            Some(requested) => {
                let device = |(key, port): (&Vec<u8>, &Vec<u8>)| {
                    let interface = of_port(index(port.get(..4)?)?)?;
                    Some((map.swap_key(key), value(interface.index())))
                };
                requested.iter().filter_map(device).collect()
            }
        }
    }
}

impl ContentResolver for Resolver<'_> {
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
        match map.def().kind {
            MapKind::Xskmap if !entries.is_empty() => {
                let what = format!("fill map `{name}` with sockets, which their owner inserts");
                Err(system(what, io::ErrorKind::Unsupported.into()))
            }
            kind if kind.is_redirect() => {
                let clear = |key: &Vec<u8>| map.raw().delete(key).map(drop);
                let before = self.devices(map, map.held());
                before.keys().try_for_each(clear).map_err(|e| system(format!("clear map `{name}`"), e))?;
                let devices = self.devices(map, requested);
                let mut set = devices.iter().map(|(key, value)| map.raw().update(key, value));
                set.try_for_each(|done| done).map_err(|e| system(format!("bind the ports of map `{name}`"), e))
            }
            MapKind::ProgArray => hold_descriptors(map, entries, |number| self.sibling(number)),
            _ => hold_maps(map, entries, self.created),
        }
    }
}
