// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine's slow path: its packets are counted, and the host does not hide wrong entries of the pipeline.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use flowloom_isa::asm;
use flowloom_testkit::skip;
use flowloom_verify::{Arrival, CompareOptions, Stimulus, StimulusOptions, compare};

use super::*;
use crate::FunctionFile;

/// Adds a byte of the packet, whose offset is in the packet, to one of four sums: beyond the window on the slow path.
const FAR: &str = r#".program far
.license "GPL"
.map sums array key 4 value 8 entries 4
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r8 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r8
        r3 += 14
        if r3 > r2 goto out
        r6 = *(u8 *)(r8 + 13)
        r6 &= 3
        *(u32 *)(r10 - 4) = r6
        r7 = *(u8 *)(r8 + 12)
        r5 = r8
        r5 += r7
        r3 = r5
        r3 += 1
        if r3 > r2 goto out
        r7 = *(u8 *)(r5 + 0)
        r1 = map[sums] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto out
        r1 = *(u64 *)(r0 + 0)
        r1 += r7
        *(u64 *)(r0 + 0) = r1
        r0 = 2                          ; XDP_PASS
out:    exit
"#;

fn started(test: &str, loaded: &Loaded) -> Option<Simulation> {
    match Simulation::start(loaded, &EngineOptions::default()) {
        Ok(started) => Some(started),
        Err(SessionError::Environment(reason)) => {
            skip(test, &reason);
            None
        }
        Err(error) => panic!("{}", with_causes(&error)),
    }
}

/// A packet of 250 bytes for a sum; `offset` is that of the byte to add.
fn packet(number: u64, offset: u8) -> Arrival {
    let mut bytes: Vec<u8> = (0..250).collect();
    (bytes[12], bytes[13]) = (offset, number as u8);
    Arrival { time_ns: 100 * number, port: Port(1), bytes }
}

/// Changes the first entry of the first map with one in the pipeline alone: its last byte, or that there is one.
fn spoil(simulation: &mut Simulation, deletes: bool) {
    let maps: Vec<MapPort> = simulation.pipeline.maps().cloned().collect();
    let spoilt = maps.iter().any(|map| {
        let before = simulation.pipeline.read(map.map).unwrap();
        let Some((key, value)) = before.iter().next() else { return false };
        let mut after = before.clone();
        let mut other = value.clone();
        *other.last_mut().unwrap() ^= 1;
        after.remove(key).filter(|_| deletes).map_or_else(|| after.insert(key.clone(), other), Some);
        simulation.pipeline.change(map.map, &before, &after).unwrap();
        true
    });
    assert!(spoilt, "no map has an entry");
}

fn run(simulation: &mut Simulation, arrival: &Arrival) -> Result<Outcome, EngineError> {
    simulation.process(&arrival.packet(), &Choices::seeded(arrival.time_ns, 1, 0))
}

#[test]
fn packets_of_the_slow_path_are_counted_and_do_not_hide_wrong_entries() {
    let test = "packets_of_the_slow_path_are_counted_and_do_not_hide_wrong_entries";
    let loaded = Loaded::of_program(asm::program("far", FAR).unwrap());
    let Some(mut pipeline) = started(test, &loaded) else { return };
    let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
    // A third of them reach beyond the window of 128 bytes.
    let packets: Vec<Arrival> = (0..300).map(|at| packet(at, if at % 3 == 0 { 200 } else { 20 })).collect();
    let options = CompareOptions { is_foreign: true, ..CompareOptions::default() };
    let report = compare(&mut interp, &mut pipeline, &packets, &options).unwrap();
    assert!(report.agrees(), "{report:?}");
    assert_eq!((report.packets_compared, report.packets_slow, report.packets_own()), (300, 100, 200));
    // A run counts its own packets.
    let report = compare(&mut interp, &mut pipeline, &packets[..4], &options).unwrap();
    assert_eq!((report.packets_compared, report.packets_slow), (4, 2));
    // The entry of packet 0 is wrong: a packet of the slow path that changes another one does not find that.
    spoil(&mut pipeline, false);
    assert_eq!(run(&mut pipeline, &packet(5, 200)).unwrap().verdict, Verdict::Pass);
    let found = run(&mut pipeline, &packet(4, 200)).unwrap_err().to_string();
    let expected = "its maps differ before the host changes them: sums[00000000]: expected ";
    assert!(found.contains(expected), "{found}");
}

#[test]
fn a_sweep_does_not_hide_wrong_entries() {
    let test = "a_sweep_does_not_hide_wrong_entries";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/policer/policer.efsm");
    let loaded = Loaded::open(&FunctionFile { path, ..FunctionFile::default() }).unwrap();
    let Some(mut pipeline) = started(test, &loaded) else { return };
    let function = loaded.function().unwrap();
    let mut stimulus = Stimulus::new(Arc::clone(function), 1, StimulusOptions::of(function));
    let packets: Vec<Arrival> = stimulus.take_packets(200);
    let after_ns = packets.last().unwrap().time_ns + (1 << 50);
    let after = Arrival { time_ns: after_ns, ..packets[0].clone() };
    let initial = pipeline.snapshot().unwrap();
    for spoils in [None, Some(false), Some(true)] {
        pipeline.restore(&initial).unwrap();
        packets.iter().for_each(|packet| drop(run(&mut pipeline, packet).unwrap()));
        let count: usize = pipeline.snapshot().unwrap().maps.values().map(|map| map.len()).sum();
        if let Some(deletes) = spoils {
            spoil(&mut pipeline, deletes);
        }
        pipeline.sweep(after_ns).unwrap();
        // The next packet or snapshot tells it.
        let found = match spoils {
            Some(true) => pipeline.snapshot().map(drop),
            _ => run(&mut pipeline, &after).map(drop),
        };
        let found = found.map_err(|error| error.to_string());
        let left: usize = pipeline.snapshot().unwrap().maps.values().map(|map| map.len()).sum();
        assert!(left < count, "{count} entries, {left} after the sweep");
        let is_found = found.as_ref().is_err_and(|found| found.contains("differ before the host changes them"));
        assert_eq!(is_found, spoils.is_some(), "{found:?}");
        // It is found once.
        run(&mut pipeline, &after).unwrap();
    }
}
