// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that are only counted, of many lengths: they run on the capture itself, or on copies.

use std::sync::Arc;

use flowloom_engine::{Arrival, Choices, Datapath, Draws, Packet, Port, Ports, Tally};
use flowloom_isa::Program;
use flowloom_vm::Interpreter;

use crate::engines::{jit, program};

const HEAD: &str = "
r9 = r1
r6 = *(u32 *)(r1 + 0)
r3 = *(u32 *)(r1 + 4)
r8 = r3
r8 -= r6
r2 = r6
r2 += 14
if r2 > r3 goto short
r7 = *(u8 *)(r6 + 13)
";
/// A flow of the first byte: its packets are counted; a new one calls a helper. The verdict depends on both.
const FLOWS: &str = "
r1 = 0
*(u64 *)(r10 - 8) = r1
*(u8 *)(r10 - 8) = r7
*(u64 *)(r10 - 16) = r8
r2 = r10
r2 += -8
r1 = map[flows] ll
call map_lookup_elem
if r0 == 0 goto new
r1 = *(u64 *)(r0 + 0)
r1 += r8
*(u64 *)(r0 + 0) = r1
r0 = r1
r0 &= 3
exit
new:
r2 = r10
r2 += -8
r3 = r10
r3 += -16
r4 = 0
r1 = map[flows] ll
call map_update_elem
r0 = 2
exit
short:
r0 = 1
exit
";
const MAP: &str = ".map flows hash key 8 value 8 entries 40";

/// What a program changes before it counts.
fn changed(what: &str) -> Program {
    program(MAP, &format!("{HEAD}{what}{FLOWS}"))
}

const WRITES: &str = "*(u8 *)(r6 + 3) = r7\n";
const MOVES: &str = "r1 = r9\nr2 = 6\ncall xdp_adjust_head\nif r0 != 0 goto short\n";
const DRAWS: &str = "call get_prandom_u32\nr7 ^= r0\nr7 &= 15\n";

/// Compares counts and states with those of the interpreter.
fn equal(program: &Program, packets: &[Vec<u8>]) {
    let ports = Ports::bound([Port(1), Port(2)]);
    let draws = Draws { seed: 7, first: 3 };
    let mut interpreter = Interpreter::new(Arc::new(program.clone())).expect("is a program");
    interpreter.bind_ports(&ports);
    let mut expected = Tally::default();
    for (number, bytes) in packets.iter().enumerate() {
        let choices: Choices = draws.choices(number, 1000);
        expected.count(&interpreter.process(&Packet { bytes, port: Port(1) }, &choices).expect("runs"));
    }
    for mut engine in [jit(program), jit(program).with_cached_bytes(0)] {
        Datapath::bind_ports(&mut engine, &ports);
        let arrivals: Vec<Arrival<'_>> =
            packets.iter().map(|bytes| Arrival { bytes, now_ns: 1000, port: Port(1) }).collect();
        let (before, mut found) = (packets.to_vec(), Tally::default());
        engine.tally(&arrivals, draws, &mut found).expect("runs");
        assert_eq!(found, expected);
        assert!(before == packets, "a packet of the capture was written");
        assert_eq!(engine.snapshot().expect("has a state"), interpreter.snapshot().expect("has a state"));
    }
}

#[test]
fn packets_of_all_lengths_are_counted() {
    let lengths = [0, 1, 13, 14, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1500, 1514];
    let packets: Vec<Vec<u8>> = (0..900_usize)
        .map(|number| {
            let mut bytes = vec![number as u8; lengths[number * 7 % lengths.len()]];
            bytes.get_mut(13).into_iter().for_each(|byte| *byte = (number % 50) as u8);
            bytes
        })
        .collect();
    for what in ["", WRITES, MOVES, DRAWS] {
        equal(&changed(what), &packets);
    }
}

/// Batches end where the memory for copies does; a packet may be longer than that.
#[test]
fn long_packets_come_in_shorter_batches() {
    let lengths = [60, 9000, 60, 300_000, 9000, 20_000, 60];
    let packets: Vec<Vec<u8>> =
        (0..130).map(|number: usize| vec![number as u8 % 20; lengths[number % lengths.len()]]).collect();
    for what in ["", WRITES, MOVES] {
        equal(&changed(what), &packets);
    }
}
