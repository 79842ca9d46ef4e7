// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engines of a program, and their comparison.

use std::sync::Arc;

use flowloom_engine::{
    Arrival, Choices, Datapath, Draws, Fate, Frame, HEADROOM_BYTES, InPlace, Outcome, Outcomes, Output, Packet, Port,
    Ports, RANDOM_WORDS, Snapshot, Tally,
};
use flowloom_isa::{Program, asm};
use flowloom_jit::Jit;
use flowloom_vm::Interpreter;

/// The bytes of each packet.
pub(crate) const PACKET_BYTES: usize = 64;

/// A program from its maps and instructions.
pub(crate) fn program(maps: &str, code: &str) -> Program {
    let text = format!(".program batch\n.license \"GPL\"\n{maps}\n{code}");
    asm::program("batch.bpf", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Instructions before others: `r6` is a packet of [`PACKET_BYTES`]; shorter ones are dropped at `short`.
pub(crate) const HEAD: &str = "
r9 = r1
r6 = *(u32 *)(r1 + 0)
r3 = *(u32 *)(r1 + 4)
r2 = r6
r2 += 64
if r2 > r3 goto short
";
pub(crate) const TAIL: &str = "short:\nr0 = 1\nexit\n";

/// Machine code of a program.
pub(crate) fn jit(program: &Program) -> Jit {
    let proof = flowloom_verifier::verify(program, &flowloom_verifier::Options::default())
        .unwrap_or_else(|error| panic!("{error}\n{}", text(program)));
    Jit::new(Arc::new(program.clone()), &proof).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn text(program: &Program) -> String {
    flowloom_isa::disasm::disassemble(&program.insns, &program.maps).unwrap_or_else(|error| error.to_string())
}

pub(crate) fn choices() -> Choices {
    Choices { now_ns: 1000, random: [0; RANDOM_WORDS], cpu: 0 }
}

/// The outcomes of packets from port 1, and the state after them.
fn run(
    engine: &mut dyn Datapath,
    ports: &Ports,
    state: Option<&Snapshot>,
    packets: &[Vec<u8>],
) -> (Vec<Outcome>, Snapshot) {
    engine.bind_ports(ports);
    if let Some(state) = state {
        engine.restore(state).expect("fits");
    }
    let packets: Vec<_> = packets.iter().map(|bytes| (Packet { bytes, port: Port(1) }, choices())).collect();
    let mut outcomes = Vec::new();
    for batch in packets.chunks(engine.most_ahead().max(1)) {
        engine.announce(batch).expect("announces");
        outcomes.extend(batch.iter().map(|(packet, choices)| engine.process(packet, choices).expect("runs")));
    }
    (outcomes, engine.snapshot().expect("has a state"))
}

/// As [`run`], with the outcomes of a batch in one list.
fn run_all(mut engine: Jit, ports: &Ports, state: Option<&Snapshot>, packets: &[Vec<u8>]) -> (Vec<Outcome>, Snapshot) {
    Datapath::bind_ports(&mut engine, ports);
    if let Some(state) = state {
        engine.restore(state).expect("fits");
    }
    let packets: Vec<_> = packets.iter().map(|bytes| (Packet { bytes, port: Port(1) }, choices())).collect();
    let mut outcomes = Outcomes::default();
    engine.process_all(&packets, &mut outcomes).expect("runs");
    let found = (0..outcomes.len()).filter_map(|number| outcomes.get(number)).collect();
    (found, engine.snapshot().expect("has a state"))
}

/// As [`run`], for packets that are changed in place.
fn run_in_place(
    mut engine: Jit,
    ports: &Ports,
    state: Option<&Snapshot>,
    packets: &[Vec<u8>],
) -> (Vec<Outcome>, Snapshot) {
    InPlace::bind_ports(&mut engine, ports);
    if let Some(state) = state {
        engine.restore(state).expect("fits");
    }
    let mut outcomes = Vec::new();
    for batch in packets.chunks(100) {
        let with_room = |bytes: &Vec<u8>| [&[0; HEADROOM_BYTES][..], bytes, &[0; 64]].concat();
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(with_room).collect();
        let end = HEADROOM_BYTES + PACKET_BYTES;
        let frame = |buffer| Frame::new(buffer, HEADROOM_BYTES, end, Port(1), choices().now_ns);
        let mut frames: Vec<Frame<'_>> = buffers.iter_mut().map(|buffer| frame(buffer)).collect();
        let mut extra = Vec::new();
        InPlace::run(&mut engine, &mut frames, &mut extra).expect("runs");
        for (number, frame) in frames.iter().enumerate() {
            let further = extra.iter().filter(|(of, _)| *of == number).map(|(_, output)| output.clone());
            let port = match frame.fate {
                Fate::Pass | Fate::Tx => Some(frame.port),
                Fate::Redirect(port) => Some(port),
                Fate::Aborted | Fate::Drop | Fate::Replaced(_) => None,
            };
            let own = port.map(|port| Output { port, bytes: frame.bytes().to_vec() });
            let outputs = further.chain(own).collect();
            outcomes.push(Outcome { verdict: frame.fate.verdict(), outputs, events: Vec::new() });
        }
    }
    (outcomes, engine.snapshot().expect("has a state"))
}

/// What becomes of packets that are only counted, and the state after them.
fn count(mut engine: Jit, ports: &Ports, state: Option<&Snapshot>, packets: &[Vec<u8>]) -> (Tally, Snapshot) {
    Datapath::bind_ports(&mut engine, ports);
    if let Some(state) = state {
        engine.restore(state).expect("fits");
    }
    let now_ns = choices().now_ns;
    let arrivals: Vec<Arrival<'_>> = packets.iter().map(|bytes| Arrival { bytes, now_ns, port: Port(1) }).collect();
    let (before, mut tally) = (packets.to_vec(), Tally::default());
    engine.tally(&arrivals, Draws::default(), &mut tally).expect("runs");
    assert!(packets == before, "a packet of the capture was written");
    (tally, engine.snapshot().expect("has a state"))
}

/// The outcomes of packets on the interpreter. Panics unless machine code has the same outcomes and state: in batches
/// with and without scouts, packet by packet, in place, and counted.
pub(crate) fn equal(program: &Program, ports: &Ports, state: Option<&Snapshot>, packets: &[Vec<u8>]) -> Vec<Outcome> {
    let mut interpreter = Interpreter::new(Arc::new(program.clone())).expect("is a program");
    let expected = run(&mut interpreter, ports, state, packets);
    let found = [
        ("batches with scouts", run(&mut jit(program).with_cached_bytes(0), ports, state, packets)),
        ("batches", run(&mut jit(program), ports, state, packets)),
        ("packet by packet", run(&mut jit(program).one_by_one(), ports, state, packets)),
        ("in a list", run_all(jit(program).with_cached_bytes(0), ports, state, packets)),
        ("in a list, packet by packet", run_all(jit(program).one_by_one(), ports, state, packets)),
        ("in place", run_in_place(jit(program).with_cached_bytes(0), ports, state, packets)),
    ];
    for (how, found) in found {
        for (number, (found, expected)) in found.0.iter().zip(&expected.0).enumerate() {
            assert_eq!(found, expected, "packet {number} {how}: {:?}\n{}", packets[number], text(program));
        }
        assert_eq!((found.0.len(), &found.1), (expected.0.len(), &expected.1), "{how}\n{}", text(program));
    }
    let mut tally = Tally::default();
    expected.0.iter().for_each(|outcome| tally.count(outcome));
    for engine in [jit(program).with_cached_bytes(0), jit(program)] {
        let found = count(engine, ports, state, packets);
        assert_eq!(found, (tally, expected.1.clone()), "counted\n{}", text(program));
    }
    expected.0
}
