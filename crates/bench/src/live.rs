// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwarding between two veth pairs without loss: every live engine beside a plain forwarder with rings of AF_PACKET.
//!
//! The test bed is that of `lab`, whose sender waits while a window of packets is on the way: a round in which a packet
//! is missing is an error. Ours runs the same function in all devices, as machine code or as a program of the kernel.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flowloom_exec::{Description, Interface, Mode, SweepClock};
use flowloom_lab::{Bed, LabError, Load, Lossless, MakeEngine, Packets, Station, Wires, lossless};
use flowloom_ports::{AfXdp, AfXdpOptions, Device, PortsError, Raw, RawOptions};
use flowloom_session::engines::{EngineName, EngineOptions};
use flowloom_session::{FunctionFile, Loaded};

use crate::error::BenchError;
use crate::measure::{Clock, Comparison, Contender, Times, by_turns};
use crate::packet_rings::forward;

const FUNCTION: &str = "function forwarder;\nstateless all { always { forward(2); } }\n";
/// The time of a round.
const ROUND: Duration = Duration::from_millis(400);
/// 64 bytes on the wire, of one flow.
const LOAD: Load = Load { packets: Packets::Udp, bytes: 60, flows: 1, senders: 1 };

fn wrong(error: impl std::fmt::Display) -> BenchError {
    BenchError::Wrong { what: error.to_string() }
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

/// A round.
fn round(bed: &Bed, station: &Station<'_>, clock: &mut Clock) -> Result<(), BenchError> {
    let Lossless { packets, elapsed } = lossless(bed, station, LOAD, ROUND, &AtomicBool::new(false)).map_err(wrong)?;
    clock.add(elapsed, packets);
    Ok(())
}

/// Compares the live engines with the plain forwarder.
pub(crate) fn run(folder: &std::path::Path, rounds: usize) -> Result<Vec<Comparison>, BenchError> {
    let path = folder.join("forwarder.efsm");
    crate::tool::write(&path, FUNCTION)?;
    let loaded = || Loaded::open(&FunctionFile { path: path.clone(), ..FunctionFile::default() });
    let program = loaded()?.attached_program(false)?;
    let description = Description::new("forwarder", "", Vec::new());
    let engine: &MakeEngine<'_> = &|| {
        let options = EngineOptions { counters: false, ..EngineOptions::default() };
        let started = loaded().and_then(|loaded| EngineName::JIT.load_in_place(&loaded, &options));
        Ok(started.map_err(|error| LabError::Engine(error.to_string()))?.engine)
    };
    let peer = |stop: &AtomicBool, ready: &dyn Fn()| {
        forward("near1", "near2", stop, ready).map_err(|error| LabError::Engine(error.to_string()))
    };
    let (bed, sweep) = (&Bed::new(Wires::Veth { queues: 1 }, 2).map_err(wrong)?, SweepClock::new(0));
    let mut stations = vec![
        ("AF_PACKET rings", Station::Peer(&peer)),
        ("kernel XDP", Station::Kernel { program: &program, description: &description }),
    ];
    stations
        .extend(DEVICES.iter().map(|(name, open)| (*name, Station::User { open, engine, sweep: &sweep, cores: 1 })));
    let contender = |(name, station)| -> Contender<'_> { (name, Box::new(move |clock| round(bed, &station, clock))) };
    let times = by_turns(&mut stations.into_iter().map(contender).collect::<Vec<_>>(), rounds)?;
    Times::print("live, without loss", 0, &times);
    let Some((peer, ours)) = times.split_first() else { return Ok(Vec::new()) };
    Ok(ours.iter().map(|ours| ours.beside(peer, &format!("live {}", ours.name), 0)).collect())
}
