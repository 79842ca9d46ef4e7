// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interpreter, which defines the semantics of programs.
//!
//! ```text
//!  Program ──check──► code ──run──► r0 ──► verdict, outputs
//!                               └─► memory: context, stack, packet, maps (on standard-library tables)
//!                               └─► helpers, by a table
//! ```
//!
//! A program that the kernel's verifier accepts runs as in the kernel. What the verifier would refuse stops with
//! [`EngineError::Fault`] when it happens: a read of an uninitialised register or stack byte, an access out of bounds,
//! a write to read-only memory, too deep calls, too many instructions.

mod calls;
mod fault;
pub mod fib;
mod host;
mod inline;
mod maps;
mod memory;
mod observer;
pub mod plugin;
mod rings;
mod run;
mod trail;

use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, EngineError, Eviction, Outcome, Output, Packet, Port, Ports, Snapshot, SnapshotError, Verdict,
};

use calls::{Redirect, Run};
use fault::Fault;
use flowloom_isa::{BPF_F_RDONLY_PROG, LineInfo, MapDef, Program, ProgramError, ProgramKind};
pub use host::{Host, HostError};
use maps::{Known, Map};
use memory::{CONTEXT_ADDRESS, Memory};
pub use observer::{Access, At, Observer, Region};
pub use plugin::{Plugin, PluginError};
use run::{Counters, Helpers, Image};
pub use trail::{Branch, Lookup, Trail};

const NAME: &str = "interp";

/// The default budget of instructions for a packet: enough for `loop` with the most iterations of a few instructions.
pub const DEFAULT_BUDGET: u64 = 1 << 26;

struct Returned {
    r0: u64,
    redirect: Option<Redirect>,
    /// The outputs besides the packet.
    outputs: Vec<Output>,
}

/// Runs one program.
///
/// ```
/// use std::sync::Arc;
/// use flowloom_isa::{Program, asm};
/// use flowloom_vm::Interpreter;
/// use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
///
/// let insns = asm::assemble("r0 = 1\nexit", &[])?;
/// let program = Program { section: "xdp".into(), insns, ..Program::default() };
/// let mut interp = Interpreter::new(Arc::new(program))?;
/// let outcome = interp.process(&Packet { bytes: &[0; 60], port: Port(0) }, &Choices::seeded(0, 0, 0))?;
/// assert_eq!(outcome.verdict, Verdict::Drop);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Interpreter {
    program: Arc<Program>,
    image: Image,
    memory: Memory,
    routes: Option<fib::Table>,
    scratch: (Vec<u8>, Vec<u8>),
    budget: u64,
    counters: Counters,
    /// By slot, the number of executions.
    profile: Option<Vec<u64>>,
    /// The branch decisions of the last packet.
    trail: Option<Trail>,
    observer: Option<Box<dyn Observer>>,
    ports: Ports,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interpreter { program, budget, counters, .. } = self;
        f.debug_struct("Interpreter")
            .field("program", &program.name)
            .field("budget", budget)
            .field("counters", counters)
            .finish_non_exhaustive()
    }
}

impl Interpreter {
    /// Checks the program and creates its maps.
    ///
    /// # Errors
    /// All findings about the program and the programs that its maps initially hold, with section, instruction, source
    /// line, found and expected.
    pub fn new(program: Arc<Program>) -> Result<Interpreter, ProgramError> {
        Interpreter::with_helpers(program, Helpers::of_packets())
    }

    /// Has an observer follow each run.
    #[must_use]
    pub fn with_observer(mut self, observer: Box<dyn Observer>) -> Interpreter {
        self.observer = Some(observer);
        self
    }

    fn with_helpers(program: Arc<Program>, helpers: Helpers) -> Result<Interpreter, ProgramError> {
        let code = flowloom_isa::check::check(&program, &|number| helpers.can_call(number))?;
        let mut programs = vec![Some(code)];
        for (number, sibling) in program.siblings.iter().enumerate() {
            let as_program = sibling.as_program(&program);
            match flowloom_isa::check::check(&as_program, &|number| helpers.can_call(number)) {
                Ok(code) => programs.push(Some(code)),
                Err(error) if program.holds_from_start(number) => return Err(error),
                Err(_) => programs.push(None),
            }
        }
        let maps = program.maps.iter().map(|def| Map::new(def, 1)).collect();
        let value_bytes = program.maps.iter().map(|m| m.value_bytes).collect();
        let inlined = programs.iter().map(|code| code.as_deref().map(inline::loops).unwrap_or_default()).collect();
        let mut memory = Memory::new(maps, 1);
        memory.has_egress = program.kind == ProgramKind::XdpDevmap;
        Ok(Interpreter {
            program,
            image: Image { programs, inlined, value_bytes, helpers },
            memory,
            routes: None,
            scratch: (Vec::new(), Vec::new()),
            budget: DEFAULT_BUDGET,
            counters: Counters::default(),
            profile: None,
            trail: None,
            observer: None,
            ports: Ports::default(),
        })
    }

    /// Runs on this number of CPUs: per-CPU maps have as many values, and packets may choose their CPU. Resets the
    /// state.
    #[must_use]
    pub fn with_cpus(mut self, cpus: u32) -> Interpreter {
        let cpus = cpus.max(1);
        let maps = self.program.maps.iter().map(|def| Map::new(def, cpus)).collect();
        let (is_strict, has_egress) = (self.memory.is_strict, self.memory.has_egress);
        self.memory = Memory::new(maps, cpus);
        (self.memory.is_strict, self.memory.has_egress) = (is_strict, has_egress);
        self
    }

    /// Makes reads of uninitialised stack bytes a fault. Otherwise they are zeros, because compilers copy padding of
    /// structures, and the kernel allows it.
    #[must_use]
    pub fn with_strict_stack(mut self) -> Interpreter {
        self.memory.is_strict = true;
        self
    }

    /// Sets the routes of `fib_lookup` and `check_mtu`; by default there is no interface.
    #[must_use]
    pub fn with_routes(mut self, routes: fib::Table) -> Interpreter {
        self.routes = Some(routes);
        self
    }

    /// Sets the budget of instructions for a packet.
    #[must_use]
    pub fn with_budget(mut self, instructions: u64) -> Interpreter {
        self.budget = instructions;
        self
    }

    /// Counts the executions of each instruction.
    #[must_use]
    pub fn with_profile(mut self) -> Interpreter {
        self.profile = Some(vec![0; self.program.insns.len()]);
        self
    }

    /// By slot, the number of executions since [`Interpreter::with_profile`]; 0 for the second slot of a 64-bit load.
    pub fn profile(&self) -> Option<&[u64]> {
        self.profile.as_deref()
    }

    /// Records the branch decisions of each packet.
    #[must_use]
    pub fn with_trail(mut self) -> Interpreter {
        self.trail = Some(Trail::default());
        self
    }

    /// The branch decisions of the last packet, since [`Interpreter::with_trail`].
    pub fn trail(&self) -> Option<&Trail> {
        self.trail.as_ref()
    }

    /// The instructions executed for all packets; a 64-bit load is one.
    pub fn executed(&self) -> u64 {
        self.counters.executed
    }

    /// The helper calls of all packets.
    pub fn calls(&self) -> u64 {
        self.counters.calls
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Runs the program on the current packet, as [`Interpreter::call`] does.
    fn run(&mut self, choices: &Choices) -> Result<Returned, EngineError> {
        self.call(&[CONTEXT_ADDRESS], choices).map_err(|(at, fault)| self.stopped(at, &fault))
    }

    fn call(&mut self, arguments: &[u64], choices: &Choices) -> Result<Returned, (At, Fault)> {
        let mut profile = self.profile.take();
        let result = self.surrounded(choices, |image, state, budget, counters| match &mut profile {
            None => run::run(image, state, arguments, budget, counters, |_| {}),
            Some(hits) => run::run(image, state, arguments, budget, counters, |at| {
                // Siblings have no profile of their own.
                if at.program == 0 {
                    hits[at.slot] += 1;
                }
            }),
        });
        self.profile = profile;
        result
    }

    /// Runs `body` on the current packet; it returns what the program would leave in `r0`.
    fn surrounded(
        &mut self,
        choices: &Choices,
        body: impl FnOnce(&Image, &mut Run<'_>, u64, &mut Counters) -> Result<u64, (At, Fault)>,
    ) -> Result<Returned, (At, Fault)> {
        let Interpreter { program, image, memory, routes, scratch, budget, counters, observer, .. } = self;
        let mut trail = self.trail.as_mut();
        if let Some(trail) = &mut trail {
            trail.clear();
        }
        let routes = routes.as_ref();
        let headers = program.headers();
        let observer = observer.as_deref_mut().map(|observer| observer as &mut dyn Observer);
        let (redirect, outputs, sent_bytes, locked) = (None, Vec::new(), 0, None);
        let mut state = Run {
            memory,
            choices,
            routes,
            headers,
            drawn: 0,
            redirect,
            outputs,
            sent_bytes,
            locked,
            scratch,
            trail,
            observer,
        };
        let result = body(image, &mut state, *budget, counters);
        let Run { redirect, outputs, .. } = state;
        self.memory.maps.iter_mut().for_each(Map::end_run);
        if result.is_err() {
            // Reserved records are discarded at the end of a packet.
            self.memory.rings.drain(&self.memory.maps);
        }
        result.map(|r0| Returned { r0, redirect, outputs })
    }

    /// A fault as an engine error.
    fn stopped(&self, at: At, fault: &Fault) -> EngineError {
        let line = self.line_of(at).map(|line| format!(" ({}:{})", line.file, line.line));
        let within = match at.program.checked_sub(1).and_then(|sibling| self.program.siblings.get(sibling)) {
            Some(sibling) => format!(" in program `{}`", sibling.name),
            None => String::new(),
        };
        let what = format!("{fault}{within}{}", line.unwrap_or_default());
        EngineError::Fault { engine: NAME, insn: at.slot, what }
    }

    fn line_of(&self, at: At) -> Option<&LineInfo> {
        match at.program.checked_sub(1) {
            None => self.program.line_of(at.slot),
            Some(sibling) => self.program.siblings.get(sibling)?.line_of(at.slot),
        }
    }

    fn finish(&mut self, packet: &Packet<'_>, returned: Returned) -> Result<Outcome, EngineError> {
        let Returned { r0, redirect, mut outputs } = returned;
        outputs.retain(|output| self.ports.is_bound(output.port));
        let verdict = Verdict::from_number(r0 as u32);
        let (verdict, ports) = match (verdict, redirect) {
            (Verdict::Pass | Verdict::Tx, _) => (verdict, vec![packet.port]),
            (Verdict::Redirect, Some(redirect @ Redirect::All { .. })) => {
                (verdict, self.redirected(redirect, packet.port))
            }
            (Verdict::Redirect, Some(redirect)) => match self.redirected(redirect, packet.port) {
                // An unbound port: the packet is lost, as with an empty entry of a device map.
                ports if ports.is_empty() => (Verdict::Aborted, ports),
                ports => (verdict, ports),
            },
            // A redirect verdict without a redirect call: there is no target, so the verdict counts as aborted.
            (Verdict::Redirect, None) => (Verdict::Aborted, Vec::new()),
            (Verdict::Aborted | Verdict::Drop, _) => (verdict, Vec::new()),
        };
        let events = self.memory.rings.drain(&self.memory.maps);
        let bytes = self.memory.packet();
        outputs.extend(ports.into_iter().map(|port| Output { port, bytes: bytes.to_vec() }));
        Ok(Outcome { verdict, outputs, events })
    }

    /// The ports that a redirect to all ports of a map reaches, without `but`.
    ///
    /// # Panics
    /// The program has no such map.
    pub fn ports_of(&self, map: usize, but: Option<Port>) -> Vec<Port> {
        let (but_ingress, ingress) = (but.is_some(), but.unwrap_or_default());
        self.redirected(Redirect::All { map, but_ingress }, ingress)
    }

    /// The keys of an LRU map that were used after a time, oldest use first, with the times of their last uses. Times
    /// are numbers of uses, from 1 on; other maps have none.
    pub fn used_since(&self, map: usize, time: u64) -> Vec<(u64, Vec<u8>)> {
        self.memory.maps.get(map).map_or_else(Vec::new, |map| map.used_since(time))
    }

    /// The ports that a redirect reaches; empty if none is bound.
    fn redirected(&self, redirect: Redirect, ingress: Port) -> Vec<Port> {
        match redirect {
            Redirect::To(port) => {
                let arrives = !port.is_wire() || self.ports.is_bound(port);
                if arrives { vec![port] } else { Vec::new() }
            }
            Redirect::All { map, but_ingress } => {
                let map = &self.memory.maps[map];
                if map.is_bound_one_to_one() {
                    let mut ports = self.ports.broadcast(but_ingress.then_some(ingress));
                    ports.retain(|port| port.0 < map.def().max_entries);
                    return ports;
                }
                let named = map.ports().into_iter().map(Port);
                named.filter(|port| self.ports.is_bound(*port) && !(but_ingress && *port == ingress)).collect()
            }
        }
    }
}

impl Datapath for Interpreter {
    fn name(&self) -> &str {
        NAME
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.memory.start(packet.bytes, packet.port.0);
        let returned = self.run(choices)?;
        self.finish(packet, returned)
    }

    fn evict_next(&mut self, victims: &[Eviction]) {
        for map in self.memory.maps.iter_mut().filter(|map| map.def().kind.is_lru()) {
            let own = victims.iter().filter(|eviction| eviction.map == map.def().name);
            let free = own.clone().map(|eviction| eviction.free_entries).max().unwrap_or(0);
            map.set_victims(own.map(|eviction| eviction.key.clone()).collect(), free as usize);
        }
    }

    fn not_evicted(&mut self) -> Vec<Eviction> {
        let mut found = Vec::new();
        for map in self.memory.maps.iter_mut().filter(|map| map.def().kind.is_lru()) {
            let name = map.def().name.clone();
            let eviction = |key| Eviction { map: name.clone(), key, free_entries: 0 };
            found.extend(map.unused_victims().into_iter().map(eviction));
        }
        found
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.memory.maps.iter_mut().for_each(|map| map.sweep(now_ns));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let mut snapshot = Snapshot::default();
        for map in &self.memory.maps {
            let Some(contents) = map.snapshot() else { continue };
            let name = map.def().name.clone();
            if let Some(cpus) = map.snapshot_cpus() {
                snapshot.per_cpu.insert(name.clone(), cpus);
            }
            snapshot.maps.insert(name, contents);
        }
        Ok(snapshot)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        let maps = &self.memory.maps;
        let is_known = |name: &String| maps.iter().any(|m| m.is_state() && m.def().name == *name);
        if let Some(name) = state.maps.keys().find(|name| !is_known(name)) {
            let known: Vec<_> = maps.iter().filter(|m| m.is_state()).map(|m| format!("`{}`", m.def().name)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(SnapshotError::UnknownMap { map: name.clone(), known }.into());
        }
        let programs: Vec<bool> = self.image.programs.iter().skip(1).map(Option::is_some).collect();
        let known = Known { maps, programs: &programs };
        // All or nothing: the old maps stay until every new one is made.
        let replaced: Result<Vec<Map>, SnapshotError> = maps
            .iter()
            .map(|map| match state.maps.get(&map.def().name) {
                Some(contents) => map.with_contents(contents, state.per_cpu.get(&map.def().name).copied(), known),
                None => Ok(map.initial()),
            })
            .collect();
        // Ring buffers are not part of the state: they stay as they are, in the kernel too.
        self.memory.maps = replaced?;
        // The proof depends on the read-only data of the program.
        let constant = |def: &MapDef| def.flags & BPF_F_RDONLY_PROG != 0 && state.maps.contains_key(&def.name);
        if self.program.maps.iter().any(constant) {
            self.observer = None;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../isa/src/op_gen.rs"]
mod op_gen;
#[cfg(test)]
mod tests;
