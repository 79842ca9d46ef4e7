// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that are only counted, of many lengths: they run on the capture itself, or on copies.

use std::sync::Arc;

use flowloom_engine::{Arrival, Choices, Datapath, Draws, Port, Ports, Tally};
use flowloom_isa::{MapKind, Member, Program, Sibling, asm};
use flowloom_vm::Interpreter;

use crate::engines::{self, jit, program};

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
/// Looks up the flow, by byte 13.
const LOOKUP: &str = "
r1 = 0
*(u64 *)(r10 - 8) = r1
*(u8 *)(r10 - 8) = r7
r2 = r10
r2 += -8
r1 = map[flows] ll
call map_lookup_elem
";
/// The packets of a flow are counted; a new one calls a helper. The verdict depends on both.
const FLOWS: &str = "
if r0 == 0 goto new
r1 = *(u64 *)(r0 + 0)
r1 += r8
*(u64 *)(r0 + 0) = r1
r0 = r1
r0 &= 3
exit
new:
*(u64 *)(r10 - 16) = r8
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
    program(MAP, &format!("{HEAD}{what}{LOOKUP}{FLOWS}"))
}

const WRITES: &str = "*(u8 *)(r6 + 3) = r7\n";
const MOVES: &str = "r1 = r9\nr2 = 6\ncall xdp_adjust_head\nif r0 != 0 goto short\n";
const READS: &str = "r2 = *(u32 *)(r9 + 12)\nr8 += r2\ncall ktime_get_ns\nr8 ^= r0\n";
const DRAWS: &str = "call get_prandom_u32\nr7 ^= r0\nr7 &= 15\n";

/// Redirects to a port, without a helper, or by one.
fn redirect(port: u32, by_helper: bool) -> String {
    match by_helper {
        false => format!("r1 = map[ports] ll\nr2 = {port}\nr3 = 2\ncall redirect_map\n"),
        true => format!("r1 = {port}\nr2 = 0\ncall redirect\n"),
    }
}

const SHORT: &str = "short:\nr0 = 1\nexit\n";

/// Redirects packets of flows below 25, and leaves the others to another program, which gives verdict 4 without a
/// target.
fn redirects() -> String {
    let inlined = redirect(1, false);
    format!(
        "if r7 > 24 goto other\n{inlined}exit\nother:\nr1 = r9\nr2 = map[programs] ll\nr3 = 0\ncall tail_call\n{SHORT}"
    )
}

/// By flow: a redirect without a helper, verdict 4 without a target, a redirect before and one after one by a helper,
/// and a redirect with another verdict.
fn targets() -> String {
    let [one, two, by_helper] = [redirect(1, false), redirect(2, false), redirect(1, true)];
    let kinds = [one.clone(), "r0 = 4\n".into(), format!("{two}{by_helper}"), format!("{by_helper}{two}")];
    let kind = |(number, code)| format!("if r7 > {} goto k{number}\n{code}exit\nk{number}:\n", 10 * number + 9);
    let kinds: String = kinds.iter().enumerate().map(kind).collect();
    format!("{kinds}{one}r0 = 2\nexit\n{SHORT}")
}

/// Compares counts and states with those of the interpreter: of all packets, and of two thirds of them.
fn equal(program: &Program, packets: &[Vec<u8>]) {
    let ports = Ports::bound([Port(1), Port(2)]);
    let draws = Draws { seed: 7, first: 3 };
    let before = packets.to_vec();
    let arrivals: Vec<Arrival<'_>> = (packets.iter().zip(0..))
        .map(|(bytes, number)| Arrival { bytes, now_ns: 1000 + 7 * number, port: Port(1 + number as u32 % 2) })
        .collect();
    let some: Vec<u32> = (0..packets.len() as u32).filter(|number| number % 3 != 1).collect();
    for numbers in [None, Some(some.as_slice())] {
        let mut interpreter = Interpreter::new(Arc::new(program.clone())).expect("is a program");
        interpreter.bind_ports(&ports);
        let mut expected = Tally::default();
        let is_wanted = |number: usize| numbers.is_none_or(|numbers| numbers.contains(&(number as u32)));
        for (number, arrival) in arrivals.iter().enumerate().filter(|(number, _)| is_wanted(*number)) {
            let choices: Choices = draws.choices(number, arrival.now_ns);
            expected.count(&interpreter.process(&arrival.packet(), &choices).expect("runs"));
        }
        for mut engine in [jit(program), jit(program).with_cached_bytes(0)] {
            Datapath::bind_ports(&mut engine, &ports);
            let mut found = Tally::default();
            match numbers {
                None => engine.tally(&arrivals, draws, &mut found).expect("runs"),
                numbers => engine.run_copies(&arrivals, numbers, draws, &mut found).expect("runs"),
            }
            assert_eq!(found, expected);
            assert!(before == packets, "a packet of the capture was written");
            assert_eq!(engine.snapshot().expect("has a state"), interpreter.snapshot().expect("has a state"));
        }
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
    for what in ["", READS, WRITES, MOVES, DRAWS] {
        equal(&changed(what), &packets);
    }
}

#[test]
fn a_tail_call_does_not_redirect_as_an_earlier_packet() {
    let maps = format!("{MAP}\n.map ports devmap key 4 value 4 entries 8\n.map programs array key 4 value 4 entries 1");
    let mut program = program(&maps, &format!("{HEAD}{LOOKUP}{}", redirects()));
    let insns = asm::assemble("r0 = 4\nexit", &[]).expect("is assembled");
    let programs = program.maps.last_mut().expect("a map");
    (programs.kind, programs.members) = (MapKind::ProgArray, vec![(0, Member::Program(0))]);
    program.siblings = [Sibling { name: "redirects".to_owned(), insns, ..Sibling::default() }].into();
    // In both batches of the same places, redirects first.
    let packet = |number: usize| vec![if number < 300 { number % 25 } else { 25 + number % 25 } as u8; 64];
    equal(&program, &(0..700).map(packet).collect::<Vec<_>>());
}

/// The views of one batch are those of the next one, whose packets have other targets, or none.
#[test]
fn each_packet_has_its_own_target() {
    let maps = format!("{MAP}\n.map ports devmap key 4 value 4 entries 8");
    let packet = |number: usize| vec![(number * 7 % 50) as u8; 64];
    for what in ["", WRITES] {
        let program = program(&maps, &format!("{HEAD}{what}{LOOKUP}{}", targets()));
        let packets: Vec<Vec<u8>> = (0..900).map(packet).collect();
        equal(&program, &packets);
        // Counts do not tell ports apart.
        engines::equal(&program, &Ports::bound([Port(1), Port(2)]), None, &packets);
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
