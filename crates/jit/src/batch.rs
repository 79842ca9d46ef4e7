// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches of packets: scouts overlap their cache misses, then the code runs on one packet after the other.
//!
//! ```text
//!  step i: the code on packet i ◄── its entry is prefetched ◄── scout: its key, whose line of the index is prefetched
//!          in order                 packet i + 16              packet i + 32
//! ```
//!
//! With a second wave, for the second lookup of each packet, the first one is 32 packets further ahead.
//!
//! Nothing depends on what a scout found: a packet sees the effects of all packets before it, of the same batch too.

use std::collections::VecDeque;

use flowloom_engine::{
    Choices, EngineError, Event, Fate, Frame, HEADROOM_BYTES, InPlace, Outcome, Output, Packet, Ports, Verdict,
};
use flowloom_flowtable::{FlowTable, Probe};
use flowloom_vm::{CONTEXT_ADDRESS, Destination};

use crate::compiled::Function;
use crate::engine::{Jit, NAME, TAILROOM_BYTES, execute, failed};
use crate::scout;
use crate::space::Native;

/// The packets that are wanted at once.
pub(crate) const BATCH: usize = 256;
/// The packets between one step of a wave and the next: the time in which a line arrives from memory.
const DISTANCE: usize = 16;
/// The most lookups of a packet that are announced.
const MAX_WAVES: usize = 2;
/// Tables that are smaller in all, in bytes, are in the cache, unless said otherwise.
const CACHED_BYTES: u64 = 256 << 10;
/// A wave in which fewer packets than this part of a batch have a key is left out.
const RARE: usize = 4;
/// The number of batches for which it is left out.
const PAUSE_BATCHES: u32 = 63;

/// The scout of a program, and what it found.
pub(crate) struct Ahead {
    scout: Function,
    waves: Vec<Wave>,
    /// The waves of the current batch: their number, or that of an earlier one if one is left out.
    active: usize,
    /// Tables that are smaller in all are in the cache.
    pub(crate) cached_bytes: u64,
}

/// A lookup of each packet, by its number.
#[derive(Debug, Default)]
struct Wave {
    /// The number of batches for which it is left out.
    paused: u32,
    /// The packets of the batch with a key.
    found: usize,
    /// By packet, the table and the probe; null without a key.
    probes: Vec<(*const FlowTable, Probe)>,
}

// SAFETY: the addresses lead to tables of the engine that owns this value, and are used during a batch only.
unsafe impl Send for Ahead {}

impl Ahead {
    /// For a program that looks keys up at `keys` instructions.
    pub(crate) fn new(scout: Function, keys: usize) -> Ahead {
        let waves = (0..keys.min(MAX_WAVES)).map(|_| Wave::default()).collect();
        Ahead { scout, waves, active: 0, cached_bytes: CACHED_BYTES }
    }

    /// Begins a batch; `None` if nothing is announced.
    fn begin(&mut self, packets: usize, table_bytes: u64) -> Option<&mut Ahead> {
        for wave in &mut self.waves {
            if wave.paused == 0 && wave.probes.len() >= 2 * DISTANCE && wave.found * RARE < wave.probes.len() {
                wave.paused = PAUSE_BATCHES;
            }
            wave.paused = wave.paused.saturating_sub(1);
            wave.found = 0;
            wave.probes.clear();
        }
        if table_bytes < self.cached_bytes {
            return None;
        }
        // A later wave without the one before would wait for its lines.
        self.active = self.waves.iter().take_while(|wave| wave.paused == 0).count();
        for wave in &mut self.waves[..self.active] {
            wave.probes.resize(packets, (std::ptr::null(), Probe::default()));
        }
        (self.active > 0).then_some(self)
    }

    /// The steps that the first wave is ahead of the code.
    fn lead(&self) -> usize {
        2 * DISTANCE * self.active
    }

    /// Where the first lookup of a packet is expected to find its key.
    fn hint(&self, packet: usize) -> Probe {
        self.waves[0].probes[packet].1
    }

    /// A step of all waves: each announces the key of one packet, and prefetches the entry of another.
    #[inline]
    fn step(&mut self, native: &mut Native, frames: &[Frame<'_>], step: usize) {
        for (number, wave) in (0..).zip(&mut self.waves[..self.active]) {
            let own = step.checked_sub(2 * DISTANCE * number as usize);
            if let Some(packet) = own.filter(|packet| *packet < frames.len()) {
                let found = announced(self.scout, native, &frames[packet], number);
                wave.found += usize::from(!found.0.is_null());
                wave.probes[packet] = found;
            }
            let own = own.and_then(|packet| packet.checked_sub(DISTANCE));
            if let Some((table, probe)) = own.and_then(|packet| wave.probes.get_mut(packet)) {
                // SAFETY: the table is null or one of this engine, which nothing changes now.
                if let Some(table) = unsafe { table.as_ref() } {
                    table.prefetch_entry(probe);
                }
            }
        }
    }
}

/// Runs the scout on a packet: the table and the probe of the key of a wave; null if there is none.
#[inline]
fn announced(scout: Function, native: &mut Native, frame: &Frame<'_>, wave: u32) -> (*const FlowTable, Probe) {
    native.show(frame.bytes(), frame.port.0);
    let state = native.state();
    // SAFETY: the state is that of this engine; the scout was compiled for its maps from a proved program, and writes
    // only its stack and the state.
    unsafe {
        (*state).now_ns = frame.time_ns;
        ((*state).budget, (*state).rounds) = (scout::ITERATIONS, 0);
        ((*state).wave, (*state).stopped, (*state).announced) = (wave, 0, std::ptr::null());
        scout(state, CONTEXT_ADDRESS, 0, 0, 0, 0);
        match (*state).announced.is_null() {
            true => (std::ptr::null(), Probe::default()),
            false => ((*state).announced, (*state).probe),
        }
    }
}

/// Packets that ran when they were announced.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) is_wanted: bool,
    /// The outcomes of those that have not been asked for.
    pub(crate) outcomes: VecDeque<Result<Outcome, EngineError>>,
    buffers: Vec<u8>,
}

impl Default for Announced {
    fn default() -> Announced {
        Announced { is_wanted: true, outcomes: VecDeque::new(), buffers: Vec::new() }
    }
}

impl InPlace for Jit {
    fn name(&self) -> &str {
        NAME
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.environment.bind_ports(ports);
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        let (draws, seed) = (self.draws, self.seed);
        let first = self.packets;
        self.packets += frames.len() as u64;
        let choose = |number: usize, time_ns: u64, choices: &mut Choices| match draws {
            true => *choices = Choices::seeded(time_ns, seed, first + number as u64),
            false => choices.now_ns = time_ns,
        };
        self.run_batch(frames, choose, &mut Sinks { extra, events: None })
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.environment.sweep(now_ns);
        Ok(())
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
}

/// What packets leave besides themselves.
struct Sinks<'a> {
    extra: &'a mut Vec<(usize, Output)>,
    /// By packet, the records for user space; [`Jit::events`] if `None`.
    events: Option<&'a mut Vec<Vec<Event>>>,
}

impl Jit {
    /// Runs packets, and keeps their outcomes.
    pub(crate) fn run_announced(&mut self, packets: &[(Packet<'_>, Choices)]) {
        let mut buffers = std::mem::take(&mut self.announced.buffers);
        let longest = packets.iter().map(|(packet, _)| packet.bytes.len()).max().unwrap_or(0);
        let room = (HEADROOM_BYTES + longest + TAILROOM_BYTES).next_multiple_of(64);
        buffers.resize(buffers.len().max(room * packets.len()), 0);
        let mut frames = Vec::with_capacity(packets.len());
        for ((packet, choices), buffer) in packets.iter().zip(buffers.chunks_exact_mut(room)) {
            let end = HEADROOM_BYTES + packet.bytes.len();
            buffer[HEADROOM_BYTES..end].copy_from_slice(packet.bytes);
            frames.push(Frame::new(buffer, HEADROOM_BYTES, end, packet.port, choices.now_ns));
        }
        let (mut extra, mut events) = (Vec::new(), Vec::new());
        let mut sinks = Sinks { extra: &mut extra, events: Some(&mut events) };
        let result = self.run_batch(&mut frames, |number, _, choices| *choices = packets[number].1, &mut sinks);
        // A fault ends the run: it is the outcome of the packet after those that have run.
        let ran = if result.is_ok() { frames.len() } else { events.len() };
        let (mut extra, mut events) = (extra.into_iter().peekable(), events.into_iter());
        for (number, frame) in frames.iter().enumerate().take(ran) {
            let mut outputs = Vec::new();
            while let Some((_, output)) = extra.next_if(|(of, _)| *of == number) {
                outputs.push(output);
            }
            let port = match frame.fate {
                Fate::Pass | Fate::Tx => Some(frame.port),
                Fate::Redirect(port) => Some(port),
                Fate::Aborted | Fate::Drop | Fate::Replaced(_) => None,
            };
            outputs.extend(port.map(|port| Output { port, bytes: frame.bytes().to_vec() }));
            let outcome = Outcome { verdict: frame.fate.verdict(), outputs, events: events.next().unwrap_or_default() };
            self.announced.outcomes.push_back(Ok(outcome));
        }
        self.announced.outcomes.extend(result.err().map(Err));
        self.announced.buffers = buffers;
    }

    /// Runs packets; `choose` sets the choices of a packet by its number and arrival time.
    #[inline]
    fn run_batch(
        &mut self,
        frames: &mut [Frame<'_>],
        choose: impl Fn(usize, u64, &mut Choices),
        sinks: &mut Sinks<'_>,
    ) -> Result<(), EngineError> {
        let Jit { environment, programs, ahead, has_records, events, .. } = self;
        let Some(entry) = programs.first().copied().flatten() else { return Err(failed(0, "no code".to_owned())) };
        let table_bytes = environment.space().table_bytes();
        let mut ahead = ahead.as_mut().and_then(|ahead| ahead.begin(frames.len(), table_bytes));
        let lead = ahead.as_ref().map_or(0, |ahead| ahead.lead());
        environment.run_batch(|run| {
            let state = run.memory.state();
            for step in 0..frames.len() + lead {
                if let Some(ahead) = &mut ahead {
                    ahead.step(run.memory, frames, step);
                }
                let Some(number) = step.checked_sub(lead) else { continue };
                let frame = &mut frames[number];
                run.reset();
                choose(number, frame.time_ns, &mut run.choices);
                let (start, end, port) = (frame.start(), frame.end(), frame.port);
                run.memory.begin(frame.buffer_mut(), (start, end), port.0);
                let hint = ahead.as_ref().map_or(Probe::default(), |ahead| ahead.hint(number));
                // SAFETY: the state is that of this engine, whose code does not run now.
                unsafe { (*state).hint = hint };
                let r0 = match execute(entry, state, run, programs) {
                    Ok(r0) => r0,
                    Err(fault) => {
                        // Reserved records are discarded at the end of a packet.
                        run.events();
                        return Err(fault);
                    }
                };
                let (start, end) = run.memory.bounds();
                frame.set_bounds(start, end);
                if !run.outputs.is_empty() {
                    let outputs = run.outputs.drain(..).filter(|output| run.ports.is_bound(output.port));
                    sinks.extra.extend(outputs.map(|output| (number, output)));
                }
                frame.fate = match run.destination(port, r0) {
                    (Verdict::Pass, _) => Fate::Pass,
                    (Verdict::Drop, _) => Fate::Drop,
                    (Verdict::Tx, _) => Fate::Tx,
                    (Verdict::Redirect, Destination::Port(port)) => Fate::Redirect(port),
                    (Verdict::Redirect, Destination::Ports { map, but }) => {
                        let copy = |port| (number, Output { port, bytes: frame.bytes().to_vec() });
                        sinks.extra.extend(run.ports_of(map, but).into_iter().map(copy));
                        Fate::Replaced(Verdict::Redirect)
                    }
                    (Verdict::Aborted, _) | (Verdict::Redirect, Destination::None) => Fate::Aborted,
                };
                match &mut sinks.events {
                    Some(events) => events.push(run.events()),
                    None if *has_records => events.append(&mut run.events()),
                    None => {}
                }
            }
            Ok(())
        })
    }
}
