// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function between the wires, in the kernel or in user space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowloom_engine::{InPlace, Snapshot, Verdict};
use flowloom_exec::{Description, Interface, Live, LiveOptions, Mode, SweepClock};
use flowloom_isa::insn::{alu, class, jmp};
use flowloom_isa::{Insn, Program};
use flowloom_ports::{Device, Hooks, LoopOptions, PortsError, Statistics, run_loop};

use crate::bed::{Bed, Wires, joined};
use crate::error::LabError;
use crate::sys;

/// Makes the engine of a run, in the thread that runs it.
pub type MakeEngine<'a> = dyn Fn() -> Result<Box<dyn InPlace>, LabError> + Sync + 'a;
/// Opens the interfaces of the function as a device.
pub type OpenDevice<'a> = dyn Fn(&[Interface]) -> Result<Box<dyn Device>, PortsError> + Sync + 'a;

/// Forwards until the flag is set, in the calling thread, and reports once that it has begun.
pub type RunPeer<'a> = dyn Fn(&AtomicBool, &dyn Fn()) -> Result<(), LabError> + Sync + 'a;

/// The period of sweeps and checks of an attached function.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The time after which what an earlier function held is free.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is between the wires.
#[allow(missing_debug_implementations, reason = "closures")]
pub enum Station<'a> {
    /// Nothing.
    Cable,
    /// A program, attached to the interfaces in native mode.
    Kernel { program: &'a Program, description: &'a Description },
    /// An engine on a device. On one core it has a CPU of its own; on several, its threads have all CPUs, which the
    /// sender needs too.
    User { open: &'a OpenDevice<'a>, engine: &'a MakeEngine<'a>, sweep: &'a SweepClock, cores: u32 },
    /// A forwarder that is not of Flowloom, between `near1` and `near2`.
    Peer(&'a RunPeer<'a>),
}

/// Opens what an earlier function may hold a moment longer: the kernel frees sockets and links late.
fn opened<T, E>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match open() {
            Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(LOOK_EVERY),
            result => return result,
        }
    }
}

/// The counters of a run.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Those of the packet loop, and its time on a processor; none in the kernel.
    pub(crate) user: Option<(Statistics, Duration)>,
}

/// A program that returns this verdict.
fn verdict(verdict: Verdict) -> Program {
    let insn = |code, imm| Insn { code, imm, ..Insn::default() };
    Program {
        name: "far".to_owned(),
        section: "xdp".to_owned(),
        insns: vec![insn(class::ALU64 | alu::MOV, verdict.number() as i32), insn(class::JMP | jmp::EXIT, 0)],
        license: "GPL".to_owned(),
        ..Program::default()
    }
}

/// Attaches a program to interfaces of the thread's namespace.
fn attach(program: &Program, description: &Description, interfaces: &[Interface]) -> Result<Live, LabError> {
    let (state, mode) = (&Snapshot::default(), Mode::Native);
    let options = LiveOptions { mode, count: false, clock_ahead_ns: 0, state, description, events: None };
    Ok(opened(|| Live::start(program, interfaces, options))?)
}

/// Gives the far ends of veth pairs a program that passes or drops all, whatever the station: every station has the
/// same receiver.
///
/// veth hands frames that XDP redirects only to a peer with a program or with GRO.
pub(crate) fn receiver(bed: &Bed, passes: bool) -> Result<Option<Live>, LabError> {
    if !matches!(bed.wires(), Wires::Veth { .. }) {
        return Ok(None);
    }
    let description = Description::new("far", "", Vec::new());
    bed.enter_there()?;
    let far = (1..=bed.ports()).map(|port| Ok(Interface::find(port, &format!("far{port}"))?));
    let far: Vec<Interface> = far.collect::<Result<_, LabError>>()?;
    let program = verdict(if passes { Verdict::Pass } else { Verdict::Drop });
    attach(&program, &description, &far).map(Some)
}

impl Station<'_> {
    /// Runs between the wires, in the calling thread, until `stop` is set. Calls `ready` when packets are processed.
    pub(crate) fn run(&self, bed: &Bed, stop: &AtomicBool, ready: impl FnOnce()) -> Result<Ran, LabError> {
        match self {
            Station::Cable => {
                ready();
                Ok(Ran::default())
            }
            Station::Kernel { program, description } => {
                bed.enter_here()?;
                let mut live = attach(program, description, &bed.near()?)?;
                ready();
                while !stop.load(Ordering::Relaxed) {
                    live.sweep().map_err(|e| LabError::Engine(e.to_string()))?;
                    std::thread::sleep(LOOK_EVERY);
                }
                Ok(Ran::default())
            }
            Station::User { open, engine, sweep, cores } => {
                bed.enter_here()?;
                if *cores == 1 {
                    sys::pin(1);
                }
                let mut engine = engine()?;
                let near = bed.near()?;
                let mut devices = [opened(|| open(&near))?];
                let options = LoopOptions { sweep: (*sweep).clone(), ..LoopOptions::default() };
                ready();
                let before = sys::processor_time();
                let found = run_loop(&mut devices, engine.as_mut(), None, &options, stop, Hooks::default())?;
                Ok(Ran { user: Some((found, sys::processor_time() - before)) })
            }
            Station::Peer(run) => {
                bed.enter_here()?;
                sys::pin(1);
                let ready = std::cell::Cell::new(Some(ready));
                run(stop, &|| {
                    if let Some(ready) = ready.take() {
                        ready();
                    }
                })?;
                Ok(Ran::default())
            }
        }
    }
}

/// Runs a generator while a function runs between the wires, whose far ends drop what arrives. The generator is to end
/// when its argument says so: `stop` is set, or the function has ended.
pub(crate) fn beside<T: Send>(
    bed: &Bed,
    station: &Station<'_>,
    stop: &AtomicBool,
    generate: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> Result<T, LabError> + Send,
) -> Result<(T, Ran), LabError> {
    let no_more = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let no_more = &no_more;
        let function = scope.spawn(move || station.run(bed, no_more, move || _ = ready.send(())));
        // An error ends the thread, and so the channel.
        let generated = is_ready.recv().is_ok().then(|| {
            let generator = || {
                let far = receiver(bed, false)?;
                let generated = generate(&|| stop.load(Ordering::Relaxed) || function.is_finished());
                drop(far);
                generated
            };
            std::thread::scope(|inner| joined(inner.spawn(generator).join()))
        });
        no_more.store(true, Ordering::Relaxed);
        let ran = joined(function.join())?;
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        Ok((generated.unwrap_or(Err(LabError::Interrupted))?, ran))
    })
}
