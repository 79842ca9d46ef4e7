// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: runs the verifier on arbitrary instructions, and the interpreter on programs that it accepts.
//!
//! The input format is that of the interpreter's target.

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, PORT_COUNT, Packet, Port, Ports};
use flowloom_verifier::{Options, verify};
use flowloom_vm::Interpreter;

use crate::interpreter::{maps, parts, program};

/// Limit of instructions that are verified, and of instructions per run, so that every input ends soon.
const LIMIT: u64 = 20_000;

/// Verifies the instructions. An accepted program runs on packets of several lengths without a fault, and as the proof
/// predicts. Returns true if the program was accepted.
pub fn verifier(bytes: &[u8]) -> bool {
    let Some((packet, insns)) = parts(bytes) else { return false };
    let program = program(insns, maps());
    let Ok(proof) = verify(&program, &Options { limit: LIMIT, ..Options::default() }) else { return false };
    assert!(proof.processed <= LIMIT);
    let interp = Interpreter::new(Arc::new(program)).expect("what is verified can be run");
    let mut interp = flowloom_proofcheck::checked(interp).with_budget(LIMIT);
    interp.bind_ports(&Ports::bound((0..PORT_COUNT).map(Port)));
    let whole = [packet, &[0; 64]].concat();
    for (index, len) in (0..).zip([14, 34, packet.len().max(14), whole.len()]) {
        let bytes = &whole[..len.min(whole.len())];
        if let Err(fault) = interp.process(&Packet { bytes, port: Port(3) }, &Choices::seeded(5, 7, index)) {
            let fault = fault.to_string();
            // Trip counts and the volume of sent data are bounded at run time.
            let is_bounded =
                fault.contains("instructions for one packet") || fault.contains("bytes besides one packet");
            assert!(is_bounded, "{fault}");
        }
    }
    true
}
