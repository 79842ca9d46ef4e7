//! The Linux kernel as an engine: XDP, one BPF_PROG_TEST_RUN a packet.
//!
//! ```text
//!  Program ──► verifier (judges it as it is)
//!     └─ rewrite ──► elf::write ──► aya ──► XDP program + maps
//!                                             ▲ record in, record out
//!                       packet ──► BPF_PROG_TEST_RUN ──► verdict, bytes
//! ```
//!
//! The program is judged before it is rewritten, because a rewritten one is easier on the verifier: what this engine takes,
//! the kernel takes on a device too.

mod available;
mod state;
mod sys;
mod verifier;

use std::cell::RefCell;
use std::io;

use aya::maps::Map;
use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use flowloom_bpf::{MapKind, Program, elf};
use flowloom_engine::{Choices, Datapath, EngineError, Outcome, Output, Packet, Port, Refusal, Snapshot, Verdict};

pub use available::Reason;
use state::KernelMap;
use sys::RawMap;

use crate::error::ExecError;
use crate::rewrite::{RECORD_BYTES, Record, Redirect, rewrite};

/// The shortest frame that test runs take: an Ethernet header.
pub const MIN_FRAME_BYTES: usize = 14;
/// The longest frame that a program sees whole: a page less headroom and tailroom.
pub const MAX_FRAME_BYTES: usize = 3520;
/// What a program may add: a page holds frame, headroom and all.
const OUTPUT_BYTES: usize = 4096;
/// The name given to `--engine`.
const NAME: &str = "kernel";

thread_local! {
    // Making a loader reads and parses the type information of the whole kernel, which nothing of ours needs.
    static LOADER: RefCell<Option<EbpfLoader<'static>>> = const { RefCell::new(None) };
}

/// A program in the kernel, run by test runs.
///
/// # Cost
/// A test run a packet; before it a write of the run record where the program asks the kernel for anything, after it a
/// read where it redirected.
#[derive(Debug)]
pub struct KernelEngine {
    name: String,
    ebpf: Ebpf,
    maps: Vec<KernelMap>,
    record: Option<RawMap>,
    /// For each map of the program, how many ports it holds.
    ports: Vec<u32>,
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
        if rewritten.record_map.is_some() {
            drop(into_kernel(program)?);
        }
        let ebpf = into_kernel(&rewritten.program)?;
        let mut maps = Vec::new();
        let mut record = None;
        for (index, def) in rewritten.program.maps.iter().enumerate() {
            if def.kind == MapKind::Devmap {
                continue;
            }
            let raw = raw_map(&ebpf, program, index, &rewritten.program)?;
            if rewritten.record_map == Some(index) {
                record = Some(raw);
            } else if KernelMap::is_state(def) {
                maps.push(KernelMap::new(def.clone(), raw));
            }
        }
        let ports = program.maps.iter().map(|def| if def.kind == MapKind::Devmap { def.max_entries } else { 0 });
        let (ports, output) = (ports.collect(), vec![0; OUTPUT_BYTES]);
        Ok(KernelEngine { name: program.name.clone(), ebpf, maps, record, ports, output })
    }

    /// Where the packet that was run last asked to go.
    fn redirected(&self) -> Result<Option<Redirect>, EngineError> {
        let Some(map) = &self.record else { return Ok(None) };
        let mut record = Record([0; RECORD_BYTES]);
        map.lookup(&[0; 4], &mut record.0).map_err(|e| system("read the run record", e))?;
        Ok(record.redirect())
    }

    fn xdp(&self) -> Result<&Xdp, EngineError> {
        let missing = || system("find the program", io::Error::from(io::ErrorKind::NotFound));
        self.ebpf.program(&self.name).ok_or_else(missing)?.try_into().map_err(|_| missing())
    }
}

/// Loads `program` as it is.
fn into_kernel(program: &Program) -> Result<Ebpf, ExecError> {
    let object = elf::write(&for_kernel(program))
        .map_err(|source| ExecError::Object { program: program.name.clone(), source: Box::new(source) })?;
    let load = |source| ExecError::Load { program: program.name.clone(), source: Box::new(source) };
    let mut ebpf = LOADER
        .with_borrow_mut(|loader| {
            let loader = loader.get_or_insert_with(|| {
                let mut loader = EbpfLoader::new();
                loader.btf(None).verifier_log_level(VerifierLogLevel::DEBUG);
                loader
            });
            loader.load(&object)
        })
        .map_err(load)?;
    let missing = || ExecError::Loaded {
        program: program.name.clone(),
        what: "its type".to_owned(),
        found: "something else".to_owned(),
        expected: "XDP".to_owned(),
    };
    let xdp: &mut Xdp = ebpf.program_mut(&program.name).ok_or_else(missing)?.try_into().map_err(|_| missing())?;
    match xdp.load() {
        Ok(()) => Ok(ebpf),
        Err(ProgramError::LoadError { io_error, verifier_log }) => {
            let refused = verifier::refused(program, verifier_log.to_string(), io_error);
            Err(ExecError::Refused(Box::new(refused)))
        }
        Err(source) => Err(load(source.into())),
    }
}

/// The program as test runs want it: of the type XDP, whatever its section, and with source lines that the kernel can cut
/// anywhere without cutting a character, because `aya` takes the log for text.
fn for_kernel(program: &Program) -> Program {
    let ascii = |text: &str| text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    let mut program = Program { section: "xdp".to_owned(), ..program.clone() };
    for line in &mut program.lines {
        line.file = ascii(&line.file);
        line.text = ascii(&line.text);
    }
    program
}

fn raw_map(ebpf: &Ebpf, program: &Program, index: usize, loaded: &Program) -> Result<RawMap, ExecError> {
    let def = &loaded.maps[index];
    let differs = |what: &str, found: String, expected: String| ExecError::Loaded {
        program: program.name.clone(),
        what: format!("{what} of map `{}`", def.name),
        found,
        expected,
    };
    let load = |source: aya::EbpfError| ExecError::Load { program: program.name.clone(), source: Box::new(source) };
    let data = match ebpf.map(&def.name) {
        Some(Map::HashMap(data)) if def.kind == MapKind::Hash => data,
        Some(Map::Array(data)) if def.kind == MapKind::Array => data,
        other => {
            let found = if other.is_some() { "another" } else { "none" };
            return Err(differs("kind", found.to_owned(), format!("{:?}", def.kind)));
        }
    };
    let info = data.info().map_err(|source| load(source.into()))?;
    let found = (info.key_size(), info.value_size(), info.max_entries());
    let expected = (def.key_bytes, def.value_bytes, def.max_entries);
    if found != expected {
        return Err(differs("key bytes, value bytes and size", format!("{found:?}"), format!("{expected:?}")));
    }
    RawMap::new(std::os::fd::AsFd::as_fd(data.fd()), def.key_bytes, def.value_bytes)
        .map_err(|source| differs("file descriptor", source.to_string(), "one of its own".to_owned()))
}

fn system(action: impl Into<String>, source: io::Error) -> EngineError {
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

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if let Some(refusal) = self.refuses(packet) {
            let source = io::Error::new(io::ErrorKind::InvalidInput, refusal.to_string());
            return Err(system(format!("take a frame of {} bytes", packet.bytes.len()), source));
        }
        if let Some(map) = &self.record {
            let record = Record::new(packet.port, choices);
            map.update(&[0; 4], &record.0).map_err(|e| system("write the run record", e))?;
        }
        let mut output = std::mem::take(&mut self.output);
        let options =
            TestRunOptions { data_in: Some(packet.bytes), data_out: Some(&mut output), ..TestRunOptions::default() };
        let result = self.xdp().map(|xdp| xdp.test_run(options));
        self.output = output;
        let result = result?.map_err(|e| system("run the program", into_io(e)))?;
        let bytes = || {
            let found = self.output.get(..result.data_size_out as usize);
            found.map(<[u8]>::to_vec).ok_or_else(|| {
                let message = format!("the packet is {} bytes, expected at most {OUTPUT_BYTES}", result.data_size_out);
                system("read the packet", io::Error::new(io::ErrorKind::InvalidData, message))
            })
        };
        Ok(match Verdict::from_number(result.return_value) {
            verdict @ (Verdict::Pass | Verdict::Tx) => Outcome::sent(verdict, packet.port, bytes()?),
            Verdict::Redirect => match self.redirected()? {
                Some(Redirect::To(port)) => Outcome::sent(Verdict::Redirect, port, bytes()?),
                Some(Redirect::All { map, but_ingress }) => {
                    let bytes = bytes()?;
                    let ports = (0..self.ports.get(map).copied().unwrap_or(0)).map(Port);
                    let sent = ports.filter(|port| !but_ingress || *port != packet.port);
                    let outputs = sent.map(|port| Output { port, bytes: bytes.clone() }).collect();
                    Outcome { verdict: Verdict::Redirect, outputs }
                }
                // The verdict without a redirect: there is no port to send to, so the function has failed.
                None => Outcome::gone(Verdict::Aborted),
            },
            verdict @ (Verdict::Aborted | Verdict::Drop) => Outcome::gone(verdict),
        })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.maps.iter().try_for_each(|map| map.sweep(now_ns))
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        state::snapshot(&self.maps)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        state::restore(&self.maps, state)
    }
}

fn into_io(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
