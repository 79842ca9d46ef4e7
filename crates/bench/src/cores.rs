// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on several cores, beside one, over a capture in memory.
//!
//! ```text
//!  capture in memory ─► machine code on one core, on copies
//!                   └─► spread by the function's own key ─► machine code on two cores, each with its own tables
//! ```
//!
//! # Fairness
//! - Both run the same packets by the same call, which counts what becomes of them. The capture lies in memory, written
//!   before, and no contender writes it: what a packet may change is a copy.
//! - Each flow is as frequent as any other, in random order. The capture is several times larger than the cache that
//!   both cores share, and each round goes on where the one before has ended.
//! - One core runs in batches of the size that is best for it; several cores run in batches of the same size.
//! - The time of several cores includes spreading, waking and waiting.
//! - Other processes take processors away. So there are two ratios: one of the times on the clock of the wall, and one
//!   of processor times, where several cores take the longest of each turn, and what one thread does between turns.
//!   Processor times are measured in rounds of their own, which take longer.
//! - "2 engines apart" is no contender: two engines, each with half of the flows and packets that were sorted before,
//!   which exchange nothing. It tells what the processor and its memory allow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use flowloom_engine::{Arrival, Datapath, Draws, PacketError, Port, Tally};
use flowloom_random::{Draw, SplitMix64};
use flowloom_session::engines::{Cores, CoresOptions, Engine, EngineName, EngineOptions};
use flowloom_session::{FunctionFile, Loaded};

use crate::error::BenchError;
use crate::measure::{Comparison, Contender, Times, by_turns, now_ns, processor_time};
use crate::tool;
use crate::traffic::{PACKET_BYTES, packet, write_flow};

/// The cores beside one.
const CORES: usize = 2;
/// The fewest packets of the capture, a power of 2: with their descriptors, 96 MiB.
const PACKETS: usize = 1 << 20;
/// The packets of a round.
const ROUND: usize = 1 << 18;
/// The table has room for at least this number of further flows, so that several cores never wait for room.
const SPARE_FLOWS: u64 = 1 << 18;

/// The required speed-up of two cores.
const BAR: f64 = 1.8;

/// The functions: name, source, the table of flows.
const FUNCTIONS: [(&str, &str, &str); 3] = [
    ("simple_firewall", "functions/ebpf/simple_firewall/simple_firewall.bpf.c", "flows"),
    ("big_flow", "functions/big_flow/big_flow.bpf.c", "flows"),
    ("big_flow.efsm", "functions/big_flow/big_flow.efsm", "flows"),
];

/// All comparisons.
pub(crate) fn run(folder: &Path, rounds: usize, flows: &[u64]) -> Result<Vec<Comparison>, BenchError> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for &flows in flows {
        let capture = Capture::new(flows);
        for (name, source, table) in FUNCTIONS {
            let source = top.join(source);
            let path = match source.extension() {
                Some(extension) if extension == "c" => tool::object(folder, &source, name, &["-mcpu=v3"])?,
                _ => source,
            };
            let loaded = Loaded::open(&FunctionFile { path, ..FunctionFile::default() })?;
            case(&loaded, &format!("{name}-cores"), table, &capture, rounds, &mut found)?;
        }
    }
    Ok(found)
}

/// Packets in memory.
struct Capture {
    flows: u64,
    bytes: Vec<u8>,
    /// By packet, its flow.
    order: Vec<u64>,
    time_ns: u64,
}

impl Capture {
    /// Each flow as often as any other, in random order.
    fn new(flows: u64) -> Capture {
        let packets = (flows as usize).next_multiple_of(ROUND).max(PACKETS);
        let mut order: Vec<u64> = (0..packets as u64).map(|packet| packet % flows).collect();
        let mut rng = SplitMix64::new(flows);
        for at in (1..order.len()).rev() {
            order.swap(at, rng.index(at + 1));
        }
        let mut bytes = packet().repeat(packets);
        bytes.chunks_exact_mut(PACKET_BYTES).zip(&order).for_each(|(packet, flow)| write_flow(packet, *flow));
        Capture { flows, bytes, order, time_ns: now_ns() }
    }

    /// The packets of some flows.
    fn arrivals(&self, is_wanted: impl Fn(u64) -> bool) -> Vec<Arrival<'_>> {
        let packets = self.bytes.chunks_exact(PACKET_BYTES).zip(&self.order);
        let wanted = packets.filter(|(_, flow)| is_wanted(**flow));
        wanted.map(|(bytes, _)| Arrival { bytes, port: Port(1), now_ns: self.time_ns }).collect()
    }
}

/// An engine, and the packets that it runs.
struct Subject<'c, E: ?Sized> {
    packets: &'c [Arrival<'c>],
    next: usize,
    tally: Tally,
    engine: Box<E>,
}

impl<'c, E: Datapath + ?Sized> Subject<'c, E> {
    /// An engine that has run all packets once.
    fn new(engine: Box<E>, packets: &'c [Arrival<'c>]) -> Result<Subject<'c, E>, BenchError> {
        let mut subject = Subject { engine, packets, next: 0, tally: Tally::default() };
        subject.run(packets.len())?;
        Ok(subject)
    }

    /// Runs the next packets; returns the time on the wall and that of the thread.
    fn run(&mut self, packets: usize) -> Result<(Duration, Duration), BenchError> {
        if self.next + packets > self.packets.len() {
            self.next = 0;
        }
        let part = &self.packets[self.next..self.next + packets];
        self.next += packets;
        let (began, on_processor) = (Instant::now(), processor_time());
        let result = self.engine.tally(part, Draws::default(), &mut self.tally);
        let times = (began.elapsed(), processor_time().saturating_sub(on_processor));
        result.map_err(|PacketError { source, .. }| source)?;
        Ok(times)
    }
}

fn case(
    loaded: &Loaded,
    name: &str,
    table: &str,
    capture: &Capture,
    rounds: usize,
    found: &mut Vec<Comparison>,
) -> Result<(), BenchError> {
    let flows = capture.flows;
    let entries = (flows * 5 / 4).max(flows + SPARE_FLOWS);
    let capacities = BTreeMap::from([(table.to_owned(), entries as u32)]);
    let options = EngineOptions { capacities, ..EngineOptions::default() };
    let all = capture.arrivals(|_| true);
    let halves = [0, 1].map(|half| capture.arrivals(|flow| flow % 2 == half));
    let engine = || -> Result<Box<dyn Engine>, BenchError> { Ok(EngineName::JIT.load(loaded, &options)?.engine) };
    let one = RefCell::new(Subject::new(engine()?, &all)?);
    let mut apart = Vec::new();
    for half in &halves {
        apart.push(Subject::new(engine()?, half)?);
    }
    let (several, notes) = EngineName::JIT.load_on_cores(loaded, &options, CORES, CoresOptions::default())?;
    println!("{name}: {}", notes.join("; "));
    let several = RefCell::new(Subject::new(Box::new(several), &all)?);
    let mut contenders: Vec<Contender<'_>> = vec![
        (
            "1 core, processor",
            Box::new(|clock| {
                clock.add(one.borrow_mut().run(ROUND)?.1, ROUND as u64);
                Ok(())
            }),
        ),
        (
            "2 cores, processor",
            Box::new(|clock| {
                let several = &mut *several.borrow_mut();
                several.engine.measure(true);
                let before = several.engine.times();
                let (_, own) = several.run(ROUND)?;
                let after = several.engine.times();
                several.engine.measure(false);
                let between = own.saturating_sub(after.caller - before.caller);
                clock.add(between + (after.longest - before.longest), ROUND as u64);
                Ok(())
            }),
        ),
        (
            "1 core, wall",
            Box::new(|clock| {
                clock.add(one.borrow_mut().run(ROUND)?.0, ROUND as u64);
                Ok(())
            }),
        ),
        (
            "2 cores, wall",
            Box::new(|clock| {
                clock.add(several.borrow_mut().run(ROUND)?.0, ROUND as u64);
                Ok(())
            }),
        ),
        (
            "2 engines apart, wall",
            Box::new(|clock| {
                clock.add(at_once(&mut apart)?, ROUND as u64);
                Ok(())
            }),
        ),
    ];
    let times = by_turns(&mut contenders, rounds)?;
    drop(contenders);
    Times::print(name, flows, &times);
    let (one, several) = (one.into_inner(), several.into_inner());
    let is_joined = |cores: &Cores| cores.joined().map(str::to_owned);
    if let Some(reason) = is_joined(&several.engine) {
        return Err(BenchError::Wrong { what: format!("{name}: one core ran all packets: {reason}") });
    }
    if one.tally != several.tally {
        return Err(BenchError::Wrong { what: format!("{name}: {:?} and {:?}", one.tally, several.tally) });
    }
    let shares = several.engine.packets();
    println!("{name}: packets by core: {shares:?}; load average {}", load_average());
    for kind in times[..4].chunks_exact(2) {
        found.push(Comparison { bar: Some(BAR), ..kind[1].beside(&kind[0], name, flows) });
    }
    let apart = times[4].beside(&times[2], name, flows);
    println!("{name}: two engines apart have {:.2} times the rate of one", apart.ratio);
    Ok(())
}

/// Runs both engines at once; returns the time on the wall until the last one has ended.
fn at_once<E: Datapath + ?Sized>(apart: &mut [Subject<'_, E>]) -> Result<Duration, BenchError> {
    let start = Barrier::new(apart.len());
    let packets = ROUND / apart.len();
    std::thread::scope(|scope| {
        let start = &start;
        let run = |one| {
            move || -> Result<Duration, BenchError> {
                start.wait();
                Subject::run(one, packets).map(|(wall, _)| wall)
            }
        };
        let threads: Vec<_> = apart.iter_mut().map(|one| scope.spawn(run(one))).collect();
        let mut longest = Duration::ZERO;
        for thread in threads {
            let wall = thread.join().map_err(|_| BenchError::Wrong { what: "an engine panicked".to_owned() })?;
            longest = longest.max(wall?);
        }
        Ok(longest)
    })
}

/// The processes that want a processor, over the last minute.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
