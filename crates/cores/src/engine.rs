// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine: an engine for each core, and what moves packets to them.
//!
//! ```text
//!  frames   0 1 2 3 │ 4 5 6 7      part of each core to spread
//!             core 0 │ core 1
//!           ─────────┴────────
//!  core 0   0 3      │ 4 6         where its packets are, in their order
//!  core 1   1 2      │ 5 7
//! ```
//!
//! A batch is spread by all cores at once, then run by all cores at once; between batches nothing runs, so that sweeps,
//! snapshots and errors are those of one core. There is no lock, and neither packets nor frames are moved: a core has
//! references to its frames.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use flowloom_engine::{
    Arrival, Choices, Datapath, Draws, EngineError, Event, Eviction, Frame, InPlace, Outcome, Output, Packet,
    PacketError, Ports, Refusal, Snapshot, Tally,
};
use flowloom_isa::{MapDef, MapKind, Program};
use flowloom_jit::prefetch;
use flowloom_vm::is_constant_data;

use crate::capture::{MOST_CORES, Own};
use crate::core_engine::CoreEngine;
use crate::crew::{Crew, Times};
use crate::pace::Pace;
use crate::split::{Share, Split};
use crate::spread::Spread;

/// The packets that are spread at once: long enough that starting the threads costs little, and shares differ little.
const PART: usize = 2048;
/// The fewest packets that are run by several threads; fewer take less time than waking one.
const PARALLEL_FROM: usize = 128;
/// As [`PARALLEL_FROM`], of batches of interfaces, which are smaller.
const PARALLEL_FROM_LIVE: usize = 32;
/// The packets that are prefetched while their cores are found.
const AHEAD: usize = 16;
/// The packets whose numbers have 32 bits.
const MOST_COUNTED: usize = 1 << 31;
/// The name that failures of the engine itself have.
const NAME: &str = "cores";

/// The options of several cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoresOptions {
    /// Whether all packets run on one core from the moment on when a table that is split may be full, so that results
    /// are those of one core. Otherwise the table of a core is full by itself.
    pub is_exact: bool,
    /// The fewest packets that are run by several threads.
    pub parallel_from: usize,
    /// True if one thread runs batches where several take longer ([`Pace`]); not those of packets that are only
    /// counted.
    pub is_paced: bool,
}

impl Default for CoresOptions {
    fn default() -> CoresOptions {
        CoresOptions { is_exact: true, parallel_from: PARALLEL_FROM, is_paced: true }
    }
}

impl CoresOptions {
    /// Those of interfaces: each core has its share of a full table.
    pub fn live() -> CoresOptions {
        CoresOptions { is_exact: false, parallel_from: PARALLEL_FROM_LIVE, is_paced: true }
    }
}

/// A core. On lines of the cache of its own.
#[repr(align(128))]
pub(crate) struct Core {
    pub(crate) engine: Box<dyn CoreEngine>,
    /// The packets that it has run; read by other threads.
    pub(crate) packets: Arc<AtomicU64>,
    /// Scratch of the spreading.
    pub(crate) values: Vec<u64>,
    /// The numbers of the packets that it runs.
    pub(crate) own: Own,
}

/// A table whose entries are split.
#[derive(Debug)]
struct Limit {
    name: String,
    /// The number of the map in the program.
    map: usize,
    capacity: usize,
    /// The most entries that a packet inserts.
    inserts: usize,
}

/// By core, the packets that it has run, for other threads and for hooks.
#[derive(Debug, Clone)]
pub struct Counters(Vec<Arc<AtomicU64>>);

impl Counters {
    /// The packets so far.
    pub fn packets(&self) -> Vec<u64> {
        self.0.iter().map(|packets| packets.load(Ordering::Relaxed)).collect()
    }
}

/// An engine for each core.
pub struct Cores {
    pub(crate) cores: Vec<Core>,
    pub(crate) crew: Crew,
    pub(crate) split: Split,
    /// The maps, with the capacities that the function gives them.
    pub(crate) defs: Vec<MapDef>,
    pub(crate) options: CoresOptions,
    pace: Pace,
    limits: Vec<Limit>,
    /// The state of a core that has run nothing.
    initial: Snapshot,
    /// The values of maps that are summed from which all cores began.
    pub(crate) base: Snapshot,
    /// Why one core runs all packets now.
    pub(crate) joined: Option<String>,
    /// By packet of the announced ones, its core.
    spread: Vec<u32>,
    outcomes: VecDeque<Result<Outcome, EngineError>>,
    /// Whether packets leave records.
    has_records: bool,
    /// The records of packets that several cores have run, in the order of the packets.
    events: Vec<Event>,
    /// Memory for the cores of packets that are counted.
    pub(crate) owners: Vec<AtomicU8>,
}

impl std::fmt::Debug for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cores").field("split", &self.split).field("joined", &self.joined).finish_non_exhaustive()
    }
}

impl Cores {
    /// Several cores, with a fresh engine for each, all of one program.
    ///
    /// # Errors
    /// There is no engine, an engine cannot access its state, or the system gives no thread.
    pub fn new(engines: Vec<Box<dyn CoreEngine>>, split: Split, options: CoresOptions) -> Result<Cores, EngineError> {
        let failed = |source| EngineError::System { engine: NAME, action: "start a thread".to_owned(), source };
        let crew = Crew::new(engines.len()).map_err(failed)?;
        let core = |engine| Core { engine, packets: Arc::default(), values: Vec::new(), own: Own::default() };
        let cores = engines.into_iter().map(core).collect();
        let mut all = Cores {
            cores,
            crew,
            split,
            defs: Vec::new(),
            options,
            pace: Pace::default(),
            limits: Vec::new(),
            initial: Snapshot::default(),
            base: Snapshot::default(),
            joined: None,
            spread: Vec::new(),
            outcomes: VecDeque::new(),
            has_records: false,
            events: Vec::new(),
            owners: Vec::new(),
        };
        let Some(first) = all.cores.first_mut() else {
            return Err(EngineError::Fault { engine: NAME, insn: 0, what: "no core".to_owned() });
        };
        all.initial = first.engine.datapath().snapshot()?;
        let program = Arc::clone(first.engine.program());
        let is_record = |def: &MapDef| matches!(def.kind, MapKind::RingBuf | MapKind::PerfEventArray);
        all.has_records = program.maps.iter().any(is_record);
        // Compiled code keeps its constants, and takes none from a state.
        for def in program.maps.iter().filter(|def| is_constant_data(def)) {
            all.initial.maps.remove(&def.name);
        }
        all.defs = program.maps.clone();
        let limit = |name: &str| {
            let map = program.maps.iter().position(|def| def.name == name && !def.kind.is_indexed())?;
            let capacity = program.maps[map].max_entries as usize;
            let inserts = all.split.inserts(name);
            (inserts > 0).then(|| Limit { name: name.to_owned(), map, capacity, inserts })
        };
        all.limits = all.split.limited().filter_map(limit).collect();
        let initial = all.initial.clone();
        all.restore(&initial)?;
        Ok(all)
    }

    /// Names the capacities of the function's maps whose engines have a share each; the shares are rounded up.
    #[must_use]
    pub fn with_capacities(mut self, capacities: &BTreeMap<String, u32>) -> Cores {
        for def in &mut self.defs {
            def.max_entries = capacities.get(&def.name).copied().unwrap_or(def.max_entries);
        }
        self
    }

    /// The program of each core, with its share of the capacities.
    pub fn program(&self) -> &Arc<Program> {
        self.cores[0].engine.program()
    }

    /// By core, the packets that it has run.
    pub fn packets(&self) -> Vec<u64> {
        self.counters().packets()
    }

    /// A view of [`Cores::packets`] for use while packets run.
    pub fn counters(&self) -> Counters {
        Counters(self.cores.iter().map(|core| Arc::clone(&core.packets)).collect())
    }

    /// The packets that the engines cannot run, which are aborted.
    pub fn refused(&self) -> u64 {
        self.cores.iter().map(|core| core.engine.refused()).sum()
    }

    /// Why one core runs all packets now, if it does.
    pub fn joined(&self) -> Option<&str> {
        self.joined.as_deref()
    }

    /// The batches that were run by several threads where one may do so ([`CoresOptions::is_paced`]).
    pub fn threaded_batches(&self) -> u64 {
        self.pace.threaded()
    }

    /// Measures processor times from now on ([`Crew::measure`]).
    pub fn measure(&mut self, is_measured: bool) {
        self.crew.measure(is_measured);
    }

    /// The processor times of the threads while they were measured.
    pub fn times(&self) -> Times {
        self.crew.times()
    }

    /// The cores that run packets now.
    fn active(&mut self) -> &mut [Core] {
        let count = if self.joined.is_some() { 1 } else { self.cores.len() };
        &mut self.cores[..count]
    }

    /// Makes one core run all packets if a table may be full after this number of packets.
    pub(crate) fn keep_room(&mut self, packets: usize) -> Result<(), EngineError> {
        if self.joined.is_some() || !self.options.is_exact {
            return Ok(());
        }
        let entries =
            |limit: &Limit| self.cores.iter().filter_map(|core| core.engine.entries(limit.map)).sum::<usize>();
        let full = self.limits.iter().find(|limit| entries(limit) + packets * limit.inserts > limit.capacity);
        let Some(limit) = full else { return Ok(()) };
        let reason = format!("table `{}` may be full: {} of {} entries", limit.name, entries(limit), limit.capacity);
        let mut state = self.snapshot()?;
        state.maps.retain(|name, _| self.initial.maps.contains_key(name));
        let empty = Snapshot::default();
        for (number, core) in self.cores.iter_mut().enumerate() {
            core.engine.datapath().restore(if number == 0 { &state } else { &empty })?;
        }
        self.joined = Some(reason);
        Ok(())
    }

    /// The most packets after which no table can be full, if that is at least [`CoresOptions::parallel_from`]; at most
    /// `most`.
    pub(crate) fn part(&self, most: usize) -> usize {
        if self.joined.is_some() || !self.options.is_exact {
            return most;
        }
        let room = |limit: &Limit| {
            let entries: usize = self.cores.iter().filter_map(|core| core.engine.entries(limit.map)).sum();
            limit.capacity.saturating_sub(entries) / limit.inserts
        };
        let room = self.limits.iter().map(room).min().unwrap_or(most);
        room.clamp(self.options.parallel_from.clamp(1, most), most)
    }

    fn core_of(&mut self, packet: &Packet<'_>) -> usize {
        if self.joined.is_some() {
            return 0;
        }
        let cores = self.cores.len();
        self.split.spread.core(packet.bytes, packet.port, cores, &mut self.cores[0].values)
    }

    /// Runs a batch of this number of packets; `task` gets true if it is to use several threads.
    fn paced<T>(&mut self, packets: usize, task: impl FnOnce(&mut Cores, bool) -> T) -> T {
        if packets < self.options.parallel_from || !self.options.is_paced {
            return task(self, packets >= self.options.parallel_from);
        }
        let mut pace = std::mem::take(&mut self.pace);
        let result = pace.run(packets, |is_parallel| task(self, is_parallel));
        self.pace = pace;
        result
    }

    /// Runs the frames of a part, whose first has this number in its batch.
    fn run_part(
        &mut self,
        frames: &mut [Frame<'_>],
        first: usize,
        extra: &mut Vec<(usize, Output)>,
    ) -> Result<(), EngineError> {
        self.keep_room(frames.len())?;
        if self.joined.is_some() {
            let core = &mut self.cores[0];
            core.count(frames.len());
            let mut own = Vec::new();
            let result = core.engine.run(frames, &mut own);
            extra.extend(own.into_iter().map(|(number, output)| (first + number, output)));
            return result;
        }
        self.paced(frames.len(), |cores, is_parallel| cores.run_spread(frames, first, extra, is_parallel))
    }

    /// Runs the frames of a part, each on its core.
    fn run_spread(
        &mut self,
        frames: &mut [Frame<'_>],
        first: usize,
        extra: &mut Vec<(usize, Output)>,
        is_parallel: bool,
    ) -> Result<(), EngineError> {
        let cores = self.cores.len();
        let spread = &self.split.spread;
        let numbers = Numbers { base: frames.as_ptr().addr(), first };
        // Each core spreads the frames of its part.
        let len = frames.len().div_ceil(if is_parallel { cores } else { 1 });
        let parts = frames.chunks_mut(len.max(1)).zip(&mut self.cores);
        let mut parts: Vec<_> = parts.map(|(frames, core)| (frames, &mut core.values, Vec::new())).collect();
        self.crew.each(is_parallel, &mut parts, |_, (frames, values, found)| {
            *found = spread_frames(spread, std::mem::take(frames), cores, values);
        });
        let found: Vec<Vec<Vec<&mut Frame<'_>>>> = parts.into_iter().map(|(.., found)| found).collect();
        // Each core runs its frames, those of the first part first.
        let has_records = self.has_records;
        let turn = |core| Turn {
            core,
            own: Vec::new(),
            has_records,
            numbers,
            extra: Vec::new(),
            events: Vec::new(),
            result: Ok(()),
        };
        let mut items: Vec<Turn<'_, '_, '_>> = self.cores.iter_mut().map(turn).collect();
        for part in found {
            for (turn, own) in items.iter_mut().zip(part) {
                turn.own.push(own);
            }
        }
        self.crew.each(is_parallel, &mut items, |_, turn| turn.run());
        let begin = extra.len();
        let (mut result, mut events) = (Ok(()), Vec::new());
        for turn in items {
            extra.extend(turn.extra);
            events.extend(turn.events);
            result = result.and(turn.result);
        }
        events.sort_by_key(|(number, _)| *number);
        self.events.extend(events.into_iter().map(|(_, event)| event));
        extra[begin..].sort_by_key(|(number, _)| *number);
        result
    }
}

/// The numbers of frames in their batch, by where they are.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    /// The address of the first frame of the part.
    base: usize,
    /// Its number.
    first: usize,
}

impl Numbers {
    fn of(self, frame: &Frame<'_>) -> usize {
        self.first + (std::ptr::from_ref(frame).addr() - self.base) / size_of::<Frame<'_>>()
    }
}

/// A core, and the frames that it runs.
struct Turn<'c, 'f, 'b> {
    core: &'c mut Core,
    /// By part.
    own: Vec<Vec<&'f mut Frame<'b>>>,
    /// Whether packets leave records: they run one by one then, since the engine does not tell whose each is.
    has_records: bool,
    numbers: Numbers,
    extra: Vec<(usize, Output)>,
    /// The records, each with the number of its packet in the batch.
    events: Vec<(usize, Event)>,
    result: Result<(), EngineError>,
}

impl Turn<'_, '_, '_> {
    fn run(&mut self) {
        // As one list, of which a batch of the engine has more.
        let mut parts = std::mem::take(&mut self.own).into_iter();
        let mut frames = parts.next().unwrap_or_default();
        parts.for_each(|part| frames.extend(part));
        let (mut outputs, mut records) = (Vec::new(), Vec::new());
        let most = if self.has_records { 1 } else { frames.len().max(1) };
        for frames in frames.chunks_mut(most) {
            self.core.count(frames.len());
            self.result = self.core.engine.run_each(frames, &mut outputs);
            self.extra.extend(outputs.drain(..).map(|(at, output)| (self.numbers.of(frames[at]), output)));
            if self.has_records {
                self.core.engine.take_events(&mut records);
                self.events.extend(records.drain(..).map(|event| (self.numbers.of(frames[0]), event)));
            }
            if self.result.is_err() {
                break;
            }
        }
    }
}

/// The frames of each core.
fn spread_frames<'f, 'b>(
    spread: &Spread,
    frames: &'f mut [Frame<'b>],
    cores: usize,
    values: &mut Vec<u64>,
) -> Vec<Vec<&'f mut Frame<'b>>> {
    let room = frames.len() / cores + frames.len() / 8 + 16;
    let mut found: Vec<Vec<&mut Frame<'_>>> = (0..cores).map(|_| Vec::with_capacity(room)).collect();
    let mut parts = frames.chunks_mut(AHEAD);
    let mut next = parts.next();
    while let Some(part) = next {
        next = parts.next();
        next.iter().flat_map(|next| next.iter()).for_each(|frame| prefetch(frame.bytes().as_ptr()));
        for frame in part {
            let core = spread.core(frame.bytes(), frame.port, cores, values);
            found[core].push(frame);
        }
    }
    found
}

/// Outcomes by the numbers of their packets.
type Numbered = Vec<(usize, Result<Outcome, EngineError>)>;

impl InPlace for Cores {
    fn name(&self) -> &str {
        self.cores[0].engine.name()
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.cores.iter_mut().for_each(|core| core.engine.bind_ports(ports));
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        let mut first = 0;
        while first < frames.len() {
            let len = self.part(PART).min(frames.len() - first);
            self.run_part(&mut frames[first..first + len], first, extra)?;
            first += len;
        }
        Ok(())
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        Datapath::sweep(self, now_ns)
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
        // Of packets that one core has run.
        self.cores.iter_mut().for_each(|core| core.engine.take_events(events));
    }
}

impl Datapath for Cores {
    fn name(&self) -> &str {
        self.cores[0].engine.name()
    }

    fn refuses(&self, _: &Packet<'_>) -> Option<Refusal> {
        None
    }

    fn bind_ports(&mut self, ports: &Ports) {
        InPlace::bind_ports(self, ports);
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if let Some(outcome) = self.outcomes.pop_front() {
            return outcome;
        }
        self.keep_room(1)?;
        let core = self.core_of(packet);
        let core = &mut self.cores[core];
        core.count(1);
        core.engine.datapath().process(packet, choices)
    }

    fn most_ahead(&self) -> usize {
        self.cores.len() * PART
    }

    fn announce(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        let mut first = 0;
        while first < packets.len() {
            let len = self.part(PART).min(packets.len() - first);
            self.announce_part(&packets[first..first + len])?;
            if matches!(self.outcomes.back(), Some(Err(_))) {
                break;
            }
            first += len;
        }
        Ok(())
    }

    fn tallies(&self) -> bool {
        !self.has_records && self.cores.len() <= MOST_CORES
    }

    fn tally(&mut self, packets: &[Arrival<'_>], draws: Draws, tally: &mut Tally) -> Result<(), PacketError> {
        for (number, part) in packets.chunks(MOST_COUNTED).enumerate() {
            let first = number * MOST_COUNTED;
            let ran = self.tally_part(part, draws.from(first), tally);
            ran.map_err(|error| PacketError { packet: first + error.packet, ..error })?;
        }
        Ok(())
    }

    fn evict_next(&mut self, victims: &[Eviction]) {
        self.active().iter_mut().for_each(|core| core.engine.datapath().evict_next(victims));
    }

    fn not_evicted(&mut self) -> Vec<Eviction> {
        self.active().iter_mut().flat_map(|core| core.engine.datapath().not_evicted()).collect()
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        let count = self.active().len();
        let cores = self.cores[..count].iter_mut();
        let mut items: Vec<(&mut Core, Result<(), EngineError>)> = cores.map(|core| (core, Ok(()))).collect();
        self.crew.run(&mut items, |_, (core, result)| *result = core.engine.sweep(now_ns));
        items.into_iter().try_for_each(|(_, result)| result)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let states: Result<Vec<Snapshot>, EngineError> =
            self.active().iter_mut().map(|core| core.engine.datapath().snapshot()).collect();
        let mut states = states?;
        match states.len() {
            1 => Ok(states.remove(0)),
            _ => {
                let wrong = |what| EngineError::Fault { engine: NAME, insn: 0, what };
                self.split.merged(states, &self.base, &self.initial).map_err(wrong)
            }
        }
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.outcomes.clear();
        self.events.clear();
        let mut whole = self.initial.clone();
        whole.maps.extend(state.maps.iter().map(|(name, entries)| (name.clone(), entries.clone())));
        whole.per_cpu.extend(state.per_cpu.iter().map(|(name, cpus)| (name.clone(), *cpus)));
        for (core, own) in self.cores.iter_mut().zip(self.split.divided(&whole, self.crew.tasks())) {
            core.engine.datapath().restore(&own)?;
        }
        // As the engine has them: a state need not list all entries of an array.
        self.base = self.cores[0].engine.datapath().snapshot()?;
        self.base.maps.retain(|name, _| matches!(self.split.shares.get(name), Some(Share::Sums(_))));
        self.joined = None;
        Ok(())
    }
}

impl Cores {
    /// Runs announced packets, and keeps their outcomes.
    fn announce_part(&mut self, packets: &[(Packet<'_>, Choices)]) -> Result<(), EngineError> {
        self.keep_room(packets.len())?;
        if self.joined.is_some() {
            self.announce_spread(packets, false);
        } else {
            self.paced(packets.len(), |cores, is_parallel| cores.announce_spread(packets, is_parallel));
        }
        Ok(())
    }

    /// Runs announced packets, each on its core.
    fn announce_spread(&mut self, packets: &[(Packet<'_>, Choices)], is_parallel: bool) {
        let count = self.active().len();
        let rule = &self.split.spread;
        let mut spread = std::mem::take(&mut self.spread);
        spread.clear();
        spread.resize(packets.len(), 0);
        if count > 1 {
            let len = packets.len().div_ceil(count);
            let parts = packets.chunks(len).zip(spread.chunks_mut(len)).zip(&mut self.cores);
            let mut items: Vec<_> =
                parts.map(|((packets, spread), core)| (packets, spread, &mut core.values)).collect();
            self.crew.each(is_parallel, &mut items, |_, (packets, spread, values)| {
                for ((packet, _), core) in packets.iter().zip(spread.iter_mut()) {
                    *core = rule.core(packet.bytes, packet.port, count, values) as u32;
                }
            });
        }
        let cores = self.cores[..count].iter_mut();
        let mut items: Vec<(&mut Core, Numbered)> = cores.map(|core| (core, Vec::new())).collect();
        let all = &spread;
        self.crew.each(is_parallel, &mut items, |number, (core, outcomes)| {
            core.run_announced(number as u32, all, packets, outcomes);
        });
        let mut found: Numbered = items.into_iter().flat_map(|(_, outcomes)| outcomes).collect();
        self.spread = spread;
        found.sort_by_key(|(number, _)| *number);
        // After a failure, packets of other cores have run, but none of them counts.
        let failed = found.iter().position(|(_, outcome)| outcome.is_err());
        found.truncate(failed.map_or(found.len(), |at| at + 1));
        self.outcomes.extend(found.into_iter().map(|(_, outcome)| outcome));
    }
}

impl Core {
    pub(crate) fn count(&self, packets: usize) {
        self.packets.fetch_add(packets as u64, Ordering::Relaxed);
    }

    /// Runs the packets whose core is `number`, until one fails.
    fn run_announced(
        &mut self,
        number: u32,
        spread: &[u32],
        packets: &[(Packet<'_>, Choices)],
        outcomes: &mut Numbered,
    ) {
        let own: Vec<usize> = (0..packets.len()).filter(|at| spread[*at] == number).collect();
        self.count(own.len());
        let datapath = self.engine.datapath();
        let most = datapath.most_ahead();
        for part in own.chunks(most.max(1)) {
            if most > 0 {
                let batch: Vec<(Packet<'_>, Choices)> = part.iter().map(|at| packets[*at]).collect();
                if let Err(error) = datapath.announce(&batch) {
                    return outcomes.push((part[0], Err(error)));
                }
            }
            for at in part {
                let (packet, choices) = &packets[*at];
                let outcome = datapath.process(packet, choices);
                let has_failed = outcome.is_err();
                outcomes.push((*at, outcome));
                if has_failed {
                    return;
                }
            }
        }
    }
}
