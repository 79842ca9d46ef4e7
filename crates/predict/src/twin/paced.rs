// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic at a pace through the twin of a pipeline, with a buffer before its input.

use std::collections::VecDeque;
use std::rc::Rc;

use flowloom_engine::{Choices, Packet, Port};
use flowloom_plan::{Scheme, Timing};

use super::facts::Facts;
use super::{PacketCycles, Twin};
use crate::error::PredictError;
use crate::frames::Frames;
use crate::known::Known;
use crate::latency::Histogram;
use crate::options::{Clock, PredictOptions};
use crate::report::{MapReport, Measured, ModelKind, Report};

/// A packet in the buffer before the input.
struct Waiting {
    facts: Rc<Facts>,
    arrival: u64,
    words: u32,
}

/// The next packet: when it comes.
enum Next {
    Unknown,
    At(u64),
    WhenTaken,
    Ended,
}

/// A packet that arrives.
#[derive(Default)]
struct Arriving {
    bytes: Vec<u8>,
    port: u32,
    len_bytes: u32,
    now_ns: u64,
}

/// Traffic on its way through a twin.
pub(super) struct Paced<'a> {
    twin: &'a mut Twin,
    clock: Clock,
    most_words: u64,
    left: u64,
    next: Next,
    arriving: Arriving,
    buffer: VecDeque<Waiting>,
    words: u64,
    /// Words of the first packet of the buffer that have been taken.
    taken_words: u32,
    /// The arrival of each packet in the pipeline.
    inside: VecDeque<u64>,
    number: u64,
    measured: Measured,
    latencies: Histogram,
}

impl<'a> Paced<'a> {
    pub(super) fn new(twin: &'a mut Twin, clock_mhz: f64, options: &PredictOptions) -> Result<Paced<'a>, PredictError> {
        options.check()?;
        Ok(Paced {
            clock: Clock::new(options.pace, clock_mhz),
            most_words: u64::from(options.input_buffer_bytes) / twin.word_bytes as u64,
            left: options.packets.unwrap_or(u64::MAX),
            next: Next::Unknown,
            arriving: Arriving::default(),
            buffer: VecDeque::new(),
            words: 0,
            taken_words: 0,
            inside: VecDeque::new(),
            number: 0,
            measured: Measured::default(),
            latencies: Histogram::default(),
            twin,
        })
    }

    /// Runs until all packets have left.
    pub(super) fn run(&mut self, frames: &mut (impl Frames + ?Sized)) -> Result<(), PredictError> {
        let mut gone = Vec::new();
        loop {
            self.admit(frames)?;
            let word = self.buffer.front().map(|packet| {
                let is_last = self.taken_words + 1 == packet.words;
                is_last.then(|| Rc::clone(&packet.facts))
            });
            if word.is_none() && self.twin.packets.is_empty() {
                match self.next {
                    Next::Ended => return Ok(()),
                    Next::At(at) if at > self.now() && self.twin.machine.is_idle() => {
                        let cycles = at - self.now();
                        self.twin.machine.skip(cycles);
                        continue;
                    }
                    _ => {}
                }
            }
            let before = self.twin.packets.len();
            let is_taken = self.twin.cycle(word.as_ref().map(Option::as_ref), true, &mut gone)?;
            self.measured.stalled_cycles += u64::from(word.is_some() && !is_taken);
            if is_taken {
                self.words -= 1;
                self.taken_words += 1;
                if let Some(packet) = self.buffer.pop_front_if(|packet| packet.words == self.taken_words) {
                    self.taken_words = 0;
                    let has_entered = self.twin.packets.len() + gone.len() > before;
                    match has_entered {
                        true => self.inside.push_back(packet.arrival),
                        false => self.measured.packets_lost += 1,
                    }
                }
            }
            for cycles in gone.drain(..) {
                self.leave(&cycles);
            }
        }
    }

    fn now(&self) -> u64 {
        self.twin.machine.now
    }

    /// Takes in the packets that arrive.
    fn admit(&mut self, frames: &mut (impl Frames + ?Sized)) -> Result<(), PredictError> {
        loop {
            match self.next {
                Next::Unknown => self.fetch(frames)?,
                Next::At(at) if at > self.now() => return Ok(()),
                Next::At(at) => self.enter(at)?,
                Next::WhenTaken if self.buffer.is_empty() => self.enter(self.now())?,
                Next::WhenTaken | Next::Ended => return Ok(()),
            }
        }
    }

    /// Reads the next packet.
    fn fetch(&mut self, frames: &mut (impl Frames + ?Sized)) -> Result<(), PredictError> {
        self.next = Next::Ended;
        let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
        let Some(frame) = frames.next_frame()? else { return Ok(()) };
        self.left = left;
        let arriving = &mut self.arriving;
        arriving.bytes.clear();
        arriving.bytes.extend_from_slice(frame.bytes);
        let longest = flowloom_rtl::MAX_WORDS as usize * self.twin.word_bytes + 1;
        arriving
            .bytes
            .resize((frame.len_bytes as usize).clamp(frame.bytes.len().max(1), longest.max(frame.bytes.len())), 0);
        (arriving.port, arriving.len_bytes) = (frame.port, frame.len_bytes);
        // As in `run`: time does not go back.
        arriving.now_ns = arriving.now_ns.max(frame.time_ns);
        self.next = self.clock.next(frame.time_ns, frame.len_bytes).map_or(Next::WhenTaken, Next::At);
        Ok(())
    }

    /// The next packet enters the buffer, if it has room.
    fn enter(&mut self, arrival: u64) -> Result<(), PredictError> {
        self.next = Next::Unknown;
        let Arriving { bytes, port, len_bytes, now_ns } = &self.arriving;
        let words = bytes.len().div_ceil(self.twin.word_bytes) as u32;
        self.measured.packets_in += 1;
        self.measured.first_in.get_or_insert(arrival);
        self.measured.last_in = arrival;
        if self.words + u64::from(words) > self.most_words {
            self.measured.packets_lost += 1;
            return Ok(());
        }
        let choices = Choices::seeded(*now_ns, 1, self.number);
        let facts = Rc::new(self.twin.evaluation.packet(&Packet { bytes, port: Port(*port) }, &choices)?);
        self.number += 1;
        self.measured.bytes_in += u64::from(*len_bytes);
        self.words += u64::from(words);
        self.measured.longest_input_words = self.measured.longest_input_words.max(self.words);
        self.buffer.push_back(Waiting { facts, arrival, words });
        Ok(())
    }

    /// A packet has left.
    fn leave(&mut self, cycles: &PacketCycles) {
        let Some(arrival) = self.inside.pop_front() else { return };
        self.measured.packets_dropped += u64::from(cycles.words_out == 0);
        self.measured.first_out.get_or_insert(cycles.first);
        self.measured.last_out = self.measured.last_out.max(cycles.last + 1);
        self.latencies.add(cycles.first - arrival);
    }

    /// The report; the maps are those of a timing.
    pub(super) fn report(&self, timing: &Timing) -> Report {
        let maps = timing.maps.iter().map(|map| self.map(&map.name));
        let mut report = Report::measured(timing.clock_mhz, &self.measured, &self.latencies, maps.collect());
        report.model = ModelKind::Pipeline;
        report.known_verdict = Known::Run;
        report.output_buffer_bytes = u64::from(self.twin.machine.most_out) * self.twin.word_bytes as u64;
        report
    }

    fn map(&self, name: &str) -> MapReport {
        let core = &self.twin.machine.core;
        let hold = core.hold(self.twin.maps.get(name).copied());
        let table = core.table(self.twin.maps.get(name).copied());
        MapReport {
            name: name.to_owned(),
            known: Known::Run,
            scheme: if hold.is_some() { Scheme::Schedule } else { Scheme::Atomic }.as_str(),
            hold_cycles: hold.map_or(1, |(cycles, _)| cycles + 1),
            flushes: 0,
            flushes_per_s: 0.0,
            replayed: 0,
            mean_flush_cycles: 0.0,
            overtakings: 0,
            stalled_cycles: hold.map_or(0, |(_, waited)| waited),
            room_cycles: table.unwrap_or(0),
            longest_queues: if hold.is_some() { vec![core.longest_queue()] } else { Vec::new() },
        }
    }
}
