// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine: a program's code, memory and environment.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowloom_engine::{
    Arrival, Choices, Datapath, Digest, Draws, EngineError, Event, Eviction, HEADROOM_BYTES, Outcome, Outcomes, Packet,
    PacketError, Ports, Snapshot, SnapshotError, Tally,
};
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{MapDef, MapKind, Program, ProgramError, check};
use flowloom_verifier::{Memory, Proof, VerifyError};
use flowloom_vm::{
    CONTEXT_ADDRESS, Environment, Helper, Returned, Run, SweepPlace, Tables, fib, find, inlined_loops, is_constant_data,
};

use crate::batch::{Ahead, Announced, BATCH};
use crate::capture::Room;
use crate::compiled::{Compiled, Function, Source};
use crate::evict;
use crate::iterations;
use crate::runtime::{ITERATIONS, Running, last_redirect};
use crate::space::Native;
use crate::state::{BY_HELPER, NO_HELPER, NO_HINT, State, View};
use crate::tables::MemoryError;

pub(crate) const NAME: &str = "jit";

/// The room after a packet that is processed by copy: as far as the kernel's test runs let it grow.
pub(crate) const TAILROOM_BYTES: usize = 4096;

/// Why a program has no machine code.
#[derive(Debug, thiserror::Error)]
pub enum JitError {
    /// The program is invalid.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The verifier refuses a program that a map initially holds.
    #[error("program `{name}`, a target of tail calls: {source}")]
    Sibling {
        /// The program.
        name: String,
        /// The reason.
        #[source]
        source: Box<VerifyError>,
    },
    /// A helper reads memory at addresses that the proof does not bound.
    #[error("instruction {insn} calls `{helper}` with addresses of any memory, which machine code does not check")]
    Probes {
        /// The slot of the call.
        insn: usize,
        /// The helper.
        helper: &'static str,
    },
    /// Paths reach a load with different fields of the context.
    #[error("instruction {insn} loads different fields of the context on different paths")]
    Context {
        /// The slot of the load.
        insn: usize,
    },
    /// A map has no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The processor is none that Cranelift knows.
    #[error("no code can be made for this processor: {0}")]
    Processor(String),
    /// Cranelift refuses a function.
    #[error("the function at instruction {slot} cannot be compiled: {source}")]
    Function {
        /// Its first slot.
        slot: usize,
        /// Cranelift's reason.
        #[source]
        source: Box<cranelift_module::ModuleError>,
    },
}

impl JitError {
    /// The instruction, if there is one.
    pub fn insn(&self) -> Option<usize> {
        match self {
            JitError::Probes { insn, .. } | JitError::Context { insn } => Some(*insn),
            JitError::Function { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    /// Suggested fix.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            JitError::Probes { .. } => Some("the interpreter checks them: --engine interp"),
            JitError::Memory(_) => Some("make the map smaller, or use the interpreter, which stores what is written"),
            _ => None,
        }
    }
}

/// Runs one program as machine code.
pub struct Jit {
    pub(crate) environment: Environment<Native>,
    /// The program, then its siblings; `None` for those that cannot run.
    pub(crate) programs: Vec<Option<Function>>,
    /// The code, which the functions point into.
    _code: Vec<Compiled>,
    /// The helpers by number, which the code points to.
    _helpers: Vec<(i32, Box<Helper<Native>>)>,
    /// The loop over packets without scouts.
    pub(crate) plain_loop: Option<Function>,
    pub(crate) ahead: Option<Ahead>,
    /// Whether any program draws random numbers.
    pub(crate) draws: bool,
    /// Whether any program changes the bounds of packets.
    pub(crate) moves: bool,
    /// True if any program changes packets.
    pub(crate) writes: bool,
    /// Whether a map takes records for user space.
    pub(crate) has_records: bool,
    /// The buffer of packets that are processed by copy.
    buffer: Vec<u8>,
    /// The copies and the views of packets that are only counted.
    pub(crate) copies: Room,
    pub(crate) counted: Vec<View>,
    pub(crate) seed: u64,
    /// The number of packets so far that were changed in place.
    pub(crate) packets: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) announced: Announced,
    /// Where a sweep in steps goes on.
    pub(crate) sweeping: SweepPlace,
}

impl std::fmt::Debug for Jit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jit").field("environment", &self.environment).finish_non_exhaustive()
    }
}

impl Jit {
    /// Compiles a program with its proof, and creates its maps.
    ///
    /// # Errors
    /// The program, or one that its maps initially hold, is refused; or there is no memory for its maps.
    pub fn new(program: Arc<Program>, proof: &Proof) -> Result<Jit, JitError> {
        let evicts = evict::evicts(&program);
        let native = Native::new(&program.maps, 1, evicts)?;
        let helpers = (0..=MAX_HELPER).chain(OWN_HELPERS).filter_map(|number| Some((number, Box::new(find(number)?))));
        let helpers: Vec<(i32, Box<Helper<Native>>)> = helpers.collect();
        let address = |number: i32| {
            let known = helpers.binary_search_by_key(&number, |(number, _)| *number);
            known.map_or(0, |at| &raw const *helpers[at].1 as u64)
        };
        let mut code = Vec::new();
        let mut programs = Vec::new();
        let (mut draws, mut moves, mut writes) = (false, false, false);
        let (mut ahead, mut plain_loop) = (None, None);
        let mut compile = |program: &Program, proof: &Proof| -> Result<Function, JitError> {
            let decoded = check::decoded(program)?;
            probes(&decoded, proof)?;
            context(&decoded, proof)?;
            let is_random = |op: &Op| matches!(op, Op::Call { helper: helper::GET_PRANDOM_U32 });
            draws |= decoded.iter().flatten().any(is_random);
            let (inlined, uncounted) = (inlined_loops(&decoded), iterations::uncounted(&decoded, &proof.loops));
            let (maps, refs) = (&*program.maps, native.refs());
            let mut source = Source {
                code: &decoded,
                proof,
                inlined: &inlined,
                uncounted: &uncounted,
                maps,
                refs,
                helpers: &address,
                evicts,
                passes: false,
                is_first: code.is_empty(),
                points: Vec::new(),
                seconds: BTreeSet::new(),
            };
            moves |= source.moves();
            writes |= source.writes_packets();
            // Scouts follow the first program only: they end before tail calls.
            let keys = if code.is_empty() { source.keys() } else { 0 };
            if keys > 0 {
                source.points = source.points();
                source.seconds = source.seconds();
            }
            let compiled = Compiled::of(&source, false)?;
            let entry = compiled.entry();
            let (resumed, pipeline) = (compiled.resumed(), compiled.pipeline());
            plain_loop = plain_loop.or(compiled.plain_loop());
            code.push(compiled);
            if keys > 0 {
                let mut scouts = vec![Compiled::of(&source, true)?];
                if keys > 1 {
                    source.passes = true;
                    // Code goes on with the record of the first wave only.
                    source.points.clear();
                    scouts.push(Compiled::of(&source, true)?);
                }
                let announces_second = !source.seconds.is_empty();
                let entries = scouts.iter().map(Compiled::entry).collect();
                ahead = Some(Ahead::new(entries, resumed, pipeline.map(|code| (code, announces_second))));
                code.extend(scouts);
            }
            Ok(entry)
        };
        programs.push(Some(compile(&program, proof)?));
        for (number, sibling) in program.siblings.iter().enumerate() {
            let own = sibling.as_program(&program);
            let is_held = program.holds_from_start(number);
            let proof = match flowloom_verifier::verify(&own, &flowloom_verifier::Options::default()) {
                Ok(proof) => proof,
                Err(source) if is_held => {
                    return Err(JitError::Sibling { name: sibling.name.clone(), source: Box::new(source) });
                }
                Err(_) => {
                    programs.push(None);
                    continue;
                }
            };
            match compile(&own, &proof) {
                Ok(entry) => programs.push(Some(entry)),
                Err(error) if is_held => return Err(error),
                Err(_) => programs.push(None),
            }
        }
        let is_buffer = |def: &MapDef| matches!(def.kind, MapKind::RingBuf | MapKind::PerfEventArray);
        let has_records = program.maps.iter().any(is_buffer);
        Ok(Jit {
            environment: Environment::new(program, native),
            programs,
            _code: code,
            _helpers: helpers,
            plain_loop,
            ahead,
            draws,
            moves,
            writes,
            has_records,
            buffer: Vec::new(),
            copies: Room::default(),
            counted: Vec::new(),
            seed: 0,
            packets: 0,
            events: Vec::new(),
            announced: Announced::default(),
            sweeping: SweepPlace::default(),
        })
    }

    /// Sets the routes of `fib_lookup` and `check_mtu`; by default there is no interface.
    #[must_use]
    pub fn with_routes(mut self, routes: fib::Table) -> Jit {
        self.environment.set_routes(routes);
        self
    }

    /// Sets the seed of the random values of packets that are changed in place.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Jit {
        self.seed = seed;
        self
    }

    /// Runs packets as they come: [`Datapath::announce`] is not wanted.
    #[must_use]
    pub fn one_by_one(mut self) -> Jit {
        self.announced.is_wanted = false;
        self
    }

    /// Sets the size in bytes below which all tables together count as cached, so that nothing is prefetched. The
    /// results do not depend on it.
    #[must_use]
    pub fn with_cached_bytes(mut self, bytes: u64) -> Jit {
        if let Some(ahead) = &mut self.ahead {
            ahead.cached_bytes = bytes;
        }
        self
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        self.environment.program()
    }

    /// The maps, entry by entry.
    pub fn tables(&mut self) -> &mut dyn Tables {
        &mut self.environment
    }

    /// As [`Jit::tables`], for reading.
    pub fn tables_ref(&self) -> &dyn Tables {
        &self.environment
    }

    /// Takes the contents of maps from another engine ([`Environment::exchange_maps`]).
    pub fn exchange_maps(&mut self, other: &mut Jit, maps: &[(usize, usize)]) {
        self.environment.exchange_maps(&mut other.environment, maps);
        // Sweeps that have begun go on at a place in contents that are elsewhere now.
        (self.sweeping, other.sweeping) = (SweepPlace::default(), SweepPlace::default());
    }

    /// The number of entries of a hash table, by the number of its map.
    pub fn entries(&self, map: usize) -> Option<usize> {
        self.environment.table_len(map)
    }

    /// Runs the program on the packet that was begun.
    #[inline]
    fn run_code(&mut self, choices: &Choices) -> Result<Returned, EngineError> {
        let programs = &self.programs;
        let Some(entry) = programs.first().copied().flatten() else { return Err(failed(0, "no code".to_owned())) };
        self.environment.run(choices, None, None, |run| execute(entry, run.memory.state(), run, programs))
    }
}

/// Runs the code on the packet that was begun; returns `r0`.
#[inline]
pub(crate) fn execute(
    entry: Function,
    state: *mut State,
    run: &mut Run<'_, Native>,
    programs: &[Option<Function>],
) -> Result<u64, EngineError> {
    let (now_ns, cpu) = (run.choices.now_ns, run.choices.cpu);
    let mut running = Running { run, programs };
    // SAFETY: the state is that of this engine; the code was compiled for its maps from a proved program, which runs on
    // a packet within the buffer that was begun. The environment lives until the code returns.
    let r0 = unsafe {
        ((*state).now_ns, (*state).cpu, (*state).hint) = (now_ns, cpu, &raw const NO_HINT);
        enter(entry, state, &mut running)
    };
    let run = running.run;
    // SAFETY: the state is that of this engine, whose code has returned.
    run.redirect = last_redirect(unsafe { (*state).redirect }, run.redirect);
    fault(run.memory).map_or(Ok(r0), Err)
}

/// Calls the code; returns `r0`.
///
/// # Safety
/// The state and the code belong to one engine, and the packet, the time and the CPU are set.
#[inline]
pub(crate) unsafe fn enter(entry: Function, state: *mut State, running: &mut Running<'_, '_>) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        reset(state, running);
        entry(state, CONTEXT_ADDRESS, 0, 0, 0, 0)
    }
}

/// Prepares the state for a run.
///
/// # Safety
/// The state is that of an engine whose code does not run.
#[inline]
pub(crate) unsafe fn reset(state: *mut State, running: &mut Running<'_, '_>) {
    // SAFETY: the caller's.
    unsafe {
        (*state).run = (&raw mut *running).cast();
        ((*state).budget, (*state).redirect) = (ITERATIONS, BY_HELPER);
        ((*state).at, (*state).rounds, (*state).tail_calls) = (NO_HELPER, 0, 0);
        (*state).view = std::ptr::null();
    }
}

/// The fault of the run that has ended.
#[inline]
pub(crate) fn fault(memory: &mut Native) -> Option<EngineError> {
    if !memory.has_failed() {
        return None;
    }
    memory.take_fault().map(|(at, fault)| failed(at, fault.to_string()))
}

/// The greatest number of the kernel's helpers that are supported.
const MAX_HELPER: i32 = 255;
/// The helpers that change the bounds of packets.
pub(crate) const ADJUSTING_HELPERS: [i32; 3] =
    [helper::XDP_ADJUST_HEAD, helper::XDP_ADJUST_META, helper::XDP_ADJUST_TAIL];
/// The numbers of Flowloom's own helpers.
const OWN_HELPERS: [i32; 4] = [helper::FL_CLONE, helper::FL_EMIT, helper::FL_EVICT, helper::FL_PARSE];

pub(crate) fn failed(insn: usize, what: String) -> EngineError {
    EngineError::Fault { engine: NAME, insn, what }
}

/// Refuses helpers that read memory at addresses that the proof does not bound.
fn probes(code: &[Option<Op>], proof: &Proof) -> Result<(), JitError> {
    let Some(insn) = proof.insns.iter().position(|known| known.probes) else { return Ok(()) };
    let helper = match code[insn] {
        Some(Op::Call { helper }) => flowloom_isa::helpers::name_of(helper).unwrap_or_default(),
        _ => "",
    };
    Err(JitError::Probes { insn, helper })
}

/// Refuses loads of the context that have no single field.
fn context(code: &[Option<Op>], proof: &Proof) -> Result<(), JitError> {
    let is_mixed = |(insn, op): (usize, &Option<Op>)| {
        let Some(Op::Load { size, .. }) = op else { return false };
        let known = &proof.insns[insn].memory;
        known.get(&Memory::Context).is_some_and(|b| known.len() > 1 || b.end - b.first != size.bytes() as i64)
    };
    match code.iter().enumerate().position(is_mixed) {
        Some(insn) => Err(JitError::Context { insn }),
        None => Ok(()),
    }
}

impl Datapath for Jit {
    fn name(&self) -> &str {
        NAME
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.environment.bind_ports(ports);
    }

    fn most_ahead(&self) -> usize {
        if self.announced.is_wanted { BATCH } else { 0 }
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        self.run_announced(packets);
        Ok(())
    }

    fn process_all(&mut self, packets: &[(Packet<'_>, Choices)], outcomes: &mut Outcomes) -> Result<(), EngineError> {
        if !self.announced.is_wanted {
            return packets.iter().try_for_each(|(packet, choices)| {
                outcomes.push(self.process(packet, choices)?);
                Ok(())
            });
        }
        packets.chunks(BATCH).try_for_each(|batch| self.run_packets(batch, outcomes))
    }

    fn tallies(&self) -> bool {
        self.announced.is_wanted && !self.has_records
    }

    fn tally(&mut self, packets: &[Arrival<'_>], draws: Draws, tally: &mut Tally) -> Result<(), PacketError> {
        self.run_copies(packets, None, draws, tally)
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if let Some(outcome) = self.announced.outcomes.pop_front() {
            return outcome;
        }
        let end = HEADROOM_BYTES + packet.bytes.len();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(buffer.len().max(end + TAILROOM_BYTES), 0);
        buffer[HEADROOM_BYTES..end].copy_from_slice(packet.bytes);
        self.environment.space_mut().begin(&mut buffer, (HEADROOM_BYTES, end), packet.port.0);
        let outcome = self.run_code(choices).map(|returned| self.environment.finish(packet.port, returned));
        self.buffer = buffer;
        outcome
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
        self.announced.outcomes.clear();
        self.sweeping = SweepPlace::default();
        // The code depends on the constants that it was compiled with.
        if self.environment.replaces_constants(state) {
            let is_replaced = |name: &&String| {
                let def = self.program().maps.iter().find(|def| def.name == **name);
                def.is_some_and(is_constant_data)
            };
            let map = state.maps.keys().find(is_replaced).cloned().unwrap_or_default();
            return Err(SnapshotError::Form {
                map,
                expected: "constants before the program is compiled",
                found: "a state for compiled code".to_owned(),
            }
            .into());
        }
        let programs: Vec<bool> = self.programs.iter().skip(1).map(Option::is_some).collect();
        Ok(self.environment.restore(state, &programs)?)
    }
}
