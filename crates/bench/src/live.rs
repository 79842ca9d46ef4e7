// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwarding between two veth pairs: every live engine beside a plain forwarder with rings of AF_PACKET.
//!
//! ```text
//!  sender ──► far1 ═ near1 ──► contender ──► near2 ═ far2: packets counted
//!     └───────────── sent - counted <= window ──────────┘
//! ```
//!
//! The sender waits while a window of packets is on the way, so that the rate is one without loss: a round in which a
//! packet is missing at its end is an error. Times are those of the wall clock, since the kernel does part of the work
//! on other threads. Ours runs the same function in all devices, as machine code or as a program of the kernel.
#![allow(unsafe_code, reason = "network namespaces")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowloom_engine::{Port, Snapshot};
use flowloom_exec::{Description, Interface, Live, LiveOptions, Mode};
use flowloom_ports::{
    AfXdp, AfXdpOptions, Device, Hooks, Host, LoopOptions, PortsError, Raw, RawOptions, ToDevice, run_loop,
};
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_session::{FunctionFile, Loaded};

use crate::error::BenchError;
use crate::measure::{Clock, Comparison, Contender, Times, by_turns};
use crate::packet_rings::forward;

const FUNCTION: &str = "function forwarder;\nstateless all { always { forward(2); } }\n";
/// The packets on the way, at most: fewer than the smallest queue holds, the backlog of a CPU (1000).
const WINDOW: u64 = 512;
/// The packets sent by one call.
const BURST: u64 = 64;
/// The time of a round, and the time after which a missing packet is lost.
const ROUND: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(2);
const PACKET_BYTES: usize = 64;

fn system(action: &str) -> impl Fn(io::Error) -> BenchError + '_ {
    move |source| BenchError::Peer { what: format!("could not {action}: {source}") }
}

fn wrong(error: impl std::fmt::Display) -> BenchError {
    BenchError::Wrong { what: error.to_string() }
}

fn command(words: &str) -> Result<(), BenchError> {
    let mut words = words.split(' ');
    crate::tool::output(Command::new(words.next().unwrap_or_default()).args(words)).map(drop)
}

/// A network namespace that lives as long as this.
struct Namespace(File);

impl Namespace {
    fn new() -> Result<Namespace, BenchError> {
        let made = std::thread::spawn(|| {
            // SAFETY: takes no addresses; only this thread moves.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // No packets but those of the benchmark.
            _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            File::open("/proc/thread-self/ns/net").map(Namespace)
        });
        let made = made.join().unwrap_or_else(|_| Err(io::Error::other("the thread failed")));
        made.map_err(system("make a network namespace"))
    }

    /// Moves the calling thread into it.
    fn enter(&self) -> Result<(), BenchError> {
        // SAFETY: takes no addresses; only this thread moves.
        match unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) } {
            0.. => Ok(()),
            _ => Err(system("enter a network namespace")(io::Error::last_os_error())),
        }
    }

    /// Runs `job` in it, in a thread of its own.
    fn within<T: Send>(&self, job: impl FnOnce() -> Result<T, BenchError> + Send) -> Result<T, BenchError> {
        let run = || self.enter().and_then(|()| job());
        std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|_| Err(wrong("a thread failed")))
    }
}

/// Two namespaces joined by two veth pairs.
struct Wires {
    here: Namespace,
    there: Namespace,
}

impl Wires {
    fn new() -> Result<Wires, BenchError> {
        let (here, there) = (Namespace::new()?, Namespace::new()?);
        let path = format!("/proc/{}/fd/{}", std::process::id(), there.0.as_raw_fd());
        here.within(|| {
            for pair in [1, 2] {
                command(&format!("ip link add near{pair} type veth peer name far{pair} netns {path}"))?;
                command(&format!("ip link set near{pair} up"))?;
            }
            Ok(())
        })?;
        there.within(|| {
            for pair in [1, 2] {
                command(&format!("ip link set far{pair} up"))?;
            }
            // Receives what XDP redirects.
            command("ethtool -K far2 gro on")
        })?;
        Ok(Wires { here, there })
    }

    /// A round: `contend` forwards until the flag is set, and reports when it has started.
    fn round(
        &self,
        clock: &mut Clock,
        contend: impl FnOnce(&AtomicBool, &dyn Fn()) -> Result<(), BenchError> + Send,
    ) -> Result<(), BenchError> {
        let stop = AtomicBool::new(false);
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let stop = &stop;
            let contender = scope.spawn(move || {
                self.here.enter()?;
                contend(stop, &|| _ = ready.send(()))
            });
            // An error means that the contender has ended, and says why.
            let sent = is_ready.recv().map(|()| self.there.within(send));
            stop.store(true, Ordering::Relaxed);
            contender.join().unwrap_or_else(|_| Err(wrong("a thread failed")))?;
            let (elapsed, packets) = sent.map_err(wrong)??;
            clock.add(elapsed, packets);
            Ok(())
        })
    }
}

/// Sends with at most a window of packets on the way; returns the time until the last arrived, and their number.
fn send() -> Result<(Duration, u64), BenchError> {
    let interface = Interface::find(0, "far1").map_err(wrong)?;
    let mut sender = ToDevice::open(&interface).map_err(wrong)?;
    let mut packet = vec![0; PACKET_BYTES];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    let before = received()?;
    let start = Instant::now();
    let (mut sent, mut moved, mut arrived) = (0, start, 0);
    loop {
        let is_over = start.elapsed() >= ROUND;
        if !is_over && sent - arrived + BURST <= WINDOW {
            for _ in 0..BURST {
                sender.deliver(Port(0), &packet).map_err(wrong)?;
            }
            sent += BURST;
        } else {
            std::thread::yield_now();
        }
        let now = received()? - before;
        if now > arrived {
            (arrived, moved) = (now, Instant::now());
        }
        if is_over && arrived == sent {
            return Ok((moved - start, sent));
        }
        if arrived > sent || moved.elapsed() > PATIENCE {
            let counters = sender.counters();
            return Err(wrong(format!("{sent} packets were sent, but {arrived} arrived; the sender: {counters:?}")));
        }
    }
}

/// The packets that `far2` has received.
fn received() -> Result<u64, BenchError> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").map_err(system("count packets"))?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("far2:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).ok_or_else(|| wrong("no counters of `far2`"))
}

fn near() -> Result<Vec<Interface>, BenchError> {
    [1, 2].into_iter().map(|n| Interface::find(n, &format!("near{n}")).map_err(wrong)).collect()
}

fn loaded(function: &Path) -> Result<Loaded, BenchError> {
    Ok(Loaded::open(&FunctionFile { path: function.to_owned(), ..FunctionFile::default() })?)
}

/// Forwards in the kernel.
fn in_kernel(function: &Path, stop: &AtomicBool, ready: &dyn Fn()) -> Result<(), BenchError> {
    let program = loaded(function)?.attached_program(false)?;
    let (state, description) = (Snapshot::default(), Description::new("forwarder", "", Vec::new()));
    let options = LiveOptions {
        mode: Mode::Native,
        count: false,
        clock_ahead_ns: 0,
        state: &state,
        description: &description,
        events: None,
    };
    let live = Live::start(&program, &near()?, options).map_err(wrong)?;
    ready();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(live);
    Ok(())
}

type Open = fn(&[Interface]) -> Result<Box<dyn Device>, PortsError>;

/// The devices of user space.
const DEVICES: &[(&str, Open)] = &[
    ("AF_XDP native", |near| af_xdp(near, Mode::Native)),
    ("AF_XDP skb", |near| af_xdp(near, Mode::Skb)),
    ("raw sockets", |near| Ok(Box::new(Raw::open(near, RawOptions::default())?))),
    #[cfg(feature = "dpdk")]
    ("DPDK net_af_packet", dpdk),
];

fn af_xdp(near: &[Interface], mode: Mode) -> Result<Box<dyn Device>, PortsError> {
    Ok(Box::new(AfXdp::open(near, &AfXdpOptions { mode: Some(mode), ..AfXdpOptions::default() })?))
}

#[cfg(feature = "dpdk")]
fn dpdk(near: &[Interface]) -> Result<Box<dyn Device>, PortsError> {
    let options = flowloom_ports::DpdkOptions { huge_pages: false, ..flowloom_ports::DpdkOptions::default() };
    Ok(Box::new(flowloom_ports::Dpdk::on_interfaces(near, &options)?))
}

/// Forwards by machine code on a device.
fn on_device(function: &Path, open: Open, stop: &AtomicBool, ready: &dyn Fn()) -> Result<(), BenchError> {
    let options = EngineOptions { counters: false, ..EngineOptions::default() };
    let mut engine = EngineName::JIT.load_in_place(&loaded(function)?, &options)?.engine;
    let mut devices = [opened(|| open(&near()?).map_err(wrong))?];
    ready();
    run_loop(&mut devices, engine.as_mut(), None, &LoopOptions::default(), stop, Hooks::default()).map_err(wrong)?;
    Ok(())
}

/// What an earlier round held is free a moment later.
fn opened<T>(open: impl Fn() -> Result<T, BenchError>) -> Result<T, BenchError> {
    let start = Instant::now();
    loop {
        match open() {
            Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
}

/// Compares the live engines with the plain forwarder.
pub(crate) fn run(folder: &Path, rounds: usize) -> Result<Vec<Comparison>, BenchError> {
    let path = folder.join("forwarder.efsm");
    crate::tool::write(&path, FUNCTION)?;
    let wires = &Wires::new()?;
    let mut contenders: Vec<Contender<'_>> = vec![(
        "AF_PACKET rings",
        Box::new(|clock| wires.round(clock, |stop, ready| forward("near1", "near2", stop, ready))),
    )];
    let path = path.as_path();
    contenders.push(("kernel XDP", Box::new(|clock| wires.round(clock, |stop, ready| in_kernel(path, stop, ready)))));
    for (name, open) in DEVICES {
        contenders
            .push((name, Box::new(|clock| wires.round(clock, |stop, ready| on_device(path, *open, stop, ready)))));
    }
    let times = by_turns(&mut contenders, rounds)?;
    Times::print("live, without loss", 0, &times);
    let Some((peer, ours)) = times.split_first() else { return Ok(Vec::new()) };
    Ok(ours.iter().map(|ours| ours.beside(peer, &format!("live {}", ours.name), 0)).collect())
}
