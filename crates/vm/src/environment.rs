// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment of a program: maps, helpers, ports and outcomes, shared by engines that run instructions.

use std::sync::Arc;

use flowloom_engine::{
    Choices, Digest, Event, Eviction, Outcome, Outcomes, Output, Port, Ports, RANDOM_WORDS, Snapshot, SnapshotError,
    Verdict,
};
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, Program};

use super::calls::{Redirect, Run};
use super::fib;
use super::maps::{Backing, Known, Map};
use super::observer::Observer;
use super::space::Space;
use super::trail::Trail;

/// The result of a program's run on a packet.
#[derive(Debug)]
pub struct Returned {
    /// The result of the program.
    pub r0: u64,
    /// The last redirect.
    pub redirect: Option<Redirect>,
    /// The outputs besides the packet.
    pub outputs: Vec<Output>,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere.
    None,
    /// Out of one port.
    Port(Port),
    /// Out of all ports of a map, except one.
    Ports {
        /// The map.
        map: usize,
        /// The port that is left out.
        but: Option<Port>,
    },
}

/// The environment of a program.
pub struct Environment<S: Space> {
    pub(super) program: Arc<Program>,
    pub(super) space: S,
    routes: Option<fib::Table>,
    scratch: (Vec<u8>, Vec<u8>),
    ports: Ports,
}

/// Where a sweep in steps goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct SweepPlace {
    map: usize,
    slot: u32,
    /// The slots before it, of all maps.
    visited: u64,
}

impl<S: Space> std::fmt::Debug for Environment<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("program", &self.program.name).finish_non_exhaustive()
    }
}

impl<S: Space> Environment<S> {
    /// The environment of a program with its maps in `space`.
    pub fn new(program: Arc<Program>, space: S) -> Environment<S> {
        Environment { program, space, routes: None, scratch: (Vec::new(), Vec::new()), ports: Ports::default() }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The memory.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// The memory, mutable.
    pub fn space_mut(&mut self) -> &mut S {
        &mut self.space
    }

    /// Sets the routes of `fib_lookup` and `check_mtu`; by default there is no interface.
    pub fn set_routes(&mut self, routes: fib::Table) {
        self.routes = Some(routes);
    }

    /// Sets the ports from now on.
    pub fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
    }

    /// Runs `body` on the packet in the memory; it returns `r0`.
    ///
    /// # Errors
    /// Those of `body`.
    #[inline]
    pub fn run<E>(
        &mut self,
        choices: &Choices,
        trail: Option<&mut Trail>,
        observer: Option<&mut (dyn Observer + 'static)>,
        body: impl FnOnce(&mut Run<'_, S>) -> Result<u64, E>,
    ) -> Result<Returned, E> {
        let mut run = self.begun(choices, trail, observer);
        let result = body(&mut run);
        let Run { redirect, outputs, .. } = run;
        self.space.end_run();
        if result.is_err() {
            // Reserved records are discarded at the end of a packet.
            self.space.rings_mut().drain(&self.program.maps);
        }
        result.map(|r0| Returned { r0, redirect, outputs })
    }

    /// Runs `body` on a batch of packets, each of which begins with [`Run::reset`] and gets its choices.
    #[inline]
    pub fn run_batch<R>(&mut self, body: impl FnOnce(&mut Run<'_, S>) -> R) -> R {
        let choices = Choices { now_ns: 0, random: [0; RANDOM_WORDS], cpu: 0 };
        let result = body(&mut self.begun(&choices, None, None));
        self.space.end_run();
        result
    }

    #[inline]
    fn begun<'a>(
        &'a mut self,
        choices: &Choices,
        trail: Option<&'a mut Trail>,
        observer: Option<&'a mut (dyn Observer + 'static)>,
    ) -> Run<'a, S> {
        let Environment { program, space, routes, scratch, ports } = self;
        Run {
            memory: space,
            choices: *choices,
            ports,
            maps: &program.maps,
            routes: routes.as_ref(),
            headers: program.headers(),
            drawn: 0,
            redirect: None,
            outputs: Vec::new(),
            sent_bytes: 0,
            locked: None,
            scratch,
            trail,
            observer: observer.map(|observer| observer as &mut dyn Observer),
        }
    }

    /// Outputs whose ports are bound.
    pub fn retain_bound(&self, outputs: &mut Vec<Output>) {
        outputs.retain(|output| self.ports.is_bound(output.port));
    }

    /// The records that have been written for user space since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        self.space.rings_mut().drain(&self.program.maps)
    }

    /// The outcome of a run on a packet from `ingress`.
    pub fn finish(&mut self, ingress: Port, returned: Returned) -> Outcome {
        let mut outputs = Vec::new();
        let sent = |port, bytes: &[u8]| outputs.push(Output { port, bytes: bytes.to_vec() });
        let (verdict, events) = self.settle(ingress, returned, sent);
        Outcome { verdict, outputs, events }
    }

    /// As [`Environment::finish`], but appends the outcome.
    pub fn finish_into(&mut self, ingress: Port, returned: Returned, outcomes: &mut Outcomes) {
        let (verdict, events) = self.settle(ingress, returned, |port, bytes| outcomes.send(port, bytes));
        events.into_iter().for_each(|event| outcomes.log(event));
        outcomes.end(verdict);
    }

    /// The verdict and the records of a run; its outputs go to `send`.
    fn settle(
        &mut self,
        ingress: Port,
        returned: Returned,
        mut send: impl FnMut(Port, &[u8]),
    ) -> (Verdict, Vec<Event>) {
        let Returned { r0, redirect, outputs } = returned;
        for output in outputs.iter().filter(|output| self.ports.is_bound(output.port)) {
            send(output.port, &output.bytes);
        }
        let (verdict, destination) = destination(&self.ports, ingress, r0, redirect);
        let events = self.events();
        let bytes = self.space.packet();
        match destination {
            Destination::None => {}
            Destination::Port(port) => send(port, bytes),
            Destination::Ports { map, but } => {
                ports_of(&self.ports, &self.space.maps()[map], but).into_iter().for_each(|port| send(port, bytes));
            }
        }
        (verdict, events)
    }

    /// The ports that a redirect to all ports of a map reaches, without `but`.
    ///
    /// # Panics
    /// The program has no such map.
    pub fn ports_of(&self, map: usize, but: Option<Port>) -> Vec<Port> {
        ports_of(&self.ports, &self.space.maps()[map], but)
    }

    /// Sets the evictions of LRU maps during the next packet.
    pub fn evict_next(&mut self, victims: &[Eviction]) {
        for map in self.space.maps_mut().iter_mut().filter(|map| map.def().kind.is_lru()) {
            let own = victims.iter().filter(|eviction| eviction.map == map.def().name);
            let free = own.clone().map(|eviction| eviction.free_entries).max().unwrap_or(0);
            map.set_victims(own.map(|eviction| eviction.key.clone()).collect(), free as usize);
        }
    }

    /// The evictions that were set but not needed.
    pub fn not_evicted(&mut self) -> Vec<Eviction> {
        let mut found = Vec::new();
        for map in self.space.maps_mut().iter_mut().filter(|map| map.def().kind.is_lru()) {
            let name = map.def().name.clone();
            let eviction = |key| Eviction { map: name.clone(), key, free_entries: 0 };
            found.extend(map.unused_victims().into_iter().map(eviction));
        }
        found
    }

    /// Removes every context whose deadline is at or before `now_ns`.
    pub fn sweep(&mut self, now_ns: u64) {
        for map in self.space.maps_mut() {
            map.sweep(now_ns, 0, u32::MAX);
        }
    }

    /// A step of a sweep at `now_ns`, which began with [`SweepPlace::default`]: visits slots until `share` of them are
    /// visited since then, at most `most` of them in this step. Whether the sweep has ended.
    pub fn sweep_step(&mut self, now_ns: u64, place: &mut SweepPlace, share: f64, most: u32) -> bool {
        let maps = self.space.maps_mut();
        let slots: u64 = maps.iter().map(|map| u64::from(map.swept_slots())).sum();
        let last = place.visited.saturating_add(most.into());
        // The whole sweep ends at the last slot, however many there are.
        let goal = if share < 1.0 { ((slots as f64 * share).ceil() as u64).min(last) } else { last };
        while let Some(map) = maps.get_mut(place.map) {
            let count = goal.saturating_sub(place.visited).min(map.swept_slots().into()) as u32;
            let next = if map.swept_slots() == 0 {
                None
            } else if count == 0 {
                return false;
            } else {
                map.sweep(now_ns, place.slot, count)
            };
            match next {
                Some(slot) => {
                    place.visited += u64::from(slot - place.slot);
                    place.slot = slot;
                }
                // Slots that were never used are not visited.
                None => {
                    place.visited += u64::from(map.swept_slots().saturating_sub(place.slot));
                    (place.map, place.slot) = (place.map + 1, 0);
                }
            }
        }
        true
    }

    /// The number of entries of a hash table, by the number of its map.
    pub fn table_len(&self, map: usize) -> Option<usize> {
        self.space.maps().get(map)?.entries()
    }

    /// The contents of all maps.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for map in self.space.maps() {
            let Some(contents) = map.snapshot() else { continue };
            let name = map.def().name.clone();
            if let Some(cpus) = map.snapshot_cpus() {
                snapshot.per_cpu.insert(name.clone(), cpus);
            }
            snapshot.maps.insert(name, contents);
        }
        snapshot
    }

    /// A digest of the contents of all maps.
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        self.space.maps().iter().for_each(|map| map.digest(&mut digest));
        digest
    }

    /// Replaces the contents of all maps; those that `state` does not list get their initial contents. `programs` tells
    /// for each sibling whether it can run.
    ///
    /// # Errors
    /// `state` does not fit the maps; nothing is changed then.
    pub fn restore(&mut self, state: &Snapshot, programs: &[bool]) -> Result<(), SnapshotError> {
        let maps = self.space.maps();
        let is_known = |name: &String| maps.iter().any(|m| m.is_state() && m.def().name == *name);
        if let Some(name) = state.maps.keys().find(|name| !is_known(name)) {
            let known: Vec<_> = maps.iter().filter(|m| m.is_state()).map(|m| format!("`{}`", m.def().name)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(SnapshotError::UnknownMap { map: name.clone(), known });
        }
        let known = Known { maps, programs };
        // All or nothing: the old maps stay until every new one is made.
        let replaced: Result<Vec<Map<S::Tables>>, SnapshotError> = maps
            .iter()
            .map(|map| match state.maps.get(&map.def().name) {
                Some(contents) => map.with_contents(contents, state.per_cpu.get(&map.def().name).copied(), known),
                None => map.initial().map_err(Into::into),
            })
            .collect();
        // Ring buffers are not part of the state: they stay as they are, in the kernel too.
        self.space.set_maps(replaced?);
        Ok(())
    }

    /// Whether a state replaces constant data of the program, on which its proof depends.
    pub fn replaces_constants(&self, state: &Snapshot) -> bool {
        self.program.maps.iter().any(|def| is_constant_data(def) && state.maps.contains_key(&def.name))
    }
}

/// Whether a map is constant data of the program, which its proof depends on.
pub fn is_constant_data(def: &MapDef) -> bool {
    def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some()
}

/// The verdict of a run on a packet from `ingress`, and where the packet goes.
#[inline]
pub(super) fn destination(ports: &Ports, ingress: Port, r0: u64, redirect: Option<Redirect>) -> (Verdict, Destination) {
    let verdict = Verdict::from_number(r0 as u32);
    match (verdict, redirect) {
        (Verdict::Pass | Verdict::Tx, _) => (verdict, Destination::Port(ingress)),
        (Verdict::Redirect, Some(Redirect::All { map, but_ingress })) => {
            (verdict, Destination::Ports { map, but: but_ingress.then_some(ingress) })
        }
        (Verdict::Redirect, Some(Redirect::To(port))) if !port.is_wire() || ports.is_bound(port) => {
            (verdict, Destination::Port(port))
        }
        // An unbound port: the packet is lost, as with an empty entry of a device map. Without a redirect call there is
        // no target, so the verdict counts as aborted.
        (Verdict::Redirect, _) => (Verdict::Aborted, Destination::None),
        (Verdict::Aborted | Verdict::Drop, _) => (verdict, Destination::None),
    }
}

/// The ports that a redirect to all ports of a map reaches, without `but`.
pub(super) fn ports_of<B: Backing>(ports: &Ports, map: &Map<B>, but: Option<Port>) -> Vec<Port> {
    if map.is_bound_one_to_one() {
        let mut reached = ports.broadcast(but);
        reached.retain(|port| port.0 < map.def().max_entries);
        return reached;
    }
    let named = map.ports().into_iter().map(Port);
    named.filter(|port| ports.is_bound(*port) && Some(*port) != but).collect()
}
