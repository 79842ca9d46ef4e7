// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sources and sinks of packets for engines in user space.
//!
//! ```text
//!  AfXdp ─┐                                              ┌─► AfXdp, Raw, Tap, Dpdk   by port
//!  Raw   ─┤                                              ├─► CaptureSink             every other port
//!  Tap   ─┼─► run_loop ──► batch of frames ──► InPlace ──┤
//!  Dpdk  ─┤   (sweeps, counters, stop flag)              └─► Host                    passed packets
//!  CaptureSource ─┘
//! ```
//!
//! A [`Device`] is a group of ports that share packet buffers. [`run_loop`] receives batches, has an
//! [`flowloom_engine::InPlace`] engine change them, and transmits, copies or releases each frame by its fate. A packet
//! for a port of the same device leaves from the buffer in which it arrived; for a port of another device it is copied.
//!
//! | device | packets | needs |
//! | --- | --- | --- |
//! | [`AfXdp`] | of interfaces, taken before the network stack | CAP_NET_ADMIN, CAP_BPF, CAP_NET_RAW |
//! | [`Raw`] | of interfaces, through the network stack's taps | CAP_NET_RAW, CAP_BPF, CAP_NET_ADMIN |
//! | [`Tap`] | that the network stack sends through a TAP interface | CAP_NET_ADMIN |
//! | `Dpdk` (cargo feature `dpdk`) | of DPDK's drivers | its libraries, for most drivers root and huge pages |
//! | [`CaptureSource`], [`CaptureSink`] | of captures in memory | |
//!
//! PASS: a device has taken its packets from the network stack, so passed packets are handed back by a [`Host`]:
//! [`Stack`] to the interface of their port, [`ToDevice`] through another interface. Without one they are dropped and
//! counted in [`Statistics::pass_lost`].
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use flowloom_engine::{EngineError, Fate, Frame, InPlace, Output, Port, Ports, Verdict};
//! use flowloom_ports::{CaptureSink, CaptureSource, Device, Hooks, LoopOptions, run_loop};
//! use flowloom_trace::CapturedPacket;
//!
//! struct Forward;
//!
//! impl InPlace for Forward {
//!     fn name(&self) -> &str {
//!         "forward"
//!     }
//!     fn bind_ports(&mut self, _: &Ports) {}
//!     fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
//!         frames.iter_mut().for_each(|frame| frame.fate = Fate::Redirect(Port(2)));
//!         Ok(())
//!     }
//!     fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
//!         Ok(())
//!     }
//! }
//!
//! let packet = CapturedPacket { bytes: vec![0; 60], port: 1, ..CapturedPacket::default() };
//! let source = CaptureSource::read(&mut [Ok(packet)].into_iter(), 9)?;
//! let mut devices: Vec<Box<dyn Device>> = vec![Box::new(source), Box::new(CaptureSink::new(None))];
//! let stop = AtomicBool::new(false);
//! let found = run_loop(&mut devices, &mut Forward, None, &LoopOptions::default(), &stop, Hooks::default())?;
//! assert_eq!((found.packets, found.count(Verdict::Redirect), found.devices.sent), (10, 10, 10));
//! # Ok::<(), flowloom_ports::PortsError>(())
//! ```

mod af_xdp;
mod captures;
mod device;
#[cfg(feature = "dpdk")]
mod dpdk;
mod error;
mod histogram;
mod host;
mod interfaces;
mod packet_loop;
mod raw;
mod sys;
mod tap;

pub use af_xdp::{AfXdp, AfXdpOptions, BusyPoll, CopyMode};
pub use captures::{CaptureSink, CaptureSource};
pub use device::{Departure, Device, DeviceCounters, RunBatch};
#[cfg(feature = "dpdk")]
pub use dpdk::{Dpdk, DpdkOptions};
pub use error::PortsError;
pub use histogram::Histogram;
pub use host::{Host, Stack, ToDevice};
pub use interfaces::ingress_programs;
pub use packet_loop::{
    EventReader, Hooks, LoopOptions, PortCounters, Progress, Statistics, TIMED_BATCHES, Visits, run_loop,
};
pub use raw::{Raw, RawOptions};
pub use tap::Tap;
