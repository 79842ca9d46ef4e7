//! The verifier on any instructions, and the interpreter on what it takes.
//!
//! The bytes are those of the interpreter's target.

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, PORT_COUNT, Packet, Port, Ports};
use flowloom_verifier::{Options, verify};
use flowloom_vm::Interpreter;

use crate::interpreter::{maps, parts, program};

/// So many instructions are looked at, and so many run, so that every input ends soon.
const LIMIT: u64 = 20_000;

/// Verifies the instructions; what is taken runs on packets of several lengths without a fault, as the proof says.
/// Whether it was taken.
pub fn verifier(bytes: &[u8]) -> bool {
    let Some((packet, insns)) = parts(bytes) else { return false };
    let program = program(insns, maps());
    let Ok(proof) = verify(&program, &Options { limit: LIMIT, ..Options::default() }) else { return false };
    assert!(proof.looked_at <= LIMIT);
    let interp = Interpreter::new(Arc::new(program)).expect("what is verified can be run");
    let mut interp = flowloom_proofcheck::checked(interp).with_budget(LIMIT);
    interp.bind_ports(&Ports::bound((0..PORT_COUNT).map(Port)));
    let whole = [packet, &[0; 64]].concat();
    for (index, len) in (0..).zip([14, 34, packet.len().max(14), whole.len()]) {
        let bytes = &whole[..len.min(whole.len())];
        if let Err(fault) = interp.process(&Packet { bytes, port: Port(3) }, &Choices::seeded(5, 7, index)) {
            let fault = fault.to_string();
            // How long a loop takes and how much is sent is bounded when it runs.
            let is_bounded =
                fault.contains("instructions for one packet") || fault.contains("bytes besides one packet");
            assert!(is_bounded, "{fault}");
        }
    }
    true
}
