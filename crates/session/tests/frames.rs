// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random ways to rewrite packets: the start and the end move, bytes are written at constant offsets and at offsets
//! known only at run time. The pipeline against the evaluator of dataflow.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Output, Packet, Port, Verdict};
use flowloom_ir::{Binary, Dataflow, Ending, Evaluator, Graph, Id, Input, Kind, Laid, Overlay};
use flowloom_isa::{Program, asm};
use flowloom_plan::{Options, plan_dataflow};
use flowloom_rtl::{Core, Pipeline};
use flowloom_session::engines::{Arrival, OutputStalls, Simulated};
use flowloom_testkit::Rng;

use crate::stream::start;
use crate::traffic::Traffic;

/// Packets are at least so long that every start is before every end.
const MIN_BYTES: usize = 60;

/// A program that the planner takes for its name; the dataflow is not made from it.
fn program(name: &str) -> Program {
    let insns = asm::assemble("r0 = 2\nexit", &[]).unwrap();
    Program { name: name.to_owned(), section: "xdp".to_owned(), insns, license: "GPL".to_owned(), ..Program::default() }
}

/// A number of 32 bits that bytes of the packet choose from a list.
fn one_of(rng: &mut Rng, graph: &mut Graph, values: &[i32]) -> Id {
    let byte = graph.byte(rng.below(40) as i64);
    let mut parts = Vec::new();
    for (bit, value) in (0..8).zip(&values[1..]) {
        parts.extend([graph.slice(byte, bit, 1), graph.number(*value as u32 as u64, 32)]);
    }
    parts.push(graph.number(values[0] as u32 as u64, 32));
    graph.select(parts)
}

/// A byte that is made of two of the packet's.
fn byte(rng: &mut Rng, graph: &mut Graph) -> Id {
    let (a, b) = (graph.byte(rng.below(64) as i64), graph.byte(rng.below(64) as i64));
    graph.binary(Binary::Xor, a, b)
}

/// A dataflow that rewrites packets. Without `moves` the start stays.
fn dataflow(rng: &mut Rng, name: &str, moves: bool) -> Dataflow {
    let mut graph = Graph::default();
    let length = graph.make(Kind::Input(Input::Length), Vec::new(), 16);
    let length = graph.fit(length, 32);
    let head = match moves {
        true => one_of(rng, &mut graph, &[0, -4, 14, -20, 4, -64, 18, -100, -1]),
        false => graph.number(0, 32),
    };
    let grown = one_of(rng, &mut graph, &[0, 0, 7, -5, 30, 64, -1]);
    let tail = graph.binary(Binary::Add, length, grown);
    let verdict = one_of(rng, &mut graph, &[2, 3, 3, 1, 2, 0, 2, 9, 4]);
    let mut packet = BTreeMap::new();
    for _ in 0..6 {
        let first = rng.below(300) as i64 - 110;
        for at in 0..1 + rng.below(8) as i64 {
            packet.insert(first + at, byte(rng, &mut graph));
        }
    }
    let overlays = (0..2 + rng.below(2)).map(|_| {
        let from = graph.byte(rng.below(40) as i64);
        let from = graph.fit(from, 32);
        let low = graph.number(-70i32 as u32 as u64, 32);
        let base = graph.binary(Binary::Add, from, low);
        let first = rng.below(20) as i64 - 10;
        let bytes = (0..1 + rng.below(40) as i64).filter(|_| rng.chance(3, 4)).map(|at| first + at).collect::<Vec<_>>();
        let laid = bytes.into_iter().map(|at| {
            let bits = byte(rng, &mut graph);
            let when = graph.slice(bits, rng.below(8) as u16, 1);
            (at, Laid { when, byte: byte(rng, &mut graph) })
        });
        Overlay { base, bytes: laid.collect() }
    });
    let overlays: Vec<Overlay> = overlays.collect::<Vec<_>>().into_iter().filter(|one| !one.bytes.is_empty()).collect();
    let ending = Ending { verdict, head, tail, kept: None, packet, overlays, slow: graph.number(0, 1) };
    Dataflow {
        name: name.to_owned(),
        graph,
        patterns: Vec::new(),
        maps: Vec::new(),
        ending,
        waits: BTreeMap::new(),
        wanted: BTreeMap::new(),
        reaches: Vec::new(),
    }
}

/// A drawn dataflow, its pipeline, and what it gives.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) pipeline: Pipeline,
    evaluator: Evaluator,
}

pub(crate) fn subject(seed: u64, number: usize) -> Subject {
    let name = format!("frames{number}_of_{seed}");
    let mut rng = Rng::new(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let program = program(&name);
    let dataflow = dataflow(&mut rng, &name, !number.is_multiple_of(3));
    let mut options = Options::default();
    // Half of the pipelines have words of 32 bytes, which compile faster.
    if !number.is_multiple_of(2) {
        options.target.word_bytes = 32;
    }
    let plan = plan_dataflow(&program, &dataflow, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(flowloom_plan::check(&plan), [], "{name}");
    let core = Core::of(&plan, &program).unwrap_or_else(|error| panic!("{name}: {error}"));
    let pipeline = Pipeline::around(core, options.target.word_bytes);
    Subject { name, pipeline, evaluator: Evaluator::new(Arc::new(program), dataflow).unwrap() }
}

/// Compares packets; the first difference.
pub(crate) fn compare(
    subject: &mut Subject,
    simulated: &mut Simulated,
    seed: u64,
    count: usize,
) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let mut sent = 0;
    for (traffic, of_256) in [(Traffic::Any, 0), (Traffic::Borders, 0), (Traffic::Datagrams, 128), (Traffic::Noise, 60)]
    {
        let mut packets = traffic.packets(&mut rng, count, simulated.max_bytes());
        packets.iter_mut().for_each(|(bytes, _, _)| bytes.resize(bytes.len().max(MIN_BYTES), 0x5a));
        let arrivals: Vec<Arrival<'_>> = packets
            .iter()
            .map(|(bytes, port, delay)| Arrival { bytes, port: *port, now_ns: 0, delay_cycles: *delay })
            .collect();
        let stalls = OutputStalls { of_256, seed: rng.next_u64() as u32 };
        let departures = simulated.send(&arrivals, stalls).map_err(|e| format!("{}: {e}", subject.name))?;
        for (number, ((bytes, port, _), departure)) in packets.iter().zip(departures).enumerate() {
            let packet = Packet { bytes, port: Port(*port) };
            let outcome = subject.evaluator.process(&packet, &Choices::seeded(0, 0, 0)).map_err(|e| e.to_string())?;
            let found = departure.sent.map(|(port, bytes)| Output { port: Port(port), bytes });
            let verdict = Verdict::from_number(departure.verdict.into());
            if verdict != outcome.verdict || found.as_ref() != outcome.outputs.first() {
                let expected = outcome.outputs.first();
                return Err(format!(
                    "{}, packet {number} of {} bytes: found {verdict}, {found:02x?}, expected {}, {expected:02x?}",
                    subject.name,
                    bytes.len(),
                    outcome.verdict
                ));
            }
            sent += usize::from(found.is_some());
        }
    }
    Ok(sent)
}

#[test]
fn random_rewriting_is_equal_to_dataflow() {
    let seed = Rng::from_env(1).next_u64() >> 32;
    // The start of its packets moves.
    let mut subject = subject(seed, 1);
    let Some(mut simulated) = start("random_rewriting_is_equal_to_dataflow", &subject.pipeline, 1) else { return };
    let sent = compare(&mut subject, &mut simulated, seed, 500).unwrap_or_else(|found| panic!("{found}"));
    println!("{}: {sent} packets sent, equal", subject.name);
    assert!(sent > 0, "{}", subject.name);
}
