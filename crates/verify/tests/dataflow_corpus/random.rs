// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs on random packets and states.

#[path = "../../../exec/tests/programs/generator.rs"]
mod generator;

use std::sync::Arc;

use flowloom_engine::Port;
use flowloom_isa::Program;
use flowloom_testkit::Rng;
use flowloom_verifier::{Options, verify};
use flowloom_verify::Arrival;
use flowloom_verify::explore::Case;
use flowloom_vm::Interpreter;

use super::{Subject, packets};

/// Number of packets per program, besides a short one of each length.
const PACKETS: usize = 8;
/// Lengths that are too short for some access.
const SHORT_BYTES: [usize; 6] = [0, 1, 13, 14, 31, 32];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Valid by construction.
    Sound,
    /// Mutated, but still safe.
    Mutant,
}

/// Program with this number, on its own packets; half of the programs start with map contents.
pub fn subject(kind: Kind, seed: u64, number: u64) -> Subject {
    let number = 2 * number + u64::from(kind == Kind::Mutant);
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let mut program = if kind == Kind::Mutant { mutant(&mut rng) } else { generator::valid(&mut rng) };
    program.name = format!("random_{number}_of_{seed}");
    let mut bytes: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&mut rng, 100)).collect();
    let len = SHORT_BYTES[rng.below(SHORT_BYTES.len())];
    bytes.push(rng.bytes(len));
    let arrival = |(number, bytes): (usize, Vec<u8>)| Arrival {
        time_ns: number as u64 * 1000,
        port: Port(number as u32 % 4),
        bytes,
    };
    let mut arrivals: Vec<Arrival> = bytes.into_iter().enumerate().map(arrival).collect();
    arrivals.extend(packets::made(&mut rng, 2));
    let state = if rng.chance(1, 2) { generator::state(&mut rng) } else { Default::default() };
    let cases = vec![Case { packets: arrivals, state, seed: rng.next_u64(), ..Case::default() }];
    Subject { program, cases, sweep_ns: None, routes: None }
}

fn mutant(rng: &mut Rng) -> Program {
    loop {
        let program = generator::mutant(rng);
        let is_run = Interpreter::new(Arc::new(program.clone())).is_ok();
        if is_run && verify(&program, &Options::default()).is_ok() {
            return program;
        }
    }
}

/// Small numbers are frequent, so that masks and comparisons are satisfied.
fn packet(rng: &mut Rng, most: usize) -> Vec<u8> {
    let len = 14 + rng.below(most - 14);
    let mut bytes = rng.bytes(len);
    for byte in &mut bytes {
        if rng.chance(1, 3) {
            *byte = *rng.pick(&[0, 0, 1, 2, 0x7f, 0x80, 0xff]);
        }
    }
    bytes
}
