// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential test of the engines.

use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_efsm::{Coverage, Machine, compile, layout};
use flowloom_engine::{Choices, Datapath, Packet, Port, Snapshot};
use flowloom_isa::Program;
use flowloom_lower::{LowerError, LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, Rng, mutate};
use flowloom_vm::Interpreter;

/// An input packet with its port and time.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) bytes: Vec<u8>,
    pub(crate) port: u32,
    pub(crate) now_ns: u64,
}

/// Compiles a valid source.
pub(crate) fn function(text: &str) -> Arc<Function> {
    match compile("test.efsm", text, &[]) {
        Ok((function, _)) => Arc::new(function),
        Err(errors) => {
            let list: Vec<String> = errors.list.iter().map(|d| format!("{:?} {d}", d.position())).collect();
            panic!("{}\n{text}", list.join("\n"))
        }
    }
}

/// State of a function without the instruments (counters, locks).
fn state(engine: &mut dyn Datapath) -> Snapshot {
    let mut snapshot = engine.snapshot().unwrap();
    snapshot.maps.retain(|name, _| !layout::is_instrument(name));
    snapshot
}

/// Number of held locks.
fn held(engine: &mut dyn Datapath) -> usize {
    let snapshot = engine.snapshot().unwrap();
    let cells = snapshot.maps.get(layout::LOCKS_MAP).into_iter().flat_map(|map| map.values());
    cells.flat_map(|cells| cells.chunks(64)).filter(|cell| cell[..8] != [0; 8]).count()
}

/// Runs the steps on the reference machine and on the lowered programs, with a sweep at each multiple of `sweep_ns`.
/// Returns the coverage.
///
/// # Panics
/// Results or states differ.
#[track_caller]
pub(crate) fn agree(function: &Arc<Function>, steps: &[Step], sweep_ns: u64, start: Option<&Snapshot>) -> Coverage {
    let engine = |lowered: Result<Program, LowerError>| {
        let program = lowered.unwrap_or_else(|e| panic!("{e}\n{}", text(function)));
        Interpreter::new(Arc::new(program)).unwrap_or_else(|e| panic!("{e}\n{}", text(function))).with_strict_stack()
    };
    let [mut without, mut with] =
        [false, true].map(|counters| engine(lower(function, &LowerOptions { counters, ..LowerOptions::default() })));
    // With locks, if the function can be attached.
    let mut attached = match lower(function, &LowerOptions { attached: true, ..LowerOptions::default() }) {
        Err(LowerError::Kernel { .. }) => None,
        lowered => Some(engine(lowered)),
    };
    let mut machine = Machine::new(Arc::clone(function));
    if let Some(start) = start {
        machine.restore(start).unwrap();
        without.restore(start).unwrap();
        with.restore(start).unwrap();
        attached.iter_mut().for_each(|engine| engine.restore(start).unwrap());
    }
    let mut swept = steps.first().map_or(0, |s| s.now_ns / sweep_ns);
    for (i, step) in steps.iter().enumerate() {
        let choices = Choices::seeded(step.now_ns, 1, i as u64);
        let packet = Packet { bytes: &step.bytes, port: Port(step.port) };
        let place = |what: &str| format!("{what} {i} of {}: {step:x?}\n{}", steps.len(), text(function));
        if step.now_ns / sweep_ns > swept {
            swept = step.now_ns / sweep_ns;
            let attached = attached.iter_mut().map(|engine| engine as &mut dyn Datapath);
            for engine in [&mut machine as &mut dyn Datapath, &mut without, &mut with].into_iter().chain(attached) {
                engine.sweep(swept * sweep_ns).unwrap();
            }
        }
        let expected = machine.process(&packet, &choices).unwrap();
        for (engine, what) in [(&mut without, "packet"), (&mut with, "packet, with counters,")]
            .into_iter()
            .chain(attached.iter_mut().map(|engine| (engine, "packet, with locks,")))
        {
            let found = engine.process(&packet, &choices).unwrap_or_else(|e| panic!("{e}: {}", place(what)));
            assert_eq!(found, expected, "found, expected: {}", place(what));
        }
        if i % 16 == 0 || i + 1 == steps.len() {
            // Near the maximum time, the deadline of a hard timer can equal the value that means no deadline.
            if step.now_ns < 1 << 63 {
                machine.check_invariants();
            }
            let expected = state(&mut machine);
            assert_eq!(state(&mut without), expected, "found, expected: {}", place("state after packet"));
            assert_eq!(state(&mut with), expected, "found, expected: {}", place("state with counters after packet"));
            if let Some(attached) = &mut attached {
                assert_eq!(state(attached), expected, "found, expected: {}", place("state with locks after packet"));
                assert_eq!(held(attached), 0, "{}", place("locks held after packet"));
            }
        }
    }
    let counted = Coverage::from_snapshot(function, &with.snapshot().unwrap()).unwrap();
    assert_eq!(counted, machine.coverage(), "found, expected: {}", text(function));
    counted
}

fn text(function: &Function) -> &str {
    &function.source.text
}

/// `count` random packets between `hosts` hosts, one in eight of them malformed, with time increments from `gaps_ns`.
pub(crate) fn random_steps(rng: &mut Rng, count: usize, hosts: usize, gaps_ns: &[u64]) -> Vec<Step> {
    random_steps_of(rng, count, gaps_ns, |rng| PacketBuilder::random(rng, hosts))
}

/// `count` packets, one in eight of them malformed, with time increments from `gaps_ns`.
pub(crate) fn random_steps_of(
    rng: &mut Rng,
    count: usize,
    gaps_ns: &[u64],
    mut packet: impl FnMut(&mut Rng) -> PacketBuilder,
) -> Vec<Step> {
    steps_of(rng, count, gaps_ns, |rng| {
        let mut bytes = packet(rng).build();
        if rng.chance(1, 8) {
            mutate(rng, &mut bytes);
        }
        bytes
    })
}

/// `count` packets, with time increments from `gaps_ns`.
pub(crate) fn steps_of(
    rng: &mut Rng,
    count: usize,
    gaps_ns: &[u64],
    mut packet: impl FnMut(&mut Rng) -> Vec<u8>,
) -> Vec<Step> {
    let mut now_ns = 1 << 40;
    (0..count)
        .map(|_| {
            now_ns += *rng.pick(gaps_ns);
            let bytes = packet(rng);
            Step { bytes, port: 1 + rng.below(4) as u32, now_ns }
        })
        .collect()
}

/// Rows that no packet reached, by line. With `may_idle`, elements that no packet reached are skipped.
pub(crate) fn unreached(function: &Function, coverage: &Coverage) -> Vec<String> {
    let mut out = Vec::new();
    for (element, reached) in function.elements.iter().zip(&coverage.elements) {
        for (row, hits) in element.rows.iter().zip(&reached.rows) {
            if hits.values().all(|n| *n == 0) {
                let (line, _, text) = function.source.locate(row.span.start);
                out.push(format!("`{}` line {line}: {}", element.name, text.trim()));
            }
        }
    }
    out
}
