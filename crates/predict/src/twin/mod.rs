// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The twin of a rendered pipeline: the cycles of each packet, exactly those of the RTL.
//!
//! ```text
//!  words ─► framer ─────► core: stages, queue, hash maps ─────► results ─► emitter ─► words
//!           whole packets   │
//!           wait here       └ keys, conditions, changes: the dataflow, evaluated packet by packet
//! ```
//!
//! A cycle is made as the RTL makes it: signals by the state at its beginning, then the state of the next one. The
//! packets themselves run in order through the evaluator, which is possible because the pipeline gives the serial
//! result whatever the cycles. Idle cycles are skipped.
//!
//! Left out are accesses of the host: hash maps are empty at first, and packets of the slow path leave as they came.
//! Packets that send others besides themselves have no twin, nor have LRU maps.

mod core;
mod facts;
mod paced;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use flowloom_engine::{Choices, Packet, Port, Snapshot};
use flowloom_ir::Dataflow;
use flowloom_isa::Program;
use flowloom_plan::{Scheme, Timing};
use flowloom_rtl::{BODY_WORDS, MAX_WORDS, Pipeline};

use self::core::Core;
use crate::error::PredictError;
use crate::frames::Frames;
use crate::options::PredictOptions;
use crate::report::Report;
use facts::{Evaluation, Facts};
use paced::Paced;

/// Complete packets that wait for the core (`hdl/parse/fl_framer.sv`).
const WAITING_PACKETS: usize = 16;
/// Words of the output that wait or are on their way (`hdl/edit/fl_emitter.sv`).
const OUT_WORDS: u32 = 16;
/// Cycles without an event after which the pipeline is stuck: longer than insertions into hash maps take.
const STUCK_CYCLES: u64 = 1 << 16;
/// Cycles from the read of a word to the output, and those of the shift to the packet's new start.
const READ_CYCLES: u64 = 5;
const SHIFT_CYCLES: u64 = 3;

/// The timing of a plan with the latency and the holds of its rendering.
pub fn rendered_timing(timing: &Timing, pipeline: &Pipeline) -> Timing {
    let mut timing = Timing { latency_cycles: pipeline.latency_cycles(), ..timing.clone() };
    let index = |name: &str| pipeline.core.maps.iter().find(|map| map.name == name).map(|map| map.map);
    for map in &mut timing.maps {
        let own = index(&map.name);
        let queue = pipeline.core.control.queue.as_ref();
        let wait = queue.and_then(|queue| Some((queue, queue.holds.iter().find(|wait| Some(wait.map) == own)?)));
        match wait {
            Some((queue, wait)) => {
                map.scheme = Scheme::Schedule;
                (map.read_stage, map.hold_cycles) = (queue.stage, wait.cycles + 1);
                // There is one, and in the framer are places too.
                (map.queues, map.queue_depth) = (1, queue.depth.max(WAITING_PACKETS as u32));
            }
            None if own.is_some() => (map.scheme, map.hold_cycles) = (Scheme::Atomic, 1),
            None => {}
        }
    }
    timing.maps.sort_by_key(|map| map.read_stage);
    timing
}

/// A packet at the input of a twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The ingress port.
    pub port: u32,
    /// The time of its arrival.
    pub now_ns: u64,
    /// The idle cycles between the last word before it and its first one.
    pub delay_cycles: u32,
}

/// The cycles of a packet. They are the same if it is dropped, from the verdict on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCycles {
    /// The cycle in which its last word is taken at the input.
    pub taken: u64,
    /// The cycle of its verdict.
    pub done: u64,
    /// The cycle of its first word at the output.
    pub first: u64,
    /// The cycle of its last word at the output.
    pub last: u64,
    /// The words that leave; 0 if it is dropped.
    pub words_out: u32,
}

/// The result of a packet that the emitter works on.
#[derive(Debug)]
struct Job {
    is_sent: bool,
    words_left: u32,
    words_in: u32,
}

/// What happens at the ends of a pipeline in a cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Events {
    /// The word at the input is taken.
    is_taken: bool,
    /// A packet has its verdict.
    is_done: bool,
    /// A word leaves.
    is_given: bool,
}

/// The state of a pipeline's control.
#[derive(Debug)]
struct Machine {
    now: u64,
    // The framer.
    words: u32,
    stored: u32,
    window: u32,
    complete: VecDeque<Rc<Facts>>,
    left: u32,
    begins: Option<Rc<Facts>>,
    core: Core,
    // The emitter.
    flight: u32,
    results: VecDeque<Job>,
    job: Option<Job>,
    out: u32,
    most_out: u32,
    /// Words on their way to the output: the cycle from which on they are there.
    leaving: VecDeque<u64>,
    window_words: u32,
    in_flight: u32,
    out_cycles: u64,
}

impl Machine {
    fn new(pipeline: &Pipeline) -> Result<Machine, PredictError> {
        let control = pipeline.core.control.clone();
        Ok(Machine {
            now: 0,
            words: 0,
            stored: 0,
            window: 0,
            complete: VecDeque::new(),
            left: 0,
            begins: None,
            flight: 0,
            results: VecDeque::new(),
            job: None,
            out: 0,
            most_out: 0,
            leaving: VecDeque::new(),
            window_words: control.words,
            in_flight: pipeline.in_flight(),
            out_cycles: READ_CYCLES + if control.moves { SHIFT_CYCLES } else { 0 },
            core: Core::new(control)?,
        })
    }

    fn is_idle(&self) -> bool {
        self.words == 0
            && self.complete.is_empty()
            && self.begins.is_none()
            && self.left == 0
            && self.results.is_empty()
            && self.job.is_none()
            && self.leaving.is_empty()
            && self.core.is_idle()
    }

    fn skip(&mut self, cycles: u64) {
        self.now += cycles;
        self.core.skip(cycles);
    }

    /// A cycle, with the word of a packet at the input, the last one with what is known of the packet.
    fn cycle(&mut self, word: Option<Option<&Rc<Facts>>>, is_ready: bool) -> Events {
        // The output.
        let is_given = is_ready && self.leaving.front().is_some_and(|from| *from <= self.now);
        let has_room = self.out != OUT_WORDS;
        let (mut issues, mut is_done) = (false, false);
        if let Some(job) = &self.job {
            issues = job.is_sent && has_room;
            is_done = !job.is_sent || (issues && job.words_left == 1);
        }
        let freed = self.job.as_ref().filter(|_| is_done).map_or(0, |job| job.words_in);
        let takes_result = !self.results.is_empty() && (self.job.is_none() || is_done);
        // The core and the framer.
        let step = self.core.decide(self.begins.as_ref());
        let waits = self.begins.is_some() && !step.accepts;
        let can_start = self.flight != self.in_flight && step.has_room;
        let starts = !self.complete.is_empty() && can_start && self.left == 0 && !waits;
        let reads = starts || (self.left != 0 && !waits);
        let is_too_long = self.words == MAX_WORDS;
        let depth = WAITING_PACKETS as u32 + self.window_words;
        let is_open = self.stored != BODY_WORDS && self.window != depth && self.complete.len() != WAITING_PACKETS;
        let is_taken = word.is_some() && (is_too_long || is_open);
        let writes = is_taken && !is_too_long;
        let last = word.flatten().filter(|_| is_taken);
        let discards = is_too_long && last.is_some();
        let in_window = self.words < self.window_words;
        // The end of the cycle.
        let entering = if waits { self.begins.clone() } else { self.begins.take() };
        let result = self.core.cycle(entering, &step);
        if starts {
            self.begins = self.complete.pop_front();
        }
        if reads {
            let words = self.begins.as_ref().filter(|_| starts).map(|facts| facts.words_in.min(self.window_words));
            self.left = words.unwrap_or(self.left) - 1;
        }
        self.stored = self.stored + u32::from(writes) - freed - if discards { MAX_WORDS } else { 0 };
        self.window = self.window + u32::from(writes && in_window)
            - u32::from(reads)
            - if discards { self.window_words } else { 0 };
        if writes {
            self.words += 1;
            self.complete.extend(last.cloned());
        }
        if last.is_some() {
            self.words = 0;
        }
        self.flight = self.flight + u32::from(starts) - u32::from(takes_result);
        if takes_result {
            self.job = self.results.pop_front();
        } else if is_done {
            self.job = None;
        } else if let Some(job) = self.job.as_mut().filter(|_| issues) {
            job.words_left -= 1;
        }
        if issues {
            self.leaving.push_back(self.now + self.out_cycles);
        }
        if is_given {
            self.leaving.pop_front();
        }
        self.most_out = self.most_out.max(self.out);
        self.out = self.out + u32::from(issues) - u32::from(is_given);
        self.results.extend(result.map(|facts| Job {
            is_sent: facts.words_out > 0,
            words_left: facts.words_out,
            words_in: facts.words_in,
        }));
        self.now += 1;
        Events { is_taken, is_done, is_given }
    }
}

/// A pipeline, cycle by cycle.
#[derive(Debug)]
pub struct Twin {
    machine: Machine,
    evaluation: Evaluation,
    word_bytes: usize,
    /// The largest time of a packet so far.
    latest_ns: u64,
    /// The indices of maps by name.
    maps: BTreeMap<String, u32>,
    /// The packets that have been taken and not left as a whole.
    packets: VecDeque<Running>,
    /// The cycles in which nothing happened although a word or a packet was there.
    idle_cycles: u64,
}

/// A packet in the pipeline. Its first words may leave before its verdict.
#[derive(Debug)]
struct Running {
    cycles: PacketCycles,
    is_done: bool,
    words_left: u32,
}

impl Twin {
    /// The twin of a pipeline that was rendered from a plan with this dataflow, with maps as after a reset.
    ///
    /// # Errors
    /// The program cannot run, a table is too large for the model, or what [`Twin::refusal`] says.
    pub fn new(program: &Arc<Program>, dataflow: &Dataflow, pipeline: &Pipeline) -> Result<Twin, PredictError> {
        if let Some(refusal) = Twin::refusal(pipeline) {
            return Err(refusal);
        }
        let control = pipeline.core.control.clone();
        let evaluation = Evaluation::new(Arc::clone(program), dataflow, control, pipeline.word_bytes())?;
        let machine = Machine::new(pipeline)?;
        let word_bytes = pipeline.word_bytes() as usize;
        let maps = pipeline.core.maps.iter().map(|map| (map.name.clone(), map.map)).collect();
        Ok(Twin { machine, evaluation, word_bytes, latest_ns: 0, maps, packets: VecDeque::new(), idle_cycles: 0 })
    }

    /// Why a pipeline has no twin: packets that send others besides themselves or run alone, and LRU maps.
    pub fn refusal(pipeline: &Pipeline) -> Option<PredictError> {
        if !pipeline.core.sends.is_empty() {
            return Some(PredictError::Extra);
        }
        if pipeline.core.control.runs_alone {
            return Some(PredictError::Alone);
        }
        let lru = pipeline.core.control.tables.iter().find(|table| table.is_lru)?;
        let map = pipeline.core.maps.iter().find(|map| map.map == lru.map)?.name.clone();
        Some(PredictError::Lru { map })
    }

    /// Sets the contents of maps. Those of hash maps that packets change have to be empty.
    ///
    /// # Errors
    /// The maps do not take them.
    pub fn restore(&mut self, state: &Snapshot) -> Result<(), PredictError> {
        Ok(self.evaluation.restore(state)?)
    }

    /// The contents of maps.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot, PredictError> {
        Ok(self.evaluation.snapshot()?)
    }

    /// Sends packets back to back, but for their delays, until all have left. `is_ready` says in each cycle whether the
    /// output takes a word; a packet that is too long has no cycles.
    ///
    /// # Errors
    /// The program failed on a packet.
    ///
    /// # Panics
    /// If a packet has no bytes.
    pub fn send(
        &mut self,
        packets: &[Offered<'_>],
        is_ready: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<PacketCycles>, PredictError> {
        let mut gone = Vec::with_capacity(packets.len());
        let start = self.machine.now;
        for (number, packet) in packets.iter().enumerate() {
            let facts = self.facts(packet, number as u64)?;
            for _ in 0..packet.delay_cycles {
                self.cycle(None, is_ready(), &mut gone)?;
            }
            let words = packet.bytes.len().div_ceil(self.word_bytes);
            assert!(words > 0, "packet {number} has no bytes");
            for word in 1..=words {
                let last = (word == words).then_some(&facts);
                while !self.cycle(Some(last), is_ready(), &mut gone)? {}
            }
        }
        while !self.packets.is_empty() {
            self.cycle(None, is_ready(), &mut gone)?;
        }
        for cycles in &mut gone {
            for cycle in [&mut cycles.taken, &mut cycles.done, &mut cycles.first, &mut cycles.last] {
                *cycle -= start;
            }
        }
        Ok(gone)
    }

    /// Sends frames at a pace until all have left, with a buffer before the input and an output that takes every word.
    /// The report is about the maps of a timing, which is that of the plan.
    ///
    /// # Errors
    /// The options describe no traffic, or the frames cannot be read.
    ///
    /// # Cost
    /// The program runs on every packet.
    pub fn predict(
        &mut self,
        timing: &Timing,
        options: &PredictOptions,
        frames: &mut (impl Frames + ?Sized),
    ) -> Result<Report, PredictError> {
        let mut paced = Paced::new(self, timing.clock_mhz, options)?;
        paced.run(frames)?;
        Ok(paced.report(timing))
    }

    fn facts(&mut self, packet: &Offered<'_>, number: u64) -> Result<Rc<Facts>, PredictError> {
        let Offered { bytes, port, now_ns, .. } = *packet;
        // Times do not go back; those of packets that are too long do not count.
        let now_ns = self.latest_ns.max(now_ns);
        if bytes.len().div_ceil(self.word_bytes) <= MAX_WORDS as usize {
            self.latest_ns = now_ns;
        }
        let choices = Choices::seeded(now_ns, 0, number);
        Ok(Rc::new(self.evaluation.packet(&Packet { bytes, port: Port(port) }, &choices)?))
    }

    /// A cycle; returns whether the word was taken.
    fn cycle(
        &mut self,
        word: Option<Option<&Rc<Facts>>>,
        is_ready: bool,
        gone: &mut Vec<PacketCycles>,
    ) -> Result<bool, PredictError> {
        let now = self.machine.now;
        let is_discarded = self.machine.words == MAX_WORDS;
        let events = self.machine.cycle(word, is_ready);
        if let (true, Some(Some(facts)), false) = (events.is_taken, word, is_discarded) {
            let words_out = facts.words_out;
            let cycles = PacketCycles { taken: now, words_out, ..PacketCycles::default() };
            self.packets.push_back(Running { cycles, is_done: false, words_left: words_out });
        }
        if events.is_done
            && let Some(packet) = self.packets.iter_mut().find(|packet| !packet.is_done)
        {
            packet.is_done = true;
            packet.cycles.done = now;
            if packet.cycles.words_out == 0 {
                (packet.cycles.first, packet.cycles.last) = (now, now);
            }
        }
        if events.is_given
            && let Some(packet) = self.packets.iter_mut().find(|packet| packet.words_left > 0)
        {
            if packet.words_left == packet.cycles.words_out {
                packet.cycles.first = now;
            }
            packet.cycles.last = now;
            packet.words_left -= 1;
        }
        while let Some(packet) = self.packets.pop_front_if(|packet| packet.is_done && packet.words_left == 0) {
            gone.push(packet.cycles);
        }
        let is_moving = events != Events::default() || (word.is_none() && self.packets.is_empty());
        self.idle_cycles = if is_moving { 0 } else { self.idle_cycles + 1 };
        match self.idle_cycles {
            STUCK_CYCLES.. => Err(PredictError::Stuck { cycle: now, packets: self.packets.len() }),
            _ => Ok(events.is_taken),
        }
    }
}
