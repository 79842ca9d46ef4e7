// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs on streams of packets: the core against the interpreter, including the maps at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port, Snapshot, Verdict};
use flowloom_isa::{Program, asm};
use flowloom_rtl::Core;
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;

use crate::common::planned;
use crate::sources::SOURCES;
use crate::stream::{Answer, Bench, Results, Stimulus, WORD_BYTES, packets};

/// A program of `sources.rs`.
pub(crate) fn program(name: &str) -> Program {
    let (_, text) = SOURCES.iter().find(|(own, _)| *own == name).unwrap();
    let file = format!("{name}.bpf");
    asm::program(&file, text).unwrap_or_else(|errors| panic!("{file}: {errors}"))
}

pub(crate) fn core(program: &Program) -> Core {
    let plan = planned(program).unwrap_or_else(|error| panic!("{}: {error}", program.name));
    Core::of(&plan, program).unwrap_or_else(|error| panic!("{}: {error}", program.name))
}

/// The bits of edits, the lowest ones first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> u64 {
        let bits = (self.at..self.at + count).rev();
        self.at += count;
        bits.fold(0, |sum, at| sum << 1 | u64::from(self.bytes[at / 8] >> (at % 8) & 1))
    }
}

/// The packet that leaves: the edits, and the part from the head to the tail.
fn rewritten(core: &Core, packet: &Stimulus, answer: &Answer) -> Vec<u8> {
    let mut bits = Bits { bytes: &answer.edits, at: 0 };
    let constant: Vec<u8> = core.edits.constant.iter().map(|_| bits.take(8) as u8).collect();
    let mut edits: BTreeMap<i64, u8> = BTreeMap::new();
    // Later overlays lie above earlier ones, bytes at constant offsets above all.
    for span in &core.edits.overlays {
        let base = i64::from(bits.take(16) as i16) + span.first;
        let written: Vec<bool> = (0..span.bytes).map(|_| bits.take(1) == 1).collect();
        let bytes = (base..).zip(written).map(|(at, is_written)| (at, is_written, bits.take(8) as u8));
        edits.extend(bytes.filter(|(_, is_written, _)| *is_written).map(|(at, _, byte)| (at, byte)));
    }
    edits.extend(core.edits.constant.iter().copied().zip(constant));
    let received = |at: i64| usize::try_from(at).ok().and_then(|at| packet.bytes.get(at)).copied();
    let byte = |at: i64| edits.get(&at).copied().or(received(at)).unwrap_or(0);
    (answer.head.into()..answer.tail.into()).map(byte).collect()
}

/// Compares the results of a core with the interpreter.
pub(crate) fn difference(
    program: &Program,
    core: &Core,
    packets: &[Stimulus],
    results: &Results,
) -> Result<(), String> {
    let mut interpreter = Interpreter::new(Arc::new(program.clone())).unwrap();
    for (place, (packet, answer)) in packets.iter().zip(&results.answers).enumerate() {
        // The slow path, which is not here, would run this packet.
        if answer.is_slow && packet.bytes.len() > core.words as usize * WORD_BYTES {
            continue;
        }
        let choices = Choices::seeded(packet.now_ns, 0, 0);
        let outcome = interpreter.process(&Packet { bytes: &packet.bytes, port: Port(packet.port) }, &choices).unwrap();
        let verdict = Verdict::from_number(answer.verdict);
        if verdict != outcome.verdict || answer.is_slow {
            return Err(format!("packet {place}: found {answer:?}, expected {:?}", outcome.verdict));
        }
        let Some(output) = outcome.outputs.first() else { continue };
        let (found, expected) = (rewritten(core, packet, answer), &output.bytes);
        if found.len() != expected.len() {
            return Err(format!("packet {place}: found {} bytes, expected {}", found.len(), expected.len()));
        }
        if let Some((at, (found, expected))) = found.iter().zip(expected).enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!("packet {place}, byte {at}: found {found:#04x}, expected {expected:#04x}"));
        }
    }
    let state: Snapshot = interpreter.snapshot().unwrap();
    for (map, found) in core.maps.iter().zip(&results.maps) {
        let expected = state.maps[&map.name].values();
        if found.len() != expected.len() {
            return Err(format!("map `{}`: {} entries, expected {}", map.name, found.len(), expected.len()));
        }
        if let Some((entry, (found, expected))) = found.iter().zip(expected).enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!("map `{}`, entry {entry}: found {found:02x?}, expected {expected:02x?}", map.name));
        }
    }
    Ok(())
}

#[test]
fn programs_run_as_the_interpreter() {
    let programs = SOURCES.map(|(name, _)| program(name));
    let cores: Vec<Core> = programs.iter().map(core).collect();
    let Some(bench) = Bench::new("programs_run_as_the_interpreter", &cores, &[]) else { return };
    let mut rng = Rng::from_env(1);
    let (packets, seed) = (packets(&mut rng, 2000), rng.next_u64());
    for ((program, core), results) in programs.iter().zip(&cores).zip(bench.run(&packets, seed)) {
        let compared = results.and_then(|results| difference(program, core, &packets, &results));
        compared.unwrap_or_else(|error| panic!("{}: {error}", program.name));
    }
}
