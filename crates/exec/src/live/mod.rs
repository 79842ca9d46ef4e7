// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function on network interfaces: attached as XDP until it is dropped.
//!
//! ```text
//!  Program ──bind(port)──► one program for each interface ──► link ──► packets
//!     └─ maps, shared: contexts, globals, counters, fl_ports ◄── sweep, snapshot, counters
//! ```
//!
//! Programs are held by BPF links: when this process ends for any reason, the kernel closes its files and detaches
//! them. Nothing is pinned, so nothing is left behind, and it works without a BPF file system (`ip netns exec` hides
//! it).

pub(crate) mod error;
mod interface;
mod locked_sweeper;
mod offload;
mod places;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use flowloom_context::{ContextLayout, LayoutField};
use flowloom_engine::{EngineError, Event, Snapshot, Verdict};
use flowloom_isa::{MapKind, Program};

pub use error::{LiveError, Mode};
pub use interface::{Interface, Occupant};
use locked_sweeper::LockedSweeper;
pub use locked_sweeper::SWEEPER;
pub use offload::{Advice, Traffic, advice};
use places::Resolver;

use crate::error::ExecError;
use crate::kernel::errors::{rewriting_failed, system};
use crate::kernel::load::Maps;
use crate::kernel::state::{self, ContentResolver, KernelMap};
use crate::rewrite::{Binding, VERDICTS_BYTES, VERDICTS_MAP, bind};
use crate::run::SweepClock;
use crate::running::{Description, MapDescription};
use crate::sys::program::RawProgram;
use crate::sys::ring::Ring;
use crate::sys::{RawMap, monotonic_ns, object};

/// The options of a run on interfaces.
#[derive(Debug, Clone, Copy)]
pub struct LiveOptions<'a> {
    /// The mode of attachment.
    pub mode: Mode,
    /// True if verdicts are counted.
    pub count: bool,
    /// The offset of the function's clock from the system's ([`monotonic_ns`]), wrapping.
    pub clock_ahead_ns: u64,
    /// The initial state.
    pub state: &'a Snapshot,
    /// The description of its maps for other processes.
    pub description: &'a Description,
    /// The maps of its records for user space, if they are to be read.
    pub events: Option<EventMaps<'a>>,
}

/// The maps of a program's records for user space.
#[derive(Debug, Clone, Copy)]
pub struct EventMaps<'a> {
    /// The name of the ring buffer.
    pub ring: &'a str,
    /// The name of the counter of lost records, a u64.
    pub lost: &'a str,
}

/// A function that runs on interfaces. Dropping it detaches it.
#[derive(Debug)]
pub struct Live {
    maps: Vec<KernelMap>,
    sweeps: Vec<(usize, SweepClock, Option<LockedSweeper>)>,
    clock_ahead_ns: u64,
    swept: BTreeMap<String, u64>,
    verdicts: Option<Arc<RawMap>>,
    /// The ring buffer and its name, and the counter of lost records.
    ring: Option<(String, Ring)>,
    lost: Option<Arc<RawMap>>,
    attached: Vec<(Interface, OwnedFd)>,
    // Kept open: otherwise only the links would hold them.
    _programs: Vec<RawProgram>,
    _info: RawMap,
}

impl Live {
    /// Loads `program` and attaches it to the interfaces, which are bound to their ports in every device map.
    ///
    /// # Errors
    /// The program cannot be bound or the verifier refuses it; the state does not fit; an interface is occupied or
    /// refuses the program. Then nothing stays attached.
    pub fn start(program: &Program, interfaces: &[Interface], options: LiveOptions<'_>) -> Result<Live, ExecError> {
        for interface in interfaces {
            interface.require_free()?;
        }
        let fitted: Vec<_> = interfaces
            .iter()
            .map(|interface| {
                let LiveOptions { clock_ahead_ns, count: count_verdicts, .. } = options;
                bind(program, Binding { port: interface.port, clock_ahead_ns, count_verdicts })
            })
            .collect::<Result<_, _>>()
            .map_err(|source| rewriting_failed(program, source))?;
        let Some(first) = fitted.first() else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "no interface is given");
            return Err(LiveError::System { action: "attach the function".to_owned(), source }.into());
        };
        let created = Maps::create(&first.program)?;
        let mut programs = vec![created.load(&first.program)?];
        if first.reads_port {
            for bound in &fitted[1..] {
                programs.push(created.load_other(&bound.program)?);
            }
        }
        let info = describe(options.description, interfaces, options.clock_ahead_ns, &programs)?;
        let mut sweepers = BTreeMap::new();
        for (i, def) in first.program.maps.iter().enumerate() {
            let is_timed = def.layout.as_ref().is_some_and(|layout| !layout.deadline_offsets.is_empty());
            if !is_timed {
                continue;
            }
            if let Some(sweeper) = LockedSweeper::load(&first.program, i, &created)? {
                sweepers.insert(def.name.clone(), sweeper);
            }
        }
        let (mut maps, mut verdicts, mut ring, mut lost) = (Vec::new(), None, None, None);
        for (index, (def, raw)) in first.program.maps.iter().zip(&created.raw).enumerate() {
            if def.name == VERDICTS_MAP {
                verdicts = Some(raw.clone());
            } else if Some(def.name.as_str()) == options.events.map(|names| names.ring) {
                let opened = Ring::of(raw, def.max_entries);
                let failed =
                    |source| LiveError::System { action: format!("read the records of `{}`", def.name), source };
                ring = Some((def.name.clone(), opened.map_err(failed)?));
            } else if Some(def.name.as_str()) == options.events.map(|names| names.lost) {
                lost = Some(raw.clone());
            } else if KernelMap::is_state(def) {
                maps.push(KernelMap::new(index, def.clone(), raw.clone()));
            }
        }
        let binding =
            Binding { port: interfaces[0].port, clock_ahead_ns: options.clock_ahead_ns, count_verdicts: options.count };
        let mut resolver = Resolver { program, binding, created: &created, interfaces, siblings: BTreeMap::new() };
        // Device maps that the state does not list hold the interfaces.
        for map in maps.iter().filter(|map| map.def().kind == MapKind::Devmap) {
            resolver.set_contents(map, None).map_err(ExecError::State)?;
        }
        state::restore(&mut maps, options.state, &mut resolver).map_err(ExecError::State)?;
        let siblings = resolver.siblings;
        let now_ns = monotonic_ns().wrapping_add(options.clock_ahead_ns);
        let sweeps = maps.iter().enumerate().filter_map(|(i, map)| {
            let layout = map.def().layout.as_ref()?;
            let clock = SweepClock::of([layout]);
            clock.is_running().then(|| (i, clock.from(now_ns), sweepers.remove(&map.def().name)))
        });
        let mut live = Live {
            sweeps: sweeps.collect(),
            clock_ahead_ns: options.clock_ahead_ns,
            maps,
            swept: BTreeMap::new(),
            verdicts,
            ring,
            lost,
            attached: Vec::new(),
            _programs: Vec::new(),
            _info: info,
        };
        for (i, interface) in interfaces.iter().enumerate() {
            let program = programs.get(i).unwrap_or(&programs[0]);
            let link = interface.attach(program, options.mode)?;
            live.attached.push((interface.clone(), link));
        }
        live._programs = programs.into_iter().chain(siblings.into_values()).collect();
        Ok(live)
    }

    /// Detaches it from all interfaces; its state stays readable.
    pub fn detach(&mut self) {
        self.attached.clear();
    }

    /// The interfaces that have disappeared.
    pub fn disappeared(&self) -> Vec<&str> {
        let is_link_lost = |link: &OwnedFd| object::link(link.as_fd()).is_ok_and(|info| info.interface == Some(0));
        self.attached.iter().filter(|(_, link)| is_link_lost(link)).map(|(interface, _)| interface.name()).collect()
    }

    /// The time on the function's clock.
    pub fn now_ns(&self) -> u64 {
        monotonic_ns().wrapping_add(self.clock_ahead_ns)
    }

    /// Removes expired contexts from the tables whose sweep is due. Returns the time to the next sweep, if there is
    /// any.
    ///
    /// # Errors
    /// A table cannot be read or written.
    pub fn sweep(&mut self) -> Result<Option<Duration>, EngineError> {
        let now_ns = self.now_ns();
        for (map, clock, sweeper) in &mut self.sweeps {
            if clock.due(now_ns).is_some() {
                let map = &self.maps[*map];
                let removed = map.sweep(now_ns, sweeper.as_ref().map(|sweeper| sweeper as _))?;
                *self.swept.entry(map.def().name.clone()).or_default() += removed;
            }
        }
        let next_ns = self.sweeps.iter().map(|(_, clock, _)| clock.next_ns()).min();
        Ok(next_ns.map(|at| Duration::from_nanos(at.saturating_sub(self.now_ns()))))
    }

    /// By table, the contexts that sweeps have removed.
    pub fn swept(&self) -> &BTreeMap<String, u64> {
        &self.swept
    }

    /// By table, the contexts that have not expired.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn alive(&self) -> Result<BTreeMap<String, u64>, EngineError> {
        let now_ns = self.now_ns();
        let tables = self.maps.iter().filter(|map| map.def().layout.is_some());
        tables.map(|map| Ok((map.def().name.clone(), map.alive(now_ns)?))).collect()
    }

    /// The packets by verdict, in the order of [`Verdict::ALL`]; `None` if they are not counted.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn verdicts(&self) -> Result<Option<[u64; Verdict::ALL.len()]>, EngineError> {
        let Some(map) = &self.verdicts else { return Ok(None) };
        let mut bytes = [0; VERDICTS_BYTES];
        map.lookup(&[0; 4], &mut bytes).map_err(|e| system("read the verdicts", e))?;
        let mut words = bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(*b.first_chunk().unwrap_or(&[0; 8])));
        Ok(Some(std::array::from_fn(|_| words.next().unwrap_or(0))))
    }

    /// The records written for user space since the last call, in order.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn events(&mut self) -> Result<Vec<Event>, EngineError> {
        let mut events = Vec::new();
        if let Some((map, ring)) = &mut self.ring {
            ring.drain(|bytes| events.push(Event { map: map.clone(), cpu: 0, bytes }))
                .map_err(|e| system("read the records for user space", e))?;
        }
        Ok(events)
    }

    /// The number of records lost because the ring buffer was full.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn events_lost(&self) -> Result<u64, EngineError> {
        let Some(map) = &self.lost else { return Ok(0) };
        let mut bytes = [0; 8];
        map.lookup(&[0; 4], &mut bytes).map_err(|e| system("read the number of lost records", e))?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The contents of the maps whose names satisfy `requested`.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn snapshot(&self, requested: impl Fn(&str) -> bool) -> Result<Snapshot, EngineError> {
        state::snapshot(self.maps.iter().filter(|map| requested(&map.def().name)))
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

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
