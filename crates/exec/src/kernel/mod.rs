//! The Linux kernel as an engine: XDP, one BPF_PROG_TEST_RUN a packet.
//!
//! ```text
//!  Program ──► verifier (judges it as it is)
//!     └─ rewrite ──► load ──► XDP program + maps
//!                                             ▲ record in, record out
//!                       packet ──► BPF_PROG_TEST_RUN ──► verdict, bytes
//! ```
//!
//! The program is judged before it is rewritten, because a rewritten one is easier on the verifier: what this engine takes,
//! the kernel takes on a device too.

mod available;
pub(crate) mod load;
pub(crate) mod state;
mod verifier;

use std::io;

use flowloom_bpf::{MapKind, Program};
use flowloom_engine::{Choices, Datapath, EngineError, Outcome, Output, Packet, Ports, Refusal, Snapshot, Verdict};

pub use available::Reason;
use load::Maps;
use state::KernelMap;

use crate::error::ExecError;
use crate::rewrite::{RECORD_BYTES, Record, Redirect, rewrite};
use crate::sys::RawMap;
use crate::sys::program::RawProgram;

/// The shortest frame that test runs take: an Ethernet header.
pub const MIN_FRAME_BYTES: usize = 14;
/// The longest frame that a program sees whole: a page less headroom and tailroom.
pub const MAX_FRAME_BYTES: usize = 3520;
/// What a program may add: a page holds frame, headroom and all.
const OUTPUT_BYTES: usize = 4096;
/// The name given to `--engine`.
const NAME: &str = "kernel";

/// A program in the kernel, run by test runs.
///
/// # Cost
/// A test run a packet; before it a write of the run record where the program asks the kernel for anything, after it a
/// read where it redirected.
#[derive(Debug)]
pub struct KernelEngine {
    program: RawProgram,
    maps: Vec<KernelMap>,
    record: Option<RawMap>,
    ports: Ports,
    /// For each map of the program, how many ports it holds.
    port_slots: Vec<u32>,
    output: Vec<u8>,
}

impl KernelEngine {
    /// Whether the kernel can be used here.
    ///
    /// # Errors
    /// What is missing.
    pub fn available() -> Result<(), Reason> {
        available::probe()
    }

    /// Loads `program`.
    ///
    /// # Errors
    /// The program cannot be rewritten or written as an object; the verifier refuses it, in which case the error names the
    /// source line and carries the log; or the system has no room or no right for it.
    pub fn load(program: &Program) -> Result<KernelEngine, ExecError> {
        let rewritten = rewrite(program).map_err(|source| {
            let line = source.insn().and_then(|insn| program.line_of(insn)).cloned().map(Box::new);
            ExecError::Rewrite { program: program.name.clone(), line, source }
        })?;
        let loaded = &rewritten.program;
        let created = Maps::create(loaded)?;
        if rewritten.record_map.is_some() {
            drop(created.load_other(program)?);
        }
        let raw_program = created.load(loaded)?;
        let mut maps = Vec::new();
        let mut record = None;
        for (index, (def, raw)) in loaded.maps.iter().zip(created.raw).enumerate() {
            if rewritten.record_map == Some(index) {
                record = Some(raw);
            } else if KernelMap::is_state(def) {
                maps.push(KernelMap::new(def.clone(), raw));
            }
        }
        let slots = program.maps.iter().map(|def| if def.kind == MapKind::Devmap { def.max_entries } else { 0 });
        let (port_slots, ports, output) = (slots.collect(), Ports::default(), vec![0; OUTPUT_BYTES]);
        Ok(KernelEngine { program: raw_program, maps, record, ports, port_slots, output })
    }

    /// Where the packet that was run last asked to go.
    fn redirected(&self) -> Result<Option<Redirect>, EngineError> {
        let Some(map) = &self.record else { return Ok(None) };
        let mut record = Record([0; RECORD_BYTES]);
        map.lookup(&[0; 4], &mut record.0).map_err(|e| system("read the run record", e))?;
        Ok(record.redirect())
    }
}

pub(crate) fn system(action: impl Into<String>, source: io::Error) -> EngineError {
    EngineError::System { engine: NAME, action: action.into(), source }
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
        if let Some(map) = &self.record {
            let record = Record::new(packet.port, choices);
            map.update(&[0; 4], &record.0).map_err(|e| system("write the run record", e))?;
        }
        let result = self.program.test_run(packet.bytes, &mut self.output, 1);
        let result = result.map_err(|e| system("run the program", e))?;
        let verdict = Verdict::from_number(result.verdict);
        let (verdict, ports) = match verdict {
            Verdict::Pass | Verdict::Tx => (verdict, vec![packet.port]),
            Verdict::Redirect => match self.redirected()? {
                Some(Redirect::To(port)) if self.ports.is_bound(port) => (verdict, vec![port]),
                Some(Redirect::All { map, but_ingress }) => {
                    let slots = self.port_slots.get(map).copied().unwrap_or(0);
                    let mut ports = self.ports.broadcast(but_ingress.then_some(packet.port));
                    ports.retain(|port| port.0 < slots);
                    (verdict, ports)
                }
                // A port that nothing is bound to; or the verdict without a redirect, so that there is no port at all.
                Some(Redirect::To(_)) | None => (Verdict::Aborted, Vec::new()),
            },
            Verdict::Aborted | Verdict::Drop => (verdict, Vec::new()),
        };
        if ports.is_empty() {
            return Ok(Outcome::gone(verdict));
        }
        let bytes = self.output.get(..result.bytes).ok_or_else(|| {
            let message = format!("the packet is {} bytes, expected at most {OUTPUT_BYTES}", result.bytes);
            system("read the packet", io::Error::new(io::ErrorKind::InvalidData, message))
        })?;
        let outputs = ports.into_iter().map(|port| Output { port, bytes: bytes.to_vec() }).collect();
        Ok(Outcome { verdict, outputs, events: Vec::new() })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.maps.iter().try_for_each(|map| map.sweep(now_ns, None).map(drop))
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        state::snapshot(&self.maps)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        state::restore(&self.maps, state)
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
