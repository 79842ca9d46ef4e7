// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cycle model of a pipeline; cycles without events are skipped.
//!
//! In each cycle, in this order:
//!
//! 1. From the last pipe to the first: keys whose hold has ended are released, and the packet after the last stage
//!    moves on if there is room; otherwise the pipe stalls in this cycle.
//! 2. Packets arrive, or are lost.
//! 3. Each place issues a packet into the pipe after it, unless that stalls.
//! 4. Writes flush the packets that have read too early.

use super::arrival::{Arrival, Arrivals};
use super::buffer::{Buffer, Counts, ElasticBuffer, Input};
use super::error::PredictError;
use super::layout::{EventKind, Kind, Place, places};
use super::options::{Clock, PredictOptions, WORD_BYTES};
use super::packets::{Facts, Number, Packets};
use super::pipe::Pipe;
use super::scheduler::Scheduler;
use flowloom_plan::{Scheme, Timing};

/// A pipeline and the packets in it.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) input: Input,
    /// The place after the pipe of the same index.
    pub(super) buffers: Vec<Buffer>,
    pub(super) pipes: Vec<Pipe>,
    /// The pipes in which writes may flush packets.
    commits: std::ops::Range<usize>,
    /// By map, the place where packets wait for it.
    waits: Vec<Option<usize>>,
    packets: Packets,
    reload_cycles: u64,
    /// The cycles of framing and realignment, which add latency and nothing else.
    around_cycles: u64,
    now: u64,
    has_moved: bool,
    clock: Clock,
    /// The next packet, and its arrival.
    next: Arrival,
    next_at: Next,
    packets_left: u64,
    output_words: u64,
    output_free_at: u64,
    pub(super) counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Unknown,
    At(u64),
    /// As soon as the input can take it.
    WhenAccepted,
    Ended,
}

impl Model {
    pub(super) fn new(timing: &Timing, options: &PredictOptions) -> Result<Model, PredictError> {
        options.check()?;
        let places = places(timing)?;
        let buffer = |place: &Place| match place.kind {
            Kind::Input => None,
            Kind::Scheduler(map) => {
                let own = Scheduler::new(map, &timing.maps[map], timing.arbiter, place.hold_cycles);
                Some(Buffer::Scheduler(own))
            }
            Kind::Elastic => Some(Buffer::Elastic(ElasticBuffer::new(place.depth))),
        };
        let maps = timing.maps.len();
        let counts = Counts {
            flushes: vec![0; maps],
            replayed: vec![0; maps],
            flush_cycles: vec![0; maps],
            ..Counts::default()
        };
        let piped: u64 = places.iter().map(|place| place.pipe_cycles).sum();
        let waits = timing.maps.iter().enumerate().map(|(number, map)| {
            places.iter().skip(1).position(|place| match place.kind {
                Kind::Scheduler(own) => own == number,
                Kind::Elastic => map.scheme == Scheme::Flush && map.restart_stage == place.stage,
                Kind::Input => false,
            })
        });
        let pipes: Vec<Pipe> = places.iter().map(|place| Pipe::new(place.pipe_cycles, &place.events)).collect();
        let first = pipes.iter().position(Pipe::has_commits).unwrap_or(pipes.len());
        Ok(Model {
            waits: waits.collect(),
            commits: first..pipes.len(),
            input: Input::new(u64::from(options.input_buffer_bytes / WORD_BYTES)),
            buffers: places.iter().filter_map(buffer).collect(),
            pipes,
            packets: Packets::new(maps),
            reload_cycles: u64::from(timing.reload_cycles),
            around_cycles: u64::from(timing.latency_cycles) - piped,
            now: 0,
            has_moved: false,
            clock: Clock::new(options.pace, timing.clock_mhz),
            next: Arrival { keys: vec![0; maps], ..Arrival::default() },
            next_at: Next::Unknown,
            packets_left: options.packets.unwrap_or(u64::MAX),
            output_words: u64::from(options.output_buffer_bytes / WORD_BYTES),
            output_free_at: 0,
            counts,
        })
    }

    /// The place where packets wait for a map; it comes after the pipe of the same index.
    pub(super) fn buffer_of(&self, map: usize) -> Option<usize> {
        self.waits.get(map).copied().flatten()
    }

    /// Runs until all packets have left.
    pub(super) fn run(&mut self, arrivals: &mut (impl Arrivals + ?Sized)) -> Result<(), PredictError> {
        loop {
            self.has_moved = false;
            for number in (0..self.pipes.len()).rev() {
                if self.pipes[number].is_due(self.now) {
                    if self.pipes[number].releases() > 0 {
                        self.release(number);
                    }
                    self.advance(number);
                    self.pipes[number].update_due();
                }
            }
            self.admit(arrivals)?;
            let is_held = !self.issue();
            for number in self.commits.clone() {
                if self.pipes[number].is_due(self.now) && self.pipes[number].has_commits() {
                    self.flush_stale_readers(number);
                    self.pipes[number].update_due();
                }
            }
            if self.next_at == Next::Ended && self.packets.count() == 0 {
                return Ok(());
            }
            let (wakes, is_stalled) = self.wakes_at();
            let cycles = wakes - self.now;
            self.now += cycles;
            self.input.stalled_cycles += if is_held { cycles } else { 0 };
            if is_stalled {
                for pipe in self.pipes.iter_mut().filter(|pipe| pipe.is_stalled) {
                    pipe.stalled_cycles += cycles;
                }
            }
        }
    }

    /// Releases keys whose hold has ended.
    fn release(&mut self, number: usize) {
        let pipe = &mut self.pipes[number];
        for probe in 0..pipe.releases() {
            let EventKind::Release(place) = pipe.event(probe).what else { continue };
            let Buffer::Scheduler(scheduler) = &mut self.buffers[place - 1] else { continue };
            while let Some(number) = pipe.due(probe, self.now) {
                self.has_moved = true;
                if let Some(key) = self.packets.key(pipe.packet(number), scheduler.map) {
                    scheduler.release(key);
                }
            }
        }
    }

    /// Moves the packet after the last stage of a pipe on.
    fn advance(&mut self, number: usize) {
        self.pipes[number].is_stalled = false;
        let Some(packet) = self.pipes[number].end(self.now) else { return };
        let is_accepted = match self.buffers.get_mut(number) {
            Some(buffer) => buffer.enter(packet, &self.packets, self.pipes[number + 1].clock(self.now)),
            None => self.emit(packet),
        };
        self.pipes[number].is_stalled = !is_accepted;
        if is_accepted {
            self.pipes[number].leave();
            self.has_moved = true;
        }
    }

    /// Puts a packet into the output buffer; returns whether there was room.
    fn emit(&mut self, packet: Number) -> bool {
        let facts = *self.packets.facts(packet);
        let (words, waiting) = (u64::from(facts.leaving_words), self.output_free_at.saturating_sub(self.now));
        if words > 0 && waiting > 0 && waiting + words > self.output_words {
            return false;
        }
        let counts = &mut self.counts;
        let first_word = if words == 0 { self.now } else { self.now + waiting };
        if words == 0 {
            counts.packets_dropped += 1;
        } else {
            counts.packets_out += 1;
            self.output_free_at = first_word + words;
            counts.longest_output_words = counts.longest_output_words.max(waiting + words);
        }
        counts.bytes_out += u64::from(facts.leaving_bytes);
        counts.first_out.get_or_insert(first_word);
        counts.last_out = counts.last_out.max(first_word + words.max(1));
        counts.latencies.add(first_word + self.around_cycles - facts.arrival);
        self.packets.remove(packet);
        true
    }

    /// Takes in the packets that arrive.
    fn admit(&mut self, arrivals: &mut (impl Arrivals + ?Sized)) -> Result<(), PredictError> {
        loop {
            let arrival = match self.next_at {
                Next::At(at) if at > self.now => return Ok(()),
                Next::At(at) => at,
                Next::WhenAccepted if !self.input.is_empty() || self.input.free_at > self.now => return Ok(()),
                Next::WhenAccepted => self.now,
                Next::Ended => return Ok(()),
                Next::Unknown => {
                    self.next_at = if self.packets_left == 0 || !arrivals.next(&mut self.next)? {
                        Next::Ended
                    } else {
                        self.packets_left -= 1;
                        self.clock.next(self.next.time_ns, self.next.len_bytes).map_or(Next::WhenAccepted, Next::At)
                    };
                    continue;
                }
            };
            self.counts.packets_in += 1;
            self.counts.first_in.get_or_insert(arrival);
            self.counts.last_in = arrival;
            self.next_at = Next::Unknown;
            let words = self.next.len_bytes.div_ceil(WORD_BYTES).max(1);
            if !self.input.has_room(words, self.now) {
                self.counts.packets_lost += 1;
                continue;
            }
            self.counts.bytes_in += u64::from(self.next.len_bytes);
            let facts = Facts {
                arrival,
                leaving_words: self.next.leaving_bytes.div_ceil(WORD_BYTES),
                leaving_bytes: self.next.leaving_bytes,
                uses: self.next.uses,
                writes: self.next.writes,
            };
            let packet = self.packets.add(facts, &self.next.keys);
            self.input.push(packet, words, self.now);
        }
    }

    /// Issues a packet from each place; returns whether no packet had to wait at the input.
    fn issue(&mut self) -> bool {
        let mut is_free = true;
        if let Some(packet) = self.input.next(self.now) {
            is_free = self.enter_pipe(0, packet);
            if is_free {
                self.input.pop(self.now);
            }
        }
        for place in 1..self.pipes.len() {
            let clock = self.pipes[place].clock(self.now);
            if let Some(packet) = self.buffers[place - 1].next(self.now, clock)
                && self.enter_pipe(place, packet)
            {
                self.buffers[place - 1].pop(clock);
            }
        }
        is_free
    }

    /// Moves a packet from a place into the pipe after it or, if that has no stages, into the next place.
    fn enter_pipe(&mut self, place: usize, packet: Number) -> bool {
        let is_accepted = match self.buffers.get_mut(place) {
            _ if self.pipes[place].is_stalled => false,
            Some(buffer) if self.pipes[place].len() == 0 => {
                buffer.enter(packet, &self.packets, self.pipes[place + 1].clock(self.now))
            }
            _ => {
                self.pipes[place].push(packet, self.now);
                true
            }
        };
        self.has_moved |= is_accepted;
        is_accepted
    }

    /// Flushes the packets that have read too early for a write.
    fn flush_stale_readers(&mut self, number: usize) {
        let pipe = &mut self.pipes[number];
        for probe in pipe.releases()..pipe.events() {
            let EventKind::Commit { map, read_offset } = pipe.event(probe).what else { continue };
            while let Some(writer) = pipe.due(probe, self.now) {
                self.has_moved = true;
                let Some(key) = self.packets.written(pipe.packet(writer), map) else { continue };
                let mut later = pipe.later(writer, read_offset, self.now);
                let stale = later.find(|(_, packet)| self.packets.key(*packet, map) == Some(key));
                drop(later);
                let Some((first, _)) = stale else { continue };
                let Some(Buffer::Elastic(buffer)) = self.buffers.get_mut(number.wrapping_sub(1)) else { continue };
                self.counts.flushes[map] += 1;
                self.counts.flush_cycles[map] += pipe.age(first, self.now) + 1 + self.reload_cycles;
                while let Some(packet) = pipe.flush_last(first) {
                    buffer.push_flushed(packet);
                    self.counts.replayed[map] += 1;
                }
                buffer.free_at = self.now + 1 + self.reload_cycles;
            }
        }
    }

    /// The cycle of the next event, and whether a pipe stalls until then.
    fn wakes_at(&self) -> (u64, bool) {
        let next = self.now + 1;
        let mut wakes = match self.next_at {
            Next::At(at) => at.max(next),
            Next::Unknown => next,
            Next::WhenAccepted => self.input.free_at.max(next),
            Next::Ended => u64::MAX,
        };
        // It counts as waiting from then on, even if it cannot enter.
        if !self.input.is_empty() && (!self.pipes[0].is_stalled || self.input.free_at > self.now) {
            wakes = wakes.min(self.input.free_at.max(next));
        }
        let mut is_stalled = false;
        for (place, pipe) in self.pipes.iter().enumerate() {
            is_stalled |= pipe.is_stalled;
            if !pipe.is_stalled {
                wakes = wakes.min(pipe.wakes_at());
                if place > 0 {
                    wakes = wakes.min(self.buffers[place - 1].wakes_at(self.now, pipe.clock(self.now)));
                }
            } else if self.has_moved || place + 1 == self.pipes.len() {
                // There may be room by then; the output frees some in every cycle.
                wakes = next;
            }
        }
        debug_assert!(wakes >= next && wakes < u64::MAX, "packets in flight have a next event");
        (wakes, is_stalled)
    }
}
