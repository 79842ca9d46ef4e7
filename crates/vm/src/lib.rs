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
mod control;
mod environment;
mod fault;
pub mod fib;
mod host;
mod initialised;
mod inline;
mod insn;
mod maps;
mod memory;
mod observer;
pub mod plugin;
mod rings;
mod run;
mod space;
mod tables;
mod trail;

use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, Digest, EngineError, Eviction, Outcome, Outcomes, Packet, Port, Ports, Snapshot,
};

pub use calls::{Helper, Redirect, Run, find};
pub use environment::{Destination, Environment, Returned, SweepPlace, is_constant_data};
pub use fault::Fault;
use flowloom_isa::{LineInfo, Program, ProgramError, ProgramKind};
pub use host::{Host, HostError};
pub use inline::loops as inlined_loops;
pub use maps::{Backing, Cells, Keys, Kind, Map, Rank, Standard};
use memory::Memory;
pub use memory::{CONTEXT_ADDRESS, map_address, map_at};
pub use observer::{Access, Allowed, At, Observer, Region, Watch};
pub use plugin::{Plugin, PluginError};
pub use rings::Rings;
use run::{Counters, Following, Helpers, Image, Registers};
pub use space::Space;
pub use tables::{Tables, UpdateError};
pub use trail::{Branch, Lookup, Trail};

const NAME: &str = "interp";

/// The default budget of instructions for a packet: enough for `loop` with the most iterations of a few instructions.
pub const DEFAULT_BUDGET: u64 = 1 << 26;

/// Runs one program.
///
/// ```
/// use std::sync::Arc;
/// use flowloom_isa::{Program, asm};
/// use flowloom_vm::Interpreter;
/// use flowloom_engine::{Choices, Datapath, Digest, Packet, Port, Verdict};
///
/// let insns = asm::assemble("r0 = 1\nexit", &[])?;
/// let program = Program { section: "xdp".into(), insns, ..Program::default() };
/// let mut interp = Interpreter::new(Arc::new(program))?;
/// let outcome = interp.process(&Packet { bytes: &[0; 60], port: Port(0) }, &Choices::seeded(0, 0, 0))?;
/// assert_eq!(outcome.verdict, Verdict::Drop);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Interpreter {
    environment: Environment<Memory>,
    image: Image,
    registers: Registers,
    budget: u64,
    counters: Counters,
    /// By slot, the number of executions.
    profile: Option<Vec<u64>>,
    /// The branch decisions of the last packet.
    trail: Option<Trail>,
    observer: Option<Box<dyn Observer>>,
    /// What the observer wants to know, by program and place.
    watched: Vec<Vec<Watch>>,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interpreter { environment, budget, counters, .. } = self;
        f.debug_struct("Interpreter")
            .field("program", &environment.program.name)
            .field("budget", budget)
            .field("counters", counters)
            .finish_non_exhaustive()
    }
}

/// What a run uses besides its environment.
struct Parts<'a> {
    image: &'a Image,
    registers: &'a mut Registers,
    watched: &'a [Vec<Watch>],
    budget: u64,
    counters: &'a mut Counters,
}

impl Interpreter {
    /// Checks the program and creates its maps.
    ///
    /// # Errors
    /// All findings about the program and the programs that its maps initially hold, with section, instruction, source
    /// line, found and expected.
    pub fn new(program: Arc<Program>) -> Result<Interpreter, ProgramError> {
        Interpreter::with_helpers(program, Helpers::of_packets(), 1)
    }

    /// Has an observer follow each run.
    #[must_use]
    pub fn with_observer(mut self, observer: Box<dyn Observer>) -> Interpreter {
        self.watched = self.image.watched(&*observer);
        self.observer = Some(observer);
        self
    }

    fn with_helpers(program: Arc<Program>, helpers: Helpers, arguments: usize) -> Result<Interpreter, ProgramError> {
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
        let image = Image::new(programs, arguments, &program.maps, helpers);
        let mut memory = Memory::new(&program.maps, 1);
        memory.has_egress = program.kind == ProgramKind::XdpDevmap;
        Ok(Interpreter {
            environment: Environment::new(program, memory),
            image,
            registers: Registers::default(),
            budget: DEFAULT_BUDGET,
            counters: Counters::default(),
            profile: None,
            trail: None,
            observer: None,
            watched: Vec::new(),
        })
    }

    /// Runs on this number of CPUs: per-CPU maps have as many values, and packets may choose their CPU. Resets the
    /// state.
    #[must_use]
    pub fn with_cpus(mut self, cpus: u32) -> Interpreter {
        let cpus = cpus.max(1);
        let Environment { program, space, .. } = &mut self.environment;
        let (is_strict, has_egress) = (space.is_strict, space.has_egress);
        *space = Memory::new(&program.maps, cpus);
        (space.is_strict, space.has_egress) = (is_strict, has_egress);
        self
    }

    /// Makes reads of uninitialised stack bytes a fault. Otherwise they are zeros, because compilers copy padding of
    /// structures, and the kernel allows it.
    #[must_use]
    pub fn with_strict_stack(mut self) -> Interpreter {
        self.environment.space.is_strict = true;
        self
    }

    /// Sets the routes of `fib_lookup` and `check_mtu`; by default there is no interface.
    #[must_use]
    pub fn with_routes(mut self, routes: fib::Table) -> Interpreter {
        self.environment.set_routes(routes);
        self
    }

    /// Sets the budget of instructions for a packet.
    #[must_use]
    pub fn with_budget(mut self, instructions: u64) -> Interpreter {
        self.budget = instructions;
        self
    }

    /// The number of entries of a hash table, by the number of its map.
    pub fn entries(&self, map: usize) -> Option<usize> {
        self.environment.table_len(map)
    }

    /// Counts the executions of each instruction.
    #[must_use]
    pub fn with_profile(mut self) -> Interpreter {
        self.profile = Some(vec![0; self.program().insns.len()]);
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
        &self.environment.program
    }

    /// The maps, entry by entry.
    pub fn tables(&mut self) -> &mut dyn Tables {
        &mut self.environment
    }

    /// As [`Interpreter::tables`], for reading.
    pub fn tables_ref(&self) -> &dyn Tables {
        &self.environment
    }

    /// Takes the contents of maps from another interpreter ([`Environment::exchange_maps`]).
    pub fn exchange_maps(&mut self, other: &mut Interpreter, maps: &[(usize, usize)]) {
        self.environment.exchange_maps(&mut other.environment, maps);
    }

    /// Runs the program on the current packet, as [`Interpreter::call`] does.
    fn run(&mut self, choices: &Choices) -> Result<Returned, EngineError> {
        self.call(&[CONTEXT_ADDRESS], choices).map_err(|(at, fault)| self.stopped(at, &fault))
    }

    fn call(&mut self, arguments: &[u64], choices: &Choices) -> Result<Returned, (At, Fault)> {
        let mut profile = self.profile.take();
        let result = self.surrounded(choices, |parts, run| {
            let Parts { image, registers, watched, budget, counters } = parts;
            let following = Following { profile: profile.as_mut(), watched };
            run::run(image, run, registers, arguments, budget, counters, following)
        });
        self.profile = profile;
        result
    }

    /// Runs `body` on the current packet; it returns what the program would leave in `r0`.
    fn surrounded(
        &mut self,
        choices: &Choices,
        body: impl FnOnce(Parts<'_>, &mut Run<'_, Memory>) -> Result<u64, (At, Fault)>,
    ) -> Result<Returned, (At, Fault)> {
        let Interpreter { environment, image, registers, watched, budget, counters, observer, .. } = self;
        let parts = Parts { image, registers, watched, budget: *budget, counters };
        let mut trail = self.trail.as_mut();
        if let Some(trail) = &mut trail {
            trail.clear();
        }
        environment.run(choices, trail, observer.as_deref_mut(), |run| body(parts, run))
    }

    /// A fault as an engine error.
    fn stopped(&self, at: At, fault: &Fault) -> EngineError {
        let line = self.line_of(at).map(|line| format!(" ({}:{})", line.file, line.line));
        let within = match at.program.checked_sub(1).and_then(|sibling| self.program().siblings.get(sibling)) {
            Some(sibling) => format!(" in program `{}`", sibling.name),
            None => String::new(),
        };
        let what = format!("{fault}{within}{}", line.unwrap_or_default());
        EngineError::Fault { engine: NAME, insn: at.slot, what }
    }

    fn line_of(&self, at: At) -> Option<&LineInfo> {
        match at.program.checked_sub(1) {
            None => self.program().line_of(at.slot),
            Some(sibling) => self.program().siblings.get(sibling)?.line_of(at.slot),
        }
    }

    /// The ports that a redirect to all ports of a map reaches, without `but`.
    ///
    /// # Panics
    /// The program has no such map.
    pub fn ports_of(&self, map: usize, but: Option<Port>) -> Vec<Port> {
        self.environment.ports_of(map, but)
    }

    /// The keys of an LRU map that were used after a time, oldest use first, with the times of their last uses. Times
    /// are numbers of uses, from 1 on; other maps have none.
    pub fn used_since(&self, map: usize, time: u64) -> Vec<(u64, Vec<u8>)> {
        self.environment.space.maps.get(map).map_or_else(Vec::new, |map| map.used_since(time))
    }
}

impl Datapath for Interpreter {
    fn name(&self) -> &str {
        NAME
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.environment.bind_ports(ports);
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.environment.space.start(packet.bytes, packet.port.0);
        let returned = self.run(choices)?;
        Ok(self.environment.finish(packet.port, returned))
    }

    fn process_all(&mut self, packets: &[(Packet<'_>, Choices)], outcomes: &mut Outcomes) -> Result<(), EngineError> {
        for (packet, choices) in packets {
            self.environment.space.start(packet.bytes, packet.port.0);
            let returned = self.run(choices)?;
            self.environment.finish_into(packet.port, returned, outcomes);
        }
        Ok(())
    }

    fn evict_next(&mut self, victims: &[Eviction]) {
        self.environment.evict_next(victims);
    }

    fn not_evicted(&mut self) -> Vec<Eviction> {
        self.environment.not_evicted()
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.environment.sweep(now_ns);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Ok(self.environment.snapshot())
    }

    fn digest(&mut self) -> Option<Digest> {
        Some(self.environment.digest())
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        let programs: Vec<bool> = self.image.programs.iter().skip(1).map(Option::is_some).collect();
        self.environment.restore(state, &programs)?;
        if self.environment.replaces_constants(state) {
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
