// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evictions by a field, and sweeps in steps, beside the interpreter.

use std::sync::Arc;

use flowloom_engine::{Datapath, InPlace, Packet, Port, Ports};
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;

use crate::engines::{HEAD, PACKET_BYTES, TAIL, choices, equal, jit, program};

/// The packets of the test.
const PACKETS: usize = 3000;

/// Stores the key of a packet, byte 15, on the stack.
const KEY: &str = "
        r1 = 0
        *(u64 *)(r10 - 16) = r1
        r7 = *(u8 *)(r6 + 15)
        *(u8 *)(r10 - 16) = r7";
/// Sets the value of that key to the last 8 bytes of the stack.
const PUT: &str = "
        r1 = map[flows] ll
        r2 = r10
        r2 += -16
        r3 = r10
        r3 += -8
        r4 = 0
        call map_update_elem";

/// Byte 14 of a packet says what it does: 0 and 1 set the value of the key in byte 15 to byte 16, and insert it if it
/// is absent; 2 deletes it; 3 evicts; 4 looks up, evicts, sets the value by the address of before, which may be that of
/// the evicted entry, and evicts again. Byte 0 becomes the low byte of the last result.
fn code(size: u32) -> String {
    let evict = format!("r1 = map[flows] ll\nr2 = 0\nr3 = {size}\ncall fl_evict\nr7 = r0");
    format!(
        "{HEAD}
        {KEY}
        r8 = *(u8 *)(r6 + 14)
        if r8 == 3 goto evict
        r2 = r10
        r2 += -16
        r1 = map[flows] ll
        if r8 == 2 goto delete
        call map_lookup_elem
        r7 = *(u8 *)(r6 + 16)
        if r0 == 0 goto add
        r9 = r0
        *(u64 *)(r9 + 0) = r7
        if r8 != 4 goto out
        {evict}
        r1 = *(u8 *)(r6 + 17)
        *(u64 *)(r9 + 0) = r1
        goto evict
        add:
        *(u64 *)(r10 - 8) = r7
        {PUT}
        r7 = r0
        goto out
        delete:
        call map_delete_elem
        r7 = r0
        goto out
        evict:
        {evict}
        out:
        *(u8 *)(r6 + 0) = r7
        r0 = 3
        exit
        {TAIL}"
    )
}

fn packets(seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let packet = |_| {
        let mut bytes = vec![0; PACKET_BYTES];
        bytes[14] = [0, 0, 0, 0, 0, 1, 2, 3, 3, 4][rng.below(10)];
        bytes[15] = rng.below(200) as u8;
        // Most values are there several times.
        (bytes[16], bytes[17]) = (rng.below(12) as u8, rng.below(256) as u8);
        bytes
    };
    (0..PACKETS).map(packet).collect()
}

#[test]
fn the_evicted_entry_is_that_of_the_interpreter() {
    for (number, size) in [8, 1, 1 | 0x100, 2 | 0x200, 1 | 0x300].into_iter().enumerate() {
        for flags in [0, 1] {
            let map = format!(".map flows hash key 8 value 8 entries 150 flags {flags}");
            let found = equal(&program(&map, &code(size)), &Ports::default(), None, &packets(number as u64));
            assert_eq!(found.len(), PACKETS);
        }
    }
}

/// Steps remove what a whole sweep removes, and do not go beyond their share.
#[test]
fn a_sweep_in_steps_removes_the_same_entries() {
    let mut program = program(".map flows hash key 8 value 8 entries 150", &code(8));
    let layout = program.maps[0].layout.get_or_insert_default();
    (layout.deadline_offsets, layout.sweep_ns) = (vec![0], 1000);
    let mut interpreter = Interpreter::new(Arc::new(program.clone())).expect("is a program");
    let mut engine = jit(&program);
    let mut packets = packets(9);
    packets.iter_mut().for_each(|packet| packet[14] = 0);
    for bytes in &packets {
        let packet = Packet { bytes, port: Port(1) };
        for engine in [&mut interpreter as &mut dyn Datapath, &mut engine] {
            engine.process(&packet, &choices()).expect("runs");
        }
    }
    Datapath::sweep(&mut interpreter, 5).expect("sweeps");
    let mut entries = vec![engine.entries(0).expect("a table")];
    assert!(!engine.sweep_step(5, 0.5, 1000).expect("sweeps"));
    entries.push(engine.entries(0).expect("a table"));
    assert!(!engine.sweep_step(5, 0.4, 1000).expect("sweeps"), "no further than its share");
    entries.push(engine.entries(0).expect("a table"));
    while !engine.sweep_step(5, 1.0, 7).expect("sweeps") {
        let left = engine.entries(0).expect("a table");
        assert!(entries.last().is_some_and(|before| before - left <= 7), "more than 7: {entries:?}, {left}");
        entries.push(left);
        assert!(entries.len() < 100, "it goes on: {entries:?}");
    }
    assert!(entries[0] == 150 && entries[1] < 150 && entries[1] == entries[2] && entries.len() > 10, "{entries:?}");
    assert_eq!(engine.snapshot().expect("a state"), interpreter.snapshot().expect("a state"));
}

/// An update of a full table takes one more slot than the table has entries: a sweep visits it, and ends.
#[test]
fn a_sweep_in_steps_visits_the_slot_of_an_update_in_a_full_table() {
    let code = format!(
        "{HEAD}
        {KEY}
        r7 = *(u8 *)(r6 + 16)
        *(u64 *)(r10 - 8) = r7
        {PUT}
        r0 = 3
        exit
        {TAIL}"
    );
    for flags in [0, 1] {
        let mut program = program(&format!(".map flows hash key 8 value 8 entries 4 flags {flags}"), &code);
        let layout = program.maps[0].layout.get_or_insert_default();
        (layout.deadline_offsets, layout.sweep_ns) = (vec![0], 1000);
        let mut interpreter = Interpreter::new(Arc::new(program.clone())).expect("is a program");
        let mut engine = jit(&program);
        for (key, deadline) in [(0, 50), (1, 50), (2, 50), (3, 50), (3, 3)] {
            let mut bytes = vec![0; PACKET_BYTES];
            (bytes[15], bytes[16]) = (key, deadline);
            for engine in [&mut interpreter as &mut dyn Datapath, &mut engine] {
                engine.process(&Packet { bytes: &bytes, port: Port(1) }, &choices()).expect("runs");
            }
        }
        for (now_ns, entries) in [(5, 3), (100, 0)] {
            Datapath::sweep(&mut interpreter, now_ns).expect("sweeps");
            let steps = (0..100).take_while(|_| !engine.sweep_step(now_ns, 1.0, 1).expect("sweeps")).count();
            assert!(steps < 100, "it ends");
            assert_eq!(engine.entries(0), Some(entries), "at {now_ns}");
            assert_eq!(engine.snapshot().expect("a state"), interpreter.snapshot().expect("a state"));
        }
    }
}
