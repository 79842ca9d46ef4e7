// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is taken for commuting, against the definition: `f_x(f_y(v)) = f_y(f_x(v))` at the full width.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;

use flowloom_ir::{Ending, Graph, Input, Table, apply};
use flowloom_isa::MapKind;
use flowloom_isa::op::Size;
use flowloom_testkit::Rng;

use super::*;
use crate::check::updates_commute;
use crate::tables::uses;

/// The bytes of the packet that programs use.
const INPUTS: u16 = 3;
/// Programs that are made, and pairs of packets and states that each of them is tried with.
const PROGRAMS: usize = 6_000;
const TRIES: usize = 60;

/// A dataflow whose only map is an array with one entry of eight bytes, with the effects that `body` makes.
fn program(kind: MapKind, body: impl FnOnce(&mut Graph, Id)) -> Dataflow {
    let mut graph = Graph::default();
    let base = graph.make(Kind::Input(Input::Only(0)), Vec::new(), 64);
    body(&mut graph, base);
    let zero = graph.number(0, 32);
    let slow = graph.number(0, 1);
    let ending = Ending {
        verdict: zero,
        head: zero,
        tail: zero,
        kept: None,
        packet: BTreeMap::new(),
        overlays: Vec::new(),
        slow,
    };
    let map = Table { name: "map".to_owned(), kind, key_bytes: 4, value_bytes: 8, max_entries: 1 };
    Dataflow {
        name: "made".to_owned(),
        graph,
        patterns: Vec::new(),
        maps: vec![map],
        ending,
        waits: BTreeMap::new(),
        wanted: BTreeMap::new(),
        reaches: Vec::new(),
    }
}

/// Whether the updates are taken for commuting, by the planner and by the checker.
fn accepted_updates(dataflow: &Dataflow) -> (bool, bool) {
    let uses = uses(dataflow);
    (uses.get(&0).is_none_or(|uses| commutes(dataflow, uses)), updates_commute(dataflow, 0))
}

/// The value of the map after a packet.
fn after(dataflow: &Dataflow, state: u64, packet: &[u8]) -> u64 {
    let graph = &dataflow.graph;
    let mut memory = state.to_le_bytes();
    let read = |memory: &[u8; 8], at: u64, size: Size| {
        (0..size.bytes()).rev().fold(0, |value, byte| value << 8 | u64::from(memory[at as usize + byte]))
    };
    let mut values: Vec<u64> = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let args: Vec<u64> = node.args.iter().map(|arg| values[arg.index()]).collect();
        let widths: Vec<u16> = node.args.iter().map(|arg| graph.bits(*arg)).collect();
        let write = |memory: &mut [u8; 8], size: Size, value: u64| {
            let at = args[2] as usize;
            memory[at..at + size.bytes()].copy_from_slice(&value.to_le_bytes()[..size.bytes()]);
        };
        values.push(match node.kind {
            Kind::Input(Input::Byte(at)) => packet[usize::from(at)].into(),
            Kind::Input(_) => 0,
            Kind::Effect(_) if args[0] == 0 => 0,
            Kind::Effect(Effect::Load(size)) => read(&memory, args[2], size),
            Kind::Effect(Effect::Store(size)) => {
                write(&mut memory, size, args[3]);
                0
            }
            Kind::Effect(Effect::Atomic(op, size)) => {
                let old = read(&memory, args[2], size);
                let new = match op {
                    AtomicOp::Add { .. } => old.wrapping_add(args[3]),
                    AtomicOp::Or { .. } => old | args[3],
                    AtomicOp::And { .. } => old & args[3],
                    AtomicOp::Xor { .. } => old ^ args[3],
                    AtomicOp::Xchg | AtomicOp::CmpXchg => args[3],
                };
                write(&mut memory, size, new);
                old
            }
            Kind::Effect(Effect::Call { .. }) => panic!("the programs have no calls"),
            kind => apply(kind, &args, &widths, node.bits),
        });
    }
    u64::from_le_bytes(memory)
}

/// `*v = (*v & 255) + x`: what is kept of the word is less than the word.
#[test]
fn an_addition_to_a_part_of_the_word_does_not_commute() {
    let dataflow = program(MapKind::Array, |graph, base| {
        let (always, offset) = (graph.number(1, 1), graph.number(0, 64));
        let load = graph.effect(Effect::Load(Size::Dw), vec![always, base, offset], 64);
        let (low, zeros) = (graph.slice(load, 0, 8), graph.number(0, 56));
        let low = graph.concat(vec![low, zeros]);
        let bytes = [graph.byte(0), graph.byte(1), graph.number(0, 48)];
        let x = graph.concat(bytes.to_vec());
        let sum = graph.binary(Binary::Add, low, x);
        graph.effect(Effect::Store(Size::Dw), vec![always, base, offset, sum], 0);
    });
    let (three_hundred, one) = (300_u16.to_le_bytes(), 1_u16.to_le_bytes());
    assert_eq!(after(&dataflow, after(&dataflow, 0, &three_hundred), &one), 45);
    assert_eq!(after(&dataflow, after(&dataflow, 0, &one), &three_hundred), 301);
    assert_eq!(accepted_updates(&dataflow), (false, false));
}

/// A chain of additions at twice the width of the word commutes; so does none of its neighbours.
#[test]
fn updates_of_whole_words_commute() {
    let made = |kind, last: Binary, is_used: bool| {
        program(kind, |graph, base| {
            let (always, offset) = (graph.number(1, 1), graph.number(4, 64));
            let load = graph.effect(Effect::Load(Size::W), vec![always, base, offset], 32);
            let (wide, x, y) = (graph.fit(load, 64), graph.byte(0), graph.byte(1));
            let (x, y) = (graph.fit(x, 64), graph.fit(y, 64));
            let sum = graph.binary(Binary::Add, wide, x);
            let sum = graph.binary(last, sum, y);
            let sum = graph.fit(sum, 32);
            graph.effect(Effect::Store(Size::W), vec![always, base, offset, sum], 0);
            let (value, other) = (if is_used { load } else { graph.number(7, 32) }, graph.number(0, 64));
            graph.effect(Effect::Atomic(AtomicOp::Add { fetch: false }, Size::W), vec![always, base, other, value], 0);
        })
    };
    assert_eq!(accepted_updates(&made(MapKind::Array, Binary::Sub, false)), (true, true));
    assert_eq!(accepted_updates(&made(MapKind::Array, Binary::Xor, false)), (false, false), "two operators");
    assert_eq!(
        accepted_updates(&made(MapKind::Array, Binary::Sub, true)),
        (false, false),
        "an operand that depends on the map"
    );
}

/// A random value of `bits` bits over the loads and the bytes of the packet.
fn value(graph: &mut Graph, rng: &mut Rng, loads: &[Id], bits: u16, deep: usize) -> Id {
    let leaf = |graph: &mut Graph, rng: &mut Rng| match rng.below(4) {
        0 => graph.number(rng.next_u64(), bits),
        1 => {
            let byte = graph.byte(rng.below(INPUTS.into()) as i64);
            graph.fit(byte, bits)
        }
        _ => graph.fit(*rng.pick(loads), bits),
    };
    if deep == 0 {
        return leaf(graph, rng);
    }
    let mut inner = |graph: &mut Graph, bits| value(graph, rng, loads, bits, deep - 1);
    let (a, wide) = (inner(graph, bits), inner(graph, 2 * bits));
    let b = inner(graph, bits);
    match rng.below(9) {
        0 => graph.slice(wide, 0, bits),
        1 => graph.slice(wide, bits / 2, bits),
        2 => {
            let low = graph.slice(a, 0, bits / 2);
            let high = graph.slice(b, 0, bits - bits / 2);
            graph.concat(vec![low, high])
        }
        3 => {
            let low = graph.slice(a, 0, bits / 2);
            graph.sign_extend(low, bits)
        }
        4 => graph.binary(*rng.pick(&[Binary::Sub, Binary::ShiftLeft, Binary::Mul]), a, b),
        _ => graph.binary(*rng.pick(&[Binary::Add, Binary::And, Binary::Or, Binary::Xor]), a, b),
    }
}

/// One or two random updates of words of one or two bytes.
fn random(rng: &mut Rng) -> Dataflow {
    program(MapKind::Array, |graph, base| {
        let size = |rng: &mut Rng| if rng.chance(2, 3) { (Size::B, 8) } else { (Size::H, 16) };
        let always = graph.number(1, 1);
        let places: Vec<(Size, u16, Id)> = (0..1 + rng.below(2))
            .map(|_| {
                let (size, bits) = size(rng);
                let offset = match rng.chance(1, 6) {
                    true => {
                        let byte = graph.byte(0);
                        let bit = graph.slice(byte, 0, 1);
                        graph.fit(bit, 64)
                    }
                    false => graph.number(rng.below(2) as u64, 64),
                };
                (size, bits, offset)
            })
            .collect();
        let bit = graph.byte(INPUTS.into());
        let bit = graph.slice(bit, 0, 1);
        let loads: Vec<Id> = places
            .iter()
            .map(|(size, bits, offset)| {
                let when = if rng.chance(1, 8) { bit } else { always };
                graph.effect(Effect::Load(*size), vec![when, base, *offset], *bits)
            })
            .collect();
        for (at, (size, bits, offset)) in places.iter().enumerate() {
            let when = if rng.chance(1, 3) { bit } else { always };
            let given = if rng.chance(1, 8) { &loads[..] } else { &loads[at..=at] };
            let effect = match rng.below(3) {
                0 => {
                    let all: [fn(bool) -> AtomicOp; 4] = [
                        |fetch| AtomicOp::Add { fetch },
                        |fetch| AtomicOp::Or { fetch },
                        |fetch| AtomicOp::And { fetch },
                        |fetch| AtomicOp::Xor { fetch },
                    ];
                    let op = if rng.chance(1, 8) { AtomicOp::Xchg } else { rng.pick(&all)(false) };
                    let x = graph.byte(1);
                    let x = if rng.chance(1, 8) { given[0] } else { x };
                    let x = graph.fit(x, *bits);
                    (Effect::Atomic(op, *size), x)
                }
                _ => {
                    let deep = 1 + rng.below(3);
                    (Effect::Store(*size), value(graph, rng, given, *bits, deep))
                }
            };
            graph.effect(effect.0, vec![when, base, *offset, effect.1], 0);
        }
    })
}

/// Nothing that is taken for commuting depends on the order of two packets: random programs at 8 and 16 bits.
#[test]
fn updates_accepted_as_commuting_commute() {
    let mut rng = Rng::from_env(92);
    let (mut accepted, mut refused, mut strict) = (0, 0, 0);
    for _ in 0..PROGRAMS {
        let dataflow = random(&mut rng);
        let (planner, checker) = accepted_updates(&dataflow);
        assert!(checker || !planner, "the planner accepts it as commutative, the checker does not:\n{dataflow}");
        let commutes = (0..TRIES).all(|_| {
            let state = rng.next_u64();
            let [a, b] = [0, 1].map(|_| rng.bytes(usize::from(INPUTS) + 1));
            let both = |a, b| after(&dataflow, after(&dataflow, state, a), b);
            both(&a, &b) == both(&b, &a)
        });
        assert!(commutes || !checker, "accepted as commutative:\n{dataflow}");
        accepted += usize::from(planner);
        refused += usize::from(!commutes);
        strict += usize::from(commutes && !checker);
    }
    eprintln!(
        "{PROGRAMS} programs: {accepted} accepted as commutative, {refused} not commutative, {strict} commutative but not accepted"
    );
    assert!(accepted >= PROGRAMS / 20 && refused >= PROGRAMS / 4, "{accepted} and {refused}");
}
