// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function in the kernel: its programs, bound to the ports of interfaces, on maps that are filled.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_engine::{EngineError, Event, Verdict};
use flowloom_isa::{MapDef, MapKind, Program};

use super::error::LiveError;
use super::interface::Interface;
use super::lock_places::{HeldLocks, relocated};
use super::locked_sweeper::LockedSweeper;
use super::places::Resolver;
use super::{LiveOptions, Sweep};
use crate::error::ExecError;
use crate::kernel::errors::{rewriting_failed, system};
use crate::kernel::load::Maps;
use crate::kernel::sizes::MapPurpose;
use crate::kernel::state::{self, ContentResolver, KernelMap};
use crate::rewrite::{Binding, VERDICTS_BYTES, VERDICTS_MAP, bind};
use crate::run::SweepClock;
use crate::running::{Description, MapDescription};
use crate::sys::program::RawProgram;
use crate::sys::ring::Ring;
use crate::sys::{RawMap, monotonic_ns};

/// What another program can take over of a function that runs.
#[derive(Debug, Clone)]
pub(super) struct Estate {
    /// The maps of the program.
    pub(super) defs: Vec<MapDef>,
    pub(super) raw: Vec<Arc<RawMap>>,
    states: Vec<KernelMap>,
    /// The locks of tables, by number.
    locks: BTreeMap<usize, HeldLocks>,
    verdicts: Option<Arc<RawMap>>,
}

/// A function in the kernel.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) maps: Vec<KernelMap>,
    pub(super) sweeps: Vec<Sweep>,
    pub(super) estate: Estate,
    /// The tables that are taken over, but locked in another way.
    pub(super) differing: Vec<String>,
    /// The ring buffer and its name, and the counter of lost records.
    ring: Option<(String, Ring)>,
    lost: Option<Arc<RawMap>>,
    /// One for each interface, or one for all.
    programs: Vec<RawProgram>,
    // Kept open: otherwise only maps would hold them.
    _siblings: Vec<RawProgram>,
    _info: RawMap,
}

impl Loaded {
    /// Loads `program` for these interfaces. Of a function that runs it takes over maps: pairs of numbers, its own and
    /// the old one.
    ///
    /// # Errors
    /// The program cannot be bound or the verifier refuses it; the state does not fit.
    pub(super) fn new(
        program: &Program,
        interfaces: &[Interface],
        options: LiveOptions<'_>,
        former: Option<(&Estate, &[(usize, usize)])>,
    ) -> Result<Loaded, ExecError> {
        let (estate, kept) = former.map_or((None, &[][..]), |(estate, kept)| (Some(estate), kept));
        let own_maps = program.maps.len();
        let locks = |(new, old): &(usize, usize)| Some((*new, (*old, estate?.locks.get(old)?)));
        let relocated = relocated(program, &kept.iter().filter_map(locks).collect());
        let program = &relocated.program;
        let binding = |interface: &Interface| Binding {
            port: interface.port,
            clock_ahead_ns: options.clock_ahead_ns,
            count_verdicts: options.count,
        };
        let fitted: Vec<_> = interfaces
            .iter()
            .map(|interface| bind(program, binding(interface)))
            .collect::<Result<_, _>>()
            .map_err(|source| rewriting_failed(program, source))?;
        let (Some(first), Some(interface)) = (fitted.first(), interfaces.first()) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "no interface is given");
            return Err(LiveError::System { action: "attach the function".to_owned(), source }.into());
        };
        let taken = |index: usize, def: &MapDef| {
            let estate = estate?;
            if def.name == VERDICTS_MAP {
                return estate.verdicts.clone();
            }
            let old = kept.iter().find(|(new, _)| *new == index).and_then(|(_, old)| estate.raw.get(*old));
            old.or_else(|| relocated.taken.get(&index)).cloned()
        };
        let created = Maps::create_for(&first.program, MapPurpose::Live, &taken)?;
        let mut programs = vec![created.load(&first.program)?];
        if first.reads_port {
            for bound in &fitted[1..] {
                programs.push(created.load_other(&bound.program)?);
            }
        }
        let info = describe(options.description, interfaces, options.clock_ahead_ns, &programs)?;
        let (mut maps, mut verdicts, mut ring, mut lost) = (Vec::new(), None, None, None);
        for (index, (def, raw)) in first.program.maps.iter().zip(&created.raw).enumerate() {
            let is_named = |name: fn(super::EventMaps<'_>) -> &str| options.events.is_some_and(|e| name(e) == def.name);
            if def.name == VERDICTS_MAP {
                verdicts = Some(raw.clone());
            } else if is_named(|names| names.ring) {
                let opened = Ring::of(raw, def.max_entries);
                let failed =
                    |source| LiveError::System { action: format!("read the records of `{}`", def.name), source };
                ring = Some((def.name.clone(), opened.map_err(failed)?));
            } else if is_named(|names| names.lost) {
                lost = Some(raw.clone());
            } else if KernelMap::is_state(def) && index < own_maps {
                maps.push(KernelMap::new(index, def.clone(), raw.clone()));
            }
        }
        // What is taken over keeps its contents.
        let mut kept_maps = Vec::new();
        maps.retain(|map| {
            let old = kept.iter().find(|(new, _)| *new == map.index()).map(|(_, old)| *old);
            let old = old.and_then(|old| estate?.states.iter().find(|state| state.index() == old));
            kept_maps.extend(old.map(|old| old.taken_over(map.index(), map.def().clone())));
            old.is_none()
        });
        let siblings = BTreeMap::new();
        let mut resolver = Resolver { program, binding: binding(interface), created: &created, interfaces, siblings };
        // Device maps that the state does not list hold the interfaces.
        for map in maps.iter().filter(|map| map.def().kind == MapKind::Devmap) {
            resolver.set_contents(map, None).map_err(ExecError::State)?;
        }
        state::restore(&mut maps, options.state, &mut resolver).map_err(ExecError::State)?;
        let siblings = resolver.siblings;
        maps.append(&mut kept_maps);
        maps.sort_by_key(KernelMap::index);
        let now_ns = monotonic_ns().wrapping_add(options.clock_ahead_ns);
        let mut sweeps = Vec::new();
        for (position, map) in maps.iter().enumerate() {
            let Some(layout) = map.def().layout.as_ref().filter(|layout| !layout.deadline_offsets.is_empty()) else {
                continue;
            };
            let place = relocated.places.get(&map.index());
            let sweeper = place.map(|place| LockedSweeper::load(&first.program, map.index(), *place, &created));
            let (sweeper, clock) = (sweeper.transpose()?, SweepClock::of([layout]));
            if clock.is_running() {
                sweeps.push(Sweep { map: position, clock: clock.from(now_ns), sweeper });
            }
        }
        let locks = relocated.places.iter().map(|(table, place)| {
            let (map, def) = (Arc::clone(&created.raw[place.map]), first.program.maps[place.map].clone());
            (*table, HeldLocks { map, def, locks: place.locks })
        });
        let estate = Estate {
            defs: first.program.maps[..own_maps].to_vec(),
            locks: locks.collect(),
            states: maps.clone(),
            verdicts,
            raw: created.raw,
        };
        let siblings = siblings.into_values().collect();
        let differing = relocated.differing;
        Ok(Loaded { maps, sweeps, estate, differing, ring, lost, programs, _siblings: siblings, _info: info })
    }

    /// The program of interface number `interface`.
    pub(super) fn program(&self, interface: usize) -> &RawProgram {
        self.programs.get(interface).unwrap_or(&self.programs[0])
    }

    /// The packets by verdict; `None` if they are not counted.
    pub(super) fn verdicts(&self) -> Result<Option<[u64; Verdict::ALL.len()]>, EngineError> {
        let Some(map) = &self.estate.verdicts else { return Ok(None) };
        let mut bytes = [0; VERDICTS_BYTES];
        map.lookup(&[0; 4], &mut bytes).map_err(|e| system("read the verdicts", e))?;
        let mut words = bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(*b.first_chunk().unwrap_or(&[0; 8])));
        Ok(Some(std::array::from_fn(|_| words.next().unwrap_or(0))))
    }

    /// The records written for user space since the last call, in order.
    pub(super) fn events(&mut self) -> Result<Vec<Event>, EngineError> {
        let mut events = Vec::new();
        if let Some((map, ring)) = &mut self.ring {
            ring.drain(|bytes| events.push(Event { map: map.clone(), cpu: 0, bytes }))
                .map_err(|e| system("read the records for user space", e))?;
        }
        Ok(events)
    }

    /// The number of records lost because the ring buffer was full.
    pub(super) fn events_lost(&self) -> Result<u64, EngineError> {
        let Some(map) = &self.lost else { return Ok(0) };
        let mut bytes = [0; 8];
        map.lookup(&[0; 4], &mut bytes).map_err(|e| system("read the number of lost records", e))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Stores a description of the function with its programs.
fn describe(
    description: &Description,
    interfaces: &[Interface],
    clock_ahead_ns: u64,
    programs: &[RawProgram],
) -> Result<RawMap, LiveError> {
    let ports = interfaces.iter().map(|interface| (interface.port, interface.name().to_owned())).collect();
    let mut description = Description { ports, clock_ahead_ns, ..description.clone() };
    description.maps.push(verdicts_description());
    let leave = || {
        let bytes = description.to_bytes()?;
        let map = RawMap::create_untyped(&Description::map_def(bytes.len()))?;
        map.update(&[0; 4], &bytes)?;
        map.freeze()?;
        programs.iter().try_for_each(|program| program.bind(&map))?;
        Ok(map)
    };
    leave().map_err(|source| LiveError::System { action: "store a description of the function".to_owned(), source })
}

fn verdicts_description() -> MapDescription {
    let field = |verdict: Verdict| LayoutField {
        name: verdict.name().to_owned(),
        offset_bytes: verdict.number() * 8,
        size_bytes: 8,
        signed: false,
    };
    let layout = ContextLayout { fields: Verdict::ALL.map(field).to_vec(), ..ContextLayout::default() };
    MapDescription { name: VERDICTS_MAP.to_owned(), layout: Some(layout), ..MapDescription::default() }
}
