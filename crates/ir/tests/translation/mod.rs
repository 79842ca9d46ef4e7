// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translation validation by evaluation: two forms of a program on the same packets.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port, Ports};
use flowloom_ir::{Dataflow, Evaluator, Id, Kind, build};
use flowloom_isa::{Program, asm};
use flowloom_testkit::{Clang, PacketBuilder, Rng};
use flowloom_verifier::{Options, verify};

/// Packets of a comparison.
const PACKETS: usize = 600;
const GAP_NS: u64 = 300_000;

/// The first difference between two forms of a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Difference {
    /// One of the forms fails.
    #[error("packet {packet}: {message}")]
    Failure { packet: usize, message: String },
    #[error("packet {packet}: the verdicts differ")]
    Verdict { packet: usize },
    /// The packets that leave differ in number, port or bytes.
    #[error("packet {packet}: the packets that leave differ")]
    Bytes { packet: usize },
    /// The records for user space differ.
    #[error("packet {packet}: the events differ")]
    Events { packet: usize },
    #[error("packet {packet}: the maps differ")]
    State { packet: usize },
}

/// A program in assembler for packets of at least 64 bytes: `r6` is the context, `r7` the packet, `r8` its end. `out`
/// returns `r0`, which is 1 at first.
pub(crate) fn program(name: &str, maps: &[&str], body: &str) -> Program {
    let maps = maps.iter().map(|map| format!(".map {map}\n")).collect::<String>();
    let text = format!(
        ".program {name}\n.license \"GPL\"\n{maps}r6 = r1\nr7 = *(u32 *)(r6 + 0)\nr8 = *(u32 *)(r6 + 4)\nr0 = 1\nr2 = r7\n\
         r2 += 64\nif r2 > r8 goto out\n{body}\nout: exit\n"
    );
    asm::program(name, &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A program below `functions/ebpf`, in C or in assembler.
pub(crate) fn shipped(clang: &Clang, path: &str) -> Program {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/ebpf").join(path);
    if path.ends_with(".bpf") {
        let text = std::fs::read_to_string(&file).unwrap();
        return asm::program(path, &text).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let object = clang.compile_file(&file, &["-mcpu=v3", "-Wno-sign-compare"]).unwrap();
    let object = flowloom_object::read(&object, path).unwrap();
    object.programs.into_iter().find(|program| program.kind.is_xdp()).unwrap()
}

pub(crate) fn built(program: &Program) -> Dataflow {
    let proof = verify(program, &Options::default()).unwrap_or_else(|error| panic!("{}: {error}", program.name));
    build(program, &proof).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The order of evaluation in which each read is as early as its arguments and its waits allow; other effects keep their
/// order.
pub(crate) fn reads_first(dataflow: &Dataflow) -> Vec<Id> {
    let graph = &dataflow.graph;
    let is_change = |id: Id| dataflow.access(id).is_some_and(|access| !dataflow.is_idle(access));
    let (mut order, mut is_done) = (Vec::new(), BTreeSet::new());
    let changes: Vec<Id> = graph.ids().filter(|id| is_change(*id)).collect();
    // One change after the other, each after all reads that are ready.
    for next in changes.into_iter().map(Some).chain([None]) {
        for id in graph.ids().filter(|id| !is_change(*id)).chain(next) {
            let waits = dataflow.waits.get(&id).into_iter().flatten();
            let is_ready = graph.node(id).args.iter().chain(waits).all(|arg| is_done.contains(arg));
            if is_ready && is_done.insert(id) {
                order.push(id);
            }
        }
    }
    assert_eq!(order.len(), graph.nodes().len(), "{}: a wait is for a later effect", dataflow.name);
    order
}

/// Packets of a few flows, some of random bytes.
fn packets(rng: &mut Rng) -> Vec<Vec<u8>> {
    let packet = |rng: &mut Rng| match rng.below(4) {
        0 => (0..64 + rng.below(140)).map(|_| rng.next_u64() as u8).collect(),
        1 => PacketBuilder::random(rng, 3).pad_to(64).build(),
        _ => {
            let host = |rng: &mut Rng| [10, 0, 0, rng.below(3) as u8];
            let (from, to) = (host(rng), host(rng));
            let ports = (7 + rng.below(2) as u16, 7 + rng.below(2) as u16);
            PacketBuilder::new().ipv4(from, to).udp(ports.0, ports.1).payload(&[rng.below(4) as u8; 40]).build()
        }
    };
    (0..PACKETS).map(|_| packet(rng)).collect()
}

/// The first difference between two forms of a program. The second one is evaluated in the given order.
pub(crate) fn first_difference(
    program: &Program,
    one: &Dataflow,
    (other, order): (&Dataflow, Vec<Id>),
    seed: u64,
) -> Option<Difference> {
    let program = Arc::new(program.clone());
    let mut one = Evaluator::new(Arc::clone(&program), one.clone()).unwrap();
    let mut other = Evaluator::in_order(program, other.clone(), order).unwrap();
    let ports = Ports::bound((0..4).map(Port));
    one.bind_ports(&ports);
    other.bind_ports(&ports);
    let mut rng = Rng::new(seed);
    for (packet, bytes) in packets(&mut rng).into_iter().enumerate() {
        let port = Port(rng.below(4) as u32);
        let choices = Choices::seeded(GAP_NS * packet as u64, seed, packet as u64);
        let arriving = Packet { bytes: &bytes, port };
        let found = match (one.process(&arriving, &choices), other.process(&arriving, &choices)) {
            (Ok(a), Ok(b)) if a.verdict != b.verdict => Difference::Verdict { packet },
            (Ok(a), Ok(b)) if a.outputs != b.outputs => Difference::Bytes { packet },
            (Ok(a), Ok(b)) if a.events != b.events => Difference::Events { packet },
            (Ok(_), Ok(_)) if one.snapshot().unwrap() != other.snapshot().unwrap() => Difference::State { packet },
            (Ok(_), Ok(_)) => continue,
            (Err(error), _) | (_, Err(error)) => Difference::Failure { packet, message: error.to_string() },
        };
        return Some(found);
    }
    None
}

pub(crate) fn nodes(dataflow: &Dataflow, is_it: impl Fn(Kind) -> bool) -> Vec<Id> {
    dataflow.graph.ids().filter(|id| is_it(dataflow.graph.node(*id).kind)).collect()
}
