// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on packets of random flows, beside the kernel, which runs the same object.
//!
//! ```text
//!  ours     header of the next flow ─► frame ─► 256 of them ─► machine code
//!  kernel   driver: header of the next flow ─► tail call ─► the function     (BPF_PROG_TEST_RUN, many times a call)
//! ```
//!
//! # Fairness
//! - Both write the same headers, from the same order of flows, in the measured time. What the same loop takes with a
//!   function that returns at once is subtracted on both sides: the harness.
//! - Both tables have room for 5/4 of the flows, and hold all of them before the first round.
//! - The time of ours is that of the thread on the processor; the kernel's is its own, a mean of whole nanoseconds.
//! - A batch of ours arrives at one time, which is read in the measured time; the kernel reads its clock when asked.

use std::path::Path;

use flowloom_engine::Fate;

use crate::error::BenchError;
use crate::kernel::{Flows, Kernel, Target, TestRuns};
use crate::measure::{Clock, Comparison, Contender, Times, by_turns, now_ns};
use crate::ours::{BATCH, Buffers, Ring, compiled, empty, program};
use crate::tool;
use crate::traffic::{Mix, packet, write_flow};

/// The packets of a round.
const PACKETS: u32 = 1 << 19;

/// The functions: name, source, and the kernel's verdict on a packet of a known flow.
const FUNCTIONS: [(&str, &str, u32); 2] = [
    ("simple_firewall", "functions/ebpf/simple_firewall/simple_firewall.bpf.c", 4),
    ("big_flow", "functions/big_flow/big_flow.bpf.c", 2),
];

/// At least this number of flows is asked to be this often faster than in the kernel.
const BARS: [(u64, f64); 3] = [(1_000_000, 12.0), (100_000, 4.0), (0, 2.0)];
/// Our own time grows by less than this from the fewest to the most flows.
const GROWTH_BAR: f64 = 2.5;

/// Packets of ours, from an order of flows.
struct Ours<'a> {
    ring: Ring<'a>,
    order: &'a [u64],
    next: usize,
}

impl Ours<'_> {
    fn run(&mut self, packets: usize) -> Result<u64, BenchError> {
        let mask = self.order.len() - 1;
        for _ in 0..packets / BATCH {
            let (order, next) = (self.order, self.next);
            let flow = |number: usize, packet: &mut [u8]| write_flow(packet, order[(next + number) & mask]);
            self.ring.run(BATCH, now_ns(), flow)?;
            self.next += BATCH;
        }
        Ok(packets as u64)
    }

    /// Runs a packet of each flow.
    fn fill(&mut self, flows: u64) -> Result<(), BenchError> {
        let time_ns = now_ns();
        for first in (0..flows).step_by(BATCH) {
            let packets = (flows - first).min(BATCH as u64) as usize;
            self.ring.run(packets, time_ns, |number, packet| write_flow(packet, first + number as u64))?;
        }
        Ok(())
    }
}

/// All comparisons of functions.
pub(crate) fn run(
    kernel: Option<&Kernel>,
    folder: &Path,
    rounds: usize,
    flows: &[u64],
) -> Result<Vec<Comparison>, BenchError> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for (name, source, verdict) in FUNCTIONS {
        let object = tool::object(folder, &top.join(source), name, &["-mcpu=v3"])?;
        for mix in Mix::ALL {
            let what = format!("{name}-{}", mix.name());
            let mut first: Option<(u64, f64)> = None;
            for &flows in flows {
                let ours =
                    case(&Case { kernel, object: &object, name: &what, flows, verdict }, mix, rounds, &mut found)?;
                let (fewest, base_ns) = *first.get_or_insert((flows, ours));
                if flows > fewest {
                    let growth = ours / base_ns;
                    let is_met = if growth < GROWTH_BAR { "met" } else { "missed" };
                    println!(
                        "{what}: ours takes {growth:.2} times as long with {flows} flows as with {fewest}; bar {GROWTH_BAR} {is_met}"
                    );
                }
            }
        }
    }
    Ok(found)
}

/// A function on a number of flows.
struct Case<'a> {
    kernel: Option<&'a Kernel>,
    object: &'a Path,
    name: &'a str,
    flows: u64,
    verdict: u32,
}

/// Compares; returns our time of a packet in nanoseconds.
fn case(case: &Case<'_>, mix: Mix, rounds: usize, found: &mut Vec<Comparison>) -> Result<f64, BenchError> {
    let &Case { kernel, object, name, flows, verdict } = case;
    let order = mix.order(flows)?;
    let entries = u32::try_from(flows * 5 / 4)
        .map_err(|_| BenchError::Wrong { what: format!("{flows} flows are more than a table holds") })?;
    let packet = packet();
    let (mut buffers, mut spare) = (Buffers::of(&packet), Buffers::of(&packet));
    let engine = compiled(&program(object, Some(entries))?)?;
    let mut ours = Ours { ring: buffers.ring(engine), order: &order, next: 0 };
    let mut idle = Ours { ring: spare.ring(compiled(&empty())?), order: &order, next: 0 };
    ours.fill(flows)?;
    ours.run(BATCH)?;
    let fate = ours.ring.first().0;
    if fate.verdict().number() != verdict || fate == Fate::Aborted {
        return Err(BenchError::Wrong { what: format!("{name}: {fate:?}, expected verdict {verdict}") });
    }
    let runs = kernel.map(|kernel| kernel.load(object, entries, &order)).transpose()?;
    if let Some(runs) = &runs {
        let (_, found) = runs.run(Target::Function, Flows::InTurn, &packet, flows as u32)?;
        let entries = runs.entries()?;
        if entries != flows {
            return Err(BenchError::Wrong { what: format!("{name}: the kernel has {entries} of {flows} flows") });
        }
        if found != verdict {
            return Err(BenchError::Wrong {
                what: format!("{name}: verdict {found} of the kernel, expected {verdict}"),
            });
        }
    }
    let mut contenders: Vec<Contender<'_>> = vec![
        ("flowloom, harness", Box::new(|clock| clock.time(|| idle.run(PACKETS as usize)))),
        ("flowloom", Box::new(|clock| clock.time(|| ours.run(PACKETS as usize)))),
    ];
    if let Some(runs) = &runs {
        contenders.push(("kernel, harness", Box::new(|clock| in_kernel(clock, runs, Target::Empty, &packet))));
        contenders.push(("kernel", Box::new(|clock| in_kernel(clock, runs, Target::Function, &packet))));
    }
    let times = by_turns(&mut contenders, rounds)?;
    drop(contenders);
    let ours = times[1].without(&times[0], "flowloom");
    let mut shown = vec![ours.clone()];
    if let [_, _, harness, whole] = times.as_slice() {
        let peer = whole.without(harness, "kernel");
        let bar = BARS.iter().find(|(from, _)| flows >= *from).map(|(_, bar)| *bar);
        found.push(Comparison { bar, ..ours.beside(&peer, name, flows) });
        shown.push(peer);
    }
    Times::print(name, flows, &times);
    let net: Vec<Times> = shown.into_iter().map(|times| times.named("net")).collect();
    Times::print(name, flows, &net);
    Ok(ours.median())
}

fn in_kernel(clock: &mut Clock, runs: &TestRuns<'_>, target: Target, packet: &[u8]) -> Result<(), BenchError> {
    let (elapsed, _) = runs.run(target, Flows::InOrder, packet, PACKETS)?;
    clock.add(elapsed, PACKETS.into());
    Ok(())
}
