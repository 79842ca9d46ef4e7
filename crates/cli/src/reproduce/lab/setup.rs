// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engines and variants that are measured.

use std::path::PathBuf;

use flowloom_engine::{InPlace, Port};
use flowloom_exec::{Description, Interface, KernelEngine, Mode, SweepClock};
use flowloom_isa::Program;
use flowloom_lab::{Bed, Forward, LabError, MakeEngine, Native, OpenDevice, Peer, Several, Station, Wires, forwarder};
use flowloom_ports::{AfXdp, AfXdpOptions, Device, PortsError, Raw, RawOptions, Tap};
use flowloom_session::engines::{CoresOptions, EngineName, EngineOptions};
use flowloom_session::{FunctionFile, Loaded};

use crate::args::LabEngine;
use crate::describe::describe;
use crate::failure::{Failure, with_causes};

impl LabEngine {
    /// The name, as typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            LabEngine::Memory => "memory",
            LabEngine::Kernel => "kernel",
            LabEngine::AfXdp => "af_xdp",
            LabEngine::Raw => "raw",
            LabEngine::Tap => "tap",
            LabEngine::Dpdk => "dpdk",
        }
    }

    /// A test bed for it.
    pub(super) fn bed(self, ports: u32, queues: u32) -> Result<Bed, Failure> {
        let wires = if self == LabEngine::Tap { Wires::Tap } else { Wires::Veth { queues } };
        Ok(Bed::new(wires, ports)?)
    }

    /// Opens the function's interfaces, or with TAP makes those of the generator.
    fn open(self, near: &[Interface], ports: u32) -> Result<Box<dyn Device>, PortsError> {
        match self {
            LabEngine::Raw => Ok(Box::new(Raw::open(near, RawOptions::default())?)),
            LabEngine::Tap => {
                let names: Vec<(Port, String)> = (1..=ports).map(|port| (Port(port), format!("far{port}"))).collect();
                let names: Vec<(Port, &str)> = names.iter().map(|(port, name)| (*port, name.as_str())).collect();
                Ok(Box::new(Tap::open(&names)?))
            }
            LabEngine::Dpdk => dpdk(near),
            LabEngine::AfXdp | LabEngine::Kernel | LabEngine::Memory => {
                let mode = Some(Mode::Native);
                Ok(Box::new(AfXdp::open(near, &AfXdpOptions { mode, ..AfXdpOptions::default() })?))
            }
        }
    }
}

#[cfg(feature = "dpdk")]
fn dpdk(near: &[Interface]) -> Result<Box<dyn Device>, PortsError> {
    let options = flowloom_ports::DpdkOptions { huge_pages: false, ..flowloom_ports::DpdkOptions::default() };
    Ok(Box::new(flowloom_ports::Dpdk::on_interfaces(near, &options)?))
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(_: &[Interface]) -> Result<Box<dyn Device>, PortsError> {
    Err(PortsError::Library {
        device: "dpdk".to_owned(),
        what: "this `flowloom` was built without DPDK".to_owned(),
        remedy: "build with `--features dpdk`".to_owned(),
    })
}

/// Machine code of a function, and the clock of its sweeps.
pub(super) fn machine_code(loaded: &Loaded) -> Result<(Box<dyn InPlace>, SweepClock), LabError> {
    let started = EngineName::JIT.load_in_place(loaded, &EngineOptions::default());
    let started = started.map_err(|error| LabError::Engine(with_causes(&error)))?;
    let engine: Box<dyn InPlace> = started.engine;
    Ok((engine, SweepClock::of(loaded.layouts().values())))
}

/// Machine code of a function on several cores.
fn on_cores(file: &FunctionFile, cores: u32) -> Result<Box<dyn InPlace>, LabError> {
    let load = |loaded: &Loaded| {
        EngineName::JIT.load_on_cores(loaded, &EngineOptions::default(), cores as usize, CoresOptions::live())
    };
    let found = Loaded::open(file).and_then(|loaded| load(&loaded));
    let (engine, _) = found.map_err(|error| LabError::Engine(with_causes(&error)))?;
    Ok(Box::new(engine))
}

/// A peer on a number of cores, each with an instance of its own.
fn peers<P: Peer + 'static>(cores: u32, make: impl Fn() -> Result<P, LabError>) -> Result<Box<dyn InPlace>, LabError> {
    if cores == 1 {
        return Ok(Box::new(make()?));
    }
    let others = (1..cores).map(|_| make()).collect::<Result<Vec<P>, LabError>>()?;
    let several = Several::new(make()?, others).map_err(|error| LabError::Engine(format!("no thread: {error}")))?;
    Ok(Box::new(several))
}

/// A form of a forwarder: a bare one, C, or a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    Bare,
    C,
    Function,
}

impl Form {
    pub(super) const ALL: [Form; 3] = [Form::Bare, Form::C, Form::Function];

    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Bare => "bare",
            Form::C => "C",
            Form::Function => "function",
        }
    }
}

/// A function, and its hand-written twin in C.
#[derive(Debug, Clone, Copy)]
pub(super) struct Twins {
    pub(super) name: &'static str,
    params: &'static [(&'static str, &'static str)],
    macros: &'static [(&'static str, &'static str)],
}

/// From port 1, inside, to port 2, outside.
pub(super) const UDP_FIREWALL: Twins = Twins {
    name: "udp_firewall",
    params: &[("inside", "1"), ("outside", "2")],
    macros: &[("INSIDE", "1"), ("OUTSIDE", "2")],
};

/// Everything leaves by port 2.
pub(super) const BIG_FLOW: Twins = Twins { name: "big_flow", params: &[("out", "2")], macros: &[("OUT", "2")] };

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A form that is ready to run in the kernel or in user space.
pub(super) struct Ready {
    /// The function it belongs to; none for the bare forwarder.
    pub(super) twins: Option<Twins>,
    pub(super) form: Form,
    how: How,
}

enum How {
    Kernel {
        program: Program,
        description: Description,
    },
    Bare,
    C(PathBuf),
    /// On several cores, the file is opened again: its keys are known from the source.
    Code {
        file: FunctionFile,
        program: Program,
        sweep: SweepClock,
    },
}

impl Ready {
    /// Compiles a form for an engine. Without a compiler for C the error is of the environment.
    pub(super) fn new(
        functions: &std::path::Path,
        engine: LabEngine,
        twins: Option<Twins>,
        form: Form,
    ) -> Result<Ready, Failure> {
        let is_kernel = engine == LabEngine::Kernel;
        let how = match (form, twins) {
            (Form::Bare, _) | (_, None) if is_kernel => {
                let loaded = Loaded::of_program(forwarder()?);
                attached(&loaded)?
            }
            (Form::Bare, _) | (_, None) => How::Bare,
            (Form::C, Some(twins)) => {
                let path = functions.join(twins.name).join(format!("{}.bpf.c", twins.name));
                if is_kernel {
                    let params = owned(twins.macros);
                    attached(&Loaded::open(&FunctionFile { path, params, ..FunctionFile::default() })?)?
                } else {
                    // Compiled once here, so that its errors come early.
                    Native::compile(&path, &owned(twins.macros))?;
                    How::C(path)
                }
            }
            (Form::Function, Some(twins)) => {
                let path = functions.join(twins.name).join(format!("{}.efsm", twins.name));
                let file = FunctionFile { path, params: owned(twins.params), ..FunctionFile::default() };
                let loaded = Loaded::open(&file)?;
                if is_kernel {
                    attached(&loaded)?
                } else {
                    let (_, sweep) = machine_code(&loaded)?;
                    How::Code { program: loaded.program()?.as_ref().clone(), file, sweep }
                }
            }
        };
        Ok(Ready { twins, form, how })
    }

    /// The function's name, and `-` for the bare forwarder.
    pub(super) fn function(&self) -> &'static str {
        self.twins.map_or("-", |twins| twins.name)
    }

    fn engine(&self, cores: u32) -> Result<Box<dyn InPlace>, LabError> {
        match (&self.how, self.twins) {
            (How::C(path), Some(twins)) => peers(cores, || Native::compile(path, &owned(twins.macros))),
            (How::Code { file, .. }, _) if cores > 1 => on_cores(file, cores),
            (How::Code { program, .. }, _) => Ok(machine_code(&Loaded::of_program(program.clone()))?.0),
            _ => peers(cores, || Ok(Forward)),
        }
    }

    /// Calls `run` with the form between the wires, on a number of cores.
    pub(super) fn on<T>(
        &self,
        engine: LabEngine,
        (ports, cores): (u32, u32),
        run: impl FnOnce(&Station<'_>) -> T,
    ) -> T {
        let never = SweepClock::new(0);
        match &self.how {
            How::Kernel { program, description } => run(&Station::Kernel { program, description }),
            How::Code { sweep, .. } => self.in_user_space(engine, (ports, cores), sweep, run),
            How::Bare | How::C(_) => self.in_user_space(engine, (ports, cores), &never, run),
        }
    }

    fn in_user_space<T>(
        &self,
        engine: LabEngine,
        (ports, cores): (u32, u32),
        sweep: &SweepClock,
        run: impl FnOnce(&Station<'_>) -> T,
    ) -> T {
        let open = opener(engine, ports);
        let make: &MakeEngine<'_> = &|| self.engine(cores);
        run(&Station::User { open: &*open, engine: make, sweep, cores })
    }
}

/// Opens the device of an engine.
pub(super) fn opener(engine: LabEngine, ports: u32) -> Box<OpenDevice<'static>> {
    Box::new(move |near: &[Interface]| engine.open(near, ports))
}

/// The program of a function that is attached to interfaces, without counters.
fn attached(loaded: &Loaded) -> Result<How, Failure> {
    let program = loaded.attached_program(false)?.as_ref().clone();
    let description = describe(loaded, loaded.name(), &program);
    Ok(How::Kernel { program, description })
}

/// Checks that the kernel runs programs for this process.
pub(super) fn require_kernel() -> Result<(), Failure> {
    KernelEngine::available().map_err(|reason| {
        Failure::Environment(format!(
            "XDP and AF_XDP are not available: {reason}; run as root, or leave them out with --engines"
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flowloom_engine::{Frame, HEADROOM_BYTES};
    use flowloom_lab::Packets;
    use flowloom_testkit::{Rng, skip};

    use super::*;

    /// Runs a packet alone; returns its fate and its bytes.
    fn run(engine: &mut dyn InPlace, packet: &[u8], port: u32, time_ns: u64) -> (flowloom_engine::Fate, Vec<u8>) {
        let mut buffer = vec![0; HEADROOM_BYTES + 2048];
        let end = HEADROOM_BYTES + packet.len();
        buffer[HEADROOM_BYTES..end].copy_from_slice(packet);
        let mut frames = [Frame::new(&mut buffer, HEADROOM_BYTES, end, Port(port), time_ns)];
        engine.run(&mut frames, &mut Vec::new()).unwrap();
        (frames[0].fate, frames[0].bytes().to_vec())
    }

    /// Hand-written C in user space has the tables, the clock and the ports that it has as machine code of eBPF: the
    /// contender is no other function.
    #[test]
    fn c_in_user_space_does_what_it_does_as_ebpf() {
        let test = "c_in_user_space_does_what_it_does_as_ebpf";
        let mut rng = Rng::from_env(18);
        // Short times, so that entries expire and are deleted; small tables are full.
        let twins: [(&str, &[(&str, &str)]); 4] = [
            ("udp_firewall", &[("QUIET_NS", "20000ULL")]),
            ("big_flow", &[("QUIET_NS", "20000ULL"), ("OUT", "2"), ("THRESHOLD", "3")]),
            ("policer", &[("BURST", "3"), ("INTERVAL_US", "10"), ("OUT", "2")]),
            ("server_load_balancer", &[("QUIET_NS", "20000ULL")]),
        ];
        for (name, params) in twins {
            let path = std::path::Path::new("../../functions").join(name).join(format!("{name}.bpf.c"));
            let params = owned(params);
            let loaded = match Loaded::open(&FunctionFile {
                path: path.clone(),
                params: params.clone(),
                ..FunctionFile::default()
            }) {
                Err(flowloom_session::SessionError::Environment(reason)) => {
                    return skip(test, &reason.to_string());
                }
                loaded => loaded.unwrap(),
            };
            let mut code = machine_code(&loaded).unwrap().0;
            let mut native = match Native::compile(&path, &params) {
                Err(error @ LabError::Tool { .. }) => {
                    return skip(test, &error.to_string());
                }
                native => native.unwrap(),
            };
            let kind = if name == "server_load_balancer" { Packets::Tcp } else { Packets::Udp };
            let (mut time_ns, mut fates) = (1 << 40, std::collections::BTreeSet::new());
            for number in 0..30_000 {
                let mut packet = kind.template(60);
                kind.write(&mut packet, rng.below(40) as u64);
                let mut port = 1;
                if rng.below(10) < 3 {
                    // The other direction.
                    port = 2;
                    for (at, bytes) in [(26, 4), (34, 2)] {
                        let (first, second) = packet[at..].split_at_mut(bytes);
                        first.swap_with_slice(&mut second[..bytes]);
                    }
                }
                time_ns += rng.below(2_000) as u64;
                let expected = run(code.as_mut(), &packet, port, time_ns);
                assert_eq!(run(&mut native, &packet, port, time_ns), expected, "{name}: packet {number}");
                fates.insert(format!("{:?}", expected.0));
            }
            assert!(fates.len() > 1 || name == "big_flow", "{name}: {fates:?}");
        }
    }
}
