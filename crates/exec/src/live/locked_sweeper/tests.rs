// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two CPUs update the same contexts while tables are swept: no update is lost. Also the cost of locks for a single
//! packet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use flowloom_context::ContextLayout;
use flowloom_context::locks::LOCKS_MAP;
use flowloom_efsm::{Coverage, compile};
use flowloom_engine::Snapshot;
use flowloom_isa::MapDef;
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, require};

use super::*;
use crate::kernel::KernelEngine;
use crate::kernel::state::{self, KernelMap};
use crate::sys::cpu::Pinned;
use crate::sys::monotonic_ns;

/// Contexts that are created, return to their default, expire and enter a successor, and a sum that must be preserved.
const HAMMER: &str = "
function hammer;
meta flush;
stateful flow {
    key ip.src; states ready; reg n: u64;
    on ready when n == 7 stay { n = 0; flush = 8; goto total; }
    on ready stay { n += 1; goto timed; }
    otherwise { drop; }
}
stateful total {
    key none; states s; reg sum: u64;
    on s stay { sum += flush; goto timed; }
    otherwise { drop; }
}
stateful timed {
    key ip.src; states fresh, live, late; reg m: u64;
    expire live -> late;
    on any -> live (idle 20us) { m += 1; goto brief; }
    otherwise { drop; }
}
stateful brief {
    key ip.src; states no, yes; global g: u64;
    on any -> yes (idle 10us) { g += 1; pass; }
    otherwise { drop; }
}";

fn program(text: &str, counters: bool, attached: bool) -> (flowloom_efsm::model::Function, Program) {
    let (function, _) = compile("test.efsm", text, &[]).unwrap_or_else(|e| panic!("{:?}", e.list));
    let program = lower(&function, &LowerOptions { counters, attached, ..LowerOptions::default() }).expect("lowers");
    (function, program)
}

fn packet(host: u8) -> Vec<u8> {
    PacketBuilder::new().ipv4([10, 0, 0, host], [10, 9, 9, 9]).udp(1000, 2000).payload(&[7; 18]).build()
}

fn field(layout: &ContextLayout, record: &[u8], name: &str) -> u64 {
    let field = layout.fields.iter().find(|field| field.name == name).expect("a register");
    let mut bytes = [0; 8];
    let at = field.offset_bytes as usize;
    bytes[..field.size_bytes as usize].copy_from_slice(&record[at..at + field.size_bytes as usize]);
    u64::from_le_bytes(bytes)
}

fn sum(program: &Program, snapshot: &Snapshot, table: &str, register: &str) -> u64 {
    let layout = |def: &MapDef| (def.name == table).then(|| def.layout.clone()).flatten();
    let layout = program.maps.iter().find_map(layout).expect("a table");
    snapshot.maps[table].values().map(|record| field(&layout, record, register)).sum()
}

struct Hammered {
    packets: u64,
    flows: u64,
    timed: u64,
    global: u64,
    coverage: Coverage,
    swept: u64,
    alive: u64,
    held: usize,
}

/// The sweeper of a table, if packets lock it.
fn sweeper(program: &Program, map: usize, created: &Maps) -> Option<LockedSweeper> {
    let place = LockPlace::of(program, map)?;
    Some(LockedSweeper::load(program, map, place, created).expect("loads"))
}

/// Two CPUs run the program on packets of few hosts for `duration`, while this one sweeps.
fn hammer(attached: bool, duration: Duration) -> Hammered {
    const REPEAT: u32 = 40;
    const HOSTS: u8 = 6;
    let (function, program) = program(HAMMER, true, attached);
    let created = Maps::create(&program).expect("maps");
    let raw = created.load(&program).unwrap_or_else(|e| panic!("{e}"));
    let sweepers: Vec<_> = (0..program.maps.len()).map(|i| sweeper(&program, i, &created)).collect();
    let maps: Vec<(KernelMap, Option<LockedSweeper>)> = program
        .maps
        .iter()
        .zip(created.raw)
        .zip(sweepers)
        .filter(|((def, _), _)| KernelMap::is_state(def))
        .map(|((def, raw), sweeper)| (KernelMap::new(0, def.clone(), raw), sweeper))
        .collect();
    let (stop, start) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(3)));
    let mut swept = 0;
    let packets = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|cpu| {
                let (raw, stop, start) = (&raw, Arc::clone(&stop), Arc::clone(&start));
                scope.spawn(move || {
                    let _pinned = Pinned::to(cpu).expect("a CPU");
                    let packets: Vec<_> = (0..HOSTS).map(packet).collect();
                    let mut output = [0; 256];
                    start.wait();
                    let mut run = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for packet in &packets {
                            let ran = raw.test_run(packet, &mut output, REPEAT).expect("runs");
                            assert_eq!(Verdict::from_number(ran.verdict), Verdict::Pass);
                            run += u64::from(REPEAT);
                        }
                    }
                    run
                })
            })
            .collect();
        start.wait();
        let end = Instant::now() + duration;
        while Instant::now() < end {
            for (map, sweeper) in &maps {
                swept += map.sweep(monotonic_ns(), sweeper.as_ref().map(|s| s as _)).expect("sweeps");
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let snapshot = state::snapshot(maps.iter().map(|(map, _)| map)).expect("reads");
    let global = &snapshot.maps[flowloom_efsm::layout::GLOBALS_MAP];
    let cells = snapshot.maps.get(LOCKS_MAP).into_iter().flat_map(|map| map.values());
    Hammered {
        packets,
        flows: sum(&program, &snapshot, "flow", "n") + sum(&program, &snapshot, "total", "sum"),
        timed: sum(&program, &snapshot, "timed", "m"),
        global: global.values().map(|g| u64::from_le_bytes(*g.first_chunk().expect("a register"))).sum(),
        coverage: Coverage::from_snapshot(&function, &snapshot).expect("counted"),
        swept,
        alive: snapshot.maps["brief"].len() as u64,
        held: cells.flat_map(|cells| cells.chunks(64)).filter(|cell| cell[..8] != [0; 8]).count(),
    }
}

/// The kernel as an engine, and two CPUs.
fn available() -> Result<(), String> {
    KernelEngine::available().map_err(|reason| reason.to_string())?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 { Err(format!("found {cpus} CPU, expected 2")) } else { Ok(()) }
}

#[test]
fn locked_updates_of_two_cpus_are_not_lost() {
    require!(available());
    let expired = |found: &Hammered| found.coverage.elements[3].idle_expired.values().sum::<u64>();
    let has_met_all = |found: &Hammered| {
        let flow = &found.coverage.elements[0];
        flow.created > 100 && flow.removed > 100 && expired(found) > 10
    };
    let mut found = hammer(true, Duration::from_secs(2));
    // On a busy machine it takes longer until contexts are met in every state.
    for seconds in [5, 15] {
        if !has_met_all(&found) {
            found = hammer(true, Duration::from_secs(seconds));
        }
    }
    assert_eq!(found.flows, found.packets, "packets in `flow` and `total`, packets");
    assert_eq!(found.timed, found.packets, "packets in `timed`, packets");
    assert_eq!(found.global, found.packets, "packets in the global register, packets");
    assert_eq!(found.held, 0, "locks held");
    let brief = &found.coverage.elements[3];
    let expired = expired(&found);
    assert_eq!(brief.created, brief.removed + expired + found.swept + found.alive, "contexts of `brief`");
    let flow = &found.coverage.elements[0];
    assert_eq!(found.coverage.elements.iter().map(|e| e.rejected).sum::<u64>(), 0, "rejected");
    assert!(has_met_all(&found), "{:?}", found.coverage);
    println!(
        "{} packets; {} contexts came and {} went back to their default, {expired} ran out before a packet, {} were swept",
        found.packets, flow.created, flow.removed, found.swept
    );
}

/// Without locks updates are lost, so that the test above can fail.
#[test]
#[ignore = "shows what is lost without locks; it is a matter of luck"]
fn without_locks_updates_are_lost() {
    require!(available());
    let found = hammer(false, Duration::from_secs(2));
    let lost = [found.flows, found.timed, found.global].map(|counted| found.packets as i64 - counted as i64);
    println!("{} packets; lost in `flow` and `total`, `timed`, the global register: {lost:?}", found.packets);
    assert_ne!(lost, [0; 3]);
}

#[test]
fn a_sweeper_removes_only_expired_contexts() {
    require!(available());
    let (_, program) = program(HAMMER, false, true);
    let created = Maps::create(&program).expect("maps");
    for table in ["timed", "brief", "total"] {
        let index = program.map_index(table).expect("a table");
        let sweeper = sweeper(&program, index, &created).expect("there are locks");
        let (def, raw) = (&program.maps[index], &created.raw[index]);
        let (key, mut value) = (vec![5; def.key_bytes as usize], vec![0; def.value_bytes as usize]);
        let (old, new) = (vec![3; value.len()], vec![4; value.len()]);
        let (mut other_end, mut other_start) = (old.clone(), old.clone());
        *other_end.last_mut().expect("bytes") = 9;
        other_start[0] = 9;
        raw.update(&key, &old).expect("room");
        for other in [&other_end, &other_start] {
            assert!(!sweeper.replace(&key, other, None).expect("runs"), "{table}");
            assert!(!sweeper.replace(&key, other, Some(&new)).expect("runs"), "{table}");
        }
        assert!(raw.lookup(&key, &mut value).expect("reads") && value == old, "{table}");
        assert!(!sweeper.replace(&key, &old, Some(&new)).expect("runs"), "{table}");
        assert!(raw.lookup(&key, &mut value).expect("reads") && value == new, "{table}");
        assert!(sweeper.replace(&key, &new, None).expect("runs"), "{table}");
        assert!(!raw.lookup(&key, &mut value).expect("reads"), "{table}");
        assert!(!sweeper.replace(&key, &new, None).expect("runs"), "{table}: it is not there any more");
        // The sweeper takes the same lock as packets: while it is held, the sweeper does not enter.
        let locks = def.layout.as_ref().and_then(|layout| layout.locks).expect("locks");
        let map = program.map_index(LOCKS_MAP).expect("a map");
        let mut cells = program.maps[map].initial.clone().expect("data");
        cells[(locks.offset_bytes + locks.cell_of(&key) * 64) as usize] = 1;
        created.raw[map].update(&[0; 4], &cells).expect("data");
        raw.update(&key, &old).expect("room");
        assert!(!sweeper.replace(&key, &old, None).expect("runs"), "{table}: the lock is held");
        assert!(raw.lookup(&key, &mut value).expect("reads") && value == old, "{table}");
        created.raw[map].update(&[0; 4], program.maps[map].initial.as_ref().expect("data")).expect("data");
    }
}

/// Nanoseconds per packet, alternately with and without locks.
#[test]
#[ignore = "measures"]
fn cost_of_a_lock() {
    require!(available());
    let _pinned = Pinned::to(1).expect("a CPU");
    let one =
        "function one; stateful a { key none; states s; reg n: u64; on s stay { n += 1; pass; } otherwise { drop; } }";
    let many = "function many; stateful a { key 5-tuple; states s; reg n: u64; on s stay { n += 1; pass; } otherwise { drop; } }";
    let three = HAMMER;
    for (name, text) in [("one cell", one), ("256 cells, 5-tuple", many), ("four elements", three)] {
        let loaded = [false, true].map(|attached| {
            let (_, program) = program(text, false, attached);
            Maps::create(&program).expect("maps").load(&program).unwrap_or_else(|e| panic!("{e}"))
        });
        const REPEAT: u32 = 10_000;
        let (packet, mut output) = (packet(1), [0; 256]);
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..402 {
            for (raw, times) in loaded.iter().zip(&mut times) {
                let start = Instant::now();
                raw.test_run(&packet, &mut output, REPEAT).expect("runs");
                if round >= 2 {
                    times.push(start.elapsed().as_nanos() as f64 / f64::from(REPEAT));
                }
            }
        }
        let [without, with] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            [times[times.len() / 4], times[times.len() / 2], times[times.len() * 3 / 4]]
        });
        println!("{name}: without {without:.1?} ns, with {with:.1?} ns (quartiles)");
    }
}
