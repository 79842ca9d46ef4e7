//! The pipeline, cycle by cycle; cycles in which nothing happens are skipped.
//!
//! What happens in a cycle, in this order:
//!
//! 1. keys become free, of packets whose hold has passed;
//! 2. packets come, or are lost;
//! 3. what stands behind the last stage of a pipe goes on, where there is room; else the pipe stands still in this cycle;
//! 4. each place lets a packet into the pipe behind it, unless that stands still;
//! 5. writes that meet packets which have read too early send those back.

use super::arrival::{Arrival, Arrivals};
use super::layout::{Kind, Place, What, places};
use super::options::{Clock, WORD_BYTES};
use super::packets::{Facts, Number, Packets};
use super::pipe::Pipe;
use super::room::{Counts, Input, Restart, Room};
use super::scheduler::Scheduler;
use super::{PredictError, PredictOptions};
use crate::{Scheme, Timing};

/// A pipeline and what is in it.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) rooms: Vec<Room>,
    pub(super) pipes: Vec<Pipe>,
    /// For each map the place where packets wait for it.
    waits: Vec<Option<usize>>,
    packets: Packets,
    reload_cycles: u64,
    /// Framing and realignment, which delay packets and nothing else.
    around_cycles: u64,
    now: u64,
    has_moved: bool,
    clock: Clock,
    /// The packet that comes next, and when.
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
    /// When it can be taken.
    WhenTaken,
    Ended,
}

impl Model {
    pub(super) fn new(timing: &Timing, options: &PredictOptions) -> Result<Model, PredictError> {
        options.check()?;
        let places = places(timing)?;
        let room = |place: &Place| match place.kind {
            Kind::Input => Room::Input(Input {
                most_words: u64::from(options.input_buffer_bytes / WORD_BYTES),
                ..Input::default()
            }),
            Kind::Scheduler(map) => Room::Scheduler(Scheduler::new(map, &timing.maps[map], timing.arbiter)),
            Kind::Restart => Room::Restart(Restart { depth: place.depth as usize, ..Restart::default() }),
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
            places.iter().position(|place| match place.kind {
                Kind::Scheduler(own) => own == number,
                Kind::Restart => map.scheme == Scheme::Flush && map.restart_stage == place.stage,
                Kind::Input => false,
            })
        });
        Ok(Model {
            waits: waits.collect(),
            rooms: places.iter().map(room).collect(),
            pipes: places.iter().map(|place| Pipe::new(place.pipe_cycles, &place.events)).collect(),
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

    /// The place where packets wait for a map.
    pub(super) fn place_of(&self, map: usize) -> Option<usize> {
        self.waits.get(map).copied().flatten()
    }

    /// Runs until all packets have left.
    pub(super) fn run(&mut self, arrivals: &mut (impl Arrivals + ?Sized)) -> Result<(), PredictError> {
        loop {
            self.has_moved = false;
            self.release();
            self.admit(arrivals)?;
            self.go_on();
            self.issue();
            self.commit();
            if self.next_at == Next::Ended && self.packets.count() == 0 {
                return Ok(());
            }
            let cycles = if self.has_moved { 1 } else { self.quiet_cycles() };
            self.advance(cycles);
        }
    }

    /// Keys become free.
    fn release(&mut self) {
        for pipe in &mut self.pipes {
            for probe in 0..pipe.events() {
                let What::Release(place) = pipe.event(probe).what else { break };
                let Room::Scheduler(scheduler) = &mut self.rooms[place] else { continue };
                while let Some(number) = pipe.due(probe) {
                    self.has_moved = true;
                    if let Some(key) = self.packets.key(pipe.packet(number), scheduler.map) {
                        scheduler.release(key);
                    }
                }
            }
        }
    }

    /// Packets come.
    fn admit(&mut self, arrivals: &mut (impl Arrivals + ?Sized)) -> Result<(), PredictError> {
        loop {
            let comes = match self.next_at {
                Next::Ended => return Ok(()),
                Next::Unknown => {
                    self.next_at = if self.packets_left == 0 || !arrivals.next(&mut self.next)? {
                        Next::Ended
                    } else {
                        self.packets_left -= 1;
                        self.clock.next(self.next.time_ns, self.next.len_bytes).map_or(Next::WhenTaken, Next::At)
                    };
                    continue;
                }
                Next::At(at) if at > self.now => return Ok(()),
                Next::At(at) => at,
                Next::WhenTaken => self.now,
            };
            let Some(Room::Input(input)) = self.rooms.first_mut() else { return Ok(()) };
            let is_forced = self.next_at == Next::WhenTaken;
            if is_forced && (!input.queue.is_empty() || input.free_at > self.now) {
                return Ok(());
            }
            let words = self.next.len_bytes.div_ceil(WORD_BYTES).max(1);
            let entering = input.free_at.saturating_sub(self.now);
            let filled = input.words + entering + u64::from(words);
            self.counts.packets_in += 1;
            self.counts.first_in.get_or_insert(comes);
            self.counts.last_in = comes;
            self.has_moved = true;
            self.next_at = Next::Unknown;
            if filled > input.most_words {
                self.counts.packets_lost += 1;
                continue;
            }
            self.counts.bytes_in += u64::from(self.next.len_bytes);
            input.words += u64::from(words);
            input.longest_words = input.longest_words.max(filled);
            let facts = Facts {
                arrival: comes,
                words,
                leaving_words: self.next.leaving_bytes.div_ceil(WORD_BYTES),
                leaving_bytes: self.next.leaving_bytes,
                uses: self.next.uses,
                writes: self.next.writes,
            };
            input.queue.push_back(self.packets.add(facts, &self.next.keys));
        }
    }

    /// What stands behind a last stage goes on.
    fn go_on(&mut self) {
        for number in (0..self.pipes.len()).rev() {
            let Some(packet) = self.pipes[number].end() else {
                self.pipes[number].is_stalled = false;
                continue;
            };
            let is_taken =
                if number + 1 < self.rooms.len() { self.enter(number + 1, packet) } else { self.put_out(packet) };
            self.pipes[number].is_stalled = !is_taken;
            if is_taken {
                self.pipes[number].leave();
                self.has_moved = true;
            }
        }
    }

    /// A packet comes to a place; whether there was room.
    fn enter(&mut self, place: usize, packet: Number) -> bool {
        match &mut self.rooms[place] {
            Room::Input(_) => false,
            Room::Scheduler(scheduler) => {
                let key = self.packets.key(packet, scheduler.map);
                let has_room = scheduler.has_room(key);
                if has_room {
                    scheduler.push(packet, key);
                }
                has_room
            }
            Room::Restart(restart) => {
                let has_room = restart.queue.len() - restart.again < restart.depth;
                if has_room {
                    restart.queue.push_back(packet);
                    restart.longest = restart.longest.max(restart.queue.len() as u64);
                }
                has_room
            }
        }
    }

    /// A packet leaves; whether there was room.
    fn put_out(&mut self, packet: Number) -> bool {
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

    /// Writes send packets back that have read too early.
    fn commit(&mut self) {
        for (place, pipe) in self.pipes.iter_mut().enumerate() {
            for probe in 0..pipe.events() {
                let What::Commit { map, read_offset } = pipe.event(probe).what else { continue };
                while let Some(number) = pipe.due(probe) {
                    self.has_moved = true;
                    let Some(key) = self.packets.written(pipe.packet(number), map) else { continue };
                    let mut behind = pipe.behind(number, read_offset);
                    let early = behind.find(|(_, packet)| self.packets.key(*packet, map) == Some(key));
                    drop(behind);
                    let Some((first, _)) = early else { continue };
                    let Room::Restart(restart) = &mut self.rooms[place] else { continue };
                    self.counts.flushes[map] += 1;
                    self.counts.flush_cycles[map] += pipe.age(first) + 1 + self.reload_cycles;
                    while let Some(packet) = pipe.take_back(first) {
                        restart.queue.push_front(packet);
                        restart.again += 1;
                        self.counts.replayed[map] += 1;
                    }
                    restart.longest = restart.longest.max(restart.queue.len() as u64);
                    restart.free_at = self.now + 1 + self.reload_cycles;
                }
            }
        }
    }

    /// Each place lets a packet in.
    fn issue(&mut self) {
        for place in 0..self.rooms.len() {
            if self.pipes[place].is_stalled && place > 0 {
                continue;
            }
            let now = self.now;
            let packet = match &mut self.rooms[place] {
                Room::Input(input) => {
                    input.is_held = false;
                    input.queue.front().copied().filter(|_| input.free_at <= now)
                }
                Room::Scheduler(scheduler) => scheduler.next(),
                Room::Restart(restart) => restart.queue.front().copied().filter(|_| restart.free_at <= now),
            };
            let Some(packet) = packet else { continue };
            if self.let_in(place, packet) {
                self.has_moved = true;
            } else if let Room::Input(input) = &mut self.rooms[place] {
                input.is_held = true;
            }
        }
    }

    /// A packet leaves a place; whether the pipe took it.
    fn let_in(&mut self, place: usize, packet: Number) -> bool {
        if self.pipes[place].is_stalled {
            return false;
        }
        if self.pipes[place].len() > 0 || place + 1 == self.rooms.len() {
            self.pipes[place].push(packet);
        } else if !self.enter(place + 1, packet) {
            return false;
        }
        match &mut self.rooms[place] {
            Room::Input(input) => {
                let words = u64::from(self.packets.facts(packet).words);
                input.queue.pop_front();
                input.words -= words;
                input.free_at = self.now + words;
            }
            Room::Scheduler(scheduler) => scheduler.pop(),
            Room::Restart(restart) => {
                restart.queue.pop_front();
                restart.again = restart.again.saturating_sub(1);
            }
        }
        true
    }

    /// For how many cycles, this one among them, nothing happens.
    fn quiet_cycles(&self) -> u64 {
        let pipes = self.pipes.iter().filter_map(Pipe::quiet_cycles);
        let rooms = self.rooms.iter().filter_map(|room| match room {
            Room::Input(input) => self.until(input.free_at, !input.queue.is_empty() || self.next_at == Next::WhenTaken),
            Room::Scheduler(_) => None,
            Room::Restart(restart) => self.until(restart.free_at, !restart.queue.is_empty()),
        });
        let comes = match self.next_at {
            Next::At(at) => self.until(at, true),
            _ => None,
        };
        // The output makes room word by word.
        let output = self.pipes.last().filter(|pipe| pipe.is_stalled).map(|_| 1);
        pipes.chain(rooms).chain(comes).chain(output).min().expect("packets under way move on").max(1)
    }

    fn until(&self, at: u64, is_awaited: bool) -> Option<u64> {
        (is_awaited && at > self.now).then(|| at - self.now)
    }

    fn advance(&mut self, cycles: u64) {
        self.now += cycles;
        self.pipes.iter_mut().for_each(|pipe| pipe.advance(cycles));
        if let Some(Room::Input(input)) = self.rooms.first_mut()
            && input.is_held
        {
            input.stalled_cycles += cycles;
        }
    }
}
