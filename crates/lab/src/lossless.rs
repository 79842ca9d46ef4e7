// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate without loss: the sender waits while a window of packets is on the way.
//!
//! ```text
//!  sender ──► far1 ═ near1 ──► function ──► near2 ═ far2: packets counted
//!     └────────── sent - counted <= window ─────────┘
//! ```
//!
//! Every packet arrives, or the measurement is an error. Times are those of the wall clock, since the kernel does part
//! of the work on other threads.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use flowloom_engine::Port;
use flowloom_exec::Interface;
use flowloom_ports::{Host, ToDevice};
use flowloom_random::{Draw, SplitMix64};

use crate::bed::{Bed, received};
use crate::error::LabError;
use crate::rates::Load;
use crate::station::{Station, beside};
use crate::sys;

/// The packets on the way, at most: fewer than the smallest queue holds, the backlog of a CPU (1,000).
const WINDOW: u64 = 512;
/// The packets sent at once.
const BURST: u64 = 64;
/// The time after which a missing packet is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Packets that have all arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lossless {
    /// Their number.
    pub packets: u64,
    /// The time from the first one sent to the last one that arrived.
    pub elapsed: Duration,
}

/// Sends for `time` with at most a window of packets on the way, and waits for the last one.
fn send(bed: &Bed, load: Load, time: Duration, is_over: &dyn Fn() -> bool) -> Result<Lossless, LabError> {
    bed.enter_there()?;
    sys::pin(0);
    let mut sender = ToDevice::open(&Interface::find(0, "far1")?)?;
    let template = load.packets.template(load.bytes);
    let (mut packet, mut rng) = (template.clone(), SplitMix64::new(1));
    let before = received("far2")?;
    let start = Instant::now();
    let (mut sent, mut moved, mut arrived) = (0, start, 0);
    loop {
        let is_last = start.elapsed() >= time;
        if !is_last && sent - arrived + BURST <= WINDOW {
            for _ in 0..BURST {
                packet.copy_from_slice(&template);
                load.packets.write(&mut packet, rng.below(load.flows));
                sender.deliver(Port(0), &packet)?;
            }
            sender.flush()?;
            sent += BURST;
        } else {
            std::thread::yield_now();
        }
        let now = received("far2")?.saturating_sub(before);
        if now > arrived {
            (arrived, moved) = (now, Instant::now());
        }
        if is_last && arrived == sent {
            return Ok(Lossless { packets: sent, elapsed: moved - start });
        }
        if is_over() {
            // The reason is that of the function, or a signal.
            return Err(LabError::Interrupted);
        }
        if arrived > sent || moved.elapsed() > PATIENCE {
            return Err(LabError::Lost { sent, arrived, refused: sent.saturating_sub(sender.counters().sent) });
        }
    }
}

/// Measures the rate without loss at which packets leave a function by port 2, for `time`. One sender sends, whatever
/// `load` says. `stop` is the flag of a signal.
///
/// # Errors
/// The function or the generator cannot run, or a packet is lost.
pub fn lossless(
    bed: &Bed,
    station: &Station<'_>,
    load: Load,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Lossless, LabError> {
    beside(bed, station, stop, |is_over| send(bed, load, time, is_over)).map(|(sent, _)| sent)
}
