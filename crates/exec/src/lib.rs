// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution on a CPU: the loop that feeds packets to an engine, and the engine that uses the Linux kernel.
//!
//! ```text
//!  captures ──► run ──► Datapath::process ──► outcome ──► capture
//!                │            ▲
//!   SweepClock ──┘            │
//!                     KernelEngine:  Program ──rewrite──► load ──► verifier, BPF_PROG_TEST_RUN
//! ```
//!
//! [`run`](run()) works for every engine. [`KernelEngine`] runs a program as XDP in the kernel, one packet a call;
//! since the kernel has a clock, random numbers and ports of its own, [`rewrite`](rewrite::rewrite) first makes the
//! program read them from a record that the engine writes. [`KernelEngine::available`] tells whether this system
//! permits it.

mod error;
mod kernel;
mod live;
pub mod rewrite;
mod run;
mod running;
mod sys;
#[cfg(test)]
mod testcode;

pub use error::{ExecError, Refused};
pub use kernel::{KernelEngine, MAX_FRAME_BYTES, MIN_FRAME_BYTES, Reason, verify_in_kernel};
pub use live::{
    Advice, EventMaps, Former, Handover, Interface, Live, LiveError, LiveOptions, Mode, Occupant, SWEEPER, Successor,
    Traffic, advice,
};
pub use run::{
    EventReader, EventWriter, IterSource, PacketClock, RunOptions, RunSummary, Sinks, Source, SweepClock, run,
};
pub use running::{Description, KeyField, KeyForm, MapDescription, Running, RunningError, Table, UpdateMode, running};
pub use sys::{Interrupts, Wake, monotonic_ns};
