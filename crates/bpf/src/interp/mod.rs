//! The interpreter: what it does with a program is right by definition.
//!
//! ```text
//!  Program ──check──► code ──run──► r0 ──► verdict, outputs
//!                               └─► memory: context, stack, packet, maps (on standard-library tables)
//!                               └─► helpers, by a table
//! ```
//!
//! A program that the kernel's verifier accepts runs here as it runs there. What the verifier would have refused stops as
//! [`EngineError::Fault`] when it happens: a read of a register or of a byte of the stack that was never written, an access
//! outside of what an address points to, a write to what is only to be read, too deep calls, too many instructions.

mod alu;
mod calls;
mod check;
mod fault;
mod maps;
mod memory;
mod plugin;
mod run;
mod trail;

use std::sync::Arc;

use flowloom_engine::{
    Choices, Datapath, EngineError, Outcome, Output, Packet, Port, Ports, Snapshot, SnapshotError, Verdict,
};

use crate::helpers::HELPERS;
use crate::program::Program;
use calls::{Helper, Redirect, Run};
pub use check::{Finding, Flaw, ProgramError};
use fault::Fault;
use maps::Map;
use memory::{CONTEXT_ADDRESS, Memory};
pub use plugin::{Plugin, PluginError};
use run::{Counters, Image};
pub use trail::{Branch, Lookup, Trail};

/// The name of this engine.
const NAME: &str = "interp";

/// How many instructions a packet may take, unless said otherwise: what the kernel's verifier looks at before it gives up.
pub const DEFAULT_BUDGET: u64 = 1_000_000;

/// What a run gave.
struct Returned {
    r0: u64,
    /// What it asked to redirect to.
    redirect: Option<Redirect>,
    /// What has left besides the packet.
    outputs: Vec<Output>,
}

/// Runs one program.
///
/// ```
/// use std::sync::Arc;
/// use flowloom_bpf::{Interpreter, Program, asm};
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
    helpers: Vec<(i32, Helper)>,
    scratch: (Vec<u8>, Vec<u8>),
    budget: u64,
    counters: Counters,
    /// How often each slot was run.
    profile: Option<Vec<u64>>,
    /// The decisions behind the last packet.
    trail: Option<Trail>,
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
    /// Checks the program and makes its maps.
    ///
    /// # Errors
    /// Everything that is wrong with the program, with section, instruction, source line, found and expected.
    pub fn new(program: Arc<Program>) -> Result<Interpreter, ProgramError> {
        let helpers = HELPERS.iter().filter_map(|h| Some((h.number, calls::find(h.number)?))).collect();
        Interpreter::with_helpers(program, helpers)
    }

    /// The same with other helpers.
    fn with_helpers(program: Arc<Program>, helpers: Vec<(i32, Helper)>) -> Result<Interpreter, ProgramError> {
        let code = check::check(&program, &helpers)?;
        let maps = program.maps.iter().map(Map::new).collect();
        let value_bytes = program.maps.iter().map(|m| m.value_bytes).collect();
        Ok(Interpreter {
            program,
            image: Image { code, value_bytes },
            memory: Memory::new(maps),
            helpers,
            scratch: (Vec::new(), Vec::new()),
            budget: DEFAULT_BUDGET,
            counters: Counters::default(),
            profile: None,
            trail: None,
            ports: Ports::default(),
        })
    }

    /// Stops a packet that takes more instructions than this.
    #[must_use]
    pub fn with_budget(mut self, instructions: u64) -> Interpreter {
        self.budget = instructions;
        self
    }

    /// Counts how often each instruction runs.
    #[must_use]
    pub fn with_profile(mut self) -> Interpreter {
        self.profile = Some(vec![0; self.program.insns.len()]);
        self
    }

    /// How often each slot was run since [`Interpreter::with_profile`]; the second slot of a 64-bit load never is.
    pub fn profile(&self) -> Option<&[u64]> {
        self.profile.as_deref()
    }

    /// Writes down the decisions behind each packet.
    #[must_use]
    pub fn with_trail(mut self) -> Interpreter {
        self.trail = Some(Trail::default());
        self
    }

    /// The decisions behind the last packet, since [`Interpreter::with_trail`].
    pub fn trail(&self) -> Option<&Trail> {
        self.trail.as_ref()
    }

    /// How many instructions all packets together took; a 64-bit load is one.
    pub fn executed(&self) -> u64 {
        self.counters.executed
    }

    /// How many helpers all packets together called.
    pub fn calls(&self) -> u64 {
        self.counters.calls
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Runs the program on a packet that is in place, as [`Interpreter::call`] does.
    fn run(&mut self, choices: &Choices) -> Result<Returned, EngineError> {
        self.call(&[CONTEXT_ADDRESS], choices).map_err(|(insn, fault)| self.stopped(insn, &fault))
    }

    /// Runs the program with these arguments.
    fn call(&mut self, arguments: &[u64], choices: &Choices) -> Result<Returned, (usize, Fault)> {
        let Interpreter { image, memory, helpers, scratch, budget, counters, .. } = self;
        let mut trail = self.trail.as_mut();
        if let Some(trail) = &mut trail {
            trail.clear();
        }
        let mut state = Run { memory, choices, drawn: 0, redirect: None, outputs: Vec::new(), scratch, trail };
        let result = match &mut self.profile {
            None => run::run(image, &mut state, arguments, helpers, *budget, counters, |_| {}),
            Some(hits) => run::run(image, &mut state, arguments, helpers, *budget, counters, |at| hits[at] += 1),
        };
        let Run { redirect, outputs, .. } = state;
        self.memory.maps.iter_mut().for_each(Map::end_run);
        result.map(|r0| Returned { r0, redirect, outputs })
    }

    /// A fault as others see it.
    fn stopped(&self, insn: usize, fault: &Fault) -> EngineError {
        let line = self.program.line_of(insn).map(|line| format!(" ({}:{})", line.file, line.line));
        EngineError::Fault { engine: NAME, insn, what: format!("{fault}{}", line.unwrap_or_default()) }
    }

    /// The ports that a redirect reaches; empty where none is bound.
    fn redirected(&self, redirect: Redirect, ingress: Port) -> Vec<Port> {
        match redirect {
            Redirect::To(port) => Some(port).filter(|port| self.ports.is_bound(*port)).into_iter().collect(),
            Redirect::All { map, but_ingress } => {
                let mut ports = self.ports.broadcast(but_ingress.then_some(ingress));
                ports.retain(|port| port.0 < self.program.maps[map].max_entries);
                ports
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
        let Returned { r0, redirect, mut outputs } = self.run(choices)?;
        outputs.retain(|output| self.ports.is_bound(output.port));
        let verdict = Verdict::from_number(r0 as u32);
        let (verdict, ports) = match (verdict, redirect) {
            (Verdict::Pass | Verdict::Tx, _) => (verdict, vec![packet.port]),
            (Verdict::Redirect, Some(redirect @ Redirect::All { .. })) => {
                (verdict, self.redirected(redirect, packet.port))
            }
            (Verdict::Redirect, Some(redirect)) => match self.redirected(redirect, packet.port) {
                // A port that nothing is bound to: the packet is lost, as behind an empty entry of a devmap.
                ports if ports.is_empty() => (Verdict::Aborted, ports),
                ports => (verdict, ports),
            },
            // The verdict without a redirect: there is no port to send to, so the function has failed.
            (Verdict::Redirect, None) => (Verdict::Aborted, Vec::new()),
            (Verdict::Aborted | Verdict::Drop, _) => (verdict, Vec::new()),
        };
        let bytes = self.memory.packet();
        outputs.extend(ports.into_iter().map(|port| Output { port, bytes: bytes.to_vec() }));
        Ok(Outcome { verdict, outputs, events: Vec::new() })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.memory.maps.iter_mut().for_each(|map| map.sweep(now_ns));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let named = |map: &Map| Some((map.def().name.clone(), map.snapshot()?));
        Ok(Snapshot { maps: self.memory.maps.iter().filter_map(named).collect(), ..Snapshot::default() })
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        let maps = &self.memory.maps;
        let is_known = |name: &String| maps.iter().any(|m| m.is_state() && m.def().name == *name);
        if let Some(name) = state.maps.keys().find(|name| !is_known(name)) {
            let known: Vec<_> = maps.iter().filter(|m| m.is_state()).map(|m| format!("`{}`", m.def().name)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(SnapshotError::UnknownMap { map: name.clone(), known }.into());
        }
        // All or nothing: the old maps stay until every new one is made.
        let replaced: Result<Vec<Map>, SnapshotError> = maps
            .iter()
            .map(|map| match state.maps.get(&map.def().name) {
                Some(contents) => map.with_contents(contents),
                None => Ok(map.initial()),
            })
            .collect();
        self.memory.maps = replaced?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
