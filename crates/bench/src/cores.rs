// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on several cores, beside one.
//!
//! ```text
//!  packets in memory ─► machine code on one core
//!                   └─► spread by the function's own key ─► machine code on two cores, each with its own tables
//! ```
//!
//! # Fairness
//! - Both run the same packets of random flows, which are written before the clock starts, more than a core's own cache
//!   holds; a core of several reads the packets of others from there too.
//! - One core runs in small and in large batches, and counts with the better ones.
//! - The time of several cores includes spreading, waking and waiting.
//! - Other processes take processors away. So there are two ratios: one of the times on the clock of the wall, and one
//!   of processor times, where several cores take the longest of each turn, and what one thread does between turns.
//!   Processor times are measured in rounds of their own, which take longer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use flowloom_engine::{Frame, HEADROOM_BYTES, InPlace, Output, Port};
use flowloom_session::engines::{CoresOptions, EngineName, EngineOptions, InPlaceEngine};
use flowloom_session::{FunctionFile, Loaded};

use crate::error::BenchError;
use crate::measure::{Clock, Comparison, Contender, Times, by_turns, now_ns, processor_time};
use crate::tool;
use crate::traffic::{Mix, packet, write_flow};

/// The cores beside one.
const CORES: usize = 2;
/// The packets in memory.
const PACKETS: usize = 1 << 14;
/// The packets of a call: both of one core, the latter of several.
const BATCHES: [usize; 2] = [256, 4096];
/// The passes over the packets of a round.
const PASSES: usize = 16;
/// The room of a buffer: an odd number of cache lines.
const ROOM_BYTES: usize = 7 * 64;
/// The table has room for at least this number of further flows, so that several cores never wait for room.
const SPARE_FLOWS: u64 = 1 << 14;

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
    for (name, source, table) in FUNCTIONS {
        let source = top.join(source);
        let path = match source.extension() {
            Some(extension) if extension == "c" => tool::object(folder, &source, name, &["-mcpu=v3"])?,
            _ => source,
        };
        let loaded = Loaded::open(&FunctionFile { path, ..FunctionFile::default() })?;
        for &flows in flows {
            case(&loaded, &format!("{name}-cores"), table, flows, rounds, &mut found)?;
        }
    }
    Ok(found)
}

/// Packets, and an engine that runs them.
struct Subject<E> {
    engine: E,
    memory: Vec<u8>,
    batch: usize,
    next: usize,
}

impl<E: InPlace> Subject<E> {
    fn new(engine: E, batch: usize) -> Subject<E> {
        let packet = packet();
        let mut memory = vec![0; PACKETS * ROOM_BYTES];
        for room in memory.chunks_exact_mut(ROOM_BYTES) {
            room[HEADROOM_BYTES..HEADROOM_BYTES + packet.len()].copy_from_slice(&packet);
        }
        Subject { engine, memory, batch, next: 0 }
    }

    /// Writes packets of the next flows, and runs them; returns the time on the wall and that of the thread.
    fn pass(&mut self, flow: impl Fn(usize) -> u64) -> Result<(Duration, Duration), BenchError> {
        let len = packet().len();
        let (start, end) = (HEADROOM_BYTES, HEADROOM_BYTES + len);
        for (number, room) in self.memory.chunks_exact_mut(ROOM_BYTES).enumerate() {
            write_flow(&mut room[start..end], flow(self.next + number));
        }
        self.next += PACKETS;
        let time_ns = now_ns();
        let rooms = self.memory.chunks_exact_mut(ROOM_BYTES);
        let mut frames: Vec<Frame<'_>> = rooms.map(|room| Frame::new(room, start, end, Port(1), time_ns)).collect();
        let mut extra: Vec<(usize, Output)> = Vec::new();
        let (began, on_processor) = (Instant::now(), processor_time());
        for batch in frames.chunks_mut(self.batch) {
            self.engine.run(batch, &mut extra)?;
        }
        Ok((began.elapsed(), processor_time().saturating_sub(on_processor)))
    }
}

fn case(
    loaded: &Loaded,
    name: &str,
    table: &str,
    flows: u64,
    rounds: usize,
    found: &mut Vec<Comparison>,
) -> Result<(), BenchError> {
    let order = Mix::ALL[0].order(flows)?;
    let entries = (flows * 5 / 4).max(flows + SPARE_FLOWS);
    let capacities = BTreeMap::from([(table.to_owned(), entries as u32)]);
    let options = EngineOptions { capacities, ..EngineOptions::default() };
    let one = |batch| -> Result<_, BenchError> {
        Ok(Subject::new(AsInPlace(EngineName::JIT.load_in_place(loaded, &options)?.engine), batch))
    };
    let [mut small, mut large] = [one(BATCHES[0])?, one(BATCHES[1])?];
    let (several, notes) = EngineName::JIT.load_on_cores(loaded, &options, CORES, CoresOptions::default())?;
    println!("{name}: {}", notes.join("; "));
    let mut several = Subject::new(several, BATCHES[1]);
    let in_turn = |at: usize| at as u64 % flows;
    for _ in 0..flows.div_ceil(PACKETS as u64) {
        small.pass(in_turn)?;
        large.pass(in_turn)?;
        several.pass(in_turn)?;
    }
    (small.next, large.next, several.next) = (0, 0, 0);
    let mask = order.len() - 1;
    let in_order = |at: usize| order[at & mask];
    let [small_wall, large_wall] = [const { Cell::new(Duration::ZERO) }; 2];
    let several = RefCell::new(several);
    let mut contenders: Vec<Contender<'_>> = vec![
        ("1 core, batches of 256, processor", alone(&mut small, &small_wall, &in_order)),
        ("1 core, batches of 4096, processor", alone(&mut large, &large_wall, &in_order)),
        (
            "2 cores, processor",
            Box::new(|clock| {
                let several = &mut *several.borrow_mut();
                several.engine.measure(true);
                for _ in 0..PASSES {
                    let before = several.engine.times();
                    let (_, own) = several.pass(in_order)?;
                    let after = several.engine.times();
                    let between = own.saturating_sub(after.caller - before.caller);
                    clock.add(between + (after.longest - before.longest), PACKETS as u64);
                }
                several.engine.measure(false);
                Ok(())
            }),
        ),
        ("1 core, batches of 256, wall", on_wall(&small_wall)),
        ("1 core, batches of 4096, wall", on_wall(&large_wall)),
        (
            "2 cores, wall",
            Box::new(|clock| {
                let several = &mut *several.borrow_mut();
                for _ in 0..PASSES {
                    clock.add(several.pass(in_order)?.0, PACKETS as u64);
                }
                Ok(())
            }),
        ),
    ];
    let times = by_turns(&mut contenders, rounds)?;
    drop(contenders);
    let several = several.into_inner();
    Times::print(name, flows, &times);
    if let Some(reason) = several.engine.joined() {
        return Err(BenchError::Wrong { what: format!("{name}: one core ran all packets: {reason}") });
    }
    let shares = several.engine.packets();
    println!("{name}: packets by core: {shares:?}; load average {}", load_average());
    for kind in times.chunks_exact(3) {
        let peer = if kind[0].median() <= kind[1].median() { &kind[0] } else { &kind[1] };
        found.push(Comparison { bar: Some(BAR), ..kind[2].beside(peer, name, flows) });
    }
    Ok(())
}

type Measured<'a> = Box<dyn FnMut(&mut Clock) -> Result<(), BenchError> + 'a>;

/// A round of one core; sets the time on the wall.
fn alone<'a>(
    one: &'a mut Subject<AsInPlace>,
    on_wall: &'a Cell<Duration>,
    flow: &'a dyn Fn(usize) -> u64,
) -> Measured<'a> {
    Box::new(move |clock| {
        on_wall.set(Duration::ZERO);
        for _ in 0..PASSES {
            let (wall, own) = one.pass(flow)?;
            on_wall.set(on_wall.get() + wall);
            clock.add(own, PACKETS as u64);
        }
        Ok(())
    })
}

/// The time on the wall of the round before.
fn on_wall(time: &Cell<Duration>) -> Measured<'_> {
    Box::new(move |clock| {
        clock.add(time.get(), (PASSES * PACKETS) as u64);
        Ok(())
    })
}

/// The engine of one core.
struct AsInPlace(Box<dyn InPlaceEngine>);

impl InPlace for AsInPlace {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn bind_ports(&mut self, ports: &flowloom_engine::Ports) {
        self.0.bind_ports(ports);
    }

    fn run(
        &mut self,
        frames: &mut [Frame<'_>],
        extra: &mut Vec<(usize, Output)>,
    ) -> Result<(), flowloom_engine::EngineError> {
        self.0.run(frames, extra)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), flowloom_engine::EngineError> {
        self.0.sweep(now_ns)
    }
}

/// The processes that want a processor, over the last minute.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
