// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differential test of the engines.

use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_efsm::{Coverage, Machine, compile, layout};
use flowloom_engine::{Choices, Datapath, Packet, Port, Snapshot};
use flowloom_lower::{HeaderParser, LowerError, LowerOptions, lower};
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

/// State of a function without the instruments (counters, locks), and the number of held locks.
fn state(engine: &mut dyn Datapath) -> (Snapshot, usize) {
    let mut snapshot = engine.snapshot().unwrap();
    let cells = snapshot.maps.get(layout::LOCKS_MAP).into_iter().flat_map(|map| map.values());
    let held = cells.flat_map(|cells| cells.chunks(64)).filter(|cell| cell[..8] != [0; 8]).count();
    snapshot.maps.retain(|name, _| !layout::is_instrument(name));
    (snapshot, held)
}

/// Runs the steps on the reference machine and on the lowered programs, with a sweep at each multiple of `sweep_ns`.
/// Returns the coverage.
///
/// # Panics
/// Results or states differ.
#[track_caller]
pub(crate) fn agree(function: &Arc<Function>, steps: &[Step], sweep_ns: u64, start: Option<&Snapshot>) -> Coverage {
    let mut machine = Machine::new(Arc::clone(function));
    let mut engines: Vec<(&str, Interpreter)> = Vec::new();
    let plain = LowerOptions::default();
    let forms = [
        ("", plain),
        (" with counters", LowerOptions { counters: true, ..plain }),
        (" with locks", LowerOptions { attached: true, ..plain }),
        (" with the target's parser", LowerOptions { parser: HeaderParser::Target, ..plain }),
    ];
    for (form, options) in forms {
        let program = match lower(function, &options) {
            // The function cannot be attached.
            Err(LowerError::Kernel { .. }) if options.attached => continue,
            lowered => lowered.unwrap_or_else(|e| panic!("{e}\n{}", text(function))),
        };
        let engine = Interpreter::new(Arc::new(program)).unwrap_or_else(|e| panic!("{e}\n{}", text(function)));
        engines.push((form, engine.with_strict_stack()));
    }
    if let Some(start) = start {
        machine.restore(start).unwrap();
        engines.iter_mut().for_each(|(_, engine)| engine.restore(start).unwrap());
    }
    let mut swept = steps.first().map_or(0, |s| s.now_ns / sweep_ns);
    for (i, step) in steps.iter().enumerate() {
        let choices = Choices::seeded(step.now_ns, 1, i as u64);
        let packet = Packet { bytes: &step.bytes, port: Port(step.port) };
        let place =
            |what: &str, form: &str| format!("{what} {i} of {}{form}: {step:x?}\n{}", steps.len(), text(function));
        if step.now_ns / sweep_ns > swept {
            swept = step.now_ns / sweep_ns;
            machine.sweep(swept * sweep_ns).unwrap();
            engines.iter_mut().for_each(|(_, engine)| engine.sweep(swept * sweep_ns).unwrap());
        }
        let expected = machine.process(&packet, &choices).unwrap();
        for (form, engine) in &mut engines {
            let found = engine.process(&packet, &choices).unwrap_or_else(|e| panic!("{e}: {}", place("packet", form)));
            assert_eq!(found, expected, "found, expected: {}", place("packet", form));
        }
        if i % 16 == 0 || i + 1 == steps.len() {
            // Near the maximum time, the deadline of a hard timer can equal the value that means no deadline.
            if step.now_ns < 1 << 63 {
                machine.check_invariants();
            }
            let (expected, _) = state(&mut machine);
            for (form, engine) in &mut engines {
                let (found, held) = state(engine);
                assert_eq!(found, expected, "found, expected: {}", place("state after packet", form));
                assert_eq!(held, 0, "{}", place("locks held after packet", form));
            }
        }
    }
    let (_, with_counters) = &mut engines[1];
    let counted = Coverage::from_snapshot(function, &with_counters.snapshot().unwrap()).unwrap();
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
    steps_of(rng, count, 1 << 40, gaps_ns, |rng| {
        let mut bytes = packet(rng).build();
        if rng.chance(1, 8) {
            mutate(rng, &mut bytes);
        }
        bytes
    })
}

/// `count` packets, from `start_ns` on, with time increments from `gaps_ns`.
pub(crate) fn steps_of(
    rng: &mut Rng,
    count: usize,
    start_ns: u64,
    gaps_ns: &[u64],
    mut packet: impl FnMut(&mut Rng) -> Vec<u8>,
) -> Vec<Step> {
    let mut now_ns = start_ns;
    let mut step = || {
        now_ns = now_ns.saturating_add(*rng.pick(gaps_ns));
        Step { bytes: packet(rng), port: 1 + rng.below(4) as u32, now_ns }
    };
    (0..count).map(|_| step()).collect()
}

/// Rows that no packet reached, by line.
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
