// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches of packets: scouts overlap their cache misses, then the code runs on one packet after the other.
//!
//! ```text
//!  step i: the code on group i ◄── its entries are prefetched ◄── scout: keys, whose lines of the index are prefetched
//!          in order                group i + 1                    group i + 2
//! ```
//!
//! With a second wave, for the second lookup of each packet, the first one is two groups further ahead. That is the way
//! of programs with a second wave, and of packets with random draws; others run in loops of machine code
//! ([`crate::pipeline`]), which return for what the environment has to do.
//!
//! A packet sees the effects of all packets before it, of the same batch too: the code goes on where its scout ended
//! only if what the scout did depends on the packet alone, and looks the key up again.

use std::borrow::{Borrow, BorrowMut};
use std::collections::VecDeque;
use std::ops::Range;

use flowloom_engine::{
    Choices, EngineError, Event, Fate, Frame, HEADROOM_BYTES, InPlace, Outcome, Outcomes, Output, Packet, Ports,
    Verdict,
};
use flowloom_flowtable::{FlowTable, Probe, prefetch_entries, prefetch_homes, prefetch_to_write};
use flowloom_isa::limits::STACK_BYTES;
use flowloom_vm::{Destination, Run, SweepPlace};

use crate::compiled::Function;
use crate::engine::{Jit, NAME, TAILROOM_BYTES, enter, failed, fault, reset};
use crate::packets::{Frames, Packets, quick_fate, view_of};
use crate::pipeline::{ENDED, LEAD, PLAIN, REASON_BITS, RECORDS};
use crate::runtime::{Running, last_redirect};
use crate::space::Native;
use crate::state::{Announced as Key, BY_HELPER, NO_HELPER, NO_HINT, RECORD_BYTES, View};

/// The packets that are wanted at once.
pub(crate) const BATCH: usize = 256;
/// The packets of a step: in the time that they take, a line arrives from memory.
const GROUP: usize = 8;
/// The most lookups of a packet that are announced.
pub(crate) const MAX_WAVES: usize = 2;
/// Tables that are smaller in all, in bytes, are in the cache, unless said otherwise.
const CACHED_BYTES: u64 = 256 << 10;
/// A wave in which fewer packets than this part of a batch have a key is left out.
const RARE: usize = 4;
/// The number of batches for which it is left out.
const PAUSE_BATCHES: u32 = 63;

/// The scout of a program, and what it found.
pub(crate) struct Ahead {
    /// The code that goes on where the scout has found the first key.
    resumed: Option<Function>,
    /// The loop of machine code over packets with their scouts.
    pipeline: Option<Function>,
    /// True if the scouts of the pipeline do what those of the second wave would do.
    announces_second: bool,
    waves: Vec<Wave>,
    /// The waves of the current batch: their number, or that of an earlier one if one is left out.
    active: usize,
    /// Tables that are smaller in all are in the cache.
    pub(crate) cached_bytes: u64,
}

/// A lookup of each packet, by its number.
#[derive(Debug)]
struct Wave {
    scout: Function,
    /// The number of batches for which it is left out.
    paused: u32,
    /// The packets of the batch, and those with a key.
    packets: usize,
    found: usize,
    records: Records,
}

/// The records of packets that are on their way, by the number of the packet.
#[derive(Debug, Default)]
struct Records {
    lines: Vec<Line>,
    /// The number of records less 1; there are a power of 2, so that they stay in the cache.
    mask: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Records {
    /// Makes room for at least this number of packets.
    fn hold(&mut self, packets: usize) {
        let count = packets.next_power_of_two();
        // Zeros are records without a key.
        self.lines.resize(self.lines.len().max(count * RECORD_BYTES / size_of::<Line>()), Line([0; 64]));
        self.mask = count - 1;
    }

    /// The record of a packet: it begins after its stack.
    #[inline]
    fn of(&mut self, packet: usize) -> *mut Key {
        let at = (packet & self.mask) * RECORD_BYTES + STACK_BYTES;
        self.lines.as_mut_ptr().wrapping_byte_add(at).cast()
    }

    /// Makes all records ones without a key: tables may have changed since they were written.
    fn forget(&mut self) {
        for packet in 0..=self.mask {
            // SAFETY: the record is one of those, and nothing else refers to it.
            unsafe {
                ((*self.of(packet)).key.table, (*self.of(packet)).second.table) = (std::ptr::null(), std::ptr::null())
            };
        }
    }

    /// The keys of packets that have one, each with its table.
    #[inline]
    fn keys(&mut self, packets: Range<usize>) -> impl Iterator<Item = (&FlowTable, &mut Probe)> {
        packets.filter_map(|packet| {
            // SAFETY: the record is that of a packet on its way, which nothing else refers to; the table is null or one
            // of this engine, which nothing changes now.
            unsafe {
                let key = self.of(packet);
                Some(((*key).key.table.as_ref()?, &mut (*key).key.probe))
            }
        })
    }
}

// SAFETY: the addresses lead to tables of the engine that owns this value, and are used during a batch only.
unsafe impl Send for Ahead {}

/// A loop of machine code over packets ([`crate::pipeline`]).
struct Loop<'a> {
    code: Function,
    /// The iterations between a packet's scout and its code.
    lead: usize,
    /// The records, and the number of keys found; none without scouts.
    wave: Option<(&'a mut Records, &'a mut usize)>,
}

/// The packets of a group.
fn packets(group: usize, count: usize) -> Range<usize> {
    (group * GROUP).min(count)..((group + 1) * GROUP).min(count)
}

/// Prefetches the packets of a group, and the frames of the next one. Other cores may have read both: where a line is
/// shared, a store waits for its owner, and all later stores with it.
#[inline]
fn warm<'b, F: Borrow<Frame<'b>>>(frames: &[F], group: usize) {
    for number in packets(group + 1, frames.len()) {
        let frame: &Frame<'b> = frames[number].borrow();
        prefetch_to_write(frame);
    }
    for number in packets(group, frames.len()) {
        let frame: &Frame<'b> = frames[number].borrow();
        prefetch_to_write(frame.bytes().as_ptr());
    }
}

impl Ahead {
    /// For a program with these scouts, one for each wave. If code can go on after them, with the function that does,
    /// and the pipeline, whose scouts may announce second keys too.
    pub(crate) fn new(scouts: Vec<Function>, resumed: Option<Function>, pipeline: Option<(Function, bool)>) -> Ahead {
        let wave = |scout| Wave { scout, paused: 0, packets: 0, found: 0, records: Records::default() };
        let waves = scouts.into_iter().map(wave).collect();
        let (pipeline, announces_second) = pipeline.unzip();
        let announces_second = announces_second.unwrap_or(false);
        Ahead { resumed, pipeline, announces_second, waves, active: 0, cached_bytes: CACHED_BYTES }
    }

    #[cfg(test)]
    pub(crate) fn has_pipeline(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Begins a batch; `None` if nothing is announced.
    fn begin(&mut self, packets: usize, table_bytes: u64, may_pipeline: bool) -> Option<&mut Ahead> {
        for wave in &mut self.waves {
            if wave.paused == 0 && wave.packets >= 2 * GROUP && wave.found * RARE < wave.packets {
                wave.paused = PAUSE_BATCHES;
            }
            wave.paused = wave.paused.saturating_sub(1);
            wave.found = 0;
        }
        // A later wave without the one before would wait for its lines.
        let ready = self.waves.iter().take_while(|wave| wave.paused == 0).count();
        let (has_pipeline, is_cached) = (may_pipeline && self.pipeline.is_some(), table_bytes < self.cached_bytes);
        // In the pipeline, one key costs less than what it saves where tables are cached too: the code need not wait
        // for the hash and for the second level. A second key does not.
        let most = match (has_pipeline, is_cached) {
            (true, false) if self.announces_second => 1,
            (_, false) => ready,
            // A short batch would consist of iterations without a packet for most of the loop.
            (true, true) if !self.announces_second && packets >= 2 * LEAD => 1,
            (_, true) => 0,
        };
        self.active = ready.min(most);
        // From the first step of a packet to its last one.
        let on_their_way = RECORDS.max((self.lead() + 1) * GROUP);
        for (number, wave) in self.waves.iter_mut().enumerate() {
            wave.packets = if number < self.active { packets } else { 0 };
            wave.records.hold(on_their_way);
        }
        (self.active > 0).then_some(self)
    }

    /// The pipeline, if the only wave of the batch is the first one.
    fn pipeline(&mut self) -> Option<Loop<'_>> {
        let code = self.pipeline.filter(|_| self.active == 1)?;
        let Wave { records, found, .. } = self.waves.first_mut()?;
        Some(Loop { code, lead: LEAD, wave: Some((records, found)) })
    }

    /// The steps that the first wave is ahead of the code.
    fn lead(&self) -> usize {
        2 * self.active
    }

    /// The record of a packet's first lookup.
    #[inline]
    fn record(&mut self, packet: usize) -> *mut Key {
        self.waves[0].records.of(packet)
    }

    /// A step of all waves: each announces the keys of one group, and prefetches the entries of another.
    fn step<'b, F: Borrow<Frame<'b>>>(&mut self, native: &mut Native, frames: &[F], step: usize) {
        for (number, wave) in (0..).zip(&mut self.waves[..self.active]) {
            let Some(group) = step.checked_sub(2 * number as usize) else { continue };
            let own = packets(group, frames.len());
            if !own.is_empty() {
                let first = wave.records.of(own.start);
                wave.found += announce(wave.scout, native, &frames[own.clone()], number, first);
            }
            prefetch_homes(wave.records.keys(own));
            let Some(group) = group.checked_sub(1) else { continue };
            prefetch_entries(wave.records.keys(packets(group, frames.len())));
        }
    }
}

/// Runs the scout on the packets of a group, whose records lie one after the other: finds the keys of a wave. Returns
/// the number of packets that have one.
#[inline]
fn announce<'b, F: Borrow<Frame<'b>>>(
    scout: Function,
    native: &mut Native,
    frames: &[F],
    wave: u32,
    first: *mut Key,
) -> usize {
    let mut views = [View::default(); GROUP];
    for (view, frame) in views.iter_mut().zip(frames) {
        let frame: &Frame<'b> = frame.borrow();
        *view = view_of(frame);
    }
    let (views, packets) = (views.as_ptr() as u64, frames.len().min(GROUP) as u64);
    // SAFETY: the state is that of this engine; the scout was compiled for its maps from a proved program, and writes
    // only the state, and the records with their stacks, which nothing else refers to. There is a packet at least, and
    // a view of each.
    unsafe { scout(native.state(), views, packets, first as u64, wave.into(), 0) as usize }
}

/// Packets that ran when they were announced.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) is_wanted: bool,
    /// The outcomes of those that have not been asked for.
    pub(crate) outcomes: VecDeque<Result<Outcome, EngineError>>,
    /// The memory of a batch.
    list: Outcomes,
    buffers: Vec<u8>,
    views: Vec<View>,
}

impl Default for Announced {
    fn default() -> Announced {
        Announced {
            is_wanted: true,
            outcomes: VecDeque::new(),
            list: Outcomes::default(),
            buffers: Vec::new(),
            views: Vec::new(),
        }
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
        self.run_each(frames, extra)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.environment.sweep(now_ns);
        Ok(())
    }

    fn sweep_step(&mut self, now_ns: u64, share: f64, most: u32) -> Result<bool, EngineError> {
        let has_ended = self.environment.sweep_step(now_ns, &mut self.sweeping, share, most);
        if has_ended {
            self.sweeping = SweepPlace::default();
        }
        Ok(has_ended)
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
}

/// What packets leave besides themselves.
pub(crate) struct Sinks<'a> {
    pub(crate) extra: &'a mut Vec<(usize, Output)>,
    /// By packet, the records for user space; [`Jit::events`] if `None`.
    pub(crate) events: Option<&'a mut Vec<Vec<Event>>>,
    /// The packets that have run.
    pub(crate) ran: usize,
}

impl Jit {
    /// As [`InPlace::run`], on frames that need not lie side by side.
    ///
    /// # Errors
    /// Those of [`InPlace::run`].
    pub fn run_each<'b, F: BorrowMut<Frame<'b>>>(
        &mut self,
        frames: &mut [F],
        extra: &mut Vec<(usize, Output)>,
    ) -> Result<(), EngineError> {
        let (draws, seed) = (self.draws, self.seed);
        let first = self.packets;
        self.packets += frames.len() as u64;
        let choose = |number: usize, time_ns: u64, choices: &mut Choices| match draws {
            true => *choices = Choices::seeded(time_ns, seed, first + number as u64),
            false => choices.now_ns = time_ns,
        };
        self.run_batch(&mut Frames(frames), choose, !draws, &mut Sinks { extra, events: None, ran: 0 })
    }

    /// Runs packets, and keeps their outcomes.
    pub(crate) fn run_announced(&mut self, packets: &[(Packet<'_>, Choices)]) {
        let mut outcomes = std::mem::take(&mut self.announced.list);
        outcomes.clear();
        let result = self.run_packets(packets, &mut outcomes);
        let ran = (0..outcomes.len()).filter_map(|number| outcomes.get(number)).map(Ok);
        // A fault ends the run: it is the outcome of the packet after those that have run.
        self.announced.outcomes.extend(ran.chain(result.err().map(Err)));
        self.announced.list = outcomes;
    }

    /// The bytes before and after a copy of a packet. Packets that stay where they are need none, so that more of them
    /// are in the cache.
    pub(crate) fn room_around(&self) -> (usize, usize) {
        if self.moves { (HEADROOM_BYTES, TAILROOM_BYTES) } else { (0, 0) }
    }

    /// Runs a batch of packets on copies, and appends their outcomes: after a fault, those of the packets before.
    pub(crate) fn run_packets(
        &mut self,
        packets: &[(Packet<'_>, Choices)],
        outcomes: &mut Outcomes,
    ) -> Result<(), EngineError> {
        let mut buffers = std::mem::take(&mut self.announced.buffers);
        let (headroom, tailroom) = self.room_around();
        let room = |packet: &Packet<'_>| (headroom + packet.bytes.len() + tailroom).next_multiple_of(64);
        let all = packets.iter().map(|(packet, _)| room(packet)).sum();
        if buffers.len() < all {
            buffers.resize(all, 0);
        }
        let mut frames = Vec::with_capacity(packets.len());
        let mut rest = &mut buffers[..];
        for (packet, choices) in packets {
            let (buffer, after) = std::mem::take(&mut rest).split_at_mut(room(packet));
            rest = after;
            let end = headroom + packet.bytes.len();
            buffer[headroom..end].copy_from_slice(packet.bytes);
            frames.push(Frame::new(buffer, headroom, end, packet.port, choices.now_ns));
        }
        let (mut extra, mut events) = (Vec::new(), Vec::new());
        let has_records = self.has_records;
        let mut sinks = Sinks { extra: &mut extra, events: has_records.then_some(&mut events), ran: 0 };
        let is_first_cpu = packets.iter().all(|(_, choices)| choices.cpu == 0);
        let choose = |number: usize, _, choices: &mut Choices| *choices = packets[number].1;
        let result = self.run_batch(&mut Frames(&mut frames), choose, is_first_cpu && !self.draws, &mut sinks);
        let ran = sinks.ran;
        let (mut extra, mut events) = (extra.into_iter().peekable(), events.into_iter());
        for (number, frame) in frames.iter().enumerate().take(ran) {
            while let Some((_, output)) = extra.next_if(|(of, _)| *of == number) {
                outcomes.send(output.port, &output.bytes);
            }
            match frame.fate {
                Fate::Pass | Fate::Tx => outcomes.send(frame.port, frame.bytes()),
                Fate::Redirect(port) => outcomes.send(port, frame.bytes()),
                Fate::Aborted | Fate::Drop | Fate::Replaced(_) => {}
            }
            events.next().into_iter().flatten().for_each(|event| outcomes.log(event));
            outcomes.end(frame.fate.verdict());
        }
        self.announced.buffers = buffers;
        result
    }

    /// Runs packets; `choose` sets the choices of a packet by its number and arrival time. `may_pipeline` tells that
    /// they are the time alone.
    #[inline]
    pub(crate) fn run_batch<'b, P: Packets<'b>>(
        &mut self,
        packets: &mut P,
        choose: impl Fn(usize, u64, &mut Choices),
        may_pipeline: bool,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), EngineError> {
        let Jit { environment, programs, plain_loop, ahead, has_records, moves, events, announced, .. } = self;
        let Some(entry) = programs.first().copied().flatten() else { return Err(failed(0, "no code".to_owned())) };
        let table_bytes = environment.space().table_bytes();
        let mut ahead = ahead.as_mut().and_then(|ahead| ahead.begin(packets.count(), table_bytes, may_pipeline));
        environment.run_batch(|run| {
            let running = Running { run, programs };
            let mut batch = Batch { running, entry, moves: *moves, has_records: *has_records, events, sinks };
            let found = match &mut ahead {
                Some(ahead) => ahead.pipeline(),
                None => plain_loop.map(|code| Loop { code, lead: 0, wave: None }),
            };
            match found.filter(|_| may_pipeline) {
                Some(found) => batch.in_loop(packets, found, &mut announced.views, choose),
                None => batch.in_groups(packets.frames(), ahead, choose),
            }
        })
    }
}

/// A batch on its way.
struct Batch<'a, 'r, 's> {
    running: Running<'a, 'r>,
    /// The code from the program's beginning.
    entry: Function,
    moves: bool,
    has_records: bool,
    events: &'a mut Vec<Event>,
    sinks: &'a mut Sinks<'s>,
}

impl Batch<'_, '_, '_> {
    /// Runs the packets group by group, with the waves ahead of them, if any.
    fn in_groups<'b, F: BorrowMut<Frame<'b>>>(
        &mut self,
        frames: &mut [F],
        mut ahead: Option<&mut Ahead>,
        choose: impl Fn(usize, u64, &mut Choices),
    ) -> Result<(), EngineError> {
        let lead = ahead.as_ref().map_or(0, |ahead| ahead.lead());
        warm(frames, 0);
        for step in 0..frames.len().div_ceil(GROUP) + lead {
            warm(frames, step + 1);
            if let Some(ahead) = &mut ahead {
                ahead.step(self.running.run.memory, frames, step);
            }
            let Some(group) = step.checked_sub(lead) else { continue };
            for number in packets(group, frames.len()) {
                let frame = frames[number].borrow_mut();
                choose(number, frame.time_ns, &mut self.running.run.choices);
                let record = ahead.as_mut().map(|ahead| (ahead.record(number), ahead.resumed));
                self.run_one(number, frame, record)?;
            }
        }
        Ok(())
    }

    /// Runs the packets in a loop of machine code.
    fn in_loop<'b, P: Packets<'b>>(
        &mut self,
        packets: &mut P,
        Loop { code, lead, mut wave }: Loop<'_>,
        views: &mut Vec<View>,
        choose: impl Fn(usize, u64, &mut Choices),
    ) -> Result<(), EngineError> {
        let state = self.running.run.memory.state();
        for first in (0..packets.count()).step_by(BATCH) {
            let part = BATCH.min(packets.count() - first);
            let (views, feed) = packets.views(first..first + part, wave.is_some(), views);
            if let Some((records, found)) = &mut wave {
                records.forget();
                // But for those that turn out to have none.
                **found += part;
            }
            // SAFETY: the state is that of this engine, whose code does not run.
            unsafe {
                reset(state, &mut self.running);
                ((*state).cpu, (*state).hint) = (0, &raw const NO_HINT);
            }
            let (mut iteration, mut ended) = (0, 0);
            while ended < part {
                let records_at = wave.as_mut().map_or(0, |(records, _)| records.of(0) as u64);
                let (views_at, count) = (views as u64, part as u64);
                // SAFETY: the state is that of this engine; the code was compiled for its maps from a proved program.
                // It reads and writes views of this many packets, which are within their buffers, and the records. With a
                // feed it also writes as many spare views as the feed allows, and reads its packets, which outlive the
                // batch. The environment lives until the code returns.
                let returned = unsafe { code(state, views_at, iteration, count, records_at, feed as u64) };
                iteration = returned >> REASON_BITS;
                let (last, reason) = match returned & ((1 << REASON_BITS) - 1) {
                    ENDED => (part, ENDED),
                    // The iteration was that of the packet.
                    reason => (iteration as usize - 1 - lead, reason),
                };
                // The last packet's, not that of the packets before it.
                let redirect_by_helper = self.running.run.redirect.take();
                while ended < last {
                    // SAFETY: the packets have views, which the code has left, and which are not written meanwhile.
                    let quiet = unsafe { std::slice::from_raw_parts(views.add(ended), last - ended) };
                    let mut count = packets.end_quick(first + ended, quiet, self.running.run.ports);
                    if ended + count < last {
                        // SAFETY: as above.
                        let View { r0, redirect, .. } = unsafe { *views.add(ended + count) };
                        self.decide(first + ended + count, packets.frame(first + ended + count), r0, redirect);
                        packets.end_frame(first + ended + count);
                        count += 1;
                    }
                    ended += count;
                    self.ended(first + ended, count);
                }
                if reason == ENDED {
                    continue;
                }
                let frame = packets.frame(first + last);
                self.running.run.redirect = redirect_by_helper;
                choose(first + last, frame.time_ns, &mut self.running.run.choices);
                if reason == PLAIN {
                    // A key that the code does not go on from saves little more than none.
                    if let Some((_, found)) = &mut wave {
                        **found -= 1;
                    }
                    self.run_one(first + last, frame, None)?;
                } else {
                    // SAFETY: as above, and the code has returned.
                    let (View { r0, redirect, .. }, by_state) = unsafe { (*views.add(last), (*state).redirect) };
                    self.end_one(first + last, frame, r0, if redirect == BY_HELPER { by_state } else { redirect })?;
                }
                packets.end_frame(first + last);
                ended += 1;
                // SAFETY: as above.
                unsafe { reset(state, &mut self.running) };
            }
        }
        Ok(())
    }

    /// Runs a packet, from where its scout ended if its record has a point.
    #[inline(always)]
    fn run_one(
        &mut self,
        number: usize,
        frame: &mut Frame<'_>,
        record: Option<(*mut Key, Option<Function>)>,
    ) -> Result<(), EngineError> {
        let run = &mut *self.running.run;
        let state = run.memory.state();
        if self.moves {
            let (start, end, port) = (frame.start(), frame.end(), frame.port);
            run.memory.begin(frame.buffer_mut(), (start, end), port.0);
        } else {
            run.memory.show(frame.bytes(), frame.port.0);
        }
        // SAFETY: the state is that of this engine; the code was compiled for its maps from a proved program, which
        // runs on a packet within its buffer. The environment lives until the code returns. The record is that of this
        // packet.
        let (r0, redirect) = unsafe {
            ((*state).now_ns, (*state).cpu) = (run.choices.now_ns, run.choices.cpu);
            let mut code = self.entry;
            (*state).hint = &raw const NO_HINT;
            if let Some((record, resumed)) = record {
                ((*state).hint, (*state).announced) = (&raw const (*record).key.probe, record);
                if let Some(resumed) = resumed.filter(|_| (*record).point != 0) {
                    code = resumed;
                }
            }
            (enter(code, state, &mut self.running), (*state).redirect)
        };
        self.end_one(number, frame, r0, redirect)
    }

    /// The end of a packet that has run: its outputs, records and fate.
    #[inline(always)]
    fn end_one(&mut self, number: usize, frame: &mut Frame<'_>, r0: u64, redirect: i64) -> Result<(), EngineError> {
        let run = &mut *self.running.run;
        if let Some(fault) = fault(run.memory) {
            // Reserved records are discarded at the end of a packet.
            run.events();
            return Err(fault);
        }
        if self.moves && !run.memory.is_unmoved() {
            let (start, end) = run.memory.bounds();
            frame.set_bounds(start, end);
        }
        if !run.outputs.is_empty() {
            let outputs = run.outputs.drain(..).filter(|output| run.ports.is_bound(output.port));
            self.sinks.extra.extend(outputs.map(|output| (number, output)));
        }
        self.decide(number, frame, r0, redirect);
        let run = &mut *self.running.run;
        match &mut self.sinks.events {
            Some(events) => events.push(run.events()),
            None if self.has_records => self.events.append(&mut run.events()),
            None => {}
        }
        // SAFETY: the state is that of this engine, whose code has returned.
        if unsafe { (*run.memory.state()).at } != NO_HELPER {
            run.reset();
        }
        self.sinks.ran = number + 1;
        Ok(())
    }

    /// Notes that the first `ran` packets have run, the last `count` of them without records for user space.
    #[inline]
    fn ended(&mut self, ran: usize, count: usize) {
        if let Some(events) = &mut self.sinks.events {
            events.resize(events.len() + count, Vec::new());
        }
        self.sinks.ran = ran;
    }

    /// Sets the fate of a packet.
    #[inline(always)]
    fn decide(&mut self, number: usize, frame: &mut Frame<'_>, r0: u64, redirect: i64) {
        let run = &mut *self.running.run;
        frame.fate = quick_fate(run.ports, r0, redirect).unwrap_or_else(|| {
            run.redirect = last_redirect(redirect, run.redirect);
            let fate = fate(run, (number, frame), r0, self.sinks.extra);
            run.redirect = None;
            fate
        });
    }
}

/// The fate of a packet; its copies are added to the outputs.
fn fate(
    run: &Run<'_, Native>,
    (number, frame): (usize, &Frame<'_>),
    r0: u64,
    extra: &mut Vec<(usize, Output)>,
) -> Fate {
    match run.destination(frame.port, r0) {
        (Verdict::Pass, _) => Fate::Pass,
        (Verdict::Drop, _) => Fate::Drop,
        (Verdict::Tx, _) => Fate::Tx,
        (Verdict::Redirect, Destination::Port(port)) => Fate::Redirect(port),
        (Verdict::Redirect, Destination::Ports { map, but }) => {
            let copy = |port| (number, Output { port, bytes: frame.bytes().to_vec() });
            extra.extend(run.ports_of(map, but).into_iter().map(copy));
            Fate::Replaced(Verdict::Redirect)
        }
        (Verdict::Aborted, _) | (Verdict::Redirect, Destination::None) => Fate::Aborted,
    }
}
