// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Linux kernel as an engine: XDP, one BPF_PROG_TEST_RUN for each packet.
//!
//! ```text
//!  Program ──► verifier (without rewriting)
//!     └─ rewrite ──► load ──► XDP program + maps
//!                                             ▲ record in, record out
//!                       packet ──► BPF_PROG_TEST_RUN ──► verdict, bytes
//! ```
//!
//! Programs of the same object that tail calls lead to are loaded when a map has to hold them, with the same maps and
//! record. Ports are in shadows of the redirect maps ([`crate::rewrite`]).
//!
//! The program is verified before it is rewritten, because the rewritten one is easier for the verifier: whatever this
//! engine accepts, the kernel accepts on a device too.

mod available;
pub(crate) mod errors;
mod events;
mod evictions;
pub(crate) mod load;
pub(crate) mod reason;
mod routes;
pub(crate) mod shadow;
pub(crate) mod sizes;
pub(crate) mod state;
mod verifier;

use std::collections::BTreeMap;
use std::io;

use flowloom_engine::{
    Choices, Datapath, EngineError, Eviction, Outcome, Output, Packet, Port, Ports, Refusal, Snapshot, Verdict,
};
use flowloom_isa::{MapKind, Member, Program};
use flowloom_vm::fib;

use errors::{NAME, rewriting_failed, system};
use events::Events;
use evictions::Evictions;
pub use load::verify_in_kernel;
use load::{Kept, Maps};
pub use reason::Reason;
use shadow::Inside;
use sizes::MapPurpose;
use state::KernelMap;

use crate::error::ExecError;
use crate::rewrite::{RECORD_BYTES, Record, Redirect, rewrite};
use crate::sys::cpu::{self, Pinned};
use crate::sys::namespace::Namespace;
use crate::sys::program::RawProgram;

/// The shortest frame of test runs: an Ethernet header.
pub const MIN_FRAME_BYTES: usize = 14;
/// The longest frame that a program sees as a whole: a page minus headroom and tailroom.
pub const MAX_FRAME_BYTES: usize = 3520;
/// The size of the output buffer: a page holds frame, headroom and all.
const OUTPUT_BYTES: usize = 4096;

/// A program in the kernel, executed by test runs.
///
/// If values or events are per CPU, a packet runs on the CPU in its choices, and the state is that of
/// [`KernelEngine::with_cpus`] CPUs: one by default.
///
/// # Cost
/// A test run for each packet; two more system calls if it has to be on a certain CPU.
#[derive(Debug)]
pub struct KernelEngine {
    program: RawProgram,
    /// The instructions that the verifier walked.
    walked: Option<u64>,
    inside: Inside,
    maps: Vec<KernelMap>,
    events: Events,
    evictions: Evictions,
    /// The network namespace for route lookups.
    routes: Option<Namespace>,
    ports: Ports,
    /// The number of CPUs, if results depend on the CPU.
    cpus: Option<u32>,
    output: Vec<u8>,
}

impl KernelEngine {
    /// Checks that the kernel can be used here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn available() -> Result<(), Reason> {
        available::probe()
    }

    /// Loads `program`, and the targets of its tail calls that its maps hold.
    ///
    /// # Errors
    /// The program cannot be rewritten or written as an object; the verifier refuses it, in which case the error has
    /// the source line and the log; or no memory, or missing privileges. The same for programs that a map holds.
    pub fn load(program: &Program) -> Result<KernelEngine, ExecError> {
        KernelEngine::load_on(program, MapPurpose::TestRuns, &[])
    }

    /// Checks that [`KernelEngine::load`] accepts `program`, and the kernel's verifier its global functions as the
    /// object declares them: `load` makes them static, other loaders do not. Maps are as small as the verdict allows,
    /// because large ones take long to create. Returns the value of [`KernelEngine::walked`].
    ///
    /// # Errors
    /// As for [`KernelEngine::load`] and [`verify_in_kernel`].
    pub fn accepts(program: &Program) -> Result<Option<u64>, ExecError> {
        let walked = load::on_small_maps(program, |purpose| {
            KernelEngine::load_on(program, purpose, &[]).map(|engine| engine.walked())
        })?;
        if !program.globals.is_empty() {
            verify_in_kernel(program)?;
        }
        Ok(walked)
    }

    /// Loads `program` in place of this engine's program, taking over those of its large maps that the new program has
    /// too: creating them takes longer than anything else. Their contents are reset.
    ///
    /// # Errors
    /// As for [`KernelEngine::load`]; or the state cannot be accessed.
    pub fn load_instead(self, program: &Program) -> Result<KernelEngine, ExecError> {
        let KernelEngine { maps, inside, .. } = self;
        let large = maps.iter().filter(|map| sizes::is_large(map.def()));
        let kept: Vec<_> = large.filter_map(|map| inside.created.kept(map.index())).collect();
        drop((maps, inside));
        let mut engine = KernelEngine::load_on(program, MapPurpose::TestRuns, &kept)?;
        if !kept.is_empty() {
            engine.restore(&Snapshot::default()).map_err(ExecError::State)?;
        }
        Ok(engine)
    }

    fn load_on(program: &Program, purpose: MapPurpose, kept: &[Kept]) -> Result<KernelEngine, ExecError> {
        let rewritten = rewrite(program).map_err(|source| rewriting_failed(program, source))?;
        let loaded = &rewritten.program;
        let created = Maps::create_for(loaded, purpose, &load::same_among(kept))?;
        let fails = |action: &'static str| load::fails(program, action);
        let (mut record, mut walked) = (None, None);
        if let Some(index) = rewritten.record_map {
            walked = created.verify_in_kernel(program)?;
            let memory = created.raw[index].memory(0, rewritten.plan.record_bytes(), true);
            record = Some(memory.map_err(fails("reach the run record"))?);
        }
        let raw_program = created.load(loaded).map_err(|error| match error {
            ExecError::Refused(mut refused) if rewritten.record_map.is_some() => {
                refused.insn = refused.insn.and_then(|at| rewritten.origin.get(at).copied());
                ExecError::RefusedRewritten(refused)
            }
            other => other,
        })?;
        if rewritten.record_map.is_none() {
            walked = raw_program.walked;
        }
        let defs = program.maps.iter().enumerate().filter(|(_, def)| KernelMap::is_state(def));
        let mut maps: Vec<KernelMap> =
            defs.map(|(index, def)| KernelMap::new(index, def.clone(), created.raw[index].clone())).collect();
        let unreferenced = sizes::unreferenced(loaded);
        maps.iter_mut().filter(|map| unreferenced.contains(&map.index())).for_each(KernelMap::mark_unreferenced);
        let (plan, siblings) = (rewritten.plan, BTreeMap::new());
        let mut inside = Inside { program: program.clone(), plan, created, record, siblings };
        let held: Vec<Member> = inside.program.maps.iter().flat_map(|def| &def.members).map(|(_, m)| *m).collect();
        for member in held {
            if let Member::Program(number) = member {
                inside.sibling(number)?;
            }
        }
        state::begin(&mut maps, &mut inside).map_err(ExecError::State)?;
        let by_cpu = |kind: MapKind| kind.is_per_cpu() || kind == MapKind::PerfEventArray;
        let cpus = inside.program.maps.iter().any(|def| by_cpu(def.kind)).then_some(1);
        let events = Events::open(&inside.program, &inside.created, 1);
        let events = events.map_err(fails("open buffers for events"))?;
        let possible = cpu::possible().map_err(fails("count the CPUs"))?;
        let evictions = Evictions::of(&maps, possible);
        let (ports, output) = (Ports::default(), vec![0; OUTPUT_BYTES]);
        Ok(KernelEngine {
            program: raw_program,
            walked,
            inside,
            maps,
            events,
            evictions,
            routes: None,
            ports,
            cpus,
            output,
        })
    }

    /// The instructions of the program that the kernel's verifier walked, over all paths; `None` if the kernel does not
    /// tell.
    pub fn walked(&self) -> Option<u64> {
        self.walked
    }

    /// Sets the number of CPUs of the state, from the first one on.
    ///
    /// # Errors
    /// The system has fewer.
    pub fn with_cpus(mut self, cpus: u32) -> Result<KernelEngine, EngineError> {
        let possible = cpu::possible().map_err(|e| system("count the CPUs", e))?;
        if cpus == 0 || cpus > possible {
            let message = format!("the system has {possible}");
            return Err(system(format!("run on {cpus} CPUs"), io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        self.maps.iter_mut().for_each(|map| map.count_cpus(cpus));
        self.cpus = self.cpus.map(|_| cpus);
        let opened = Events::open(&self.inside.program, &self.inside.created, cpus);
        self.events = opened.map_err(|e| system("open buffers for events", e))?;
        Ok(self)
    }

    /// Sets the routes of `fib_lookup` and `check_mtu`; by default there is no interface.
    ///
    /// # Errors
    /// No network namespace can be created, `ip` is missing, or the kernel refuses something in the table.
    pub fn with_routes(mut self, routes: &fib::Table) -> Result<KernelEngine, EngineError> {
        self.routes = Some(routes::namespace(routes).map_err(|e| system("set up the routes", e))?);
        Ok(self)
    }

    /// The record after the last packet.
    fn record(&self) -> Result<Option<Record>, EngineError> {
        let Some(memory) = &self.inside.record else { return Ok(None) };
        let mut record = Record([0; RECORD_BYTES]);
        memory.read(0, &mut record.0).map_err(|e| system("read the run record", e))?;
        Ok(Some(record))
    }

    /// The egress ports of a packet that is redirected to all ports of a map.
    fn broadcast(&self, map: usize, but: Option<Port>) -> Vec<Port> {
        let held = self.maps.iter().find(|held| held.index() == map).and_then(KernelMap::held);
        let Some(held) = held else {
            let slots = self.inside.program.maps.get(map).map_or(0, |def| def.max_entries);
            let mut ports = self.ports.broadcast(but);
            ports.retain(|port| port.0 < slots);
            return ports;
        };
        let port = |value: &Vec<u8>| state::index(value.get(..4)?).map(Port);
        // In the order of the keys: the kernel's own order depends on the map, and is not observable.
        let ports = held.values().filter_map(port);
        ports.filter(|port| self.ports.is_bound(*port) && Some(*port) != but).collect()
    }

    /// Moves the thread to the CPU of a packet, if results depend on it.
    fn pinned(&self, cpu: u32) -> Result<Option<Pinned>, EngineError> {
        let Some(cpus) = self.cpus else { return Ok(None) };
        let pinned = if cpu < cpus {
            Pinned::to(cpu)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("its state has values of {cpus}, from CPU 0")))
        };
        pinned.map(Some).map_err(|e| system(format!("run on CPU {cpu}"), e))
    }
}

impl Datapath for KernelEngine {
    fn name(&self) -> &str {
        NAME
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        match packet.bytes.len() {
            0..MIN_FRAME_BYTES => Some(Refusal::TooShort { min_bytes: MIN_FRAME_BYTES }),
            MIN_FRAME_BYTES..=MAX_FRAME_BYTES => None,
            _ => Some(Refusal::TooLong { max_bytes: MAX_FRAME_BYTES }),
        }
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if let Some(refusal) = self.refuses(packet) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, refusal.to_string());
            return Err(system(format!("take a frame of {} bytes", packet.bytes.len()), source));
        }
        if let Some(memory) = &mut self.inside.record {
            let record = Record::new(packet.port, choices);
            memory.write(0, &record.0).map_err(|e| system("write the run record", e))?;
        }
        if !self.evictions.is_empty() {
            self.evictions.before(&self.maps)?;
        }
        let pinned = self.pinned(choices.cpu)?;
        let entered = self.routes.as_ref().map(Namespace::enter).transpose();
        let entered = entered.map_err(|e| system("enter the network namespace of the routes", e))?;
        let result = self.program.test_run(packet.bytes, &mut self.output, 1);
        drop((entered, pinned));
        let result = result.map_err(|e| system("run the program", e))?;
        let record = self.record()?;
        if let (false, Some(record), Some(memory)) = (self.evictions.is_empty(), &record, &self.inside.record) {
            self.evictions.after(&self.maps, &self.inside.plan, record, memory)?;
        }
        let mut events = Vec::new();
        if !self.events.is_empty() {
            events = self.events.take(&self.inside.plan, record.as_ref(), self.inside.record.as_ref())?;
        }
        let verdict = Verdict::from_number(result.verdict);
        let (verdict, ports) = match verdict {
            Verdict::Pass | Verdict::Tx => (verdict, vec![packet.port]),
            Verdict::Redirect => match record.and_then(|record| record.redirect()) {
                Some(Redirect::To(port)) if self.ports.is_bound(port) => (verdict, vec![port]),
                Some(Redirect::ToCpu(cpu)) => (verdict, vec![Port::of_cpu(cpu)]),
                Some(Redirect::ToSocket(queue)) => (verdict, vec![Port::of_socket(queue)]),
                Some(Redirect::All { map, but_ingress }) => {
                    (verdict, self.broadcast(map, but_ingress.then_some(packet.port)))
                }
                // An unbound port; or a redirect verdict without a redirect, so that there is no port.
                Some(Redirect::To(_)) | None => (Verdict::Aborted, Vec::new()),
            },
            Verdict::Aborted | Verdict::Drop => (verdict, Vec::new()),
        };
        if ports.is_empty() {
            return Ok(Outcome { verdict, outputs: Vec::new(), events });
        }
        let bytes = self.output.get(result.meta_bytes..result.bytes).ok_or_else(|| {
            let message = format!("the packet is {} bytes, expected at most {OUTPUT_BYTES}", result.bytes);
            system("read the packet", io::Error::new(io::ErrorKind::InvalidData, message))
        })?;
        let outputs = ports.into_iter().map(|port| Output { port, bytes: bytes.to_vec() }).collect();
        Ok(Outcome { verdict, outputs, events })
    }

    fn chooses_victims(&self) -> bool {
        !self.evictions.is_empty()
    }

    fn evicted(&mut self) -> Vec<Eviction> {
        self.evictions.last()
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.maps.iter().try_for_each(|map| map.sweep(now_ns, None).map(drop))
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        state::snapshot(&self.maps)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.evictions.forget();
        state::restore(&mut self.maps, state, &mut self.inside)
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
