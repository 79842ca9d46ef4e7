// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet rates: over wires, and from memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowloom_engine::{InPlace, Port};
use flowloom_exec::{Interface, SweepClock};
use flowloom_ports::{Device, Hooks, Host, LoopOptions, Statistics, ToDevice, run_loop};
use flowloom_random::{Draw, SplitMix64};

use crate::bed::{Bed, joined, received};
use crate::error::LabError;
use crate::memory::Memory;
use crate::packets::Packets;
use crate::station::{Ran, Station, beside};
use crate::sys;

/// The packets between two looks at the stop flag.
const BURST: u64 = 64;
/// The time between two looks at what has arrived.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The patience for a first packet: on a busy machine a thread waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time in which packets on the way arrive.
const SETTLE: Duration = Duration::from_millis(50);

/// The packets that a generator sends, as fast as it can.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub packets: Packets,
    /// The length of a packet without its check sequence.
    pub bytes: usize,
    /// Packets are of random flows below this number.
    pub flows: u64,
    /// The number of senders, each on a CPU of its own.
    pub senders: usize,
}

/// A measured rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Packets a second that have arrived after the function.
    pub per_second: f64,
    /// The packets sent, and those that have arrived from the first to the last.
    pub sent: u64,
    pub arrived: u64,
    /// Nanoseconds of the function's CPU for a packet that it has received; `None` in the kernel, whose programs run on
    /// the sender's CPU.
    pub cpu_ns: Option<f64>,
    /// Nanoseconds of the senders' CPUs for a packet, in the kernel with the function.
    pub sender_ns: f64,
}

/// Sends until `stop` is set; returns the number of packets, and the time on the processor.
fn send(bed: &Bed, cpu: usize, load: Load, stop: &AtomicBool) -> Result<(u64, Duration), LabError> {
    bed.enter_there()?;
    sys::pin(cpu);
    let mut sender = ToDevice::open(&Interface::find(0, "far1")?)?;
    let template = load.packets.template(load.bytes);
    let mut packet = template.clone();
    let mut rng = SplitMix64::new(cpu as u64);
    let before = sys::processor_time();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            packet.copy_from_slice(&template);
            load.packets.write(&mut packet, rng.below(load.flows));
            sender.deliver(Port(0), &packet)?;
        }
    }
    sender.flush()?;
    Ok((sender.counters().sent, sys::processor_time() - before))
}

/// The counters of a generator.
struct Generated {
    in_time: u64,
    elapsed: Duration,
    sent: u64,
    arrived: u64,
    cpu: Duration,
}

/// Counts what arrives at `far2` for `time` after the first moments; returns the time too.
fn count(time: Duration, is_over: &(dyn Fn() -> bool + Sync)) -> Result<(u64, Duration), LabError> {
    std::thread::sleep(SETTLE);
    let (before, start) = (received("far2")?, Instant::now());
    loop {
        let elapsed = start.elapsed();
        let arrived = received("far2")?.saturating_sub(before);
        let is_enough = elapsed >= time && (arrived > 0 || elapsed >= time + PATIENCE);
        if is_enough || is_over() {
            return Ok((arrived, elapsed));
        }
        std::thread::sleep(time.saturating_sub(elapsed).clamp(LOOK_EVERY, SETTLE));
    }
}

/// Sends for `time`, and counts what arrives at `far2` after the first moments. Ends early when `is_over` says so.
fn generate(bed: &Bed, load: Load, time: Duration, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Generated, LabError> {
    bed.enter_there()?;
    let no_more = AtomicBool::new(false);
    let first = received("far2")?;
    std::thread::scope(|scope| {
        let no_more = &no_more;
        let senders: Vec<_> = (0..load.senders).map(|cpu| scope.spawn(move || send(bed, cpu, load, no_more))).collect();
        let counted = count(time, is_over);
        no_more.store(true, Ordering::Relaxed);
        let (mut sent, mut cpu) = (0, Duration::ZERO);
        for sender in senders {
            let (own, time) = joined(sender.join())?;
            (sent, cpu) = (sent + own, cpu + time);
        }
        std::thread::sleep(SETTLE);
        let (in_time, elapsed) = counted?;
        Ok(Generated { in_time, elapsed, sent, arrived: received("far2")?.saturating_sub(first), cpu })
    })
}

/// Measures the rate at which packets leave a function by port 2, for `time`, longer if none has left. `stop` is the
/// flag of a signal.
///
/// # Errors
/// The function or the generator cannot run, or nothing arrives.
pub fn rate(bed: &Bed, station: &Station<'_>, load: Load, time: Duration, stop: &AtomicBool) -> Result<Rate, LabError> {
    let (generated, Ran { user }) = beside(bed, station, stop, |is_over| generate(bed, load, time, is_over))?;
    let Generated { in_time, elapsed, sent, arrived, cpu } = generated;
    if in_time == 0 {
        return Err(LabError::Nothing { name: "rate".to_owned(), sent });
    }
    let cpu_ns = user.map(|(found, cpu)| cpu.as_nanos() as f64 / found.packets.max(1) as f64);
    let sender_ns = cpu.as_nanos() as f64 / sent.max(1) as f64;
    Ok(Rate { per_second: in_time as f64 / elapsed.as_secs_f64(), sent, arrived, cpu_ns, sender_ns })
}

/// The counters of a run from memory, and its time on the processor.
#[derive(Debug)]
pub struct FromMemory {
    pub found: Statistics,
    pub cpu: Duration,
}

impl FromMemory {
    /// Nanoseconds of the processor for a packet.
    pub fn packet_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.found.packets.max(1) as f64
    }
}

/// Runs all packets of a memory through an engine, in the calling thread.
///
/// # Errors
/// The engine fails.
pub fn from_memory(
    engine: &mut dyn InPlace,
    memory: Memory,
    sweep: &SweepClock,
    stop: &AtomicBool,
) -> Result<FromMemory, LabError> {
    let mut devices: [Box<dyn Device>; 1] = [Box::new(memory)];
    let options = LoopOptions { sweep: sweep.clone(), ..LoopOptions::default() };
    let before = sys::processor_time();
    let found = run_loop(&mut devices, engine, None, &options, stop, Hooks::default())?;
    Ok(FromMemory { found, cpu: sys::processor_time() - before })
}
