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
mod loaded;
mod lock_places;
mod locked_sweeper;
mod offload;
mod places;
mod successor;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use flowloom_engine::{EngineError, Event, Snapshot, Verdict};
use flowloom_isa::Program;

pub use error::{LiveError, Mode};
pub use interface::{Interface, Occupant};
use loaded::Loaded;
use locked_sweeper::LockedSweeper;
pub use locked_sweeper::SWEEPER;
pub use offload::{Advice, Traffic, advice};
pub use successor::{Former, Handover, Successor};

use crate::error::ExecError;
use crate::kernel::state;
use crate::run::SweepClock;
use crate::running::Description;
use crate::sys::{monotonic_ns, object};

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

/// The sweep of a table.
#[derive(Debug)]
struct Sweep {
    /// Its position among the maps of the state.
    map: usize,
    clock: SweepClock,
    sweeper: Option<LockedSweeper>,
}

/// A function that runs on interfaces. Dropping it detaches it.
#[derive(Debug)]
pub struct Live {
    // Detached first.
    attached: Vec<(Interface, OwnedFd)>,
    loaded: Loaded,
    clock_ahead_ns: u64,
    swept: BTreeMap<String, u64>,
    /// The number of functions that have been replaced.
    generation: u64,
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
        let loaded = Loaded::new(program, interfaces, options, None)?;
        let mut attached = Vec::new();
        for (number, interface) in interfaces.iter().enumerate() {
            attached.push((interface.clone(), interface.attach(loaded.program(number), options.mode)?));
        }
        Ok(Live { attached, loaded, clock_ahead_ns: options.clock_ahead_ns, swept: BTreeMap::new(), generation: 0 })
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
        for Sweep { map, clock, sweeper } in &mut self.loaded.sweeps {
            if clock.due(now_ns).is_some() {
                let map = &self.loaded.maps[*map];
                let removed = map.sweep(now_ns, sweeper.as_ref().map(|sweeper| sweeper as _))?;
                *self.swept.entry(map.def().name.clone()).or_default() += removed;
            }
        }
        let next_ns = self.loaded.sweeps.iter().map(|sweep| sweep.clock.next_ns()).min();
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
        let tables = self.loaded.maps.iter().filter(|map| map.def().layout.is_some());
        tables.map(|map| Ok((map.def().name.clone(), map.alive(now_ns)?))).collect()
    }

    /// The packets by verdict, in the order of [`Verdict::ALL`]; `None` if they are not counted.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn verdicts(&self) -> Result<Option<[u64; Verdict::ALL.len()]>, EngineError> {
        self.loaded.verdicts()
    }

    /// The records written for user space since the last call, in order.
    ///
    /// # Errors
    /// The ring buffer cannot be read.
    pub fn events(&mut self) -> Result<Vec<Event>, EngineError> {
        self.loaded.events()
    }

    /// The number of records lost because the ring buffer was full.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn events_lost(&self) -> Result<u64, EngineError> {
        self.loaded.events_lost()
    }

    /// The contents of the maps whose names satisfy `requested`.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn snapshot(&self, requested: impl Fn(&str) -> bool) -> Result<Snapshot, EngineError> {
        state::snapshot(self.loaded.maps.iter().filter(|map| requested(&map.def().name)))
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
