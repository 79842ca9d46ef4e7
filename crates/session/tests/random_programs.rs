// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs as pipelines: those that have a rendering do what the interpreter does; the others are refused with
//! the reason.

#[path = "../../exec/tests/programs/generator.rs"]
#[allow(dead_code, reason = "no mutants")]
mod generator;

use std::collections::BTreeMap;

use flowloom_engine::{Port, Snapshot};
use flowloom_isa::Program;
use flowloom_plan::Options;
use flowloom_session::{Loaded, with_causes};
use flowloom_testkit::Rng;
use flowloom_verify::{Arrival, CompareOptions, compare};

use crate::explored::engines;

/// The bytes of packets.
const BYTES: std::ops::Range<usize> = 14..110;

/// A program, its packets, and the contents of its maps at first.
pub(crate) struct Subject {
    pub(crate) program: Program,
    packets: Vec<Arrival>,
    state: Snapshot,
}

pub(crate) fn subject(seed: u64, number: u64, packets: usize) -> Subject {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let mut program = generator::valid(&mut rng);
    program.name = format!("random{number}_of_{seed}");
    let state = if rng.chance(1, 2) { generator::state(&mut rng) } else { Snapshot::default() };
    let packets = (0..packets as u64).map(|number| Arrival {
        time_ns: number,
        port: Port(rng.below(4) as u32),
        bytes: bytes(&mut rng),
    });
    let packets = packets.collect();
    Subject { program, packets, state }
}

/// A packet in which small numbers are frequent, so that masks and comparisons are satisfied and keys are found.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let len = BYTES.start + rng.below(BYTES.len());
    let mut bytes = rng.bytes(len);
    for byte in &mut bytes {
        if rng.chance(1, 2) {
            *byte = *rng.pick(&[0, 0, 0, 1, 2, 0x7f, 0x80, 0xff]);
        }
    }
    bytes
}

/// Why a program has no pipeline.
pub(crate) fn refused(program: &Program) -> Option<String> {
    Loaded::of_program(program.clone()).pipeline(&Options::default()).err().map(|error| with_causes(&error))
}

/// Compares pipeline and interpreter: the difference, if there is one, or the number of packets on the slow path. `None`
/// where there is no simulation; the reason is printed.
pub(crate) fn compared(test: &str, subject: &Subject) -> Option<Result<u64, String>> {
    let (mut interp, mut pipeline) = engines(test, subject.program.clone())?;
    let options = CompareOptions { state: subject.state.clone(), is_foreign: true, ..CompareOptions::default() };
    let report = compare(interp.as_mut(), pipeline.as_mut(), &subject.packets, &options).unwrap();
    Some(match report.disagreement {
        Some(disagreement) => Err(disagreement.to_string()),
        None => Ok(report.packets_slow),
    })
}

/// Counts the reasons without the places that they name.
pub(crate) fn by_reason(reasons: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for reason in reasons {
        let kind: String = reason.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

#[test]
fn random_programs_have_a_rendering_or_a_reason() {
    const SEED: u64 = 1;
    println!("seed {SEED}");
    let reasons: Vec<Option<String>> = (0..60).map(|number| refused(&subject(SEED, number, 0).program)).collect();
    let rendered = reasons.iter().filter(|reason| reason.is_none()).count();
    for (reason, count) in by_reason(reasons.into_iter().flatten()) {
        println!("{count:4} {reason}");
    }
    println!("{rendered} are rendered");
    assert!(rendered >= 5, "{rendered} of 60 programs have a rendering, expected at least 5");
}

/// It runs alone without writing a value.
#[test]
fn a_random_program_is_equal_to_the_interpreter() {
    let subject = subject(10_451_216_379_200_822_465, 1, 1000);
    assert_eq!(refused(&subject.program), None);
    if let Some(found) = compared("a_random_program_is_equal_to_the_interpreter", &subject) {
        assert_eq!(found, Ok(0));
    }
}
